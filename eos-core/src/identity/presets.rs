//! Deduplication with the ids and sequences of other systems.
//!
//! A preset of ids has a window and an id. [`Stream::dedup_as`](crate::Stream::dedup_as) takes it.
//!
//! | preset | id | window | a record that is too old |
//! |---|---|---|---|
//! | [`sqs_fifo`] | header `MessageDeduplicationId`; the key is the message group | fixed, 5 minutes | passes |
//! | [`service_bus`] | header `MessageId` | fixed, 20 seconds to 7 days | passes |
//! | [`jetstream`] | header `Nats-Msg-Id` | fixed, 2 minutes | passes |
//! | [`pubsub`] | an attribute, which is a header | fixed, 10 minutes | passes |
//! | [`rabbitmq`] | header `message-id` | fixed, your choice | passes |
//! | [`stripe_event`] | the id of the event | fixed, 7 days | fails |
//! | [`stripe_key`] | header `Idempotency-Key` | fixed, 24 hours | fails |
//! | [`paypal_ipn`] | transaction id and payment status | fixed, 4 days and 1 hour | fails |
//! | [`outbox_id`] | header `id` | fixed, 7 days | fails |
//! | [`cloud_events`] | headers `ce_source` and `ce_id` | fixed, your choice | fails |
//!
//! A broker accepts a message whose id it has forgotten, so records that are too old pass in the first five presets.
//! Copies of these records then pass as well. `too_old_to` writes them to a topic instead. The other presets are about
//! money or about events of your own. There, such records fail, and the error policy decides.
//!
//! The window counts in event time. The systems themselves use the clock of their brokers, as a topic with
//! `message.timestamp.type=LogAppendTime` does.
//!
//! The scope is the key of the record, as for [`SeenIds`](crate::identity::SeenIds). [`Preset::configure`] changes it.
//!
//! A preset of sequences has a store of high watermarks.
//! [`Stream::dedup_by_sequence_as`](crate::Stream::dedup_by_sequence_as) takes it.
//!
//! | preset | producer | number |
//! |---|---|---|
//! | [`pulsar`] | the name of the producer | its sequence id |
//! | [`debezium`] | the name of the connector | the commit and the change in the log of PostgreSQL |

pub use crate::dedup::presets::{
    Preset, cloud_events, jetstream, outbox_id, paypal_ipn, pubsub, rabbitmq, service_bus,
    sqs_fifo, stripe_event, stripe_key,
};
pub use crate::sequence::presets::{LogPosition, SequencePreset, debezium, pulsar};
