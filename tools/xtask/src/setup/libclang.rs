//! A search for libclang in the main places where bindgen searches.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kafka_launcher::run;

/// Directories that may contain libclang, directly or in a directory per LLVM release.
const PLACES: &[&str] = &[
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib/*-linux-gnu*",
    "/usr/lib/llvm*/lib",
    "/usr/lib64/llvm*/lib",
    "/usr/local/llvm*/lib",
    "/opt/homebrew/opt/llvm*/lib",
    "/usr/local/opt/llvm*/lib",
    "/Library/Developer/CommandLineTools/usr/lib",
    "/Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib",
];

/// Returns whether there is a library that bindgen would load.
pub(crate) fn is_found() -> bool {
    let given = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    if given.is_some_and(|path| is_library(&path) || holds_library(&path)) {
        return true;
    }
    let places = PLACES.iter().flat_map(|place| expand(place));
    places.chain(llvm_config()).any(|dir| holds_library(&dir))
}

fn llvm_config() -> Option<PathBuf> {
    let mut ask = Command::new("llvm-config");
    let said = run::succeed(ask.arg("--libdir"), Duration::from_secs(10)).ok()?;
    Some(PathBuf::from(said.trim()))
}

fn holds_library(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| is_library(&entry.path()))
}

/// Returns whether the file is `libclang.so`, `libclang-14.so.14` or `libclang.dylib`. `libclang-cpp.so` is another
/// library.
fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(rest) = name.strip_prefix("libclang") else {
        return false;
    };
    let version = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    match rest.split_once(".so") {
        Some((before, after)) => {
            let numbered = before.strip_prefix('-').is_some_and(version);
            (before.is_empty() || numbered) && version(after)
        }
        None => rest == ".dylib",
    }
}

/// Returns the directories that match a pattern with at most one `*` in one component.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![PathBuf::from(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let (suffix, below) = after.split_once('/').unwrap_or((after, ""));
    let middle = suffix.trim_end_matches('*');
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let matching = names.filter(|name| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| middle.is_empty() || rest.contains(middle))
    });
    matching
        .map(|name| Path::new(parent).join(name).join(below))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_their_neighbours() {
        let yes = [
            "libclang.so",
            "libclang.so.1",
            "libclang-14.so",
            "libclang-14.so.14.0.6",
            "libclang.dylib",
        ];
        let no = [
            "libclang-cpp.so.14",
            "libclang-cpp14.so",
            "libclang.a",
            "libclangAST.a",
            "libc.so",
        ];
        assert!(yes.iter().all(|name| is_library(Path::new(name))));
        assert!(!no.iter().any(|name| is_library(Path::new(name))));
    }

    #[test]
    fn patterns_are_expanded_to_what_is_there() {
        let base = tempfile::tempdir().unwrap();
        for dir in [
            "llvm-14/lib",
            "llvm-16/lib",
            "other/lib",
            "x86_64-linux-gnu",
        ] {
            std::fs::create_dir_all(base.path().join(dir)).unwrap();
        }
        let found = |pattern: &str| {
            let mut found = expand(&format!("{}/{pattern}", base.path().display()));
            found.sort();
            found
        };
        let path = |below: &str| base.path().join(below);
        assert_eq!(
            found("llvm*/lib"),
            [path("llvm-14/lib"), path("llvm-16/lib")]
        );
        assert_eq!(found("*-linux-gnu*"), [path("x86_64-linux-gnu")]);
        assert_eq!(found("other"), [path("other")]);
    }
}
