//! The check that the group's members own all partitions.
//!
//! A cooperative rebalance that moves a partition has two rounds. The owner gives it up in the first round and joins
//! again for the second, in which another member gets it (KIP-429). If the owner is killed in between and comes back as
//! the same static member, it gets its assignment of the first round, without a rebalance (KIP-345). There is no second
//! round, and the partition has no owner until another member joins or leaves. So a static member checks once after its
//! start, and again a little later, because a round may be in progress. If the same partition has no owner both times,
//! the member leaves and rejoins.
//!
//! If its LeaveGroup is lost or late, the group mistakes the new consumer for the old member and returns the old
//! assignment. The member therefore checks again after each rejoin. After [`QUICK_REJOINS`], it waits longer each time,
//! because a rejoin interrupts its own partitions.

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Now, TopicPartition};

use super::Group;
use crate::client::{Client, Source};
use crate::rules;
use crate::worker::shared::Shared;

/// The time from the first assignment to the first check, and between two checks.
const PAUSE: Duration = Duration::from_secs(4);
/// The maximum number of checks without a usable response.
const LOOKS: u32 = 10;
/// The number of rejoins with the shortest pause.
const QUICK_REJOINS: u32 = 3;
/// The maximum factor of the pause, as a power of two.
const SLOWEST: u32 = 3;

/// Returns the time between two checks after this number of rejoins.
fn pause(rejoins: u32) -> Duration {
    let doublings = (rejoins + 1).saturating_sub(QUICK_REJOINS).min(SLOWEST);
    PAUSE * 2_u32.pow(doublings)
}

/// The progress of the check.
#[derive(Debug)]
pub(super) enum Coverage {
    /// The worker has not joined the group yet.
    NotJoined {
        /// The number of rejoins so far.
        rejoins: u32,
    },
    Looking {
        next: Now,
        looks: u32,
        rejoins: u32,
        /// The partitions without an owner at the last check.
        unowned: BTreeSet<TopicPartition>,
    },
    Done,
}

impl Default for Coverage {
    fn default() -> Self {
        Self::NotJoined { rejoins: 0 }
    }
}

impl Group {
    /// Continues the check, if it is due.
    pub(in crate::worker) fn check_coverage<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
    ) {
        let now = shared.env.about_now();
        match &mut self.coverage {
            Coverage::Done => {}
            _ if !rules::checks_coverage() => {}
            Coverage::NotJoined { .. } if !shared.spec.static_member => {
                self.coverage = Coverage::Done
            }
            Coverage::NotJoined { rejoins } if self.joined => {
                self.coverage = Coverage::Looking {
                    next: now.after(pause(*rejoins)),
                    looks: 0,
                    rejoins: *rejoins,
                    unowned: BTreeSet::new(),
                };
            }
            Coverage::NotJoined { .. } => {}
            Coverage::Looking { next, .. } if now < *next => {}
            Coverage::Looking {
                next,
                looks,
                rejoins,
                unowned,
            } => {
                let found = match source.assigned() {
                    Poll::Pending => return,
                    Poll::Ready(Ok(found)) => {
                        shared.broker_answered();
                        found
                    }
                    Poll::Ready(Err(error)) => {
                        tracing::debug!(worker = %shared.spec.id, %error, "reading the group's assignment failed");
                        None
                    }
                };
                (*next, *looks) = (now.after(pause(*rejoins)), *looks + 1);
                let Some(assigned) = found else {
                    if *looks >= LOOKS {
                        self.coverage = Coverage::Done;
                    }
                    return;
                };
                let topics = shared.topology.driving_topics();
                let all = topics.iter().flat_map(|topic| shared.partitions(topic));
                let assigned: BTreeSet<_> = assigned.into_iter().collect();
                let missing: BTreeSet<_> = all.filter(|p| !assigned.contains(p)).collect();
                let still: Vec<_> = missing.intersection(unowned).cloned().collect();
                if missing.is_empty() {
                    self.coverage = Coverage::Done;
                } else if still.is_empty() {
                    *unowned = missing;
                } else {
                    tracing::warn!(
                        app = %shared.spec.app, worker = %shared.spec.id, partitions = ?still,
                        "partitions have no owner; rejoining to force a reassignment"
                    );
                    let rejoins = rejoins.saturating_add(1);
                    self.coverage = Coverage::NotJoined { rejoins };
                    // Only the assignment of the next consumer counts.
                    self.joined = false;
                    self.membership.evict(shared);
                }
            }
        }
    }
}
