//! Temporary directories of clusters, removed even after a kill.
//!
//! An owner holds a lock on a file beside its directory. The lock ends with its process, even if the process is killed.
//! So the next start of a cluster can distinguish leftovers from directories in use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::ids;
use crate::layout::PID_FILE;
use crate::paths;
use crate::process::ProcessId;

/// A directory that is removed when dropped, or by the next cluster after its owner was killed.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    lock_file: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes a new directory in the user's cache, and removes leftovers of killed owners.
    pub(crate) fn new() -> Result<Scratch> {
        Scratch::below(&paths::cache_dir()?.join("run"))
    }

    fn below(base: &Path) -> Result<Scratch> {
        // A sweep between the creation and the lock of its file would treat the owner as dead.
        let _no_sweep_meanwhile = paths::lock(&base.join("sweep"))?;
        sweep(base);
        let name = format!("cluster-{:016x}", ids::random());
        let (dir, lock_file) = (base.join(&name), base.join(format!("{name}.lock")));
        let lock = paths::lock(&lock_file)?;
        paths::create_dir(&dir)?;
        Ok(Scratch {
            dir,
            lock_file,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Clears the directory, for another attempt in it.
    pub(crate) fn clear(&self) -> Result<()> {
        paths::remove_dir(&self.dir)?;
        paths::create_dir(&self.dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next sweep retries a failed removal.
        if paths::remove_dir(&self.dir).is_ok() {
            let _ = fs::remove_file(&self.lock_file);
        }
    }
}

/// Removes every directory whose owner has ended. The next sweep retries failed removals.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    let paths = entries.flatten().map(|entry| entry.path());
    for lock_file in paths.filter(|path| path.extension() == Some("lock".as_ref())) {
        let _ = remove_if_orphaned(&lock_file);
    }
}

fn remove_if_orphaned(lock_file: &Path) -> Result<()> {
    let lock = File::open(lock_file)?;
    lock.try_lock().context("its owner lives")?;
    let dir = lock_file.with_extension("");
    kill_orphans(&dir)?;
    paths::remove_dir(&dir)?;
    Ok(fs::remove_file(lock_file)?)
}

/// Kills the processes in the pid files below `dir`. On Linux the kernel has killed them when the owner ended.
///
/// # Errors
/// If a process survives.
pub fn kill_orphans(dir: &Path) -> Result<()> {
    let Ok(nodes) = fs::read_dir(dir) else {
        return Ok(());
    };
    for node in nodes.flatten() {
        let line = fs::read_to_string(node.path().join(PID_FILE)).unwrap_or_default();
        if let Some(process) = ProcessId::parse(&line) {
            process.kill()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(base: &Path) -> Vec<String> {
        let entries = fs::read_dir(base).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "sweep")
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_dropped_directory_is_gone_with_its_contents() {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::below(base.path()).unwrap();
        fs::write(scratch.path().join("file"), "x").unwrap();
        drop(scratch);
        assert_eq!(names(base.path()), Vec::<String>::new());
    }

    #[test]
    fn leftovers_are_swept_and_directories_in_use_are_not() {
        let base = tempfile::tempdir().unwrap();
        let mut orphan = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let node = base.path().join("cluster-dead/node-1");
        fs::create_dir_all(&node).unwrap();
        let process = ProcessId::of(orphan.id()).unwrap();
        fs::write(node.join(PID_FILE), process.to_line()).unwrap();
        fs::write(base.path().join("cluster-dead.lock"), "").unwrap();
        let first = Scratch::below(base.path()).unwrap();
        let second = Scratch::below(base.path()).unwrap();
        assert!(first.path().is_dir() && second.path().is_dir());
        assert_eq!(names(base.path()).len(), 4);
        assert!(!base.path().join("cluster-dead").exists());
        assert!(!process.is_alive());
        orphan.wait().unwrap();
    }
}
