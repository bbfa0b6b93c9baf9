//! Directories of tasks that are elsewhere now.

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
    /// How long nothing in it was written, by this host's clock. A task that comes back soon reads
    /// little or nothing, so this should be long; and a clock that jumps makes it long at once, so
    /// count the time since it was first listed as well.
    pub age: Duration,
}

/// Lists the directories of tasks in a slot that are not in use. What is not a task's directory is
/// left alone.
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
/// If it was opened meanwhile, or a file can't be removed.
pub fn remove(left: &LeftOver) -> Result<bool, DirectoryError> {
    if kind(&left.path)?.is_none() {
        return Ok(false);
    }
    let Some(_lock) = lock(&left.path)? else {
        return Ok(false);
    };
    // The lock is held and removed last: a process that opens it meanwhile finds it locked, or gone.
    clear(&left.path, &[super::LOCK])?;
    fs::remove_dir_all(&left.path).map_err(unusable(&left.path))?;
    Ok(true)
}

/// Modification time of its newest file: a killed process leaves no other trace.
fn last_written(path: &Path) -> SystemTime {
    let times = [path.to_owned(), path.join(DB)]
        .into_iter()
        .flat_map(|directory| {
            let files = fs::read_dir(directory).into_iter().flatten().flatten();
            files.filter_map(|file| file.metadata().ok()?.modified().ok())
        });
    // What can't be read looks new: it is not removed for that.
    times.max().unwrap_or_else(SystemTime::now)
}
