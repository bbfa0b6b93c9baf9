//! The table of error classes.

use super::{CallSite, ErrorClass, Fault, code};

/// One row: these codes at these calls have this class, with a reason.
#[derive(Debug)]
pub struct Row {
    /// The calls; see [`Calls`].
    pub calls: Calls,
    /// The codes.
    pub codes: &'static [i32],
    /// The class.
    pub class: ErrorClass,
}

/// A set of call sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Every call.
    Any,
    /// Calls on the transactional producer.
    Producer,
    /// Calls on the consumer, and the cluster queries.
    Consumer,
    /// This call only.
    Only(CallSite),
}

impl Calls {
    /// Returns whether the set holds this call.
    #[must_use]
    pub fn contains(self, call: CallSite) -> bool {
        use CallSite::{Abort, Begin, Commit, Flush, Init, Send, SendOffsets};
        let producer = matches!(
            call,
            Init | Begin | Send | SendOffsets | Flush | Commit | Abort
        );
        match self {
            Self::Any => true,
            Self::Producer => producer,
            Self::Consumer => !producer,
            Self::Only(only) => only == call,
        }
    }
}

use ErrorClass::{
    Abortable, Contended, Corrupted, Fatal, GroupFenced, ProducerFenced, ProducerLost, Retriable,
};

