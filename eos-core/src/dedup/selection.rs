//! The selection of a record's id.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::{ContentHash, TimedIdFormat};
use serde::Serialize;

use super::content_id::ContentId;
use super::judged::Judged;
use super::operator::Dedup;
use super::selected::{Selected, of_value};
use crate::codec::PlainType;
use crate::record::Record;
use crate::streams::Stream;

impl<K: 'static, V: 'static> Dedup<K, V> {
    /// Takes the id from the value: text, bytes or an integer. `None`, empty text and empty bytes do not count as an
    /// id.
    pub fn by<I: PlainType>(self, f: impl Fn(&V) -> I + Send + Sync + 'static) -> Stream<K, V> {
        self.select(Selected::new(of_value(f))).only_new()
    }

    /// Takes the id from the value: the text of a UUIDv7 (RFC 9562), such as `017f22e2-79b0-7cc3-98c4-dc0c0c07398f`.
    /// Upper-case and lower-case digits are equal. `None` and empty text do not count as an id.
    ///
    /// Requires [`SeenIds::time_embedded`](super::SeenIds::time_embedded).
    ///
    /// ```
    /// # use eos_core::identity::SeenIds;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Payment { id: String, cents: u64 }
    /// # let mut app = App::new("a");
    /// # let payments = Topic::<String, Payment, _, _>::json("payments");
    /// app.source(&payments)
    ///     .dedup(&SeenIds::time_embedded("seen-payments", Duration::from_secs(7 * 86_400)))
    ///     .by_uuid_v7(|payment| payment.id.clone())
    ///     .to(&Topic::json("accepted"));
    /// ```
    ///
    /// # Errors
    /// A record with another text fails with [`IdentityError::Format`](super::IdentityError::Format).
    pub fn by_uuid_v7<I: PlainType>(
        self,
        f: impl Fn(&V) -> I + Send + Sync + 'static,
    ) -> Stream<K, V> {
        self.timed(TimedIdFormat::UuidV7, f).only_new()
    }

    /// Takes the id from the value: the text of a ULID, such as `01ARZ3NDEKTSV4RRFFQ69G5FAV`. Otherwise like
    /// [`by_uuid_v7`](Self::by_uuid_v7).
    ///
    /// # Errors
    /// A record with another text fails with [`IdentityError::Format`](super::IdentityError::Format).
    pub fn by_ulid<I: PlainType>(
        self,
        f: impl Fn(&V) -> I + Send + Sync + 'static,
    ) -> Stream<K, V> {
        self.timed(TimedIdFormat::Ulid, f).only_new()
    }

    fn timed<I: PlainType>(
        self,
        format: TimedIdFormat,
        f: impl Fn(&V) -> I + Send + Sync + 'static,
    ) -> Dedup<K, V, Selected<K, V>> {
        self.select(Selected {
            id: of_value(f),
            format: Some(format),
        })
    }

    /// Takes the id from the last header of this name.
    pub fn by_header(self, name: &str) -> Stream<K, V> {
        self.select(Selected::header(name)).only_new()
    }

    /// Takes the source and the id of a CloudEvent as the id: only the pair is unique. If one part is `None` or empty,
    /// the record has no id.
    ///
    /// This is for structured mode, in which the value is the event. For binary mode, call
    /// [`by_cloud_event_headers`](Self::by_cloud_event_headers). One event has different ids in the two modes if one of
    /// its attributes is not text.
    ///
    /// ```
    /// # use eos_core::identity::SeenIds;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Event { source: String, id: String, data: String }
    ///
    /// # let mut app = App::new("a");
    /// # let events = Topic::<String, Event, _, _>::json("events");
    /// app.source(&events)
    ///     .dedup(&SeenIds::fixed("seen-events", Duration::from_secs(3_600)))
    ///     .by_cloud_event(|event| (event.source.clone(), event.id.clone()))
    ///     .to(&Topic::json("accepted"));
    /// ```
    pub fn by_cloud_event<S: PlainType, I: PlainType>(
        self,
        f: impl Fn(&V) -> (S, I) + Send + Sync + 'static,
    ) -> Stream<K, V> {
        self.select(Selected::pair(f)).only_new()
    }

    /// Takes the headers `ce_source` and `ce_id` of a CloudEvent as the id, as in the binary mode of the Kafka protocol
    /// binding. If one is missing or empty, the record has no id.
    pub fn by_cloud_event_headers(self) -> Stream<K, V> {
        self.select(Selected::cloud_event()).only_new()
    }

    /// Takes the key of the record as the id.
    pub fn by_key(self) -> Stream<K, V> {
        let seen = self.seen().clone();
        let id =
            move |record: &Record<K, V>, into: &mut Vec<u8>| seen.encode_key(&record.key, into);
        self.select(Selected::new(Arc::new(id))).only_new()
    }

