//! The coordinator of classic groups: members, generations, assignments, committed offsets.
//!
//! ```text
//!             join                  all have joined, or       the leader's SyncGroup
//!   Empty ──────────► Preparing ────the rebalance timeout ──► Completing ──────────► Stable
//!     ▲                  ▲                                        │ join, leave,         │
//!     └── no members ────┴────────────────────────────────────────┴─ session timeout ◄───┘
//! ```
//! Until then, JoinGroup and SyncGroup are held, and then all responses are sent together. The rules are those of
//! Kafka's `GroupMetadataManager` and `ClassicGroup`.

mod commit;
mod group;
mod join;
mod leave;
mod offsets;
mod sync;

pub(crate) use commit::Commit;
pub(crate) use group::{Answer, Caller, Group, GroupState, JoinAnswer, SyncAnswer};
pub(crate) use join::Join;
pub(crate) use leave::Leaving;
pub(crate) use offsets::Committed;
pub(crate) use sync::Sync;

#[cfg(test)]
mod tests;
