//! The directory of a cluster's files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::paths;
use crate::scratch::Scratch;

/// The directory of one cluster.
#[derive(Debug)]
pub(crate) enum Home {
    Temporary(Scratch),
    Kept(PathBuf),
}

impl Home {
    /// Returns the caller's directory if there is one, or else a temporary one.
    pub(crate) fn new(given: Option<&Path>) -> Result<Home> {
        match given {
            Some(dir) => Ok(Home::Kept(claim(dir)?)),
            None => Ok(Home::Temporary(Scratch::new()?)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Home::Temporary(scratch) => scratch.path(),
            Home::Kept(dir) => dir,
        }
    }

    /// Removes the files of a failed attempt.
    pub(crate) fn clear(&self) -> Result<()> {
        match self {
            Home::Temporary(scratch) => scratch.clear(),
            Home::Kept(dir) => paths::remove_dir(dir),
        }
    }
}

/// Makes the caller's directory, which must contain no file that a cluster could overwrite.
fn claim(dir: &Path) -> Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    paths::create_dir(&dir)?;
    let mut entries = fs::read_dir(&dir)?;
    if entries.next().is_some() {
        bail!(
            "{} is not empty: give the cluster a directory of its own",
            dir.display()
        );
    }
    Ok(dir)
}
