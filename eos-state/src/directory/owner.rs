//! The owner file of a directory.
//!
//! ```text
//! eos-state 1
//! app pricing-v1
//! cluster 5L6g3nShT-eMCtK--X86sw
//! task 0_3
//! ```

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use eos_protocol::{AppId, TaskId};

use super::error::{DirectoryError, unusable};
use super::{LOCK, kind};

pub(super) const OWNER: &str = "owner";
const ASIDE: &str = "owner.new";

/// The format of directories that this version creates, and the newest that it reads.
const FORMAT: u32 = 1;

/// The maximum size of an owner file, in bytes. It has only a few lines, so a larger file is not one.
const MOST: u64 = 4096;

/// The owner of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The app.
    pub app: AppId,
    /// The cluster's id; empty if the cluster reports none.
    pub cluster: String,
    /// The task.
    pub task: TaskId,
}

/// The foreign content of a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Foreign {
    /// State of another task of this app: the directory was copied or renamed.
    #[error("it holds state of task {found}, not {now}: was it copied or renamed?")]
    Task {
        /// The other task.
        found: String,
        /// This task.
        now: TaskId,
    },
    /// State from another cluster.
    #[error("it holds state from cluster {found}, but this is cluster {now}")]
    Cluster {
        /// The other cluster.
        found: String,
        /// This cluster.
        now: String,
    },
    /// Files without an owner file.
    #[error("it has files, but no owner file. Was only a part of it copied?")]
    NoOwner,
    /// The owner file can't be read.
    #[error("its owner file can't be read: {found:?}")]
    Damaged {
        /// The content of the file.
        found: String,
    },
}

/// The content of a directory.
pub(super) enum Verdict {
    /// No content yet.
    New,
    /// This task's state.
    Own,
    /// Foreign content.
    Foreign(Foreign),
}

/// The owner in the format of the file.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "eos-state {FORMAT}")?;
        writeln!(f, "app {}", self.app)?;
        writeln!(f, "cluster {}", self.cluster)?;
        writeln!(f, "task {}", self.task)
    }
}

/// Compares a directory's owner with the expected one.
pub(super) fn compare(directory: &Path, owner: &Owner) -> Result<Verdict, DirectoryError> {
    let path = directory.join(OWNER);
    if kind(&path)?.is_none() {
        let foreign = || Verdict::Foreign(Foreign::NoOwner);
        return Ok(if is_empty(directory)? {
            Verdict::New
        } else {
            foreign()
        });
    }
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(unusable(&path))?;
    io::Read::read_to_end(&mut io::Read::take(file, MOST), &mut bytes).map_err(unusable(&path))?;
    let text = String::from_utf8_lossy(&bytes);
    if text == owner.to_string() {
        return Ok(Verdict::Own);
    }
    let foreign = judge(directory, &text, owner)?;
    Ok(foreign.map_or(Verdict::Own, Verdict::Foreign))
}

/// Returns the difference between a directory's owner and `now`, if any.
fn judge(directory: &Path, text: &str, now: &Owner) -> Result<Option<Foreign>, DirectoryError> {
    let mut lines = text.lines();
    let mut field = |name: &str| {
        let line = lines.next()?.strip_prefix(name)?;
        line.strip_prefix(' ').map(str::to_owned)
    };
    let damaged = || Foreign::Damaged {
        found: text.chars().take(200).collect(),
    };
    match field("eos-state").and_then(|version| version.parse().ok()) {
        Some(FORMAT) => {}
        Some(version) if version > FORMAT => {
            return Err(DirectoryError::Newer {
                path: directory.to_owned(),
                version,
                newest: FORMAT,
            });
        }
        _ => return Ok(Some(damaged())),
    }
    let (app, cluster, task) = (field("app"), field("cluster"), field("task"));
    let (Some(app), Some(cluster), Some(task)) = (app, cluster, task) else {
        return Ok(Some(damaged()));
    };
    // An unreported cluster id, then or now, is no evidence of another cluster.
    let is_other_cluster = cluster != now.cluster && !cluster.is_empty() && !now.cluster.is_empty();
    let has_more = lines.next().is_some();
    Ok(if app != now.app.as_str() {
        return Err(DirectoryError::OtherApp {
            path: directory.to_owned(),
            found: app,
            now: now.app.clone(),
        });
    } else if is_other_cluster {
        Some(Foreign::Cluster {
            found: cluster,
            now: now.cluster.clone(),
        })
    } else if task != now.task.to_string() {
        Some(Foreign::Task {
            found: task,
            now: now.task,
        })
    } else if has_more || !text.ends_with('\n') {
        Some(damaged())
    } else {
        None
    })
}

/// Returns whether the directory holds only files that a crash may leave during its creation.
fn is_empty(directory: &Path) -> Result<bool, DirectoryError> {
    for entry in fs::read_dir(directory).map_err(unusable(directory))? {
        let name = entry.map_err(unusable(directory))?.file_name();
        if name != LOCK && name != ASIDE {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes to a temporary file and renames it: after a crash, either the old file or the new one exists.
pub(super) fn write(directory: &Path, owner: &Owner) -> Result<(), DirectoryError> {
    let (path, aside) = (directory.join(OWNER), directory.join(ASIDE));
    // The existing file may be a link, which must not be written through.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(unusable(&aside)(error));
        }
        _ => {}
    }
    let mut file = File::create_new(&aside).map_err(unusable(&aside))?;
    let text = owner.to_string();
    file.write_all(text.as_bytes()).map_err(unusable(&aside))?;
    file.sync_all().map_err(unusable(&aside))?;
    fs::rename(&aside, &path).map_err(unusable(&path))?;
    #[cfg(unix)]
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(unusable(directory))?;
    Ok(())
}
