//! The nodes that compare sequence numbers and versions.

use std::any::Any;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_protocol::identity::{Follows, Id, IdKey, Mark, Seen, Version};
use eos_protocol::sequence::{REPLAY_FOR, replay_for};

use super::dedup::generation;
use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use super::row_store::unreadable_row;
use crate::client::Headers;
use crate::ctx::Ctx;
use crate::dedup::{IdentityError, Judged, encode_key, shown};
use crate::failure::Failure;
use crate::record::Record;
use crate::rules;
use crate::sequence::{Gaps, HighWatermarks, Versions};

/// Appends the name of a record's producer, and returns the record's place. `None` without a name.
pub(crate) type MarkOf<K, V> =
    Arc<dyn Fn(&Record<K, V>, &mut Vec<u8>) -> Result<Option<Mark>, Fault> + Send + Sync>;

/// Returns the version of a value.
pub(crate) type VersionOf<V> = Arc<dyn Fn(&V) -> Version + Send + Sync>;

/// Compares each record with the high watermark of its producer, raises the watermark, and forwards the record with the
/// result.
pub(crate) struct Sequenced<K, V> {
    pub(crate) app: Arc<str>,
    pub(crate) store: usize,
    pub(crate) marks: HighWatermarks,
    pub(crate) mark: MarkOf<K, V>,
    pub(crate) passes_without: bool,
}

impl<K: 'static, V: 'static> Sequenced<K, V> {
    fn judge(&self, ctx: &Ctx<'_>, record: &Record<K, V>) -> Result<Seen, Fault> {
        let (name, mut producer) = (self.marks.shared_name(), Vec::new());
        let Some(mark) = (self.mark)(record, &mut producer)? else {
            return match self.passes_without {
                true => Ok(Seen::NoId),
                false => Err(fault(IdentityError::NoProducer {
                    store: Arc::clone(name),
                })),
            };
        };
        // A producer's numbers have an order within one partition only, which is the partition of the task.
        let mut key = Vec::new();
        let generation = generation(&record.headers)?;
        if generation > 0 {
            // Replayed records come in the order of their keys, so each number of a producer counts for itself.
            mark.identify(&mut producer);
        }
        let id = IdKey {
            generation,
            scope: ctx.topic().as_bytes(),
            id: Id::Bytes(&producer),
        };
        id.encode(&mut key);
        let store = ctx.store_at::<Vec<u8>, Vec<u8>>(self.store);
        let row = store.read(&key).map_err(Fault::State)?;
        let last = row.map(|row| Mark::decode(&row)).transpose();
        let mut last = last.map_err(|error| unreadable_row(ctx, name, error))?;
        if !rules::orders_epochs() {
            last = last.filter(|last| last.epoch == mark.epoch);
        }
        let follows = mark.follows(last);
        if let (false, Some(last)) = (follows.is_above() || generation > 0, last)
            && self.is_replayed(ctx, &record.headers)
        {
            return Err(fault(IdentityError::ReplayedNumber {
                store: Arc::clone(name),
                producer: shown(&producer),
                number: mark.number,
                last: last.number,
            }));
        }
        if let (Follows::Gap { missing }, Some(last)) = (follows, last) {
            if self.marks.gaps == Gaps::Fail {
                return Err(fault(IdentityError::Gap {
                    store: Arc::clone(name),
                    producer: shown(&producer),
                    last: last.number,
                    number: mark.number,
                    missing,
                }));
            }
            ctx.found_gap();
        }
        if follows.is_above() || !rules::keeps_highest_marks() {
            let mut row = Vec::new();
            mark.encode(&mut row);
            store.write(&key, &row).map_err(Fault::State)?;
        }
        Ok(match follows {
            Follows::First | Follows::Next | Follows::Gap { .. } => Seen::New,
            Follows::Repeated => Seen::Duplicate {
                first: Timestamp(-1),
            },
            Follows::Stale => Seen::Stale,
        })
    }
}

impl<K, V> Sequenced<K, V> {
    /// Whether the record is a dead letter of this app that came back. For another app that reads the topic, it is a
    /// duplicate like any other.
    fn is_replayed(&self, ctx: &Ctx<'_>, headers: &Headers) -> bool {
        let own = replay_for(&self.app, ctx.topic());
        headers.get(REPLAY_FOR) == Some(own.as_bytes())
    }
}

impl<K: 'static, V: 'static> Node for Sequenced<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let seen = self.judge(ctx, &record)?;
        ctx.judged(seen);
        next.forward(ctx, &mut Some(record.map(|value| Judged::new(value, seen))))
    }
}

/// Compares each record with the highest version of its key, raises the version, and forwards the record with the
/// result.
pub(crate) struct NewestOf<K, V> {
    pub(crate) store: usize,
    pub(crate) versions: Versions<K>,
    pub(crate) version: VersionOf<V>,
}

impl<K: 'static, V: 'static> Node for NewestOf<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let (name, mut key) = (self.versions.shared_name(), Vec::new());
        if !encode_key(&*self.versions.key, name, &record.key, &mut key)? {
            return Err(fault(IdentityError::NoKey {
                store: Arc::clone(name),
            }));
        }
        let version = (self.version)(&record.value);
        let store = ctx.store_at::<Vec<u8>, Vec<u8>>(self.store);
        let row = store.read(&key).map_err(Fault::State)?;
        let last = row.map(|row| Version::decode(&row)).transpose();
        let last = last.map_err(|error| unreadable_row(ctx, name, error))?;
        let is_newer = last.is_none_or(|last| version > last);
        if is_newer || !rules::keeps_highest_marks() {
            let mut row = Vec::new();
            version.encode(&mut row);
            store.write(&key, &row).map_err(Fault::State)?;
        }
        let seen = match is_newer {
            true => Seen::New,
            false => Seen::Stale,
        };
        ctx.judged(seen);
        next.forward(ctx, &mut Some(record.map(|value| Judged::new(value, seen))))
    }
}

fn fault(error: IdentityError) -> Fault {
    Fault::User(Failure::permanent(error))
}
