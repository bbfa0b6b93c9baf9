//! What follows from a failed client call: one table, (code, call site) → class.
//!
//! Codes are Kafka's protocol error codes (positive) and librdkafka's `RD_KAFKA_RESP_ERR__…`
//! (negative). The three flags are those of `rd_kafka_error_t`. Texts decide nothing.

use std::fmt;

/// The client call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallSite {
    /// Making a client from its configuration.
    Create,
    /// Asking for metadata and broker configuration.
    Facts,
    /// Joining or leaving the group.
    Subscribe,
    /// The consumer reported an error of its own.
    Poll,
    /// Taking fetched records.
    Take,
    /// Reading committed offsets.
    Committed,
    /// Reading where partitions begin and end.
    Bounds,
    /// Answering an assignment.
    Assign,
    /// Answering a revocation.
    Unassign,
    /// Seeking.
    Seek,
    /// Reading the group metadata.
    Member,
    /// Committing through the consumer (at-least-once only).
    ConsumerCommit,
    /// Closing the consumer.
    Close,
    /// `init_transactions`.
    Init,
    /// `begin_transaction`.
    Begin,
    /// Handing a record to the producer.
    Send,
    /// `send_offsets_to_transaction`.
    SendOffsets,
    /// Waiting for acknowledgements.
    Flush,
    /// `commit_transaction`.
    Commit,
    /// `abort_transaction`.
    Abort,
}

impl CallSite {
    /// Every call site.
    pub const ALL: [Self; 20] = [
        Self::Create,
        Self::Facts,
        Self::Subscribe,
        Self::Poll,
        Self::Take,
        Self::Committed,
        Self::Bounds,
        Self::Assign,
        Self::Unassign,
        Self::Seek,
        Self::Member,
        Self::ConsumerCommit,
        Self::Close,
        Self::Init,
        Self::Begin,
        Self::Send,
        Self::SendOffsets,
        Self::Flush,
        Self::Commit,
        Self::Abort,
    ];
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "creating the client",
            Self::Facts => "asking the cluster",
            Self::Subscribe => "subscribing",
            Self::Poll => "consuming",
            Self::Take => "taking records",
            Self::Committed => "reading committed offsets",
            Self::Bounds => "reading partition bounds",
            Self::Assign => "assigning partitions",
            Self::Unassign => "unassigning partitions",
            Self::Seek => "seeking",
            Self::Member => "reading group metadata",
            Self::ConsumerCommit => "committing offsets through the consumer",
            Self::Close => "closing the consumer",
            Self::Init => "init_transactions",
            Self::Begin => "begin_transaction",
            Self::Send => "sending a record",
            Self::SendOffsets => "send_offsets_to_transaction",
            Self::Flush => "flushing",
            Self::Commit => "commit_transaction",
            Self::Abort => "abort_transaction",
        })
    }
}

/// An error code with the flags that librdkafka's transactional calls set beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The code.
    pub code: i32,
    /// `rd_kafka_error_is_retriable`.
    pub retriable: bool,
    /// `rd_kafka_error_txn_requires_abort`.
    pub abortable: bool,
    /// `rd_kafka_error_is_fatal`.
    pub fatal: bool,
}

impl Fault {
    /// A code without flags.
    #[must_use]
    pub const fn plain(code: i32) -> Self {
        Self {
            code,
            retriable: false,
            abortable: false,
            fatal: false,
        }
    }
}

/// What follows from an error. Each error has exactly one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The same call, with the same arguments, until its deadline.
    Retriable,
    /// Abort the transaction, rewind, go on with the same producer.
    Abortable,
    /// The group has moved on without us: abort, then let the rebalance tell what is still ours.
    GroupFenced,
    /// This producer is over; a new one with the same id may go on. Somebody else has our id, or
    /// the coordinator ended our transaction, or the sequence of records is broken.
    ProducerFenced,
    /// What should be there is not: an offset out of range. Going on would lose or double records.
    Corrupted,
    /// Nothing helps but a person: a missing permission, a missing topic, a wrong configuration.
    Fatal,
}

