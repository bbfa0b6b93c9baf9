//! Directories and logs of the app under test.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Copies a directory with its content.
///
/// # Errors
/// When a file cannot be read or written.
pub fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Parses the rows of the restart table from the lines of a process's log.
pub fn restart_rows<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let rows = lines.into_iter().filter_map(|line| {
        let (_, rest) = line.split_once(" restart=\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    rows.collect()
}
