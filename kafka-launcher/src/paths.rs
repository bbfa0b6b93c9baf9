//! The paths of the user's cache and of the checkout.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// Returns the directory for downloads and the state of `eos kafka up`.
///
/// It is `EOS_CACHE_DIR`, else `eos` under `XDG_CACHE_HOME`, else `~/.cache/eos`. This function does not create it.
///
/// # Errors
/// If none of these variables nor `HOME` is set to an absolute path.
pub fn cache_dir() -> Result<PathBuf> {
    cache_dir_from(|name| std::env::var_os(name))
}

fn cache_dir_from(var: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let absolute = |name| {
        var(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(given) = var("EOS_CACHE_DIR").filter(|value| !value.is_empty()) {
        let given = PathBuf::from(given);
        if given.is_relative() {
            bail!(
                "EOS_CACHE_DIR is `{}`: make it an absolute path",
                given.display()
            );
        }
        return Ok(given);
    }
    absolute("XDG_CACHE_HOME")
        .map(|cache| cache.join("eos"))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache").join("eos")))
        .context("no cache directory: set EOS_CACHE_DIR (or HOME) to an absolute path")
}

/// Returns the root of the checkout around this program, or `None` outside of a checkout.
///
/// The search starts at `CARGO_MANIFEST_DIR`, which cargo sets, and then at the current directory.
pub fn checkout() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let named = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let current = std::env::current_dir().ok();
        let candidates = [named, current].into_iter().flatten();
        let mut found = candidates.filter_map(|from| enclosing_checkout(&from));
        found.next()
    });
    root.as_deref()
}

/// Returns the root of the checkout, for its tests and tools.
///
/// Outside of a checkout, it is the checkout from which this crate was *built*. This fallback can be wrong: if several
/// checkouts share a target directory, it may be another checkout, or a deleted one.
pub fn workspace_root() -> &'static Path {
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    checkout().unwrap_or(built.parent().unwrap_or(built))
}

fn enclosing_checkout(from: &Path) -> Option<PathBuf> {
    let marks = ["eos-core/Cargo.toml", "eos-protocol/Cargo.toml"];
    let is_root = |path: &&Path| marks.iter().all(|mark| path.join(mark).is_file());
    from.ancestors().find(is_root).map(Path::to_owned)
}

/// Waits for the lock file and holds it until the returned file is dropped. Its directory is created.
///
/// # Errors
/// If the file cannot be created or locked.
pub fn lock(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("open lock file {}", path.display()))?;
    file.lock()
        .with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// Creates a directory and its parents. The error names the path.
///
/// # Errors
/// If the directory cannot be created.
pub fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("create directory {}", path.display()))
}

/// Writes a small file. The error names the path.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Removes a directory and its contents, if it exists.
///
/// # Errors
/// If the directory exists and cannot be removed.
pub fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove directory {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &[(&str, &str)]) -> Option<PathBuf> {
        let find = |name: &str| {
            let found = vars.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        cache_dir_from(find).ok()
    }

    #[test]
    fn the_most_specific_variable_wins() {
        let all = [
            ("EOS_CACHE_DIR", "/a"),
            ("XDG_CACHE_HOME", "/b"),
            ("HOME", "/c"),
        ];
        assert_eq!(with(&all), Some("/a".into()));
        assert_eq!(with(&all[1..]), Some("/b/eos".into()));
        assert_eq!(with(&all[2..]), Some("/c/.cache/eos".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_checkout_is_found_from_anywhere_inside_and_nowhere_else() {
        let root = workspace_root();
        assert!(root.join("kafka-launcher/src/paths.rs").is_file());
        assert_eq!(
            enclosing_checkout(&root.join("kafka-launcher/src")),
            Some(root.into())
        );
        assert_eq!(enclosing_checkout(Path::new("/")), None);
    }

    #[test]
    fn a_relative_cache_is_refused_or_passed_over() {
        assert_eq!(with(&[("EOS_CACHE_DIR", "x"), ("HOME", "/c")]), None);
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "x"), ("HOME", "/c")]),
            Some("/c/.cache/eos".into())
        );
    }
}