/// Whether the content of a record can have caused this error, so that the same record causes it
/// again. A broker that is away, a time-out or a fence says nothing about the records it hits: to
/// search for a culprit among them would condemn an innocent one.
#[must_use]
pub const fn blames_a_record(code: i32) -> bool {
    matches!(
        code,
        code::MESSAGE_TOO_LARGE
            | code::RECORD_LIST_TOO_LARGE
            | code::INVALID_TIMESTAMP
            | code::UNSUPPORTED_FOR_MESSAGE_FORMAT
            | code::INVALID_RECORD
    )
}

/// The error codes that the table names.
pub mod code {
    #![allow(
        missing_docs,
        reason = "Kafka's own names; what they mean is in Kafka's protocol guide"
    )]
    pub const OFFSET_OUT_OF_RANGE: i32 = 1;
    pub const UNKNOWN_TOPIC_OR_PARTITION: i32 = 3;
    pub const LEADER_NOT_AVAILABLE: i32 = 5;
    pub const NOT_LEADER_OR_FOLLOWER: i32 = 6;
    pub const REQUEST_TIMED_OUT: i32 = 7;
    pub const BROKER_NOT_AVAILABLE: i32 = 8;
    pub const REPLICA_NOT_AVAILABLE: i32 = 9;
    pub const MESSAGE_TOO_LARGE: i32 = 10;
    pub const OFFSET_METADATA_TOO_LARGE: i32 = 12;
    pub const NETWORK_EXCEPTION: i32 = 13;
    pub const COORDINATOR_LOAD_IN_PROGRESS: i32 = 14;
    pub const COORDINATOR_NOT_AVAILABLE: i32 = 15;
    pub const NOT_COORDINATOR: i32 = 16;
    pub const INVALID_TOPIC: i32 = 17;
    pub const RECORD_LIST_TOO_LARGE: i32 = 18;
    pub const ILLEGAL_GENERATION: i32 = 22;
    pub const UNKNOWN_MEMBER_ID: i32 = 25;
    pub const REBALANCE_IN_PROGRESS: i32 = 27;
    pub const TOPIC_AUTHORIZATION_FAILED: i32 = 29;
    pub const GROUP_AUTHORIZATION_FAILED: i32 = 30;
    pub const CLUSTER_AUTHORIZATION_FAILED: i32 = 31;
    pub const UNSUPPORTED_VERSION: i32 = 35;
    pub const OUT_OF_ORDER_SEQUENCE: i32 = 45;
    pub const DUPLICATE_SEQUENCE: i32 = 46;
    pub const INVALID_PRODUCER_EPOCH: i32 = 47;
    pub const INVALID_TXN_STATE: i32 = 48;
    pub const INVALID_PRODUCER_ID_MAPPING: i32 = 49;
    pub const INVALID_TRANSACTION_TIMEOUT: i32 = 50;
    pub const CONCURRENT_TRANSACTIONS: i32 = 51;
    pub const TRANSACTION_COORDINATOR_FENCED: i32 = 52;
    pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i32 = 53;
    pub const UNKNOWN_PRODUCER_ID: i32 = 59;
    pub const INVALID_TIMESTAMP: i32 = 32;
    pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: i32 = 43;
    pub const FENCED_LEADER_EPOCH: i32 = 74;
    pub const UNKNOWN_LEADER_EPOCH: i32 = 75;
    pub const FENCED_INSTANCE_ID: i32 = 82;
    pub const INVALID_RECORD: i32 = 87;
    pub const UNSTABLE_OFFSET_COMMIT: i32 = 88;
    pub const PRODUCER_FENCED: i32 = 90;
    pub const FENCED_MEMBER_EPOCH: i32 = 110;
    pub const UNRELEASED_INSTANCE_ID: i32 = 111;
    pub const STALE_MEMBER_EPOCH: i32 = 113;

    pub const LOCAL_TRANSPORT: i32 = -195;
    pub const LOCAL_RESOLVE: i32 = -193;
    pub const LOCAL_UNKNOWN_PARTITION: i32 = -190;
    pub const LOCAL_UNKNOWN_TOPIC: i32 = -188;
    pub const LOCAL_ALL_BROKERS_DOWN: i32 = -187;
    pub const LOCAL_INVALID_ARG: i32 = -186;
    pub const LOCAL_TIMED_OUT: i32 = -185;
    pub const LOCAL_QUEUE_FULL: i32 = -184;
    pub const LOCAL_WAIT_COORD: i32 = -180;
    pub const LOCAL_IN_PROGRESS: i32 = -178;
    pub const LOCAL_PREV_IN_PROGRESS: i32 = -177;
    pub const LOCAL_STATE: i32 = -172;
    pub const LOCAL_AUTHENTICATION: i32 = -169;
    pub const LOCAL_TIMED_OUT_QUEUE: i32 = -166;
    pub const LOCAL_OUTDATED: i32 = -167;
    pub const LOCAL_RETRY: i32 = -161;
    pub const LOCAL_MAX_POLL_EXCEEDED: i32 = -147;
    pub const LOCAL_FENCED: i32 = -144;
    pub const LOCAL_ASSIGNMENT_LOST: i32 = -142;
    pub const LOCAL_AUTO_OFFSET_RESET: i32 = -140;
}

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

