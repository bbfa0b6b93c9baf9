//! Errors that stop a worker.

use eos_protocol::{
    ErrorClass, NotAMember, Offset, OutOfOrder, StartError, StopReason, TaskId, TopicChanged,
    TopicPartition, code,
};

use eos_protocol::state::{Family, OwnRows, RestartError, Stalled, StoreId};
use eos_state::StoreError;
use eos_state::changelog::ChangelogError;

use super::storage::HomeError;
use crate::advice::advice;
use crate::client::ClientError;
use crate::topology::Fault;

/// A store that the state of a task contains, and that this program does not have in this form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownStore {
    /// This program has a store with the same name and another format of values.
    OtherFormat {
        /// The name of the store.
        name: String,
    },
    /// This program has a store with the same name and the other kind: plain or windowed.
    OtherKind {
        /// The name of the store.
        name: String,
    },
    /// This program has no store with this name.
    Gone {
        /// The name of the store.
        name: String,
        /// The stores of this program that the committed state does not have. One of them may be the renamed store.
        new: Vec<String>,
    },
    /// Only the id of the store is known. Offset metadata has no store names in the formats `eos1` and `eos2`, or if
    /// the names exceed 300 bytes.
    Unnamed,
}

impl UnknownStore {
    fn what(&self, store: StoreId) -> String {
        match self {
            Self::OtherFormat { name } => {
                format!("the store {name} in another format (id {store})")
            }
            Self::OtherKind { name } => format!(
                "the {} store {name}, which this program declares as a {} store",
                kind(store.family()),
                kind(other(store.family()))
            ),
            Self::Gone { name, new } => {
                let new = match &new[..] {
                    [] => String::new(),
                    [one] => format!("; the store {one} is new"),
                    more => format!("; the stores {} are new", more.join(", ")),
                };
                format!("the store {name}, which this program does not have{new}")
            }
            Self::Unnamed => {
                format!("a store with the id {store}, which this program does not have")
            }
        }
    }

    fn fix(&self, store: StoreId) -> String {
        match self {
            Self::OtherFormat { name } if store == StoreId::due(name) => format!(
                "{name} was a timer (`app.timer`), or a store with moments of an earlier version of eos. Make it a timer again, or \
                 start under another app name"
            ),
            Self::OtherFormat { name } if store.own_rows(name).is_some() => {
                let method = store.own_rows(name).map_or("", OwnRows::method);
                format!(
                    "The store {name} belonged to `{method}`. Now the name belongs to another operator or closure, which \
                     can't read its rows. Return the name to `{method}`, or start under another app name"
                )
            }
            Self::OtherFormat { name } if store.is_seen(name) => format!(
                "The store {name} belonged to a `SeenIds` of another kind or scope, or this program uses the name for another \
                 store. The stored keys differ. Restore the `SeenIds` with its kind (`fixed`, `sliding`, `time_embedded`, `for_ever`) and its \
                 scope (`per_partition` or not), or start under another app name"
            ),
            Self::OtherFormat { name } if store == StoreId::stamped(store.family(), name) => {
                format!(
                    "The store {name} belonged to an operator (`count`, `reduce`, `aggregate`, a table), which keeps \
                     values with a timestamp. Now the name belongs to a closure (`app.store`) or a timer (`app.timer`). \
                     Return the name to the operator, or start under another app name"
                )
            }
            Self::OtherFormat { name } => format!(
                "The store {name} belonged to a closure (`app.store`), which keeps values without a timestamp. Now the \
                 name belongs to an operator (`count`, `reduce`, `aggregate`, a table) or a timer (`app.timer`). Return \
                 the name to the closure, or start under another app name"
            ),
            Self::OtherKind { name } => format!(
                "Make {name} a {} store again, or start under another app name",
                kind(store.family())
            ),
            Self::Gone { name, new } => match &new[..] {
                [one] => format!(
                    "If the store {name} was renamed to {one}, rename it back. If it was removed, put it back or give \
                     the app another name"
                ),
                _ => format!(
                    "If the store {name} was removed or renamed, put it back under this name or give the app \
                     another name"
                ),
            },
            Self::Unnamed => {
                "If a store was removed or renamed, put it back or give the app another name"
                    .to_owned()
            }
        }
    }
}

fn kind(family: Family) -> &'static str {
    match family {
        Family::Plain => "plain",
        Family::Windowed => "windowed",
    }
}

fn other(family: Family) -> Family {
    match family {
        Family::Plain => Family::Windowed,
        Family::Windowed => Family::Plain,
    }
}