/// The table. The first matching row counts. Without a match the flags decide, see [`classify`].
pub const TABLE: &[Row] = &[
    // A ledger names the reaction itself.
    Row {
        calls: Calls::Any,
        codes: &[code::LEDGER_FATAL],
        class: Fatal,
    },
    Row {
        calls: Calls::Any,
        codes: &[code::LEDGER_SUPERSEDED],
        class: ProducerFenced,
    },
    Row {
        calls: Calls::Any,
        codes: &[code::LEDGER_MOVED],
        class: GroupFenced,
    },
    Row {
        calls: Calls::Any,
        codes: &[code::LEDGER_ABORTED, code::LEDGER_REFUSED],
        class: Abortable,
    },
    Row {
        calls: Calls::Any,
        codes: &[code::LEDGER_CONTENDED],
        class: Contended,
    },
    Row {
        calls: Calls::Any,
        codes: &[code::LEDGER_UNAVAILABLE],
        class: Retriable,
    },
    // An operator has to act. librdkafka calls some of these errors abortable, but they don't pass.
    Row {
        calls: Calls::Any,
        codes: &[
            code::TOPIC_AUTHORIZATION_FAILED,
            code::GROUP_AUTHORIZATION_FAILED,
            code::CLUSTER_AUTHORIZATION_FAILED,
            code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            code::LOCAL_AUTHENTICATION,
            code::UNSUPPORTED_VERSION,
            code::INVALID_TRANSACTION_TIMEOUT,
            code::INVALID_TOPIC,
            code::LOCAL_INVALID_ARG,
        ],
        class: Fatal,
    },
    // A newer owner of the id bumped the epoch, or the coordinator did after the timeout.
    Row {
        calls: Calls::Producer,
        codes: &[
            code::LOCAL_FENCED,
            code::INVALID_PRODUCER_EPOCH,
            code::PRODUCER_FENCED,
        ],
        class: ProducerFenced,
    },
    // The coordinator has no such transaction: it timed out, or an abort overtook the first AddPartitionsToTxn
    // (librdkafka #4849). Sequence errors: the log lacks a record that this producer sent, or the leader remembers a
    // late duplicate of one and refuses every record after it (its verification, KIP-890). Another owner of the id
    // causes none of these.
    Row {
        calls: Calls::Producer,
        codes: &[
            code::INVALID_TXN_STATE,
            code::OUT_OF_ORDER_SEQUENCE,
            code::DUPLICATE_SEQUENCE,
        ],
        class: ProducerLost,
    },
    // KIP-447: the group's fence.
    Row {
        calls: Calls::Only(CallSite::SendOffsets),
        codes: &[
            code::ILLEGAL_GENERATION,
            code::UNKNOWN_MEMBER_ID,
            code::FENCED_INSTANCE_ID,
            code::REBALANCE_IN_PROGRESS,
            code::STALE_MEMBER_EPOCH,
            code::FENCED_MEMBER_EPOCH,
        ],
        class: GroupFenced,
    },
    // The same fence at a commit without transactions. The rebalance shows the remaining partitions.
    Row {
        calls: Calls::Only(CallSite::ConsumerCommit),
        codes: &[
            code::ILLEGAL_GENERATION,
            code::UNKNOWN_MEMBER_ID,
            code::REBALANCE_IN_PROGRESS,
            code::STALE_MEMBER_EPOCH,
            code::LOCAL_ASSIGNMENT_LOST,
        ],
        class: GroupFenced,
    },
    // Another live process has the same group.instance.id: fatal for this consumer in librdkafka.
    Row {
        calls: Calls::Consumer,
        codes: &[code::FENCED_INSTANCE_ID, code::UNRELEASED_INSTANCE_ID],
        class: GroupFenced,
    },
    // Metadata longer than the broker's offset.metadata.max.bytes never fits.
    Row {
        calls: Calls::Any,
        codes: &[code::OFFSET_METADATA_TOO_LARGE],
        class: Fatal,
    },
    // The producer id expired at the broker; the abort bumps the epoch (KIP-360).
    Row {
        calls: Calls::Producer,
        codes: &[code::UNKNOWN_PRODUCER_ID, code::INVALID_PRODUCER_ID_MAPPING],
        class: Abortable,
    },
    // The client refuses an output for its size. Other outputs of the same record may have left already. Halving
    // finds the record, and its policy decides (rule 9).
    Row {
        calls: Calls::Only(CallSite::Send),
        codes: &[code::MESSAGE_TOO_LARGE],
        class: Abortable,
    },
    // No such destination exists.
    Row {
        calls: Calls::Only(CallSite::Send),
        codes: &[
            code::LOCAL_UNKNOWN_PARTITION,
            code::LOCAL_UNKNOWN_TOPIC,
            code::UNKNOWN_TOPIC_OR_PARTITION,
        ],
        class: Fatal,
    },
    // The topic does not exist: the client waited in vain for its metadata.
    Row {
        calls: Calls::Only(CallSite::Flush),
        codes: &[
            code::LOCAL_UNKNOWN_PARTITION,
            code::LOCAL_UNKNOWN_TOPIC,
            code::UNKNOWN_TOPIC_OR_PARTITION,
        ],
        class: Fatal,
    },
    Row {
        calls: Calls::Only(CallSite::Send),
        codes: &[code::LOCAL_QUEUE_FULL],
        class: Retriable,
    },
    // The log does not contain the next offset to read.
    Row {
        calls: Calls::Consumer,
        codes: &[code::OFFSET_OUT_OF_RANGE, code::LOCAL_AUTO_OFFSET_RESET],
        class: Corrupted,
    },
    // One broker does not list a subscribed topic ("Subscribed topic not available"). The query for the topics decides
    // whether it is deleted, because brokers receive the metadata of a topic at different times.
    Row {
        calls: Calls::Only(CallSite::Poll),
        codes: &[code::UNKNOWN_TOPIC_OR_PARTITION],
        class: Retriable,
    },
    // The client joins again by itself. A revocation lists the lost partitions.
    Row {
        calls: Calls::Only(CallSite::Poll),
        codes: &[
            code::ILLEGAL_GENERATION,
            code::UNKNOWN_MEMBER_ID,
            code::STALE_MEMBER_EPOCH,
            code::FENCED_MEMBER_EPOCH,
        ],
        class: Retriable,
    },
    // These pass: brokers return, coordinators move, other transactions end.
    Row {
        calls: Calls::Consumer,
        codes: &[
            code::LOCAL_TRANSPORT,
            code::LOCAL_RESOLVE,
            code::LOCAL_ALL_BROKERS_DOWN,
            code::LOCAL_TIMED_OUT,
            code::LOCAL_TIMED_OUT_QUEUE,
            code::LOCAL_WAIT_COORD,
            code::LOCAL_IN_PROGRESS,
            code::LOCAL_RETRY,
            code::LOCAL_MAX_POLL_EXCEEDED,
            code::REQUEST_TIMED_OUT,
            code::NETWORK_EXCEPTION,
            code::BROKER_NOT_AVAILABLE,
            code::REPLICA_NOT_AVAILABLE,
            code::LEADER_NOT_AVAILABLE,
            code::NOT_LEADER_OR_FOLLOWER,
            code::FENCED_LEADER_EPOCH,
            code::UNKNOWN_LEADER_EPOCH,
            code::COORDINATOR_LOAD_IN_PROGRESS,
            code::COORDINATOR_NOT_AVAILABLE,
            code::NOT_COORDINATOR,
            code::UNSTABLE_OFFSET_COMMIT,
            code::REBALANCE_IN_PROGRESS,
            code::KAFKA_STORAGE_ERROR,
        ],
        class: Retriable,
    },
    // An assigned partition exists: its leader is away, or is new and not sure of its end yet. (If a query names only
    // partitions without a leader, librdkafka calls them unknown.)
    Row {
        calls: Calls::Only(CallSite::Bounds),
        codes: &[
            code::LOCAL_UNKNOWN_PARTITION,
            code::UNKNOWN_TOPIC_OR_PARTITION,
            code::OFFSET_NOT_AVAILABLE,
        ],
        class: Retriable,
    },
    // The client is in another state than it reported: it took the outcome of one call for that of another. No
    // transaction began, and a new producer finds its state.
    Row {
        calls: Calls::Only(CallSite::Begin),
        codes: &[code::LOCAL_STATE],
        class: ProducerLost,
    },
    // After a timeout, a repeated commit may find librdkafka between two of its states.
    Row {
        calls: Calls::Only(CallSite::Commit),
        codes: &[code::LOCAL_STATE],
        class: Retriable,
    },
    // A fetcher refuses a seek if it has not started yet, is stopping, or was paused by a rebalance. Repeat the seek,
    // or assign explicitly, which has the same effect.
    Row {
        calls: Calls::Only(CallSite::Seek),
        codes: &[
            code::LOCAL_STATE,
            code::LOCAL_OUTDATED,
            code::LOCAL_PREV_IN_PROGRESS,
        ],
        class: Retriable,
    },
    // "The operation is still under way": init, commit and abort resume from their last step.
    Row {
        calls: Calls::Only(CallSite::Init),
        codes: &[code::LOCAL_TIMED_OUT, code::CONCURRENT_TRANSACTIONS],
        class: Retriable,
    },
    Row {
        calls: Calls::Only(CallSite::Flush),
        codes: &[code::LOCAL_TIMED_OUT],
        class: Retriable,
    },
];

/// The class of an error.
///
/// The [`TABLE`] decides. Without a matching row, librdkafka's flags decide in the order fatal, abortable, retriable.
/// An error without a flag is fatal, as librdkafka's own documentation advises.
#[must_use]
pub fn classify(call: CallSite, fault: Fault) -> ErrorClass {
    for row in TABLE {
        if row.calls.contains(call) && row.codes.contains(&fault.code) {
            return row.class;
        }
    }
    match fault {
        Fault { fatal: true, .. } => Fatal,
        Fault {
            abortable: true, ..
        } => Abortable,
        Fault {
            retriable: true, ..
        } => Retriable,
        _ => Fatal,
    }
}
