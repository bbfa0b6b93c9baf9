//! Deduplication of streams.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::{ContentHash, Seen};
use serde::Serialize;

use super::SeenIds;
use crate::codec::{Encode, Encoded, PlainType};
use crate::failure::Failure;
use crate::keys::Colocated;
use crate::record::Record;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Deduplicate, Fault, IdOf, Kind, Mistake, Node, Strictness};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Drops duplicates: records whose id was seen before.
    ///
    /// [`SeenIds`] defines for how long an id counts as seen. The methods of [`Dedup`] select the id and the topic for
    /// duplicates. Requires the records of a key in one task. For ids that are unique across keys, call
    /// [`key_by`](Self::key_by) with the id and [`repartition`](Self::repartition) first.
    ///
    /// ```
    /// # use eos_core::identity::SeenIds;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Payment { id: String, cents: u64 }
    /// # let mut app = App::new("a");
    /// # let payments = Topic::<String, Payment, _, _>::json("payments");
    /// # let (repeated, accepted) = (Topic::json("repeated"), Topic::json("accepted"));
    /// app.source(&payments)
    ///     .dedup(&SeenIds::fixed("seen-payments", Duration::from_secs(300)))
    ///     .duplicates_to(&repeated)
    ///     .by(|payment| payment.id.clone())
    ///     .to(&accepted);
    /// ```
    ///
    /// # Exactly-once
    /// The id is stored in the transaction that commits the effects of its record. If a later step fails and the record is
    /// skipped or becomes a dead letter, the id is not stored. A retry or a later copy is then new.
    ///
    /// # Errors
    /// Some records fail: see the table of the [module](crate::identity). Behind
    /// [`emit_per_commit`](crate::Table::emit_per_commit), a failed result has no record that the policy could skip, so the
    /// app stops.
    pub fn dedup(self, seen: &SeenIds<K>) -> Dedup<K, V>
    where
        P: Colocated,
    {
        Dedup {
            stream: self.partitioned(),
            seen: seen.clone(),
            duplicates: None,
            too_old: None,
            tenant: None,
            strictness: Strictness::default(),
        }
    }
}

/// Ends a stream of records that are left out.
type End<K, V> = Box<dyn FnOnce(Stream<K, V>) + Send + Sync>;

/// A stream whose duplicates will be found. Returned by [`Stream::dedup`](crate::Stream::dedup).
///
/// Call `by`, `by_header`, `by_key`, `by_content` or `judge_by` last. Ids are compared byte by byte.
///
/// # Replays
/// To process records again, set their header `eos-replay-generation` to a new number: unsigned, at most 64 bits, as
/// decimal text. Without the header it is 0. Ids of different generations are different.
#[must_use = "a deduplication does nothing until `by`, `by_header`, `by_key`, `by_content` or `judge_by` says what the id is"]
pub struct Dedup<K, V> {
    stream: Stream<K, V>,
    seen: SeenIds<K>,
    duplicates: Option<End<K, V>>,
    too_old: Option<End<K, V>>,
    tenant: Option<IdOf<K, V>>,
    strictness: Strictness,
}

