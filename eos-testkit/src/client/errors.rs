//! The handling of error codes in librdkafka.

use eos_client::ClientError;
use eos_protocol::{CallSite, Fault, code};
use kafka_protocol::ResponseError;

/// The text of a code.
fn text(error: i16) -> String {
    ResponseError::try_from_code(error).map_or_else(String::new, |error| error.to_string())
}

/// An error without flags.
pub(super) fn plain(call: CallSite, error: i16) -> ClientError {
    ClientError::new(call, error.into(), text(error))
}

/// An error that requires an abort of the open transaction.
pub(super) fn abortable(call: CallSite, error: i16) -> ClientError {
    let mut found = plain(call, error);
    found.fault.abortable = true;
    found
}

/// An error after which the producer is unusable.
pub(super) fn fatal(call: CallSite, error: i32, text: &str) -> ClientError {
    ClientError {
        call,
        fault: Fault {
            fatal: true,
            ..Fault::plain(error)
        },
        text: text.to_owned(),
    }
}

/// Another producer has the producer's id (`rd_kafka_txn_set_fatal_error`).
pub(super) fn fenced(call: CallSite) -> ClientError {
    let text = "a newer producer has its transactional id, or its transaction timed out";
    fatal(call, code::LOCAL_FENCED, text)
}

/// The effect of an error code in a response on a transactional producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sense {
    /// No error.
    Well,
    /// The request has to be repeated later.
    Again,
    /// The transaction has to be aborted.
    Abortable,
    /// The producer is fenced.
    Fenced,
    /// The producer is unusable.
    Fatal,
}

/// The effect of a code in responses to AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn and Produce
/// (`rd_kafka_txn_handle_*`, `rd_kafka_handle_Produce_error`).
pub(super) fn sense(error: i16) -> Sense {
    const AGAIN: [i32; 11] = [
        code::CONCURRENT_TRANSACTIONS,
        code::COORDINATOR_NOT_AVAILABLE,
        code::COORDINATOR_LOAD_IN_PROGRESS,
        code::NOT_COORDINATOR,
        code::NOT_LEADER_OR_FOLLOWER,
        code::LEADER_NOT_AVAILABLE,
        code::REQUEST_TIMED_OUT,
        code::NETWORK_EXCEPTION,
        code::UNKNOWN_TOPIC_OR_PARTITION,
        code::KAFKA_STORAGE_ERROR,
        code::BROKER_NOT_AVAILABLE,
    ];
    match i32::from(error) {
        0 => Sense::Well,
        it if AGAIN.contains(&it) => Sense::Again,
        code::INVALID_PRODUCER_EPOCH | code::PRODUCER_FENCED => Sense::Fenced,
        code::INVALID_TXN_STATE | code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => Sense::Fatal,
        _ => Sense::Abortable,
    }
}
