//! The node of deduplication.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::identity::{IdKey, Seen, SeenWindow, Sighting};

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use crate::client::Headers;
use crate::codec::CodecError;
use crate::ctx::Ctx;
use crate::dedup::{IdentityError, Judged, SeenFor, SeenIds, encode_key};
use crate::failure::Failure;
use crate::record::Record;
use crate::rules;
use crate::store::StateError;

/// The header with the number of the replay.
const GENERATION: &str = "eos-replay-generation";

/// Appends a part of a record, such as its id. Returns false if it is null.
pub(crate) type IdOf<K, V> =
    Arc<dyn Fn(&Record<K, V>, &mut Vec<u8>) -> Result<bool, Fault> + Send + Sync>;

/// Which records fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strictness {
    pub(crate) too_old: bool,
    pub(crate) no_id: bool,
}

impl Default for Strictness {
    fn default() -> Self {
        Self {
            too_old: true,
            no_id: true,
        }
    }
}

/// Judges each record by the stored ids, stores new ones, and forwards the record with the result.
pub(crate) struct Deduplicate<K, V> {
    pub(crate) store: usize,
    pub(crate) seen: SeenIds<K>,
    pub(crate) id: IdOf<K, V>,
    pub(crate) tenant: Option<IdOf<K, V>>,
    pub(crate) strictness: Strictness,
}

impl<K: 'static, V: 'static> Deduplicate<K, V> {
    /// Makes the key of the record's id. `None` if the record has none.
    ///
    /// ```text
    /// scope with a tenant:     has a tenant (1 byte) · length (8 bytes) · tenant · rest
    /// rest within a key:       has a key (1 byte) · key
    /// rest within a partition: number (4 bytes)
    /// ```
    fn key(&self, ctx: &Ctx<'_>, record: &Record<K, V>) -> Result<Option<Vec<u8>>, Fault> {
        let (mut id, mut scope, mut part) = (Vec::new(), Vec::new(), Vec::new());
        if !(self.id)(record, &mut id)? || id.is_empty() {
            return Ok(None);
        }
        if let Some(tenant) = &self.tenant {
            let is_null = !tenant(record, &mut part)?;
            scope.push(u8::from(!is_null));
            scope.extend_from_slice(&(part.len() as u64).to_be_bytes());
            scope.append(&mut part);
        }
        if self.seen.per_partition {
            scope.extend_from_slice(&ctx.partition().get().to_be_bytes());
        } else {
            let (codec, name) = (&*self.seen.key, self.seen.shared_name());
            let is_null = !encode_key(codec, name, &record.key, &mut part)?;
            scope.push(u8::from(!is_null));
            scope.append(&mut part);
        }
        if !rules::keeps_scopes_apart() {
            scope.clear();
        }
        let mut key = Vec::new();
        let id = IdKey {
            generation: generation(&record.headers)?,
            scope: &scope,
            id: &id,
        };
        id.encode(&mut key);
        Ok(Some(key))
    }

    /// Judges an id by its sightings in a window, and stores a new one.
    fn judge(
        &self,
        ctx: &Ctx<'_>,
        window: &SeenWindow,
        key: &Vec<u8>,
        time: Timestamp,
    ) -> Result<Seen, Fault> {
        let now = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let store = ctx.windows_at::<Vec<u8>, Vec<u8>>(self.store);
        let (mut sightings, mut has_expired) = (Vec::new(), false);
        for bucket in window.buckets(time) {
            has_expired |= store.is_over(bucket);
            if let Some(row) = store.read(key, bucket).map_err(Fault::State)? {
                let sighting = Sighting::decode(bucket, &row);
                sightings.push(sighting.map_err(|error| self.unreadable(error))?);
            }
        }
        let (seen, sighting) = window.judge(time, now, sightings, has_expired);
        if let Some(sighting) = sighting {
            let bucket = window.bucket_of(sighting.at);
            let mut row = Vec::new();
            sighting.encode(bucket, &mut row);
            store.write(key, bucket, &row).map_err(Fault::State)?;
        }
        if seen == Seen::TooOld && self.strictness.too_old {
            let behind = millis(now.0.saturating_sub(time.0));
            let lateness = window.max_lateness();
            return Err(self.fault(|store| IdentityError::TooOld {
                store,
                time,
                behind,
                lateness,
            }));
        }
        Ok(seen)
    }

    /// Judges an id that never expires.
    fn judge_for_ever(
        &self,
        ctx: &Ctx<'_>,
        key: &Vec<u8>,
        time: Option<Timestamp>,
    ) -> Result<Seen, Fault> {
        let store = ctx.store_at::<Vec<u8>, i64>(self.store);
        if let Some(first) = store.read(key).map_err(Fault::State)? {
            let first = Timestamp(first);
            return Ok(Seen::Duplicate { first });
        }
        let first = time.map_or(-1, |time| time.0);
        store.write(key, &first).map_err(Fault::State)?;
        Ok(Seen::New)
    }

    fn fault(&self, error: impl FnOnce(Arc<str>) -> IdentityError) -> Fault {
        let store = Arc::clone(self.seen.shared_name());
        Fault::User(Failure::permanent(error(store)))
    }

    fn unreadable(&self, error: eos_protocol::identity::SightingError) -> Fault {
        Fault::State(StateError::Unreadable {
            store: Arc::clone(self.seen.shared_name()),
            source: CodecError::invalid("a sighting of an id", error),
        })
    }
}

impl<K: 'static, V: 'static> Node for Deduplicate<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let seen = match (self.key(ctx, &record)?, self.seen.seen_for) {
            (None, _) if self.strictness.no_id => {
                return Err(self.fault(|store| IdentityError::NoId { store }));
            }
            (None, _) => Seen::NoId,
            (Some(key), SeenFor::Ever) => self.judge_for_ever(ctx, &key, record.timestamp)?,
            (Some(key), SeenFor::Window(window)) => {
                let Some(time) = record.timestamp.filter(|time| time.0 >= 0) else {
                    return Err(Fault::NoTime(record.timestamp));
                };
                self.judge(ctx, &window, &key, time)?
            }
        };
        ctx.judged(seen);
        next.forward(ctx, &mut Some(record.map(|value| Judged::new(value, seen))))
    }
}

/// The number of the replay in a header; 0 without the header.
pub(super) fn generation(headers: &Headers) -> Result<u64, Fault> {
    let Some(header) = headers.get(GENERATION) else {
        return Ok(0);
    };
    let number = str::from_utf8(header)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let value = String::from_utf8_lossy(header).into_owned();
        Fault::User(Failure::permanent(IdentityError::Generation { value }))
    })
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
