//! Reasons to stop because a topic has changed.

use std::fmt;

use super::{LASTS, TopicRole};
use crate::ids::{AppId, TopicName};
use crate::state::TopicUuid;

/// A topic of a running app has changed since its start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {role} {topic} {change}. The open transaction is aborted, and the committed {} stay as they are. {}",
    if *in_ledger { "positions" } else { "offsets" },
    Fix(self)
)]
#[non_exhaustive]
pub struct TopicChanged {
    /// The app, which is also the name of its group.
    pub app: AppId,
    /// Whether the positions of the app are in its ledger, not in the group.
    pub in_ledger: bool,
    /// The topic.
    pub topic: TopicName,
    /// Its role in the app.
    pub role: TopicRole,
    /// The change.
    pub change: TopicChange,
}

/// The change of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicChange {
    /// It was deleted.
    Deleted {
        /// Its id, if the brokers reported one.
        before: Option<TopicUuid>,
    },
    /// It was deleted and created again under the same name.
    Recreated {
        /// The id of the old topic.
        before: TopicUuid,
        /// The id of the new topic.
        now: TopicUuid,
    },
    /// It has more partitions.
    Grown {
        /// The partition count at the start.
        before: u32,
        /// The partition count now.
        now: u32,
    },
    /// It has fewer partitions: another topic has its name, on brokers that report no ids.
    Shrunk {
        /// The partition count at the start.
        before: u32,
        /// The partition count now.
        now: u32,
    },
}

impl fmt::Display for TopicChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted { before } => {
                let seconds = LASTS.as_secs();
                write!(
                    f,
                    "was deleted while the app ran: no broker has listed it for {seconds} s or longer"
                )?;
                before.map_or(Ok(()), |id| write!(f, " (it had the id {id})"))
            }
            Self::Recreated { before, now } => write!(
                f,
                "was deleted and created again while the app ran: it had the id {before}, now it has {now}"
            ),
            Self::Grown { before, now } => write!(
                f,
                "got more partitions while the app ran: it had {before}, now it has {now}"
            ),
            Self::Shrunk { before, now } => write!(
                f,
                "was deleted and created again while the app ran: it had {before} partitions, now it has {now}"
            ),
        }
    }
}

/// The fix.
struct Fix<'a>(&'a TopicChanged);

impl fmt::Display for Fix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicChanged { topic, role, .. } = self.0;
        match self.0.change {
            TopicChange::Grown { before, now } => grown(f, *role, topic, before, now),
            TopicChange::Deleted { .. } => {
                f.write_str("A topic was deleted under a running app. ")?;
                if !matches!(role, TopicRole::Repartition | TopicRole::Changelog) {
                    f.write_str("Create it again with the same settings. ")?;
                }
                replaced(f, self.0)
            }
            TopicChange::Recreated { .. } | TopicChange::Shrunk { .. } => replaced(f, self.0),
        }
    }
}

/// The fix for a topic whose records are lost.
fn replaced(f: &mut fmt::Formatter<'_>, changed: &TopicChanged) -> fmt::Result {
    let TopicChanged { app, topic, .. } = changed;
    match changed.role {
        TopicRole::Global => f.write_str(
            "The rows of the global table come from the old topic. Restart every instance: each reads the new topic from the \
             beginning",
        ),
        TopicRole::Input | TopicRole::KeyedInput | TopicRole::Sibling => {
            if changed.in_ledger {
                write!(
                    f,
                    "The positions in the ledger belong to the old topic. Stop every instance, delete the positions of \
                     the app {app} for {topic} in the ledger, and restart the app. It reads the new topic as at a \
                     first start. Rows of the old topic stay"
                )?;
            } else {
                write!(
                    f,
                    "The committed offsets of the group belong to the old topic. Stop every instance, delete the \
                     remaining offsets (kafka-consumer-groups.sh --delete-offsets --group {app} --topic \
                     {topic}), and restart the app. It reads the new topic as at a first start"
                )?;
            }
            match changed.role {
                TopicRole::Input => Ok(()),
                _ => f.write_str(
                    ". If the stage that reads it keeps state, this state comes from the old topic: start under \
                     another app name instead",
                ),
            }
        }
        TopicRole::Output => f.write_str(
            "The app's records in the old topic are lost. Restart the app to continue from the last commit. To \
             write all records again, start under another app name",
        ),
        TopicRole::DeadLetter => f.write_str(
            "The dead letters in the old topic are lost. Restart the app to continue from the last commit",
        ),
        TopicRole::Repartition => f.write_str(
            "Unprocessed records in the old topic are lost, and the inputs that they came from are committed. \
             Start under another app name: the app then processes its inputs from the beginning",
        ),
        TopicRole::Changelog => f.write_str(
            "It was the durable copy of the state. Keep the state directories: they may hold the last complete \
             copy. Restore the topic from a backup, or start under another app name",
        ),
    }
}

/// The fix for a topic with more partitions, where keys move.
fn grown(
    f: &mut fmt::Formatter<'_>,
    role: TopicRole,
    topic: &TopicName,
    before: u32,
    now: u32,
) -> fmt::Result {
    match role {
        TopicRole::Global => write!(
            f,
            "A key may have moved to another partition. Restart every instance: each reads the {now} partitions of {topic} \
             from the beginning"
        ),
        TopicRole::Input | TopicRole::KeyedInput | TopicRole::Sibling => write!(
            f,
            "Records of one key may now be in two partitions of {topic}. If the stage that reads it keeps state, \
             start under another app name, or copy the records to a topic with {before} partitions. Otherwise \
             give each topic that the stage reads {now} partitions, and restart the app: the start checks them"
        ),
        TopicRole::Output | TopicRole::DeadLetter => write!(
            f,
            "This instance writes to {before} partitions, but a newly started one writes to {now}. Together they \
             would put records of one key into two partitions. Restart every instance"
        ),
        TopicRole::Repartition | TopicRole::Changelog => write!(
            f,
            "The app chooses the partition count of its own topics, and does not start with {now}. Start under \
             another app name, or copy the records to a topic of this name with {before} partitions"
        ),
    }
}
