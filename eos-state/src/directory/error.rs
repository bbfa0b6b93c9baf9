//! Errors of task directories.

use std::io;
use std::path::{Path, PathBuf};

use eos_protocol::AppId;

/// The reason why the directory of a task can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It can't be read or written.
    #[error(
        "{} can't be used: {source}. It holds the state of a task: let this user write it, or \
         choose another state directory with `state_dir(..)` or EOS_STATE_DIR",
        path.display()
    )]
    Unusable {
        /// The path that failed.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A symbolic link is in the place of a directory or file of the app.
    #[error(
        "{} is a symbolic link, and its target may belong to another program. Remove it; to keep state \
         elsewhere, choose another state directory with `state_dir(..)` or EOS_STATE_DIR",
        path.display()
    )]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// Another process or worker has it open.
    #[error(
        "{} is locked: its stores are still open, in another process or by a worker of this one \
         that is closing. Retry when they are closed",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The directory belongs to another app.
    #[error(
        "{} holds state of app {found}, and this is app {now}. Move the directory away, \
         or choose another state directory",
        path.display()
    )]
    OtherApp {
        /// The directory.
        path: PathBuf,
        /// The owner in the directory.
        found: String,
        /// This app.
        now: AppId,
    },
    /// A newer version created it.
    #[error(
        "{} has format {version}, this version reads up to {newest}: run the newest version that \
         ever used it, or delete it; its state is then rebuilt from the changelog",
        path.display()
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        version: u32,
        /// The newest format that this version reads.
        newest: u32,
    },
}

pub(super) fn unusable(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError + '_ {
    move |source| DirectoryError::Unusable {
        path: path.to_owned(),
        source,
    }
}