    /// Uses the SHA-256 of chosen fields of the value as the id. The namespace separates values of different kinds.
    ///
    /// Choose fields that are equal in each repetition of a request and differ between requests. Do not add a send
    /// time.
    ///
    /// ```
    /// # use eos_core::identity::SeenIds;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Cart { customer: String, cents: u64 }
    /// # let mut app = App::new("a");
    /// # let carts = Topic::<String, Cart, _, _>::json("carts");
    /// app.source(&carts)
    ///     .dedup(&SeenIds::fixed("seen-carts", Duration::from_secs(300)))
    ///     .by_content("checkout", |cart, id| id.add(&cart.customer).add(cart.cents))
    ///     .to(&Topic::json("checkouts"));
    /// ```
    pub fn by_content(
        self,
        namespace: &str,
        f: impl Fn(&V, ContentId) -> ContentId + Send + Sync + 'static,
    ) -> Stream<K, V> {
        let empty = ContentHash::new(namespace);
        let id = move |record: &Record<K, V>, into: &mut Vec<u8>| {
            let id = ContentId::new(empty.clone());
            f(&record.value, id).write(into)
        };
        self.select(Selected::new(Arc::new(id))).only_new()
    }

    /// Uses the SHA-256 of the whole value as the id. Two equal values are then duplicates, even if both are intended,
    /// such as two orders of the same goods or two heartbeats. So this method requires your consent:
    ///
    /// ```
    /// # use eos_core::identity::SeenIds;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// # let prices = Topic::<String, String>::plain("prices");
    /// app.source(&prices)
    ///     .dedup(&SeenIds::fixed("seen-prices", Duration::from_secs(300)))
    ///     .by_value()
    ///     .allow_identical_payloads_to_collapse()
    ///     .to(&Topic::plain("new-prices"));
    /// ```
    ///
    /// Prefer [`by_content`](Self::by_content) with the fields that make a request unique. The hash is that of the
    /// value as JSON. With a `HashMap` or a `HashSet` in the value, equal values can have different ids. If serde can't
    /// serialize the value, the record fails.
    pub fn by_value(self) -> WholeValue<K, V>
    where
        V: Serialize,
    {
        WholeValue(self.select(Selected::value()))
    }

    /// Takes the id from the value, and forwards each judged record with its [`Seen`](super::Seen).
    ///
    /// Duplicates, records that are too old and records without an id are forwarded as well, so `duplicates_to`,
    /// `too_old_to`, `pass_too_old` and `pass_without_id` have no effect. Records from the future, without a timestamp
    /// or with an invalid `eos-replay-generation` still fail.
    ///
    /// ```
    /// # use eos_core::identity::{Seen, SeenIds};
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// # let orders = Topic::<String, String>::plain("orders");
    /// app.source(&orders)
    ///     .dedup(&SeenIds::fixed("seen-orders", Duration::from_secs(300)))
    ///     .judge_by(|order| order.clone())
    ///     .filter(|order| order.seen == Seen::New)
    ///     .map(|order| order.value)
    ///     .to(&Topic::plain("new-orders"));
    /// ```
    pub fn judge_by<I: PlainType>(
        self,
        f: impl Fn(&V) -> I + Send + Sync + 'static,
    ) -> Stream<K, Judged<V>> {
        self.select(Selected::new(of_value(f))).judged()
    }

    /// Takes the id from the value, as [`by_uuid_v7`](Self::by_uuid_v7), and forwards each judged record with its
    /// [`Seen`](super::Seen), as [`judge_by`](Self::judge_by). An id with another format, or from the future, still
    /// fails.
    pub fn judge_by_uuid_v7<I: PlainType>(
        self,
        f: impl Fn(&V) -> I + Send + Sync + 'static,
    ) -> Stream<K, Judged<V>> {
        self.timed(TimedIdFormat::UuidV7, f).judged()
    }

    /// Takes the id from the value, as [`by_ulid`](Self::by_ulid), and forwards each judged record with its
    /// [`Seen`](super::Seen), as [`judge_by`](Self::judge_by). An id with another format, or from the future, still
    /// fails.
    pub fn judge_by_ulid<I: PlainType>(
        self,
        f: impl Fn(&V) -> I + Send + Sync + 'static,
    ) -> Stream<K, Judged<V>> {
        self.timed(TimedIdFormat::Ulid, f).judged()
    }
}

/// A deduplication by whole values, which still requires your consent. Returned by [`Dedup::by_value`].
#[must_use = "a deduplication by whole values does nothing until `allow_identical_payloads_to_collapse` permits it"]
pub struct WholeValue<K, V>(Dedup<K, V, Selected<K, V>>);

impl<K: 'static, V: 'static> WholeValue<K, V> {
    /// Treats equal values of different requests as duplicates, and forwards the other records.
    pub fn allow_identical_payloads_to_collapse(self) -> Stream<K, V> {
        self.0.only_new()
    }
}

impl<K, V> fmt::Debug for WholeValue<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WholeValue")
    }
}
