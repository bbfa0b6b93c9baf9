//! The error codes with a name in eos.
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
pub const TOPIC_ALREADY_EXISTS: i32 = 36;
pub const NOT_CONTROLLER: i32 = 41;
pub const OUT_OF_ORDER_SEQUENCE: i32 = 45;
pub const DUPLICATE_SEQUENCE: i32 = 46;
pub const INVALID_PRODUCER_EPOCH: i32 = 47;
pub const INVALID_TXN_STATE: i32 = 48;
pub const INVALID_PRODUCER_ID_MAPPING: i32 = 49;
pub const INVALID_TRANSACTION_TIMEOUT: i32 = 50;
pub const CONCURRENT_TRANSACTIONS: i32 = 51;
pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i32 = 53;
pub const KAFKA_STORAGE_ERROR: i32 = 56;
pub const UNKNOWN_PRODUCER_ID: i32 = 59;
pub const MEMBER_ID_REQUIRED: i32 = 79;
pub const INVALID_TIMESTAMP: i32 = 32;
pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: i32 = 43;
pub const FENCED_LEADER_EPOCH: i32 = 74;
pub const UNKNOWN_LEADER_EPOCH: i32 = 75;
pub const OFFSET_NOT_AVAILABLE: i32 = 78;
pub const FENCED_INSTANCE_ID: i32 = 82;
pub const INVALID_RECORD: i32 = 87;
pub const UNSTABLE_OFFSET_COMMIT: i32 = 88;
pub const THROTTLING_QUOTA_EXCEEDED: i32 = 89;
pub const PRODUCER_FENCED: i32 = 90;
pub const FENCED_MEMBER_EPOCH: i32 = 110;
pub const UNRELEASED_INSTANCE_ID: i32 = 111;
pub const STALE_MEMBER_EPOCH: i32 = 113;

/// eos: a ledger is not available. Kafka has no codes in this range.
pub const LEDGER_UNAVAILABLE: i32 = 20_001;
/// eos: a ledger ended the transaction.
pub const LEDGER_ABORTED: i32 = 20_002;
/// eos: a ledger refused a row.
pub const LEDGER_REFUSED: i32 = 20_003;
/// eos: another worker moved a position of the transaction.
pub const LEDGER_MOVED: i32 = 20_004;
/// eos: a newer session of the same worker exists.
pub const LEDGER_SUPERSEDED: i32 = 20_005;
/// eos: only an operator can fix the cause.
pub const LEDGER_FATAL: i32 = 20_006;
/// eos: a ledger ended the transaction because of another one, or because it lacks a resource.
pub const LEDGER_CONTENDED: i32 = 20_007;

/// Returns whether a ledger reported this code.
#[must_use]
pub const fn is_of_ledger(code: i32) -> bool {
    matches!(code, LEDGER_UNAVAILABLE..=LEDGER_CONTENDED)
}

pub const LOCAL_BAD_MSG: i32 = -199;
pub const LOCAL_DESTROY: i32 = -197;
pub const LOCAL_TRANSPORT: i32 = -195;
pub const LOCAL_RESOLVE: i32 = -193;
pub const LOCAL_UNKNOWN_PARTITION: i32 = -190;
pub const LOCAL_UNKNOWN_TOPIC: i32 = -188;
pub const LOCAL_ALL_BROKERS_DOWN: i32 = -187;
pub const LOCAL_INVALID_ARG: i32 = -186;
pub const LOCAL_TIMED_OUT: i32 = -185;
pub const LOCAL_QUEUE_FULL: i32 = -184;
pub const LOCAL_SSL: i32 = -181;
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
