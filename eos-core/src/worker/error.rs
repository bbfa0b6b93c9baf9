//! Why a worker stopped.

use eos_protocol::{
    ErrorClass, NotAMember, Offset, OutOfOrder, StartError, StopReason, TaskId, TopicChanged,
    TopicPartition,
};

use eos_protocol::state::{RestartError, Stalled, StoreId};
use eos_state::StoreError;
use eos_state::changelog::ChangelogError;

use super::storage::HomeError;
use crate::client::ClientError;
use crate::topology::Fault;

/// Why a worker stopped by itself. Whatever it had open is aborted or left to the next start,
/// which decides it: nothing is lost, and nothing counts twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A task must not start: any state that it could start from would lose or double records.
    #[error("{0}")]
    Restart(Box<RestartError>),
    /// The changelog of a task can't be read to its end.
    #[error("{0}")]
    Stalled(Box<Stalled>),
    /// A changelog holds what is not its own.
    #[error("{0}")]
    Changelog(Box<ChangelogError>),
    /// The state of a task is of a store that this program does not have.
    #[error(
        "task {task}: {place} holds keys of the store {store}, which this program does not have. Nothing \
         was changed. {}",
        match name {
            Some(name) if *store == StoreId::stamped(store.family(), name) => format!(
                "The store {name} was an operator's (`count`, `reduce`, `aggregate`, a table), whose values \
                 have a time, and now it is a closure's (`app.store`, `app.window_store`), whose have none: \
                 put it back as it was, or start under another app name"
            ),
            Some(name) => format!(
                "The store {name} was a closure's (`app.store`, `app.window_store`), whose values have no \
                 time, and now it is an operator's (`count`, `reduce`, `aggregate`, a table), whose have \
                 one: put it back as it was, or start under another app name"
            ),
            None => "If a store was removed or renamed, put it back or give the app another name".to_owned(),
        }
    )]
    OtherStore {
        /// The task.
        task: TaskId,
        /// Where it is: "the local database", or a changelog.
        place: String,
        /// The store.
        store: StoreId,
        /// The store of this program that has its name, and another format.
        name: Option<String>,
    },
    /// The client delivers a later record after a rewind than before it, and the log still has the earlier one.
    #[error(
        "record {expected} of {partition} was read before a transaction was aborted, and after it the client \
         delivers record {got} first, though the log still holds the earlier one. Going on would lose records: \
         start the app again, and report this with the client's log (`debug=fetch`)"
    )]
    RecordsSkipped {
        /// The partition.
        partition: TopicPartition,
        /// The record that came first before the abort.
        expected: Offset,
        /// The one that comes first now.
        got: Offset,
    },
    /// The database of a task can't be had.
    #[error("task {task}: {source}")]
    Home {
        /// The task.
        task: TaskId,
        /// Why.
        source: Box<HomeError>,
    },
    /// The database of a task failed.
    #[error("task {task}: {source}")]
    Store {
        /// The task.
        task: TaskId,
        /// Why.
        source: Box<StoreError>,
    },
    /// A record could not be processed.
    #[error(
        "task {task}: record {offset} of {partition} could not be processed: {reason}. {}{}",
        if *prefix_committed {
            "Everything before it is committed; a restart begins with this record"
        } else {
            "What came before it since the last commit could not be committed; a restart does it \
             again, and then comes to this record"
        },
        if *policy {
            ". `on_error` of its source can skip such records, try them again, or send them to a dead \
             letter topic (guide: Records that fail)"
        } else {
            ""
        }
    )]
    Record {
        /// The task.
        task: TaskId,
        /// Where the record is.
        partition: TopicPartition,
        /// Where the record is.
        offset: Offset,
        /// Why.
        reason: RecordFault,
        /// Whether everything before it is committed.
        prefix_committed: bool,
        /// Whether its source's error policy says to stop here. If not, it says otherwise and that
        /// could not be done: a dead letter does not fit into its topic.
        policy: bool,
    },
    /// The results that go on once per commit did not get through.
    #[error(
        "task {task}: the results of the store {store} could not be handed on at the commit: {reason}. They \
         are of many records, so no `on_error` of a source applies. The transaction is aborted, and \
         nothing of it is visible; a restart works on the same records again: mend what comes behind \
         `emit_per_commit` before"
    )]
    Results {
        /// The task.
        task: TaskId,
        /// Where the results are kept.
        store: String,
        /// Why.
        reason: RecordFault,
    },
    /// A task must not start where its offsets say.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The committed offset is not in the log any more, or not yet.
    #[error(
        "the next offset to read of {partition} is {wanted}, but the log has {first} to {end}. \
         {}. Nothing was skipped. Decide where to go on: kafka-consumer-groups.sh --group {group} \
         --topic {partition} --reset-offsets --execute --to-earliest (or another point)",
        if wanted < first {
            "Records were deleted before they were read (retention, or DeleteRecords)"
        } else {
            "The log is shorter than it was (topic recreated, or an unclean leader election)"
        }
    )]
    OffsetOutOfRange {
        /// The partition.
        partition: TopicPartition,
        /// The consumer group.
        group: String,
        /// What was to be read.
        wanted: Offset,
        /// The first offset that there is.
        first: Offset,
        /// The end of the log.
        end: Offset,
    },
    /// Another live process has the same identity.
    #[error(
        "another live process uses the id {id:?} ({source}). Each process needs a slot of its own: \
         if a state directory was copied, delete the file `instance` in the copy; if an instance id \
         is set by hand, make it unique"
    )]
    TwoOwners {
        /// `transactional.id`; `group.instance.id` begins with it.
        id: String,
        /// What the client reported.
        source: TwoOwners,
    },
    /// A call to Kafka failed for good.
    #[error("Kafka refused: {error}{advice}", error = .0, advice = advice(.0))]
    Client(ClientError),
    /// `init_transactions` did not end.
    #[error(
        "the transactions of {id:?} could not be initialised in time{}. An earlier transaction may \
         still be open (it ends after its transaction.timeout.ms), or the transaction coordinator \
         is not available",
        last.as_ref().map_or(String::new(), |e| format!(" ({e})"))
    )]
    InitTimedOut {
        /// `transactional.id`.
        id: String,
        /// The last answer.
        last: Option<ClientError>,
    },
    /// Every transaction is aborted.
    #[error(
        "{times} transactions in a row were aborted, and no single record is to blame{}. Nothing of \
         them is visible; a restart goes on at the last commit",
        last.as_ref().map_or(String::new(), |e| format!(" (last: {e})"))
    )]
    RepeatedAborts {
        /// How many.
        times: u32,
        /// The last answer.
        last: Option<ClientError>,
    },
    /// A transaction was in doubt, and another owner continued its tasks.
    #[error(
        "the outcome of a transaction is unknown, and its tasks were taken over meanwhile. The \
         new owner went on from a committed offset; restart this process"
    )]
    Dirty,
    /// Stable committed offsets could not be read.
    #[error(
        "the committed offsets of {partitions} partitions did not become stable in {waited_s} s{}. \
         Another producer's transaction holds them; see kafka-transactions.sh list",
        last.as_ref().map_or(String::new(), |e| format!(" ({e})"))
    )]
    OffsetsUnstable {
        /// How many partitions were asked for.
        partitions: usize,
        /// How long, in seconds.
        waited_s: u64,
        /// The last answer.
        last: Option<ClientError>,
    },
    /// A topic of the app was deleted, created again or given partitions while it ran.
    #[error("{0}")]
    TopicChanged(Box<TopicChanged>),
    /// The client delivered a record twice: a defect, and reason enough to stop.
    #[error("out of order: {0}")]
    OutOfOrder(#[from] OutOfOrder),
}

