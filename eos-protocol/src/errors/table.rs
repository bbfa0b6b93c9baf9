//! The table.

use super::{CallSite, ErrorClass, Fault, code};

/// One row: these codes at these calls have this class, because …
#[derive(Debug)]
pub struct Row {
    /// The calls; see [`Calls`].
    pub calls: Calls,
    /// The codes.
    pub codes: &'static [i32],
    /// The class.
    pub class: ErrorClass,
}

/// A set of call sites, as the table needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Every call.
    Any,
    /// Calls on the transactional producer.
    Producer,
    /// Calls on the consumer, and the cluster queries.
    Consumer,
    /// Just this one.
    Only(CallSite),
}

impl Calls {
    /// Whether the set holds this call.
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
    Abortable, Corrupted, Fatal, GroupFenced, ProducerFenced, ProducerLost, Retriable,
};

/// The table; the first row that matches counts. Below it the flags decide, see [`classify`].
pub const TABLE: &[Row] = &[
    // A person has to act; that librdkafka calls some of these abortable does not make them pass.
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
    // The coordinator knows no such transaction: it timed out, or an abort overtook the first
    // AddPartitionsToTxn (librdkafka #4849). Sequence errors: the log lacks a record that we sent, or
    // the leader remembers a late duplicate of one (its verification, KIP-890, lets nothing after
    // that pass). No other owner of the id is behind any of it.
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
    // The same fence, met by at-least-once's own commit: the rebalance tells what is still ours.
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
    // Another live process has our group.instance.id: fatal for this consumer in librdkafka.
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
    // The client refuses an output for its size. Others of the same record may be under way already;
    // halving finds the record, and its policy decides (rule 9).
    Row {
        calls: Calls::Only(CallSite::Send),
        codes: &[code::MESSAGE_TOO_LARGE],
        class: Abortable,
    },
    // There is no such place to send to.
    Row {
        calls: Calls::Only(CallSite::Send),
        codes: &[
            code::LOCAL_UNKNOWN_PARTITION,
            code::LOCAL_UNKNOWN_TOPIC,
            code::UNKNOWN_TOPIC_OR_PARTITION,
        ],
        class: Fatal,
    },
    // As long as the client waits for a topic to become known, it was not.
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
    // The log does not hold what we were told to read next.
    Row {
        calls: Calls::Consumer,
        codes: &[code::OFFSET_OUT_OF_RANGE, code::LOCAL_AUTO_OFFSET_RESET],
        class: Corrupted,
    },
    // The client joins again by itself; a revocation tells what it lost.
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
    // Brokers come back, coordinators move, transactions of others end.
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
    // A partition that was assigned exists: its leader is away (librdkafka calls partitions without
    // one unknown, when that is all it was asked for), or new and not sure of its end yet.
    Row {
        calls: Calls::Only(CallSite::Bounds),
        codes: &[
            code::LOCAL_UNKNOWN_PARTITION,
            code::UNKNOWN_TOPIC_OR_PARTITION,
            code::OFFSET_NOT_AVAILABLE,
        ],
        class: Retriable,
    },
    // It is not where it said to be: it took the outcome of one call for that of another. Nothing was
    // begun, and a new producer knows.
    Row {
        calls: Calls::Only(CallSite::Begin),
        codes: &[code::LOCAL_STATE],
        class: ProducerLost,
    },
    // A commit that timed out and is made again may find librdkafka between two of its states.
    Row {
        calls: Calls::Only(CallSite::Commit),
        codes: &[code::LOCAL_STATE],
        class: Retriable,
    },
    // A fetcher that has not started yet, is stopping, or was paused by a rebalance meanwhile,
    // refuses a seek; it is asked again, or assigning explicitly does the same.
    Row {
        calls: Calls::Only(CallSite::Seek),
        codes: &[
            code::LOCAL_STATE,
            code::LOCAL_OUTDATED,
            code::LOCAL_PREV_IN_PROGRESS,
        ],
        class: Retriable,
    },
    // "The operation is still under way": init, commit and abort resume where they were.
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
/// The [`TABLE`] decides; where it is silent, librdkafka's flags do, in the order fatal, abortable,
/// retriable; an error without a flag is fatal, as librdkafka's own documentation advises.
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
