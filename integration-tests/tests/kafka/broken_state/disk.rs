//! A disk that is full for a while. The test mounts a small file system for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use eos_core::Error;
use eos_core::errors::WorkerError;
use kafka_launcher::print_skipped;

use super::Told;
use crate::common::says;
use crate::restart_table::scene::Scene;

/// The variable that skips the test where the user may not mount a file system.
const SKIP_VAR: &str = "EOS_SKIP_FULL_DISK";
/// The size of the file system, in bytes.
const SIZE: u64 = 24 << 20;
/// The free bytes while the app works.
const FREE: u64 = 2 << 20;

pub(crate) fn full(scene: &mut Scene) -> Result<Told> {
    let disk = match Disk::mount(scene.case.state.path()) {
        Ok(disk) => disk,
        Err(reason) => {
            let told = skipped(&reason, std::env::var_os(SKIP_VAR).is_some())?;
            print_skipped(&format!("a full disk, as {SKIP_VAR} says: {reason:#}"));
            return Ok(told);
        }
    };
    scene.run(&["a", "b"])?;
    let ballast = disk.path.join("ballast");
    let room = SIZE - used(&disk.path)? - FREE;
    fs::write(&ballast, vec![0; usize::try_from(room)?])?;
    // More than the free bytes.
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
            "no later transaction was committed",
            "Free some",
        ],
    )?;
    let stopped_at = scene.case.committed()?;
    // While the disk is full, a start fails with this error and commits nothing.
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

/// A skipped case does not count as passed, unless the skip was announced.
fn skipped(reason: &anyhow::Error, told: bool) -> Result<Told> {
    ensure!(
        told,
        "a full disk takes a small file system of its own, which can't be mounted here: {reason:#}. Run \
         this as root, or say with {SKIP_VAR}=1 that it is to be left out"
    );
    Ok((format!("SKIPPED, as {SKIP_VAR} says"), 0))
}

#[test]
fn a_disk_that_cannot_be_mounted_is_no_success() {
    let reason = || anyhow::anyhow!("must be superuser");
    let error = skipped(&reason(), false).unwrap_err().to_string();
    assert!(error.contains("must be superuser"), "{error}");
    assert!(error.contains(SKIP_VAR), "{error}");
    let (verdict, times) = skipped(&reason(), true).unwrap();
    assert!(verdict.contains("SKIPPED") && times == 0);
    assert!(Disk::mount(Path::new("/nowhere/at/all")).is_err());
}

/// Returns the size of all files, in bytes.
fn used(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => used(&entry.path())?,
            // Files take whole pages.
            false => entry.metadata()?.len().next_multiple_of(4_096),
        };
    }
    Ok(sum)
}

/// A mounted file system. It is unmounted when this is dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts a file system. Fails if this user may not.
    fn mount(path: &Path) -> Result<Disk> {
        let size = format!("size={SIZE}");
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(path);
        let output = command.output().context("run mount")?;
        let path = path.to_owned();
        ensure!(
            output.status.success(),
            "mount: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(Disk { path })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because processes may still have open files.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
