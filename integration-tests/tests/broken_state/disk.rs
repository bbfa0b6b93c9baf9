//! A disk that is full, then not any more: a small one of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};
use eos_core::{Error, WorkerError};

use crate::Told;
use crate::common::says;
use crate::scene::Scene;

/// How large it is.
const SIZE: u64 = 24 << 20;
/// How much of it is free when the app works.
const FREE: u64 = 2 << 20;

pub(crate) fn full(scene: &mut Scene) -> Result<Told> {
    let Some(disk) = Disk::mount(scene.case.state.path())? else {
        eprintln!("SKIPPED: the disk is full: a tmpfs can't be mounted here (that takes root)");
        return Ok(("SKIPPED: a tmpfs can't be mounted here".into(), 0));
    };
    scene.run(&["a", "b"])?;
    let ballast = disk.path.join("ballast");
    let room = SIZE - used(&disk.path)? - FREE;
    fs::write(&ballast, vec![0; usize::try_from(room)?])?;
    // More than there is room for.
    let keys: Vec<String> = (0..4_000)
        .map(|n| format!("{n:05}{}", "k".repeat(1_000)))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    scene.send(&keys)?;
    let app = scene.counting("counts");
    let error = scene.case.failure_of(app)?;
    ensure!(
        matches!(
            &error,
            Error::Worker(WorkerError::Store { .. } | WorkerError::Home { .. })
        ),
        "{error}"
    );
    says(
        &error,
        &[
            "the disk is full",
            "nothing was committed on top",
            "free some",
        ],
    )?;
    let stopped_at = scene.case.committed()?;
    // It stays full: a start says so, and commits nothing.
    scene.send(&["a", "b", "c"])?;
    let app = scene.counting("counts");
    let error = scene.case.failure_of(app)?;
    says(&error, &["the disk is full"])?;
    let still_at = scene.case.committed()?;
    ensure!(
        still_at == stopped_at,
        "{still_at:?} after {stopped_at:?}: committed on top of what the database has not"
    );
    scene.log();

    fs::remove_file(&ballast)?;
    let began = scene.run(&["a", keys[0], keys[3_999]])?;
    scene.judge()?;
    let rows = began.rows.join(", ");
    Ok((
        format!("stopped, nothing on top; with room again exact ({rows})"),
        1,
    ))
}

/// Bytes of all files.
fn used(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => used(&entry.path())?,
            // In whole pages.
            false => entry.metadata()?.len().next_multiple_of(4_096),
        };
    }
    Ok(sum)
}

/// A file system of its own, until it is dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Nothing if this user may not.
    fn mount(path: &Path) -> Result<Option<Disk>> {
        let size = format!("size={SIZE}");
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(path);
        match command.output() {
            Ok(output) if output.status.success() => Ok(Some(Disk {
                path: path.to_owned(),
            })),
            Ok(output) => {
                eprintln!("{}", String::from_utf8_lossy(&output.stderr));
                Ok(None)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => bail!(error),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: whoever has a file open keeps it.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