/// An error that stops a worker. Its open transaction is aborted, or resolved by the next start. No record is lost or
/// counted twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A task must not start, because every available state would lose or double records.
    #[error("{0}")]
    Restart(Box<RestartError>),
    /// The changelog of a task can't be read to its end.
    #[error("{0}")]
    Stalled(Box<Stalled>),
    /// A changelog contains foreign records.
    #[error("{0}")]
    Changelog(Box<ChangelogError>),
    /// The state of a task includes a store that this program does not have.
    #[error("task {task}: {place} has keys of {}. The state is unchanged. {}", known.what(*store), known.fix(*store))]
    OtherStore {
        /// The task.
        task: TaskId,
        /// The place of the keys: "the local database", or a changelog.
        place: String,
        /// The store.
        store: StoreId,
        /// The relation of the store to the stores of this program.
        known: UnknownStore,
    },
    /// After a rewind, the client skipped a record that the log still has.
    #[error(
        "the client skipped record {expected} of {partition} after an aborted transaction and delivered record \
         {got}, though the log still holds the earlier one. The worker stopped, because it would lose records. \
         Restart the app, and report this with the client's log (`debug=fetch`)"
    )]
    RecordsSkipped {
        /// The partition.
        partition: TopicPartition,
        /// The offset that was delivered first before the abort.
        expected: Offset,
        /// The offset that was delivered first after it.
        got: Offset,
    },
    /// The database of a task can't be opened.
    #[error("task {task}: {source}")]
    Home {
        /// The task.
        task: TaskId,
        /// The cause.
        source: Box<HomeError>,
    },
    /// The database of a task failed.
    #[error("task {task}: {source}")]
    Store {
        /// The task.
        task: TaskId,
        /// The cause.
        source: Box<StoreError>,
    },
    /// The copy of a global table failed.
    #[error(
        "the copy of the global table {table} failed: {source}. After a restart, a damaged copy is deleted and read again \
         from its topic"
    )]
    Global {
        /// The global table.
        table: String,
        /// The cause.
        source: Box<StoreError>,
    },
    /// A record could not be processed.
    #[error(
        "task {task}: record {offset} of {partition} could not be processed: {reason}. {}{}",
        if *prefix_committed {
            "Everything before it is committed; a restart begins with this record"
        } else {
            "Earlier records since the last commit could not be committed; a restart processes them \
             again, and then this record"
        },
        if *policy {
            ". `on_error` of its source can skip such records, retry them, or send them to a dead-letter \
             topic (guide: Records that fail)"
        } else {
            ""
        }
    )]
    Record {
        /// The task.
        task: TaskId,
        /// The partition of the record.
        partition: TopicPartition,
        /// The offset of the record.
        offset: Offset,
        /// The cause.
        reason: RecordFault,
        /// Whether all earlier records are committed.
        prefix_committed: bool,
        /// Whether the text suggests another error policy. False if a dead letter exceeds the limit of its topic, a newer
        /// version of eos wrote the record, or the result of a group would be wrong without the record.
        policy: bool,
    },
    /// The handler of a timer, or a step after a final result, failed.
    #[error(
        "task {task}: {reason}. A restart retries the timer or final result. `on_error` of the task's sources can skip it, retry \
         it, or write a dead letter (guide: Timers, Final results)"
    )]
    Due {
        /// The task.
        task: TaskId,
        /// The cause.
        reason: RecordFault,
    },
    /// The results of `emit_per_commit` failed in a later step.
    #[error(
        "task {task}: the results of the store {store} could not be emitted at the commit: {reason}. They \
         concern many records, so no `on_error` of a source applies. The transaction is aborted, and \
         nothing of it is visible. Fix the steps after `emit_per_commit`, then restart; the same records \
         are processed again"
    )]
    Results {
        /// The task.
        task: TaskId,
        /// The store with the results.
        store: String,
        /// The cause.
        reason: RecordFault,
    },
    /// A task must not start at its committed offsets.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The committed offset is outside of the log.
    #[error(
        "the next offset to read of {partition} is {wanted}, but the log has {first} to {end}. \
         {}. Nothing was skipped. Choose where to continue: {}",
        if wanted < first {
            "Records were deleted before they were read (retention, or DeleteRecords)"
        } else {
            "The log is shorter than it was (topic recreated, or an unclean leader election)"
        },
        if *in_ledger {
            "stop the app and set the position in its ledger".to_owned()
        } else {
            format!(
                "kafka-consumer-groups.sh --group {group} --topic {partition} --reset-offsets --execute \
                 --to-earliest (or another point)"
            )
        }
    )]
    OffsetOutOfRange {
        /// The partition.
        partition: TopicPartition,
        /// The consumer group.
        group: String,
        /// Whether the position is in the ledger of the app, not in the consumer group.
        in_ledger: bool,
        /// The next offset to read.
        wanted: Offset,
        /// The first offset of the log.
        first: Offset,
        /// The end of the log.
        end: Offset,
    },
    /// Another live process has the same identity.
    #[error(
        "another live process uses the id {id:?} ({source}). Each process needs its own slot. If a state \
         directory was copied, delete the file `instance` in the copy. If the instance id is set in the \
         configuration, make it unique"
    )]
    TwoOwners {
        /// `transactional.id`; `group.instance.id` begins with it.
        id: String,
        /// The client's report.
        source: TwoOwners,
    },
    /// A call to Kafka, or to the app's ledger, failed permanently.
    #[error("{refusal}{advice}", refusal = refusal(.0), advice = advice(.0))]
    Client(ClientError),
    /// `init_transactions` timed out.
    #[error(
        "the transactions of {id:?} could not be initialised in time{}. Either the transaction coordinator \
         is not available, or an earlier transaction is still open. That one ends after its \
         transaction.timeout.ms",
        last.as_ref().map_or(String::new(), |e| format!(" ({e})"))
    )]
    InitTimedOut {
        /// `transactional.id`.
        id: String,
        /// The last error.
        last: Option<ClientError>,
    },
    /// Too many transactions in a row were aborted.
    #[error(
        "{times} transactions in a row were aborted, and no single record is the cause{}. Nothing of \
         them is visible. A restart continues at the last commit",
        last.as_ref().map_or(String::new(), |e| format!(" (last: {e})"))
    )]
    RepeatedAborts {
        /// The number of transactions.
        times: u32,
        /// The last error.
        last: Option<ClientError>,
    },
    /// A transaction was in doubt, and another owner continued its tasks.
    #[error(
        "the outcome of a transaction is unknown, and its tasks have a new owner. The new owner continued \
         from a committed offset. Restart this process"
    )]
    Dirty,
    /// Stable committed offsets could not be read.
    #[error(
        "the committed offsets of {partitions} partitions could not be read within {waited_s} s. {}",
        match last {
            Some(error) if error.fault.code != code::UNSTABLE_OFFSET_COMMIT => format!(
                "The last response: {error}. Fix its cause, then restart the app"
            ),
            _ => "An open transaction of another producer may block them. Find it with kafka-transactions.sh list"
                .to_owned(),
        }
    )]
    OffsetsUnstable {
        /// The number of queried partitions.
        partitions: usize,
        /// The wait in seconds.
        waited_s: u64,
        /// The last error.
        last: Option<ClientError>,
    },
    /// A topic of the app was deleted, created again or given partitions while the app ran.
    #[error("{0}")]
    TopicChanged(Box<TopicChanged>),
    /// The client delivered a record twice. This is a bug.
    #[error("out of order: {0}")]
    OutOfOrder(#[from] OutOfOrder),
}

