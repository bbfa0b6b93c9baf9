//! Directories of tasks that moved away.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use eos_protocol::TaskId;

use super::error::{DirectoryError, unusable};
use super::{DB, clear, kind, lock, task, tasks};

/// The directory of a task that is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOver {
    /// The task.
    pub task: TaskId,
    /// Its directory.
    pub path: PathBuf,
    /// The time since the last write in it, by this host's clock. A task that returns soon reads little or nothing,
    /// so this should be long. A jump of the clock makes it long at once, so also measure the time since the
    /// directory was first listed.
    pub age: Duration,
}

/// Lists the unused task directories in a slot. Ignores other files and directories.
///
/// # Errors
/// If the slot can't be read.
pub fn left_over(slot: &Path, now: SystemTime) -> Result<Vec<LeftOver>, DirectoryError> {
    let tasks = tasks(slot);
    if kind(&tasks)?.is_none() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&tasks).map_err(unusable(&tasks))? {
        let entry = entry.map_err(unusable(&tasks))?;
        let path = entry.path();
        let is_dir = entry.file_type().map_err(unusable(&path))?.is_dir();
        let task = entry.file_name().to_str().and_then(task);
        let Some(task) = task.filter(|_| is_dir) else {
            continue;
        };
        let locked = match lock(&path) {
            Ok(lock) => lock.is_none(),
            Err(DirectoryError::Locked { .. }) => true,
            Err(error) => return Err(error),
        };
        if !locked {
            let age = now.duration_since(last_written(&path)).unwrap_or_default();
            found.push(LeftOver { task, path, age });
        }
    }
    found.sort_unstable_by_key(|left| left.task);
    Ok(found)
}

/// Removes a directory that is not open. Returns whether it existed.
///
/// # Errors
/// If it is open now, or a file can't be removed.
pub fn remove(left: &LeftOver) -> Result<bool, DirectoryError> {
    if kind(&left.path)?.is_none() {
        return Ok(false);
    }
    let Some(_lock) = lock(&left.path)? else {
        return Ok(false);
    };
    // The lock is held and removed last: a process that opens the directory meanwhile finds it locked or deleted.
    clear(&left.path, &[super::LOCK])?;
    fs::remove_dir_all(&left.path).map_err(unusable(&left.path))?;
    Ok(true)
}

/// Returns the modification time of the newest file, because a killed process leaves no other trace.
fn last_written(path: &Path) -> SystemTime {
    let times = [path.to_owned(), path.join(DB)]
        .into_iter()
        .flat_map(|directory| {
            let files = fs::read_dir(directory).into_iter().flatten().flatten();
            files.filter_map(|file| file.metadata().ok()?.modified().ok())
        });
    // An unreadable file looks new, so the directory is not removed.
    times.max().unwrap_or_else(SystemTime::now)
}
