//! The directories of tasks on disk, and their owners.
//!
//! ```text
//! <slot>/tasks/0_3/lock     held while the task's stores are open
//! <slot>/tasks/0_3/owner    format, app, cluster and task
//! <slot>/tasks/0_3/db/      the engine's files
//! ```
//!
//! The task uses only its own state:
//!
//! | found | result | why |
//! |---|---|---|
//! | nothing, or a lock alone | created | a crash during creation leaves no more |
//! | this app, cluster and task | opened | its position shows whether it is *up to date*, not its path |
//! | another task, or another cluster | [`Opened::Foreign`]: cleared with a warning, and rebuilt from the changelog | it belongs or belonged to the app: test clusters change under one state directory |
//! | no owner, or an unreadable one | [`Opened::Foreign`] | it is a partial copy, and the missing part is unknown |
//! | another app | refused | a user put it under this app's path, so the app must not delete it |
//! | a newer format | refused | after a downgrade the app may be upgraded again |
//! | a symbolic link | refused | its target may belong to another program, and clearing follows |
//! | locked | refused | another process has it, or a worker of this process that is still closing |
//!
//! A directory that was *copied* whole and put back later has the right owner. It is an older state of the same task,
//! which the restart table handles ([`eos_protocol::state::decide`]).
//!
//! Directories are created with mode 0700, and existing ones are set to it, because state is user data.

mod error;
mod global;
mod left_over;
mod owner;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use eos_protocol::TaskId;

pub use error::DirectoryError;
pub use global::GlobalDirectory;
pub use left_over::{LeftOver, left_over, remove};
pub use owner::{Foreign, Owner};

use error::unusable;
use owner::Verdict;

const LOCK: &str = "lock";
const DB: &str = "db";

/// The directory of one task, locked for the lifetime of this value.
#[derive(Debug)]
pub struct TaskDirectory {
    path: PathBuf,
    /// A drop releases the lock. The kernel releases it when the process dies.
    _lock: File,
}

/// A locked directory with other content than this task's state.
#[derive(Debug)]
pub struct ForeignDirectory {
    directory: TaskDirectory,
    owner: Owner,
    /// Its content.
    pub why: Foreign,
}

/// The result of opening a directory.
#[derive(Debug)]
#[must_use]
pub enum Opened {
    /// It belongs to this task, and may be empty.
    Own(TaskDirectory),
    /// It has to be cleared first, with a warning that names the [reason](ForeignDirectory::why).
    Foreign(ForeignDirectory),
}

impl TaskDirectory {
    /// Opens and locks the directory of a task in a slot. Creates it if needed.
    ///
    /// # Errors
    /// [`DirectoryError`] if it belongs to another app, is locked, or can't be written.
    pub fn open(slot: &Path, owner: &Owner) -> Result<Opened, DirectoryError> {
        let tasks = tasks(slot);
        make_private(&tasks)?;
        let path = tasks.join(owner.task.to_string());
        let lock = make_locked(&path)?;
        // The time of the last use, for the search for left-over directories. A failure here does no harm.
        let _ = lock.set_modified(SystemTime::now());
        let directory = Self { path, _lock: lock };
        match owner::compare(&directory.path, owner)? {
            Verdict::Own => Ok(Opened::Own(directory)),
            Verdict::New => {
                owner::write(&directory.path, owner)?;
                Ok(Opened::Own(directory))
            }
            Verdict::Foreign(why) => Ok(Opened::Foreign(ForeignDirectory {
                directory,
                owner: owner.clone(),
                why,
            })),
        }
    }

    /// Returns the directory of the engine's files. The engine creates it.
    #[must_use]
    pub fn engine(&self) -> PathBuf {
        self.path.join(DB)
    }

    /// Returns the path of the task's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the engine's files before a rebuild. The engine must be closed.
    ///
    /// # Errors
    /// If a file can't be removed.
    pub fn clear(&mut self) -> Result<(), DirectoryError> {
        clear(&self.path, &[LOCK, owner::OWNER])
    }
}

