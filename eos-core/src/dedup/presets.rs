//! Deduplication with the ids and windows of other systems.

use std::fmt;
use std::time::Duration;

use eos_protocol::identity::SeenWindowError;
use serde::Serialize;

use super::SeenIds;
use super::rule::Strictness;
use super::selected::{Selected, of_value};
use crate::codec::PlainType;
use crate::topology::Mistake;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The shortest window of [`service_bus`].
const LEAST_SERVICE_BUS: Duration = Duration::from_secs(20);
/// The longest window of [`service_bus`].
const MOST_SERVICE_BUS: Duration = Duration::from_secs(7 * 86_400);

/// A window and an id. Made by the functions of this module, taken by
/// [`Stream::dedup_as`](crate::Stream::dedup_as).
#[must_use = "a preset does nothing until `Stream::dedup_as` takes it"]
pub struct Preset<K, V> {
    seen: SeenIds<K>,
    id: Selected<K, V>,
    strictness: Strictness,
    wrong: Option<SeenWindowError>,
}

impl<K: 'static, V: 'static> Preset<K, V> {
    fn new(name: &str, window: Duration, id: Selected<K, V>) -> Self
    where
        K: PlainType,
    {
        Self {
            seen: SeenIds::fixed(name, window),
            id,
            strictness: Strictness::default(),
            wrong: None,
        }
    }

    fn pass_too_old(mut self) -> Self {
        self.strictness.too_old = false;
        self
    }

    /// Changes the store: its scope, lateness or horizon.
    ///
    /// ```
    /// # use eos_core::identity::presets::{Preset, jetstream};
    /// let preset: Preset<String, String> = jetstream("seen").configure(|seen| seen.per_partition());
    /// ```
    pub fn configure(self, change: impl FnOnce(SeenIds<K>) -> SeenIds<K>) -> Self {
        Self {
            seen: change(self.seen),
            ..self
        }
    }

    /// Uses the SHA-256 of the value as the id of a record without one. Two equal values are then duplicates, even if
    /// both are intended. An id in the record takes precedence. See [`Dedup::by_value`](super::Dedup::by_value).
    ///
    /// [`sqs_fifo`] with this setting is a queue with content-based deduplication.
    pub fn allow_identical_payloads_to_collapse(self) -> Self
    where
        V: Serialize,
    {
        Self {
            id: self.id.or_else(Selected::value()),
            ..self
        }
    }

    pub(super) fn parts(
        self,
        wrong: impl FnOnce(Mistake),
    ) -> (SeenIds<K>, Selected<K, V>, Strictness) {
        if let Some(reason) = self.wrong {
            let store = self.seen.name().to_owned();
            wrong(Mistake::SeenIds { store, reason });
        }
        (self.seen, self.id, self.strictness)
    }
}

impl<K, V> fmt::Debug for Preset<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preset")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// A FIFO queue of Amazon SQS: header `MessageDeduplicationId`, five minutes. The key is the message group.
///
/// A record without the header fails, because SQS refuses such a message. For content-based deduplication, call
/// [`allow_identical_payloads_to_collapse`](Preset::allow_identical_payloads_to_collapse).
pub fn sqs_fifo<K: PlainType, V: 'static>(name: &str) -> Preset<K, V> {
    let id = Selected::header("MessageDeduplicationId");
    Preset::new(name, 5 * MINUTE, id).pass_too_old()
}

/// Azure Service Bus: header `MessageId`, with the window of the queue. Azure's default is ten minutes.
///
/// With a window outside of 20 seconds to 7 days, the app does not start.
pub fn service_bus<K: PlainType, V: 'static>(name: &str, window: Duration) -> Preset<K, V> {
    let (least, most) = (LEAST_SERVICE_BUS, MOST_SERVICE_BUS);
    let is_valid = (least..=most).contains(&window);
    Preset {
        wrong: (!is_valid).then_some(SeenWindowError::Limits {
            window,
            least,
            most,
        }),
        ..Preset::new(name, window, Selected::header("MessageId")).pass_too_old()
    }
}

/// NATS JetStream: header `Nats-Msg-Id`, two minutes.
pub fn jetstream<K: PlainType, V: 'static>(name: &str) -> Preset<K, V> {
    Preset::new(name, 2 * MINUTE, Selected::header("Nats-Msg-Id")).pass_too_old()
}

/// Google Pub/Sub with the id attribute of Dataflow: a header of this name, ten minutes.
pub fn pubsub<K: PlainType, V: 'static>(name: &str, attribute: &str) -> Preset<K, V> {
    Preset::new(name, 10 * MINUTE, Selected::header(attribute)).pass_too_old()
}

/// RabbitMQ: header `message-id`. RabbitMQ has no window of its own, so choose one that is longer than all retries.
pub fn rabbitmq<K: PlainType, V: 'static>(name: &str, window: Duration) -> Preset<K, V> {
    Preset::new(name, window, Selected::header("message-id")).pass_too_old()
}

/// Events of Stripe's webhooks: the id of the event (`evt_..`), seven days. Stripe repeats an event for three days.
///
/// ```
/// # use eos_core::identity::presets;
/// # use eos_core::{App, Topic};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Event { id: String }
///
/// # let mut app = App::new("a");
/// # let events = Topic::<String, Event, _, _>::json("events");
/// app.source(&events)
///     .dedup_as(presets::stripe_event("seen-events", |event: &Event| event.id.clone()))
///     .only_new()
///     .to(&Topic::json("accepted"));
/// ```
pub fn stripe_event<K: PlainType, V: 'static, I: PlainType>(
    name: &str,
    id: impl Fn(&V) -> I + Send + Sync + 'static,
) -> Preset<K, V> {
    Preset::new(name, 7 * DAY, Selected::new(of_value(id)))
}

/// Requests with Stripe's header `Idempotency-Key`: 24 hours.
pub fn stripe_key<K: PlainType, V: 'static>(name: &str) -> Preset<K, V> {
    Preset::new(name, DAY, Selected::header("Idempotency-Key"))
}

/// PayPal's instant payment notifications: `txn_id` and `payment_status`, four days and one hour. PayPal repeats a
/// notification for four days.
///
/// One payment sends several notifications with the same transaction and different statuses, so the id has both parts.
///
/// ```
/// # use eos_core::identity::presets;
/// # use eos_core::{App, Topic};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Ipn { txn_id: String, payment_status: String }
///
/// # let mut app = App::new("a");
/// # let notifications = Topic::<String, Ipn, _, _>::json("notifications");
/// app.source(&notifications)
///     .dedup_as(presets::paypal_ipn("seen", |ipn: &Ipn| (ipn.txn_id.clone(), ipn.payment_status.clone())))
///     .only_new()
///     .to(&Topic::json("accepted"));
/// ```
pub fn paypal_ipn<K: PlainType, V: 'static, T: PlainType, S: PlainType>(
    name: &str,
    transaction_and_status: impl Fn(&V) -> (T, S) + Send + Sync + 'static,
) -> Preset<K, V> {
    Preset::new(name, 4 * DAY + HOUR, Selected::pair(transaction_and_status))
}

/// An outbox table with Debezium's event router: header `id`, seven days.
pub fn outbox_id<K: PlainType, V: 'static>(name: &str) -> Preset<K, V> {
    Preset::new(name, 7 * DAY, Selected::header("id"))
}

/// CloudEvents in binary mode: headers `ce_source` and `ce_id`. Choose a window that is longer than all retries.
pub fn cloud_events<K: PlainType, V: 'static>(name: &str, window: Duration) -> Preset<K, V> {
    Preset::new(name, window, Selected::cloud_event())
}