impl<K: 'static, V: 'static> Dedup<K, V> {
    /// Writes duplicates unchanged to this topic. Without this call they are dropped. The metric
    /// `eos_dedup_duplicates_total` counts them in both cases.
    pub fn duplicates_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let topic = topic.clone();
        self.duplicates = Some(Box::new(move |stream| stream.to(&topic)));
        self
    }

    /// Writes records that are too old to be judged unchanged to this topic, instead of failing them. Their ids are not
    /// stored.
    pub fn too_old_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let topic = topic.clone();
        self.too_old = Some(Box::new(move |stream| stream.to(&topic)));
        self.strictness.too_old = false;
        self
    }

    /// Passes records that are too old to be judged, instead of failing them. Some of them may be duplicates. Their ids are
    /// not stored. Replaces an earlier [`too_old_to`](Self::too_old_to).
    pub fn pass_too_old(mut self) -> Self {
        self.too_old = None;
        self.strictness.too_old = false;
        self
    }

    /// Passes records without an id, instead of failing them. Some of them may be duplicates.
    pub fn pass_without_id(mut self) -> Self {
        self.strictness.no_id = false;
        self
    }

    /// Adds a tenant to the scope: equal ids of different tenants are not duplicates.
    pub fn tenant<T: PlainType>(mut self, f: impl Fn(&V) -> T + Send + Sync + 'static) -> Self {
        self.tenant = Some(of_value(f));
        self
    }

    /// Takes the id from the value: text, bytes or an integer. `None`, empty text and empty bytes are no id.
    pub fn by<I: PlainType>(self, f: impl Fn(&V) -> I + Send + Sync + 'static) -> Stream<K, V> {
        self.only_new(of_value(f))
    }

    /// Takes the id from the last header of this name.
    pub fn by_header(self, name: &str) -> Stream<K, V> {
        let name = name.to_owned();
        self.only_new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                let header = record.headers.get(&name);
                into.extend_from_slice(header.unwrap_or_default());
                Ok(header.is_some())
            },
        ))
    }

    /// Takes the key of the record as the id.
    pub fn by_key(self) -> Stream<K, V> {
        let key = Arc::clone(&self.seen.key);
        let name = Arc::clone(self.seen.shared_name());
        self.only_new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                super::seen_ids::encode_key(&*key, &name, &record.key, into)
            },
        ))
    }

    /// Uses the SHA-256 of chosen fields of the value as the id. The namespace separates values of different kinds.
    ///
    /// Choose fields that are equal in each repetition of a request and differ between requests. Do not add a send time.
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
        self.only_new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                let id = ContentId {
                    hash: empty.clone(),
                    error: None,
                };
                let ContentId { hash, error } = f(&record.value, id);
                match error {
                    Some(error) => Err(Fault::User(Failure::permanent(error))),
                    None => {
                        into.extend_from_slice(&hash.finish());
                        Ok(true)
                    }
                }
            },
        ))
    }

    /// Takes the id from the value, and forwards each judged record with its [`Seen`].
    ///
    /// Duplicates, records that are too old and records without an id are forwarded as well, so `duplicates_to`,
    /// `too_old_to`, `pass_too_old` and `pass_without_id` have no effect. Records from the future, without a timestamp or with
    /// an invalid `eos-replay-generation` still fail.
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
        let strictness = Strictness {
            too_old: false,
            no_id: false,
        };
        self.judged(strictness, of_value(f)).0
    }

    fn only_new(self, id: IdOf<K, V>) -> Stream<K, V> {
        let strictness = self.strictness;
        let (mut stream, duplicates, too_old) = self.judged(strictness, id);
        if let Some(end) = duplicates {
            let (duplicates, others) =
                stream.branch(|record| matches!(record.seen, Seen::Duplicate { .. }));
            end(duplicates.map(|record| record.value));
            stream = others;
        }
        if let Some(end) = too_old {
            let (too_old, others) = stream.branch(|record| record.seen == Seen::TooOld);
            end(too_old.map(|record| record.value));
            stream = others;
        }
        stream.filter_map(|record| match record.seen {
            Seen::Duplicate { .. } => None,
            _ => Some(record.value),
        })
    }

    #[expect(clippy::type_complexity, reason = "a private function")]
    fn judged(
        self,
        strictness: Strictness,
        id: IdOf<K, V>,
    ) -> (Stream<K, Judged<V>>, Option<End<K, V>>, Option<End<K, V>>) {
        let Self {
            stream,
            seen,
            duplicates,
            too_old,
            tenant,
            ..
        } = self;
        if let Err(reason) = seen.check() {
            stream.wrong(Mistake::SeenIds {
                store: seen.name().to_owned(),
                reason,
            });
        }
        let store = stream.own(seen.spec(tenant.is_some()));
        let make = move || -> Box<dyn Node> {
            Box::new(Deduplicate {
                store,
                seen: seen.clone(),
                id: Arc::clone(&id),
                tenant: tenant.clone(),
                strictness,
            })
        };
        let stream = stream.then(Kind::Dedup(store), make);
        (stream, duplicates, too_old)
    }
}

/// Writes a part of the value.
fn of_value<K, V: 'static, I: PlainType>(
    f: impl Fn(&V) -> I + Send + Sync + 'static,
) -> IdOf<K, V> {
    Arc::new(move |record: &Record<K, V>, into: &mut Vec<u8>| {
        let part = f(&record.value);
        let written = part.write(into);
        part.recycle();
        Ok(written == Encoded::Bytes)
    })
}

impl<K, V> fmt::Debug for Dedup<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dedup")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// A value, and the status of its record's id. Returned by [`Dedup::judge_by`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged<V> {
    /// The value.
    pub value: V,
    /// The status of the id.
    pub seen: Seen,
}

impl<V> Judged<V> {
    pub(crate) fn new(value: V, seen: Seen) -> Self {
        Self { value, seen }
    }
}

/// An id of chosen fields, for [`Dedup::by_content`].
#[derive(Debug)]
pub struct ContentId {
    hash: ContentHash,
    /// The first error of a field.
    error: Option<serde_json::Error>,
}

impl ContentId {
    /// Adds a field as JSON. The order of the calls is a part of the id. Do not add a `HashMap` or a `HashSet`: equal ones
    /// serialize in different orders, so duplicates are not found. Use a `BTreeMap` or a sorted `Vec`.
    ///
    /// If serde can't serialize a field, the record fails.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "it adds a field, and the operator `+` would say something else"
    )]
    pub fn add(mut self, field: impl Serialize) -> Self {
        match serde_json::to_vec(&field) {
            Ok(bytes) => self.hash.add(&bytes),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self
    }
}