/// Why a record could not be processed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecordFault(Fault);

impl From<Fault> for RecordFault {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

/// How a second owner of an identity showed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TwoOwners {
    /// The producer was fenced again and again.
    #[error(
        "fenced {times} times within a minute{}",
        last.as_ref().map_or(String::new(), |e| format!(", last: {e}"))
    )]
    Producer {
        /// How often.
        times: u32,
        /// The last answer.
        last: Option<ClientError>,
    },
    /// The group fenced the member.
    #[error("{0}")]
    Member(ClientError),
}

/// What to do about an error whose own text does not say it.
pub(super) fn advice(error: &ClientError) -> &'static str {
    use eos_protocol::code;
    match error.fault.code {
        code::INVALID_TRANSACTION_TIMEOUT => {
            ". Lower `transaction.timeout.ms`, or raise transaction.max.timeout.ms of the brokers"
        }
        code::TOPIC_AUTHORIZATION_FAILED => {
            ". Give this app the right to read its input topics and to write its output topics \
             (kafka-acls.sh --add --operation Read|Write --topic ..)"
        }
        code::GROUP_AUTHORIZATION_FAILED => {
            ". Give this app the right to use its consumer group, which is named like the app \
             (kafka-acls.sh --add --operation Read --group ..)"
        }
        code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => {
            ". Give this app the right to its transactional ids, which begin with the app's name \
             (kafka-acls.sh --add --operation Write --operation Describe --transactional-id .. \
             --resource-pattern-type prefixed)"
        }
        code::CLUSTER_AUTHORIZATION_FAILED => {
            ". Give this app the right to write idempotently (kafka-acls.sh --add --operation \
             IdempotentWrite --cluster)"
        }
        code::UNKNOWN_TOPIC_OR_PARTITION
        | code::LOCAL_UNKNOWN_TOPIC
        | code::LOCAL_UNKNOWN_PARTITION => {
            ". A topic was deleted, or recreated with fewer partitions. Restore the topic, then restart \
             this app"
        }
        code::UNSUPPORTED_VERSION => ". The brokers are too old: Kafka 3.6 or newer is needed",
        code::INVALID_TIMESTAMP => {
            ". The record's time is too far from the brokers': correct the clock of its producer, or \
             raise message.timestamp.after.max.ms or message.timestamp.before.max.ms of the output \
             topic"
        }
        code::OFFSET_METADATA_TOO_LARGE => ". Raise offset.metadata.max.bytes of the brokers",
        code::LOCAL_AUTHENTICATION => {
            ". Check `security.protocol`, `sasl.mechanism` and the credentials"
        }
        _ => "",
    }
}

/// Puts a client error into words, by what follows from it.
pub(super) fn from_client(id: &str, error: ClientError) -> WorkerError {
    match error.class() {
        ErrorClass::GroupFenced => WorkerError::TwoOwners {
            id: id.to_owned(),
            source: TwoOwners::Member(error),
        },
        _ => WorkerError::Client(error),
    }
}

/// Puts the machine's reason to stop into words, with the error that led to it.
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

/// A membership that must not fence, as an error of the call that it was for.
pub(super) fn not_a_member(error: &NotAMember) -> ClientError {
    use eos_protocol::{CallSite, code};
    ClientError::new(
        CallSite::SendOffsets,
        code::UNKNOWN_MEMBER_ID,
        error.to_string(),
    )
}
