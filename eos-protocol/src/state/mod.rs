//! The position of stores on disk, and decisions at a restart.
//!
//! A task's stores live in a database of their own, beside changelog topics that commit in the same Kafka
//! transactions as the task's offsets. This module contains only values and decisions. Engines and files are in
//! `eos-state`.
//!
//! | type | content |
//! |---|---|
//! | [`StoreId`], [`Family`] | which store a key belongs to, and in which changelog it is |
//! | [`StoreNames`] | the names of a task's stores |
//! | [`CommitRecord`] | which transaction ends here in a changelog |
//! | [`Position`] | the transaction up to which a database is complete, and the identity of its task |
//! | [`decide`] | the restart decision from local state, committed offsets and changelogs |
//! | [`Restore`] | how far changelogs were read, and whether the state is whole |
//! | [`ChangelogOffsets`] | which changelog offset a position may hold |
//! | [`Trim`] | how far the front of a windowed changelog may be deleted |

mod changelog_offsets;
mod family;
mod identity;
mod own_rows;
pub(crate) mod position;
mod purge;
mod restart;
mod restore;
mod store_id;
mod store_names;
mod trim;

pub use changelog_offsets::ChangelogOffsets;
pub use family::{Family, PerFamily};
pub use identity::{Difference, Identity, StoresHash, TopicDigest, TopicIdentity, TopicUuid};
pub use own_rows::OwnRows;
pub use position::{CommitRecord, Position, PositionError, Standing};
pub use purge::{Purge, is_of_another_log};
pub use restart::{
    AddedStep, Bounds, Evidence, Local, Offsets, Part, Reading, Restart, RestartError, RestoreKind,
    Situation, Why, decide,
};
pub use restore::{Progress, Restore, Restored, Stalled, StalledBy};
pub use store_id::StoreId;
pub use store_names::StoreNames;
pub use trim::Trim;
