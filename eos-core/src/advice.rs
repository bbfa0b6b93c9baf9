//! The fixes for errors of the Kafka client.

use eos_protocol::code;

use crate::client::ClientError;

/// Returns the fix for an error whose own text names none.
pub(crate) fn advice(error: &ClientError) -> &'static str {
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
