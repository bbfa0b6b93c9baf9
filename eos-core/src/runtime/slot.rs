//! The lasting identity of a process: a slot on this host.
//!
//! ```text
//! <state.dir>/<app>/0/lock        held while a process uses the slot
//! <state.dir>/<app>/0/instance    a random id, made on first use
//! <state.dir>/<app>/0/member      there from the first use until the slot's user leaves the group
//! ```
//!
//! A restart finds its previous slot, and so its transactional ids and memberships. It ends their open transactions,
//! and their partitions do not wait for a session timeout. The first free slot whose last user did not leave has
//! priority, then the first free slot. Two live processes never share a slot.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use eos_protocol::{AppId, InstanceId};

use super::clock::Entropy;

/// The maximum number of processes of one app on one host.
const SLOTS: u32 = 1024;

/// The file that marks a slot whose last user may still be a group member.
const MEMBER: &str = "member";

/// The error of a slot that can't be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// The state directory can't be written.
    #[error(
        "the state directory {} can't be used: {source}. It keeps the identity of this process: \
         choose one that this user can write with `state_dir(..)` or EOS_STATE_DIR",
        path.display()
    )]
    Unusable {
        /// The path that failed.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Every slot is locked.
    #[error(
        "all {SLOTS} slots in {} are locked by other processes; stop one, or use another state \
         directory",
        path.display()
    )]
    Full {
        /// The app's directory.
        path: PathBuf,
    },
    /// The requested slot is locked.
    #[error(
        "slot {slot} in {} is locked by another live process. Each process needs a slot of its \
         own: leave the slot unset and the first free one is taken",
        path.display()
    )]
    Taken {
        /// The app's directory.
        path: PathBuf,
        /// The slot.
        slot: u32,
    },
    /// The instance file has invalid content.
    #[error(
        "{} does not hold an instance id (16 hexadecimal digits) but {found:?}. Delete the file, \
         and the next start generates a new id",
        path.display()
    )]
    Instance {
        /// The file.
        path: PathBuf,
        /// The content of the file.
        found: String,
    },
}

/// A slot, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) instance: InstanceId,
    pub(crate) path: PathBuf,
    /// Releases the lock on drop. The kernel does the same when the process dies.
    _lock: File,
}

impl Slot {
    /// Takes slot number `wanted`, or the first free one.
    pub(crate) fn take(root: &Path, app: &AppId, wanted: Option<u32>) -> Result<Self, SlotError> {
        let home = root.join(app.as_str());
        make_private(&home)?;
        let candidates = match wanted {
            Some(slot) => vec![slot],
            None => members(&home)?.into_iter().chain(0..SLOTS).collect(),
        };
        for slot in candidates {
            let path = home.join(slot.to_string());
            make_private(&path)?;
            if let Some(lock) = try_lock(&path.join("lock"))? {
                let instance = instance(&path.join("instance"))?;
                let member = path.join(MEMBER);
                let mut keeping = OpenOptions::new();
                let keeping = keeping.create(true).truncate(false).write(true);
                keeping.open(&member).map_err(unusable(&member))?;
                return Ok(Self {
                    instance,
                    path,
                    _lock: lock,
                });
            }
        }
        Err(match wanted {
            Some(slot) => SlotError::Taken { path: home, slot },
            None => SlotError::Full { path: home },
        })
    }
}

impl Slot {
    /// Writes the number of workers that are group members under this identity. Returns the previous number if those
    /// workers did not leave. Returns 0 if there were none, or if the number is unknown.
    pub(crate) fn note_workers(&self, workers: u16) -> Result<u16, SlotError> {
        let member = self.path.join(MEMBER);
        let before = fs::read_to_string(&member).map_err(unusable(&member))?;
        fs::write(&member, workers.to_string()).map_err(unusable(&member))?;
        Ok(before.trim().parse().unwrap_or(0))
    }

    /// Records that this identity has no group members any more, and releases the slot.
    pub(crate) fn leave(self) {
        // If the file stays, the next start only prefers this slot: no harm.
        let _ = fs::remove_file(self.path.join(MEMBER));
    }
}

/// Returns the slots whose last users did not leave the group, or still run.
fn members(home: &Path) -> Result<Vec<u32>, SlotError> {
    let mut slots = Vec::new();
    for entry in fs::read_dir(home).map_err(unusable(home))? {
        let entry = entry.map_err(unusable(home))?;
        let slot = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok());
        slots.extend(slot.filter(|_| entry.path().join(MEMBER).exists()));
    }
    slots.sort_unstable();
    Ok(slots)
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> SlotError + '_ {
    move |source| SlotError::Unusable {
        path: path.to_owned(),
        source,
    }
}

/// Creates a directory that only this user may enter, because state is data.
fn make_private(path: &Path) -> Result<(), SlotError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(unusable(path))
}