impl ForeignDirectory {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory.path
    }

    /// Deletes its content and assigns it to this task. If the process dies in between, the directory stays foreign.
    ///
    /// # Errors
    /// If a file can't be removed, or the owner can't be written.
    pub fn clear(self) -> Result<TaskDirectory, DirectoryError> {
        clear(&self.directory.path, &[LOCK, owner::OWNER])?;
        owner::write(&self.directory.path, &self.owner)?;
        Ok(self.directory)
    }
}

fn tasks(slot: &Path) -> PathBuf {
    slot.join("tasks")
}

/// Removes all entries except the kept ones. Removes links without following them.
fn clear(path: &Path, keep: &[&str]) -> Result<(), DirectoryError> {
    for entry in fs::read_dir(path).map_err(unusable(path))? {
        let entry = entry.map_err(unusable(path))?;
        if keep.iter().any(|kept| entry.file_name() == *kept) {
            continue;
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(unusable(&path))?;
        let removed = if kind.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(unusable(&path))?;
    }
    Ok(())
}

/// Creates a directory with access for this user only.
fn make_private(path: &Path) -> Result<(), DirectoryError> {
    match kind(path)? {
        None => {
            let mut builder = DirBuilder::new();
            builder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(path).map_err(unusable(path))
        }
        Some(found) if found.is_dir() => close_to_others(path, &found),
        Some(_) => {
            let source = io::Error::from(io::ErrorKind::NotADirectory);
            Err(unusable(path)(source))
        }
    }
}

#[cfg(unix)]
fn close_to_others(path: &Path, found: &fs::Metadata) -> Result<(), DirectoryError> {
    use std::os::unix::fs::PermissionsExt;
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(unusable(path))
}

#[cfg(not(unix))]
fn close_to_others(_: &Path, _: &fs::Metadata) -> Result<(), DirectoryError> {
    Ok(())
}

/// Returns the metadata of the path, if it exists. Refuses a symbolic link.
fn kind(path: &Path) -> Result<Option<fs::Metadata>, DirectoryError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(DirectoryError::Symlink {
            path: path.to_owned(),
        }),
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path)(error)),
    }
}

/// Creates a directory and takes its lock. A cleanup may remove it in between. If this happens repeatedly, the file
/// system is broken.
fn make_locked(path: &Path) -> Result<File, DirectoryError> {
    for _ in 0..10 {
        make_private(path)?;
        if let Some(lock) = lock(path)? {
            return Ok(lock);
        }
    }
    let source = io::Error::other("its lock file is replaced again and again");
    Err(unusable(path)(source))
}

/// Takes the lock of a directory; `None` if the directory was removed meanwhile.
fn lock(directory: &Path) -> Result<Option<File>, DirectoryError> {
    let path = directory.join(LOCK);
    kind(&path)?;
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = match options.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&path)(error)),
    };
    match file.try_lock() {
        Ok(()) if is_at(&file, &path)? => Ok(Some(file)),
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::Locked {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(unusable(&path)(source)),
    }
}

/// Returns whether the path still names this file. A cleanup may have removed it between the open and the lock, and a
/// lock on a file without a name has no effect.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> Result<bool, DirectoryError> {
    use std::os::unix::fs::MetadataExt;
    let ours = file.metadata().map_err(unusable(path))?;
    let named = kind(path)?;
    Ok(named.is_some_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> Result<bool, DirectoryError> {
    Ok(kind(path)?.is_some())
}

/// Parses the name of a task's directory.
fn task(name: &str) -> Option<TaskId> {
    let (stage, partition) = name.split_once('_')?;
    let task = TaskId {
        stage: eos_protocol::StageId(stage.parse().ok()?),
        partition: eos_protocol::Partition::new(partition.parse().ok()?).ok()?,
    };
    // Not `+1_2`, nor `01_2`.
    (task.to_string() == name).then_some(task)
}

#[cfg(test)]
#[path = "directory_test.rs"]
mod tests;
