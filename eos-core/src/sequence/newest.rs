//! The guard of versions.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::{Seen, Version};

use super::{End, Versions, divert, end_in};
use crate::codec::Encode;
use crate::dedup::Judged;
use crate::keys::Colocated;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Kind, NewestOf, Node, VersionOf};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Passes a record only if its version is higher than that of all earlier records of its key.
    ///
    /// Other records are stale: late or repeated. Use this method for values that replace each other, such as the state
    /// of an order. Do not use it for increments: a late increment would be lost. [`accepted`](Newest::accepted) ends
    /// the declaration.
    ///
    /// ```
    /// # use eos_core::identity::Versions;
    /// # use eos_core::{App, Topic};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Product { version: u64, cents: u64 }
    /// # let mut app = App::new("a");
    /// # let products = Topic::<String, Product, _, _>::json("products");
    /// # let (stale, newest) = (Topic::json("stale"), Topic::json("newest"));
    /// app.source(&products)
    ///     .newest(&Versions::new("product-versions"), |product| product.version)
    ///     .stale_to(&stale)
    ///     .accepted()
    ///     .to(&newest);
    /// ```
    ///
    /// # Exactly-once
    /// The version is stored in the transaction that commits the effects of its record. If a later step fails and the
    /// record is skipped or becomes a dead letter, the stored version does not change.
    ///
    /// # Errors
    /// A record without a key fails. The error policy of the source decides.
    pub fn newest<N: Into<u128>>(
        self,
        versions: &Versions<K>,
        version: impl Fn(&V) -> N + Send + Sync + 'static,
    ) -> Newest<K, V>
    where
        P: Colocated,
    {
        Newest {
            stream: self.partitioned(),
            versions: versions.clone(),
            version: Arc::new(move |value| Version(version(value).into())),
            stale: None,
        }
    }
}

/// The builder of a guard of versions. Returned by [`Stream::newest`](crate::Stream::newest).
///
/// Call [`accepted`](Self::accepted) or [`judged`](Self::judged) last.
#[must_use = "the guard does nothing until `accepted` or `judged` ends its declaration"]
pub struct Newest<K, V> {
    stream: Stream<K, V>,
    versions: Versions<K>,
    version: VersionOf<V>,
    stale: Option<End<K, V>>,
}

impl<K: 'static, V: 'static> Newest<K, V> {
    /// Writes stale records unchanged to this topic. Without this call they are dropped. The metric
    /// `eos_dedup_stale_total` counts them in both cases.
    pub fn stale_to<KC, VC>(mut self, topic: &Topic<K, V, KC, VC>) -> Self
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.stale = Some(end_in(topic));
        self
    }

    /// Returns the records that were the newest of their keys.
    pub fn accepted(mut self) -> Stream<K, V> {
        let stale = self.stale.take();
        let stream = divert(self.judged(), stale, |seen| seen == Seen::Stale);
        stream.filter_map(|record| (record.seen != Seen::Stale).then_some(record.value))
    }

    /// Returns all records with their status: [`Seen::New`] or [`Seen::Stale`]. The setting `stale_to` has no effect.
    pub fn judged(self) -> Stream<K, Judged<V>> {
        let Self {
            stream,
            versions,
            version,
            ..
        } = self;
        let store = stream.own(versions.spec());
        let make = move || -> Box<dyn Node> {
            Box::new(NewestOf {
                store,
                versions: versions.clone(),
                version: Arc::clone(&version),
            })
        };
        stream.then(Kind::Newest(store), make)
    }
}

impl<K, V> fmt::Debug for Newest<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newest")
            .field("versions", &self.versions)
            .finish_non_exhaustive()
    }
}