fn try_lock(path: &Path) -> Result<Option<File>, SlotError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(unusable(path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(unusable(path)(source)),
    }
}

/// Reads or creates the instance id. It is written to a temporary file, which is then renamed: a crash leaves all or
/// nothing.
fn instance(path: &Path) -> Result<InstanceId, SlotError> {
    match File::open(path) {
        Ok(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(unusable(path))?;
            let id = text.trim();
            if id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
                Ok(InstanceId::new(id))
            } else {
                Err(SlotError::Instance {
                    path: path.to_owned(),
                    found: text,
                })
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = format!("{:016x}", Entropy::new().next());
            let aside = path.with_extension("new");
            let mut file = File::create(&aside).map_err(unusable(&aside))?;
            file.write_all(id.as_bytes()).map_err(unusable(&aside))?;
            file.sync_all().map_err(unusable(&aside))?;
            fs::rename(&aside, path).map_err(unusable(path))?;
            // Without the sync, a power loss may undo the rename and lose this identity. Its open transactions would
            // then block readers until `transaction.timeout.ms`.
            #[cfg(unix)]
            if let Some(directory) = path.parent() {
                File::open(directory)
                    .and_then(|directory| directory.sync_all())
                    .map_err(unusable(directory))?;
            }
            Ok(InstanceId::new(id))
        }
        Err(error) => Err(unusable(path)(error)),
    }
}

/// Returns the default of `state.dir`: `eos` in the user's state directory (`XDG_STATE_HOME`, `~/.local/state`), or in the
/// system's temporary directory if there is none.
pub(crate) fn default_state_dir() -> PathBuf {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    from("XDG_STATE_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir)
        .join("eos")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_has_the_same_identity_and_a_second_process_another() {
        let dir = tempfile::tempdir().unwrap();
        let app = AppId::from("a");
        let first = Slot::take(dir.path(), &app, None).unwrap();
        let second = Slot::take(dir.path(), &app, None).unwrap();
        assert_ne!(first.instance, second.instance);
        assert_eq!(second.path, dir.path().join("a/1"));
        let was = first.instance.clone();
        drop(first);
        assert_eq!(Slot::take(dir.path(), &app, None).unwrap().instance, was);
    }

    /// Seen in the kill test: the first of three processes left, and the second was killed. Its successor became the
    /// first, and the partitions of the second waited for the end of its session.
    #[test]
    fn a_slot_whose_user_died_is_taken_before_one_whose_user_left() {
        let dir = tempfile::tempdir().unwrap();
        let app = AppId::from("a");
        let take = || Slot::take(dir.path(), &app, None).unwrap();
        let (left, died, _lives) = (take(), take(), take());
        let was = died.instance.clone();
        left.leave();
        drop(died);
        let restarted = take();
        assert_eq!(restarted.instance, was);
        let next = take();
        assert_eq!(next.path, dir.path().join("a/0"));
        assert_eq!(take().path, dir.path().join("a/3"));
    }

    #[test]
    fn a_slot_knows_how_many_workers_did_not_leave() {
        let dir = tempfile::tempdir().unwrap();
        let app = AppId::from("a");
        let take = || Slot::take(dir.path(), &app, None).unwrap();
        let slot = take();
        assert_eq!(slot.note_workers(4).unwrap(), 0);
        drop(slot);
        let slot = take();
        assert_eq!(
            slot.note_workers(2).unwrap(),
            4,
            "they died, or stopped for a restart"
        );
        slot.leave();
        assert_eq!(take().note_workers(1).unwrap(), 0, "all left");
    }

    #[test]
    fn a_locked_slot_is_refused_by_number() {
        let dir = tempfile::tempdir().unwrap();
        let app = AppId::from("a");
        let _first = Slot::take(dir.path(), &app, Some(3)).unwrap();
        let error = Slot::take(dir.path(), &app, Some(3)).unwrap_err();
        assert!(error.to_string().contains("slot 3"), "{error}");
        assert!(error.to_string().contains("first free one"), "{error}");
    }

    #[test]
    fn an_unwritable_directory_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Slot::take(&file, &AppId::from("a"), None).unwrap_err();
        assert!(matches!(error, SlotError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains("EOS_STATE_DIR"), "{error}");
    }

    #[test]
    fn a_damaged_instance_file_is_not_taken_for_an_id() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/0")).unwrap();
        fs::write(dir.path().join("a/0/instance"), "../../evil").unwrap();
        let error = Slot::take(dir.path(), &AppId::from("a"), None).unwrap_err();
        assert!(error.to_string().contains("Delete the file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_second_owner_may_not_enter() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot::take(dir.path(), &AppId::from("a"), None).unwrap();
        assert_eq!(
            fs::metadata(slot.path).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