/// The reason why a record could not be processed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecordFault(Fault);

impl From<Fault> for RecordFault {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

/// The evidence of a second owner of an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TwoOwners {
    /// The producer was fenced repeatedly.
    #[error(
        "fenced {times} times within a minute{}",
        last.as_ref().map_or(String::new(), |e| format!(", last: {e}"))
    )]
    Producer {
        /// The number of times.
        times: u32,
        /// The last error.
        last: Option<ClientError>,
    },
    /// The group fenced the member.
    #[error("{0}")]
    Member(ClientError),
}

/// Returns the failed call and its error.
fn refusal(error: &ClientError) -> String {
    match eos_protocol::code::is_of_ledger(error.fault.code) {
        // It names the ledger, the failed statement and the fix.
        true => format!("the ledger stopped this app: {}", error.text),
        false => format!("Kafka refused: {error}"),
    }
}

/// Converts a client error by its class.
pub(super) fn from_client(id: &str, error: ClientError) -> WorkerError {
    match error.class() {
        ErrorClass::GroupFenced => WorkerError::TwoOwners {
            id: id.to_owned(),
            source: TwoOwners::Member(error),
        },
        _ => WorkerError::Client(error),
    }
}

/// Converts the stop reason of the state machine, with the error that caused it.
pub(super) fn from_reason(id: &str, reason: StopReason, last: Option<ClientError>) -> WorkerError {
    let id = id.to_owned();
    match (reason, last) {
        (StopReason::InitTimedOut, last) => WorkerError::InitTimedOut { id, last },
        (StopReason::RepeatedAborts { times }, last) => WorkerError::RepeatedAborts { times, last },
        (StopReason::FencedAgain { times }, last) => WorkerError::TwoOwners {
            id,
            source: TwoOwners::Producer { times, last },
        },
        (StopReason::Dirty, _) => WorkerError::Dirty,
        (StopReason::Error { .. }, Some(last)) => from_client(&id, last),
        (StopReason::Error { call, class }, None) => {
            let text = format!("{class:?} without a report");
            WorkerError::Client(ClientError::new(call, 0, text))
        }
    }
}

/// Converts an invalid membership into an error of the call that needed it.
pub(super) fn not_a_member(error: &NotAMember) -> ClientError {
    use eos_protocol::{CallSite, code};
    ClientError::new(
        CallSite::SendOffsets,
        code::UNKNOWN_MEMBER_ID,
        error.to_string(),
    )
}
