//! Whether the group's members have all partitions between them.
//!
//! A cooperative rebalance that moves a partition has two rounds: its owner gives it up in the first, and
//! joins again for the second, in which somebody gets it (KIP-429). An owner that is killed in between
//! and comes back as the same static member is given what the first round left it, without a rebalance
//! (KIP-345): there is no second round, and nobody has the partition, for as long as nobody else comes
//! or goes. So a static member looks once after its start, and again a little later, for a round may
//! just be under way. If the same partition is nobody's both times, it leaves and joins anew.
//! Its LeaveGroup may get lost: the group takes the new consumer for the member that it has then, and gives it
//! what it had. So the member looks again after that, a few times: partitions may be nobody's for other
//! reasons, too.

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Now, Partition, TopicPartition};

use super::Worker;
use crate::client::{Client, Source};
use crate::failpoints::{self, Defence};

/// From the first assignment to the first look, and between two looks.
const PAUSE: Duration = Duration::from_secs(4);
/// So many looks without a usable answer are enough.
const LOOKS: u32 = 10;
/// So often it joins anew for partitions that are nobody's.
const REJOINS: u32 = 3;

/// How far the look at the group is.
#[derive(Debug)]
pub(super) enum Coverage {
    /// The worker has not joined the group yet.
    NotJoined {
        /// How often it left, to join anew.
        rejoins: u32,
    },
    Looking {
        next: Now,
        looks: u32,
        rejoins: u32,
        /// What was nobody's at the last look.
        unowned: BTreeSet<TopicPartition>,
    },
    Done,
}

impl Default for Coverage {
    fn default() -> Self {
        Self::NotJoined { rejoins: 0 }
    }
}

impl<C: Client> Worker<C> {
    /// Goes on with the look at the group, if it is time for it.
    pub(super) fn look_at_group(&mut self) {
        let now = self.env.about_now();
        match &mut self.coverage {
            Coverage::Done => {}
            _ if failpoints::undefended(Defence::Coverage) => {}
            Coverage::NotJoined { .. } if !self.spec.static_member => {
                self.coverage = Coverage::Done
            }
            Coverage::NotJoined { rejoins } if self.joined => {
                self.coverage = Coverage::Looking {
                    next: now.after(PAUSE),
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
                let found = match self.source.assigned() {
                    Poll::Pending => return,
                    Poll::Ready(Ok(found)) => found,
                    Poll::Ready(Err(error)) => {
                        tracing::debug!(worker = %self.spec.id, %error, "looking at the group");
                        None
                    }
                };
                (*next, *looks) = (now.after(PAUSE), *looks + 1);
                let Some(assigned) = found else {
                    if *looks >= LOOKS {
                        self.coverage = Coverage::Done;
                    }
                    return;
                };
                let topics = self.topology.driving_topics().into_iter();
                let all = topics.flat_map(|topic| {
                    let count = self.spec.input_partitions.get(&topic).copied().unwrap_or(0);
                    let numbers =
                        (0..count).filter_map(|n| Partition::new(i32::try_from(n).ok()?).ok());
                    let of = move |number| TopicPartition::new(topic.clone(), number);
                    numbers.map(of).collect::<Vec<_>>()
                });
                let missing: BTreeSet<_> = all.filter(|p| !assigned.contains(p)).collect();
                let still: Vec<_> = missing.intersection(unowned).cloned().collect();
                if missing.is_empty() {
                    self.coverage = Coverage::Done;
                } else if still.is_empty() {
                    *unowned = missing;
                } else {
                    tracing::warn!(
                        app = %self.spec.app, worker = %self.spec.id, partitions = ?still,
                        "nobody in the group has these partitions: joining anew, so that it is shared out again"
                    );
                    let rejoins = *rejoins + 1;
                    self.coverage = match rejoins < REJOINS {
                        true => Coverage::NotJoined { rejoins },
                        false => Coverage::Done,
                    };
                    // Only the answer of the next consumer counts.
                    self.joined = false;
                    self.evict();
                }
            }
        }
    }
}