use ErrorClass::{Abortable, Corrupted, Fatal, GroupFenced, ProducerFenced, Retriable};

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
    // The epoch was bumped by somebody: a newer owner of the id, or the coordinator's time-out.
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
    // AddPartitionsToTxn (librdkafka #4849). Sequence errors: the log lacks a record that we sent.
    Row {
        calls: Calls::Producer,
        codes: &[
            code::INVALID_TXN_STATE,
            code::OUT_OF_ORDER_SEQUENCE,
            code::DUPLICATE_SEQUENCE,
        ],
        class: ProducerFenced,
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
        ],
        class: Retriable,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(call: CallSite, code: i32) -> ErrorClass {
        classify(call, Fault::plain(code))
    }

    #[track_caller]
    fn check(calls: &[CallSite], codes: &[i32], class: ErrorClass) {
        for &call in calls {
            for &code in codes {
                assert_eq!(plain(call, code), class, "{call:?} {code}");
            }
        }
    }

    const TRANSACTION: [CallSite; 7] = [
        CallSite::Init,
        CallSite::Begin,
        CallSite::Send,
        CallSite::SendOffsets,
        CallSite::Flush,
        CallSite::Commit,
        CallSite::Abort,
    ];

    #[test]
    fn a_missing_permission_is_fatal_at_every_call_even_if_librdkafka_calls_it_abortable() {
        check(&CallSite::ALL, &[29, 30, 31, 53, -169], Fatal);
        let fault = Fault {
            abortable: true,
            ..Fault::plain(29)
        };
        assert_eq!(classify(CallSite::Flush, fault), Fatal);
    }

    #[test]
    fn a_wrong_configuration_is_fatal() {
        check(&[CallSite::Init], &[50], Fatal);
        check(&CallSite::ALL, &[35, 17, -186], Fatal);
    }

    #[test]
    fn a_bumped_epoch_fences_the_producer_whatever_the_flags_say() {
        check(&TRANSACTION, &[-144, 47, 90], ProducerFenced);
        // TxnOffsetCommit: librdkafka calls PRODUCER_FENCED only abortable.
        let fault = Fault {
            abortable: true,
            ..Fault::plain(-144)
        };
        assert_eq!(classify(CallSite::SendOffsets, fault), ProducerFenced);
        let fault = Fault {
            fatal: true,
            ..Fault::plain(-144)
        };
        assert_eq!(classify(CallSite::Commit, fault), ProducerFenced);
    }

    #[test]
    fn an_unknown_transaction_or_sequence_needs_a_new_producer() {
        check(&TRANSACTION, &[48, 45, 46], ProducerFenced);
    }

    #[test]
    fn the_group_fences_inside_send_offsets() {
        check(
            &[CallSite::SendOffsets],
            &[22, 25, 82, 27, 113, 110],
            GroupFenced,
        );
    }

    #[test]
    fn the_group_fences_an_at_least_once_commit_too() {
        check(
            &[CallSite::ConsumerCommit],
            &[22, 25, 27, 113, -142],
            GroupFenced,
        );
    }

    #[test]
    fn a_second_owner_of_the_instance_id_fences_the_consumer() {
        check(
            &[CallSite::Poll, CallSite::Subscribe, CallSite::Close],
            &[82, 111],
            GroupFenced,
        );
    }

    #[test]
    fn metadata_that_never_fits_is_fatal() {
        check(
            &[CallSite::SendOffsets, CallSite::ConsumerCommit],
            &[12],
            Fatal,
        );
    }

    #[test]
    fn rule_9_only_what_a_record_can_cause_blames_one() {
        assert!([10, 18, 32, 43, 87].into_iter().all(blames_a_record));
        // Away, too late, fenced, moved, out of sequence.
        let innocent = [-195, -192, -185, -144, 7, 13, 22, 27, 45, 47, 48, 51, 90];
        assert!(!innocent.into_iter().any(blames_a_record));
    }

    #[test]
    fn a_commit_between_two_states_is_made_again() {
        check(&[CallSite::Commit], &[-172], Retriable);
    }

    #[test]
    fn an_expired_producer_id_is_abortable() {
        check(&TRANSACTION, &[59, 49], Abortable);
    }

    #[test]
    fn a_missing_place_to_send_to_is_fatal_a_record_that_is_too_large_and_a_full_queue_are_not() {
        check(&[CallSite::Send], &[-190, -188, 3], Fatal);
        check(&[CallSite::Send], &[10], Abortable);
        check(&[CallSite::Send], &[-184], Retriable);
        // The broker's refusal comes later, with a flag, and concerns the whole transaction.
        let fault = Fault {
            abortable: true,
            ..Fault::plain(10)
        };
        assert_eq!(classify(CallSite::Flush, fault), Abortable);
    }

    #[test]
    fn an_offset_that_is_not_there_is_corruption() {
        check(
            &[CallSite::Poll, CallSite::Take, CallSite::Bounds],
            &[1, -140],
            Corrupted,
        );
    }

    #[test]
    fn what_passes_by_itself_is_retriable_for_the_consumer() {
        let codes = [
            -195, -193, -187, -185, -166, -180, -178, -161, -147, 7, 13, 8, 9, 5, 6, 74, 75, 14,
            15, 16, 88, 27,
        ];
        check(
            &[CallSite::Poll, CallSite::Committed, CallSite::Bounds],
            &codes,
            Retriable,
        );
    }

    #[test]
    fn a_member_that_the_group_forgot_joins_again() {
        check(&[CallSite::Poll], &[22, 25, 110, 113], Retriable);
    }

    #[test]
    fn a_seek_before_the_fetcher_started_is_retriable() {
        check(&[CallSite::Seek], &[-172, -167, -177], Retriable);
        check(&[CallSite::Assign], &[-172], Fatal);
    }

    #[test]
    fn init_and_flush_resume_after_a_time_out() {
        check(&[CallSite::Init], &[-185, 51], Retriable);
        check(&[CallSite::Flush], &[-185], Retriable);
    }

    #[test]
    fn where_the_table_is_silent_the_flags_decide() {
        let flags = |fatal, abortable, retriable| {
            let fault = Fault {
                code: 9999,
                fatal,
                abortable,
                retriable,
            };
            classify(CallSite::Commit, fault)
        };
        assert_eq!(flags(true, true, true), Fatal);
        assert_eq!(flags(false, true, true), Abortable);
        assert_eq!(flags(false, false, true), Retriable);
        assert_eq!(flags(false, false, false), Fatal);
    }

    #[test]
    fn a_commit_time_out_is_retriable_only_because_librdkafka_says_so() {
        let fault = Fault {
            retriable: true,
            ..Fault::plain(-185)
        };
        assert_eq!(classify(CallSite::Commit, fault), Retriable);
        assert_eq!(plain(CallSite::Commit, -185), Fatal);
    }

    #[test]
    fn every_row_is_reachable() {
        for (at, row) in TABLE.iter().enumerate() {
            for &code in row.codes {
                let hit = CallSite::ALL.into_iter().any(|call| {
                    let first = TABLE
                        .iter()
                        .position(|r| r.calls.contains(call) && r.codes.contains(&code));
                    first == Some(at)
                });
                assert!(hit, "row {at}, code {code}: shadowed by an earlier row");
            }
        }
    }
}
