//! Deduplication of streams.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::Seen;

use super::SeenIds;
use super::judged::Judged;
use super::presets::Preset;
use super::rule::{IdOf, Rule, Strictness};
use super::selected::{Selected, of_value};
use crate::codec::{Encode, PlainType};
use crate::keys::Colocated;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Buffers, Deduplicate, Kind, Mistake, Node};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Drops duplicates: records whose id was seen before.
    ///
    /// [`SeenIds`] defines for how long an id counts as seen. The methods of [`Dedup`] select the id and the topic for
    /// duplicates. All records of a key must be in one task. For ids that are unique across keys, call
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
    /// The id is stored in the transaction that commits the effects of its record. If a later step fails and the record
    /// is skipped or becomes a dead letter, the id is not stored. A retry or a later copy is then new.
    ///
    /// # Errors
    /// Some records fail: see the table of the [module](crate::identity). Behind
    /// [`emit_per_commit`](crate::Table::emit_per_commit), a failed result has no record that the policy could skip, so
    /// the app stops.
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
            id: Unselected(()),
        }
    }

    /// Drops duplicates like another system: a [preset](crate::identity::presets) sets the window and the id.
    ///
    /// ```
    /// # use eos_core::identity::presets;
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let orders = Topic::<String, String>::plain("orders");
    /// app.source(&orders)
    ///     .dedup_as(presets::jetstream("seen-orders"))
    ///     .duplicates_to(&Topic::plain("repeated"))
    ///     .only_new()
    ///     .to(&Topic::plain("accepted"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`dedup`](Self::dedup).
    ///
    /// # Errors
    /// See [`dedup`](Self::dedup).
    pub fn dedup_as(self, preset: Preset<K, V>) -> Dedup<K, V, Selected<K, V>>
    where
        P: Colocated,
    {
        let stream = self.partitioned();
        let (seen, id, strictness) = preset.parts(|mistake| stream.wrong(mistake));
        Dedup {
            stream,
            seen,
            duplicates: None,
            too_old: None,
            tenant: None,
            strictness,
            id,
        }
    }
}

/// Ends a stream of dropped or diverted records.
type End<K, V> = Box<dyn FnOnce(Stream<K, V>) + Send + Sync>;

/// The builder of a deduplication. Returned by [`Stream::dedup`](crate::Stream::dedup) and
/// [`Stream::dedup_as`](crate::Stream::dedup_as).
///
/// Call a method that selects the id last: `by`, `by_header`, `by_key`, `by_content`, `by_value`, `by_cloud_event`,
/// `by_uuid_v7`, `by_ulid` or `judge_by`. Behind `dedup_as`, call `only_new` or `judged` last. `by_uuid_v7` and
/// `by_ulid` ignore case. All other ids are compared byte by byte.
///
/// # Replays
/// To process records again, set their header `eos-replay-generation` to a new number: unsigned, at most 64 bits, as
/// decimal text. Without the header it is 0. Ids of different generations are different.
#[must_use = "a deduplication does nothing until `by`, `by_header`, `by_key`, `by_content` or `judge_by` selects the id. \
              Behind `dedup_as`, call `only_new` or `judged`"]
pub struct Dedup<K, V, I = Unselected> {
    stream: Stream<K, V>,
    seen: SeenIds<K>,
    duplicates: Option<End<K, V>>,
    too_old: Option<End<K, V>>,
    tenant: Option<IdOf<K, V>>,
    strictness: Strictness,
    id: I,
}

/// The id of a [`Dedup`] before its selection.
#[derive(Debug)]
pub struct Unselected(());

impl<K: 'static, V: 'static, I> Dedup<K, V, I> {
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

    /// Passes records that are too old to be judged, instead of failing them. Some of them may be duplicates. Their ids
    /// are not stored. Replaces an earlier [`too_old_to`](Self::too_old_to).
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

    pub(super) fn select(self, id: Selected<K, V>) -> Dedup<K, V, Selected<K, V>> {
        let Self {
            stream,
            seen,
            duplicates,
            too_old,
            tenant,
            strictness,
            id: _,
        } = self;
        Dedup {
            stream,
            seen,
            duplicates,
            too_old,
            tenant,
            strictness,
            id,
        }
    }
}

impl<K: 'static, V: 'static> Dedup<K, V> {
    pub(super) fn seen(&self) -> &SeenIds<K> {
        &self.seen
    }
}

impl<K: 'static, V: 'static> Dedup<K, V, Selected<K, V>> {
    /// Forwards the records that are not duplicates.
    pub fn only_new(self) -> Stream<K, V> {
        let strictness = self.strictness;
        let (mut stream, duplicates, too_old) = self.judge(strictness);
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

    /// Forwards each record with its [`Seen`]. See [`judge_by`](Dedup::judge_by).
    pub fn judged(self) -> Stream<K, Judged<V>> {
        let strictness = Strictness {
            too_old: false,
            no_id: false,
        };
        self.judge(strictness).0
    }

    #[expect(clippy::type_complexity, reason = "a private function")]
    fn judge(
        self,
        strictness: Strictness,
    ) -> (Stream<K, Judged<V>>, Option<End<K, V>>, Option<End<K, V>>) {
        let Self {
            stream,
            seen,
            duplicates,
            too_old,
            tenant,
            id: Selected { id, format },
            ..
        } = self;
        let rule = seen.check().and_then(|()| seen.rule(format));
        let rule = rule.unwrap_or_else(|reason| {
            let store = seen.name().to_owned();
            stream.wrong(Mistake::SeenIds { store, reason });
            Rule::Ever
        });
        let store = stream.own(seen.spec(tenant.is_some()));
        let make = move || -> Box<dyn Node> {
            Box::new(Deduplicate {
                store,
                seen: seen.clone(),
                rule,
                id: Arc::clone(&id),
                tenant: tenant.clone(),
                strictness,
                buffers: Buffers::default(),
            })
        };
        let stream = stream.then(Kind::Dedup(store), make);
        (stream, duplicates, too_old)
    }
}

impl<K, V, I> fmt::Debug for Dedup<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dedup")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
