//! Why an app must not go on with a topic.

use std::fmt;

use super::{LASTS, TopicRole};
use crate::ids::{AppId, TopicName};
use crate::state::TopicUuid;

/// A topic of a running app is not the topic any more that it started with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {role} {topic} {change}. What was open is aborted, and every offset stays where the last commit left it. {}",
    Fix(self)
)]
pub struct TopicChanged {
    /// The app, and its group.
    pub app: AppId,
    /// The topic.
    pub topic: TopicName,
    /// What it is to the app.
    pub role: TopicRole,
    /// What became of it.
    pub change: TopicChange,
}

/// What became of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicChange {
    /// It is gone.
    Deleted {
        /// Which one it was, if the brokers gave an id.
        before: Option<TopicUuid>,
    },
    /// There is another one under its name.
    Recreated {
        /// Which one it was.
        before: TopicUuid,
        /// Which one there is now.
        now: TopicUuid,
    },
    /// It got partitions.
    Grown {
        /// How many it had.
        before: u32,
        /// How many it has now.
        now: u32,
    },
    /// It has fewer partitions: another one under its name, on brokers that give no ids.
    Shrunk {
        /// How many it had.
        before: u32,
        /// How many it has now.
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
                    "was deleted while the app ran: for {seconds} s or longer no broker has listed it"
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

/// What to do.
struct Fix<'a>(&'a TopicChanged);

impl fmt::Display for Fix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicChanged {
            app, topic, role, ..
        } = self.0;
        match self.0.change {
            TopicChange::Grown { before, now } => grown(f, *role, topic, before, now),
            TopicChange::Deleted { .. } => {
                f.write_str("A topic was deleted under a running app. ")?;
                if !matches!(role, TopicRole::Repartition | TopicRole::Changelog) {
                    f.write_str("Create it again, as it was. ")?;
                }
                replaced(f, *role, topic, app)
            }
            TopicChange::Recreated { .. } | TopicChange::Shrunk { .. } => {
                replaced(f, *role, topic, app)
            }
        }
    }
}

/// What was in the topic is gone.
fn replaced(
    f: &mut fmt::Formatter<'_>,
    role: TopicRole,
    topic: &TopicName,
    app: &AppId,
) -> fmt::Result {
    match role {
        TopicRole::Input | TopicRole::KeyedInput | TopicRole::Sibling => {
            write!(
                f,
                "The offsets that the group committed are the old topic's: stop every instance, delete what \
                 Kafka has kept of them (kafka-consumer-groups.sh --delete-offsets --group {app} --topic \
                 {topic}), and start the app again. It reads the new topic as at a first start"
            )?;
            match role {
                TopicRole::Input => Ok(()),
                _ => f.write_str(
                    ". If the stage that reads it keeps state, that state was made from the old topic: start \
                     under another app name instead",
                ),
            }
        }
        TopicRole::Output => f.write_str(
            "What the app wrote to the old topic is gone with it. Start the app again to go on at the last \
             commit; to write everything again, start it under another app name",
        ),
        TopicRole::DeadLetter => f.write_str(
            "The dead letters of the old topic are gone with it. Start the app again to go on at the last commit",
        ),
        TopicRole::Repartition => f.write_str(
            "Records that were in the old topic and not processed yet are lost, and what they were made from is \
             committed. Start under another app name: it processes its inputs from the beginning",
        ),
        TopicRole::Changelog => f.write_str(
            "It was the lasting copy of the state. Keep the state directories: they may be the last complete \
             copy. Restore the topic from a backup, or start under another app name",
        ),
    }
}

/// Keys belong to other partitions now.
fn grown(
    f: &mut fmt::Formatter<'_>,
    role: TopicRole,
    topic: &TopicName,
    before: u32,
    now: u32,
) -> fmt::Result {
    match role {
        TopicRole::Input | TopicRole::KeyedInput | TopicRole::Sibling => write!(
            f,
            "Records of one key may be in two partitions of {topic} now. If the stage that reads it keeps state, \
             start under another app name, or copy the records to a topic with {before} partitions. If not, \
             give each topic that it reads {now} partitions, and start the app again: the start checks them"
        ),
        TopicRole::Output | TopicRole::DeadLetter => write!(
            f,
            "This instance chooses among {before} partitions, and one that is started now among {now}: both at a \
             time would put records of one key into two partitions. Start every instance again"
        ),
        TopicRole::Repartition | TopicRole::Changelog => write!(
            f,
            "Only the app decides how many partitions its own topics have, and with {now} it does not start. \
             Start under another app name, or copy the records to a topic of this name with {before} partitions"
        ),
    }
}
