//! The list of words that the prose of the project avoids.
//!
//! CONTRIBUTING.md, "Plain English", has the rules. This check keeps the words of its second rule out of code and
//! documentation. Text in backticks does not count, and neither do design notes and the changelog.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Pronouns for components, and outdated words.
const WORDS: [&str; 9] = [
    "nobody",
    "somebody",
    "anybody",
    "whoever",
    "whosoever",
    "anew",
    "lest",
    "one who",
    "whatever dies",
];

/// Directories and files in which the words are allowed.
const SKIPPED: [&str; 4] = [
    "target",
    "docs/design",
    "CHANGELOG.md",
    "tools/xtask/src/words.rs",
];

/// Checks all Rust and Markdown files below a directory.
///
/// # Errors
/// If a line has one of the words. The error names each line.
pub(crate) fn check(workspace: &Path) -> Result<()> {
    let mut found = Vec::new();
    for file in files(workspace, workspace)? {
        let path = file.strip_prefix(workspace).unwrap_or(&file);
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = word_in(line) {
                found.push(format!("{}:{}: {word:?}", path.display(), number + 1));
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!(
        "{} lines have words that CONTRIBUTING.md, \"Plain English\", rules out. Name the component instead:\n{}",
        found.len(),
        found.join("\n")
    );
}

fn files(root: &Path, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(directory);
    for entry in entries.with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let relative = path.strip_prefix(root).unwrap_or(&path);
        if name.starts_with('.') || SKIPPED.iter().any(|skipped| relative == Path::new(skipped)) {
            continue;
        }
        let is_text = path.extension().is_some_and(|it| it == "rs" || it == "md");
        if path.is_dir() {
            found.extend(files(root, &path)?);
        } else if is_text {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the first of the words in a line.
fn word_in(line: &str) -> Option<&'static str> {
    // Text in backticks is a quotation.
    let prose = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let prose = prose.to_lowercase();
    WORDS.into_iter().find(|word| {
        prose.match_indices(word).any(|(at, _)| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let before = prose.get(..at).and_then(|it| it.chars().next_back());
            let after = prose
                .get(at + word.len()..)
                .and_then(|it| it.chars().next());
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_count_in_any_case_and_outside_of_backticks() {
        assert_eq!(word_in("/// Nobody reads it."), Some("nobody"));
        assert_eq!(word_in("joins anew"), Some("anew"));
        assert_eq!(word_in("the one who leaves"), Some("one who"));
        for fine in [
            "fn nobody_else()",
            "`nobody` is a word",
            "renewed",
            "molest",
        ] {
            assert_eq!(word_in(fine), None, "{fine}");
        }
    }

    #[test]
    fn each_line_is_named_and_skipped_directories_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("docs/guide.md", "fine\nwhoever comes\n");
        write("docs/design/0001.md", "whoever comes\n");
        write("target/a.rs", "// whoever\n");
        let error = check(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("1 lines have words"), "{error}");
        assert!(error.ends_with("docs/guide.md:2: \"whoever\""), "{error}");
        write("docs/guide.md", "fine\n");
        check(dir.path()).unwrap();
    }
}
