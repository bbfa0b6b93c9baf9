//! The errors that keep a task with stores from starting.

use std::fmt;
use std::time::Duration;

use crate::ids::{Nonce, Offset, Seq, TaskId, TopicName, TopicPartition};
use crate::joins::OtherJoin;
use crate::state::{PositionError, Standing, TopicUuid};
use crate::windows::{OtherWindows, TermsError};

/// The state that a task has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// State on this host.
    Local {
        /// Its position, if it is whole.
        seq: Option<Seq>,
    },
    /// Committed records in a changelog.
    Changelog {
        /// Its partition.
        changelog: TopicPartition,
    },
}

impl Evidence {
    pub(super) fn local(standing: &Standing) -> Self {
        let seq = match standing {
            Standing::At { seq, .. } => Some(*seq),
            Standing::Restoring { .. } => None,
        };
        Self::Local { seq }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { seq: Some(seq) } => {
                write!(f, "there is state of {} transactions on this host", seq.0)
            }
            Self::Local { seq: None } => f.write_str("there is state on this host"),
            Self::Changelog { changelog } => {
                write!(f, "changelog {changelog} has committed records")
            }
        }
    }
}

/// The reason why a task with stores must not start: every possible start would lose or double records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestartError {
    /// The group has no offset, but the task has state.
    #[error(
        "task {task}: group {group} has no committed offset for {partition}, but {state}: starting \
         over would count records twice. Did the offsets expire (offsets.retention.minutes), were \
         they deleted, or was the topic deleted and created again? Restore them, or start afresh \
         under another app name"
    )]
    OffsetGone {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// The input.
        partition: TopicPartition,
        /// The state.
        state: Evidence,
    },
    /// Another program set the offset, but the task has state.
    #[error(
        "task {task}: the offset of {partition} in group {group} was set by another program \
         (metadata {metadata:?}), but {state}, which belongs to the previous offset. Was it \
         `kafka-consumer-groups.sh --reset-offsets`? It resets offsets without their state. To \
         reset both: stop every instance, delete {} and the state directories, and restart; or \
         give the app another name",
        Changelogs(changelogs)
    )]
    OffsetReset {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// The input.
        partition: TopicPartition,
        /// The metadata beside the offset.
        metadata: Box<str>,
        /// The state.
        state: Evidence,
        /// The changelogs of its stage.
        changelogs: Box<[TopicName]>,
    },
    /// The offsets have our name, but are not those of the transaction's commit.
    #[error(
        "task {task}: the offsets in group {group} have the name of the task's last transaction, but \
         are not those that it committed: they were moved and kept their metadata. Set them back, \
         or start afresh under another app name"
    )]
    OffsetsMoved {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
    },
    /// The windows of a store have another length or distance now.
    #[error(
        "task {task}, store {store}: {source}. A stored window has a start but no length, so results of \
         both kinds would mix. No state is lost. Restore the length and the distance of the windows, or start under \
         another app name with new state. A new name for the store alone is not enough, because the \
         changelog holds the old one. Retention and grace may change at any time"
    )]
    OtherWindows {
        /// The task.
        task: TaskId,
        /// The store's name.
        store: String,
        /// Both kinds of windows.
        source: OtherWindows,
    },
    /// The store of a join has the rows of another join.
    #[error(
        "task {task}, store {store}: {source}. An inner join does not record which records have met, and rows do not name their \
         range, so the results of both would mix. No state is lost. Restore the method, `before` and `after`, or start under another app \
         name with new state. A new name for the store alone is not enough, because the changelog holds the old one. The grace may \
         change at any time"
    )]
    OtherJoin {
        /// The task.
        task: TaskId,
        /// The store's name.
        store: String,
        /// Both joins.
        source: Box<OtherJoin>,
    },
    /// A step that has to see each row of its table was added when the table had rows.
    #[error(
        "task {task}: {step} is new, but its table already has rows in the store {rows}, which it has never seen. They would be \
         missing until their next update, and a group would subtract what was never added. No state is lost. Remove the \
         step again, or start the app under another name, so that it reads the table's topic from the beginning"
    )]
    AddedLate {
        /// The task.
        task: TaskId,
        /// The step.
        step: AddedStep,
        /// The store with rows.
        rows: String,
    },
    /// The moments of a timer or tick belong to another clock.
    #[error(
        "task {task}: the moments of the timer or tick {store} in the existing state belong to another clock. No state is lost. Restore the clock \
         (`Timer::event_time` or `Timer::wall_clock`, or the `Clock` of `on_tick`), or start under another app name"
    )]
    OtherClock {
        /// The task.
        task: TaskId,
        /// The name of the timer or tick.
        store: String,
    },
    /// A store of sessions or sliding windows changes between final results and updates.
    #[error(
        "task {task}, store {store}: the results in the existing state are {}, and this program emits {}. Neither can continue \
         the other. No state is lost. {} `emit_on_close`, or start under another app name with new state",
        if *was_final { "final" } else { "updates" },
        if *was_final { "updates" } else { "final results" },
        if *was_final { "Restore" } else { "Remove" }
    )]
    OtherResults {
        /// The task.
        task: TaskId,
        /// The store's name.
        store: String,
        /// Whether the results in the existing state are final.
        was_final: bool,
    },
    /// The window of a deduplication store has changed.
    #[error(
        "task {task}, store {store}: the window of its ids is {found:?} in the existing state and {now:?} in this program. \
         Ids are stored in buckets that are a part of the window, so this program would not find the stored ids. No state is lost. \
         Restore the window, or start under another app name with new state. A new name for the store alone is not \
         enough, because the changelog holds the old one. The lateness may change at any time"
    )]
    OtherSeenWindow {
        /// The task.
        task: TaskId,
        /// The name of the `SeenIds`.
        store: String,
        /// The window of the stored ids, rounded up to a multiple of the number of buckets, in milliseconds.
        found: Duration,
        /// The window of the program, rounded up in the same way.
        now: Duration,
    },
    /// The retention terms of a windowed store can't be read.
    #[error("task {task}: the window definition of store {store} can't be read: {source}")]
    Terms {
        /// The task.
        task: TaskId,
        /// The store's name.
        store: String,
        /// The cause.
        source: TermsError,
    },
    /// The local state is of a newer version.
    #[error(
        "task {task}: {source}, or delete the task's state directory, which is then rebuilt from \
         its changelog"
    )]
    NewerState {
        /// The task.
        task: TaskId,
        /// The content of its position.
        source: PositionError,
    },
    /// The committed offsets belong to a deleted topic.
    #[error(
        "task {task}: topic {topic} was deleted and created again (its id was {found}, now it is \
         {now}), but the committed offsets belong to the old topic and point to other records now. \
         Start under another app name"
    )]
    InputRecreated {
        /// The task.
        task: TaskId,
        /// The input.
        topic: TopicName,
        /// The id of the old topic.
        found: TopicUuid,
        /// The id of the new topic.
        now: TopicUuid,
    },
    /// The partition count differs from the time when the state was made, so keys belong to other tasks.
    #[error(
        "task {task}: {} had {found} partitions when this state was created, now it has {now}: \
         keys are in other partitions than their state. Start under another app name; or \
         create the topic with {found} partitions and copy the records there",
        Input(topic.as_ref())
    )]
    PartitionsChanged {
        /// The task.
        task: TaskId,
        /// The input, if it is not the driving topic.
        topic: Option<TopicName>,
        /// The old partition count.
        found: u32,
        /// The current partition count.
        now: u32,
    },
    /// The changelog ends before the offset up to which the local state was read from it.
    #[error(
        "task {task}: {changelog} ends at offset {end}, but local state contains it up to \
         {position}: the changelog lost data (an unclean leader election? a topic restored from a \
         backup?). The state on this host may be the last complete copy: keep it. Restore the \
         changelog, or start afresh under another app name"
    )]
    ChangelogShorter {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The offset up to which it was read.
        position: Offset,
        /// Its end offset.
        end: Offset,
    },
    /// The state would have to come from a changelog whose front was deleted.
    #[error(
        "task {task}: {changelog} begins at offset {start}, and this host has no state to continue \
         from: the records deleted before that offset would be missing (was cleanup.policy set to \
         delete for a while? a changelog must only be compacted). If another host has a copy of \
         the task's state directory, let that host run the task. If not, restore the changelog, or \
         start afresh under another app name"
    )]
    ChangelogPurged {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// Its first offset.
        start: Offset,
    },
    /// A changelog was deleted and created again after the last transaction was written to it.
    #[error(
        "task {task}: {changelog} was deleted and created again after transaction {} was written to it (the topic \
         now has the id {now}), so its earlier records are lost. Nothing was deleted on this host. Keep the state \
         directories of all hosts: one may hold the last complete copy. If you restored the topic completely, \
         start once with accept.changelog={now}. Otherwise start under another app name",
        seq.0
    )]
    ChangelogRecreated {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The last transaction in the old topic.
        seq: Seq,
        /// The id of the new topic.
        now: TopicUuid,
    },
    /// The changelog lacks the commit record that the offsets name (c < m).
    #[error(
        "task {task}: {changelog} ends with {}, but the committed offsets name transaction {} as its \
         last one: the changelog lost data (was it deleted, purged, or cut by an unclean leader \
         election?), or it is another one (without a name of its own, a stage and its changelog are \
         named after the first of its topics in alphabetical order: if the program added or removed such a topic or \
         name, name the stage after the old one, with `.stage(\"..\")`). Restore it, or start afresh under another app name",
        Transaction(*found),
        named.0
    )]
    ChangelogLost {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// Its last commit record (c).
        found: Option<Seq>,
        /// The commit record in the offsets (m).
        named: Seq,
    },
    /// The changelog continues after the commit record that the offsets name (c > m).
    #[error(
        "task {task}: {changelog} ends with transaction {}, but the committed offsets of group \
         {group} name {} as its last one: the offsets were set back to a point before the state, so the \
         records after them would count twice. Set them back to where they were, or start afresh \
         under another app name. If the app has crashed with processing.guarantee = at_least_once, \
         start it once more with that guarantee, stop it cleanly, and then change the guarantee",
        found.0,
        Transaction(*named)
    )]
    OffsetsBehind {
        /// The task.
        task: TaskId,
        /// The consumer group.
        group: String,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// Its last commit record (c).
        found: Seq,
        /// The commit record in the offsets (m).
        named: Option<Seq>,
    },
    /// The changelog and the offsets name different attempts at one transaction.
    #[error(
        "task {task}: transaction {} is attempt {:016x} in {changelog}, but {:016x} in the \
         committed offsets: they don't belong together (was one of them restored from a backup?). \
         Restore both from the same point in time, or start afresh under another app name",
        seq.0, found.0, named.0
    )]
    OtherHistory {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The transaction.
        seq: Seq,
        /// The attempt in the changelog.
        found: Nonce,
        /// The attempt in the offsets.
        named: Nonce,
    },
    /// The changelog's front was deleted while it was read.
    #[error(
        "task {task}: {changelog} begins at offset {start} now, but was read only up to \
         {position}: its first records were deleted meanwhile. Restart; if this happens again, \
         keep its records longer (retention.ms=-1, and no DeleteRecords from other programs)"
    )]
    TrimmedMeanwhile {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The next offset to read.
        position: Offset,
        /// Its first offset.
        start: Offset,
    },
    /// The restore took so long that deletions may have disappeared meanwhile.
    #[error(
        "task {task}: reading {changelog} took {} s; beyond {} s (delete.retention.ms) its \
         tombstones may have been removed before they were read. Raise delete.retention.ms of the \
         topic, delete the task's state directory, and restart",
        took.as_secs(),
        limit.as_secs()
    )]
    TooSlow {
        /// The task.
        task: TaskId,
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The duration of the restore.
        took: Duration,
        /// The maximum duration.
        limit: Duration,
    },
}

struct Transaction(Option<Seq>);

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seq) => write!(f, "transaction {}", seq.0),
            None => f.write_str("no transaction"),
        }
    }
}

struct Input<'a>(Option<&'a TopicName>);

impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(topic) => write!(f, "topic {topic}"),
            None => f.write_str("the driving topic of its stage"),
        }
    }
}

struct Changelogs<'a>(&'a [TopicName]);

impl fmt::Display for Changelogs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the changelogs (")?;
        for (i, topic) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}`kafka-topics.sh --delete --topic {topic}`")?;
        }
        f.write_str(")")
    }
}

/// A step that has to see each row of its table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddedStep {
    /// A table is grouped by a new key.
    #[error("`group_by` with the topic {topic}")]
    Grouping {
        /// The name that the program gives to the repartition topic.
        topic: String,
    },
    /// A table is kept in a store of its own.
    #[error("`stored` with the store {store}")]
    Stored {
        /// The name of the store.
        store: String,
    },
}

impl AddedStep {
    /// Returns the name of the step beside the names of stores in committed offsets. A name with `>` belongs to no store.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Grouping { topic } => format!(">{topic}"),
            Self::Stored { store } => store.clone(),
        }
    }
}
