//! The node of deduplication.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::identity::{Id, IdAge, IdKey, Seen, SeenWindow, Sighting, TimedId, TimedIds};

use super::fault::Fault;
use super::node::{Next, Node};
use super::nodes::take;
use super::row_store::{row_fault, unreadable_row};
use crate::client::Headers;
use crate::codec::PlainType;
use crate::ctx::Ctx;
use crate::dedup::{IdOf, IdentityError, Judged, Rule, SeenIds, Strictness};
use crate::failure::Failure;
use crate::record::Record;
use crate::rules;

/// The header with the number of the replay.
const GENERATION: &str = "eos-replay-generation";

/// The first byte of the scope of replayed records whose own time has expired. All other scopes begin with a smaller one.
const REPLAYED: u8 = 0xff;
const REPLAYED_HEAD: usize = 9;

/// The rule for one record.
enum Judge {
    Window(SeenWindow),
    Timed(TimedIds, TimedId),
    Ever,
}

/// Judges each record by the stored ids, stores new ones, and forwards the record with the result.
pub(crate) struct Deduplicate<K, V> {
    pub(crate) store: usize,
    pub(crate) seen: SeenIds<K>,
    pub(crate) rule: Rule,
    pub(crate) id: IdOf<K, V>,
    pub(crate) tenant: Option<IdOf<K, V>>,
    pub(crate) strictness: Strictness,
    pub(crate) buffers: Buffers,
}

/// Buffers of the node, reused for all records.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    id: Vec<u8>,
    scope: Vec<u8>,
    /// A tenant or a key.
    part: Vec<u8>,
    /// The key of the row.
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Buffers {
    fn clear(&mut self) {
        let Self {
            id,
            scope,
            part,
            key,
            row,
        } = self;
        [id, scope, part, key, row].into_iter().for_each(Vec::clear);
    }
}

impl<K: 'static, V: 'static> Deduplicate<K, V> {
    /// Makes the key of the record's id, and returns the rule and the generation. Returns `None` if the record has no id.
    ///
    /// ```text
    /// scope with a tenant:     has a tenant (1 byte) · length (8 bytes) · tenant · rest
    /// rest within a key:       has a key (1 byte) · key
    /// rest within a partition: number (4 bytes)
    /// ```
    fn identify(
        &mut self,
        ctx: &Ctx<'_>,
        record: &Record<K, V>,
    ) -> Result<Option<(Judge, u64)>, Fault> {
        self.buffers.clear();
        let Buffers {
            id,
            scope,
            part,
            key,
            ..
        } = &mut self.buffers;
        if !(self.id)(record, id)? || id.is_empty() {
            return Ok(None);
        }
        let judge = match self.rule {
            Rule::Window(window) => Judge::Window(window),
            Rule::Timed(ids, format) => Judge::Timed(ids, self.seen.timed(format, id)?),
            Rule::Ever => Judge::Ever,
        };
        if let Some(tenant) = &self.tenant {
            let is_null = !tenant(record, part)?;
            scope.push(u8::from(!is_null));
            scope.extend_from_slice(&(part.len() as u64).to_be_bytes());
            scope.append(part);
        }
        if self.seen.per_partition {
            scope.extend_from_slice(&ctx.partition().get().to_be_bytes());
        } else {
            let is_null = !self.seen.encode_key(&record.key, part)?;
            scope.push(u8::from(!is_null));
            scope.append(part);
        }
        if !rules::keeps_scopes_apart() {
            scope.clear();
        }
        let generation = generation(&record.headers)?;
        let row = IdKey {
            generation,
            scope,
            id: match judge {
                Judge::Timed(_, id) => Id::Timed(id),
                Judge::Window(_) | Judge::Ever => Id::Bytes(id),
            },
        };
        row.encode(key);
        Ok(Some((judge, generation)))
    }

    /// Judges an id by its sightings in a window, and stores a new one.
    fn judge(
        &mut self,
        ctx: &Ctx<'_>,
        window: &SeenWindow,
        time: Timestamp,
    ) -> Result<Seen, Fault> {
        let now = ctx.stream_time().map_or(time, |seen| seen.max(time));
        let store = ctx.windows_at::<Vec<u8>, Vec<u8>>(self.store);
        let (key, first) = (&self.buffers.key, window.first_bucket(time));
        let has_expired = store.is_expired(first);
        let mut sightings = [None; SeenWindow::MOST_BUCKETS];
        if !store.lacks_since(key, first).map_err(Fault::State)? {
            for (bucket, found) in window.buckets(time).zip(&mut sightings) {
                let Some(row) = store.read(key, bucket).map_err(Fault::State)? else {
                    continue;
                };
                let sighting = Sighting::decode(bucket, &row);
                *found =
                    Some(sighting.map_err(|e| unreadable_row(ctx, self.seen.shared_name(), e))?);
                PlainType::recycle(row);
            }
        }
        let sightings = sightings.into_iter().flatten();
        let (seen, sighting) = window.judge(time, now, sightings, has_expired);
        if let Some(sighting) = sighting {
            let bucket = window.bucket_of(sighting.at);
            let Buffers { key, row, .. } = &mut self.buffers;
            sighting.encode(bucket, row);
            // A step may have set a time ahead of the records.
            store.check_start(bucket).map_err(Fault::State)?;
            store.write(key, bucket, row).map_err(Fault::State)?;
        }
        Ok(seen)
    }

    /// Judges a record that is too old for its window. Only a replay of another generation can pass: it asks to process
    /// again. Its ids are compared with those of its generation that were too old as well.
    fn judge_too_old(
        &mut self,
        ctx: &Ctx<'_>,
        window: &SeenWindow,
        (time, generation): (Timestamp, u64),
    ) -> Result<Seen, Fault> {
        let now = ctx.stream_time().map_or(time, |seen| seen.max(time));
        if generation == 0 {
            let behind = millis(now.0.saturating_sub(time.0));
            let lateness = window.max_lateness();
            return self.too_old(|store| IdentityError::TooOld {
                store,
                time,
                behind,
                lateness,
            });
        }
        let store = ctx.windows_at::<Vec<u8>, Vec<u8>>(self.store);
        let mut sightings = Vec::new();
        // Each part of the record's own window has a row, in the part of stream time.
        for own in window.buckets(time) {
            self.mark_replayed(generation, own);
            for bucket in window.buckets(now) {
                let row = store.read(&self.buffers.key, bucket);
                if let Some(row) = row.map_err(Fault::State)? {
                    let sighting = Sighting::decode(bucket, &row);
                    let name = self.seen.shared_name();
                    sightings.push(sighting.map_err(|e| unreadable_row(ctx, name, e))?);
                }
            }
        }
        let (seen, sighting) = window.judge_replayed(time, now, sightings);
        if let Some(sighting) = sighting {
            self.note_replayed(ctx, window, (sighting, generation))?;
        }
        Ok(seen)
    }

    /// Stores that a record passed in a generation, for copies that come when its own window has expired.
    fn note_replayed(
        &mut self,
        ctx: &Ctx<'_>,
        window: &SeenWindow,
        (sighting, generation): (Sighting, u64),
    ) -> Result<(), Fault> {
        self.mark_replayed(generation, window.bucket_of(sighting.first));
        let store = ctx.windows_at::<Vec<u8>, Vec<u8>>(self.store);
        let bucket = window.bucket_of(sighting.at);
        let Buffers { key, row, .. } = &mut self.buffers;
        row.clear();
        sighting.encode(bucket, row);
        (store.write(key, bucket, row).map(drop)).map_err(Fault::State)
    }

    /// Makes the key of a replayed record whose own time has expired, or will: in a scope of its own, because its row is in
    /// the window of stream time.
    ///
    /// ```text
    /// scope: 0xff · own part of time (8 bytes) · scope
    /// ```
    fn mark_replayed(&mut self, generation: u64, own: Timestamp) {
        let Buffers { id, scope, key, .. } = &mut self.buffers;
        if scope.first() == Some(&REPLAYED) {
            scope.drain(..REPLAYED_HEAD);
        }
        let head = [&[REPLAYED][..], &own.0.to_be_bytes()].concat();
        scope.splice(0..0, head);
        key.clear();
        let id = Id::Bytes(id);
        let row = IdKey {
            generation,
            scope,
            id,
        };
        row.encode(key);
    }

    fn too_old(&self, error: impl FnOnce(Arc<str>) -> IdentityError) -> Result<Seen, Fault> {
        match self.strictness.too_old {
            true => Err(self.fault(error)),
            false => Ok(Seen::TooOld),
        }
    }

    /// Judges an id by the time in it, and stores a new one.
    fn judge_timed(
        &mut self,
        ctx: &Ctx<'_>,
        ids: &TimedIds,
        id: TimedId,
        (first, generation): (Timestamp, u64),
    ) -> Result<Seen, Fault> {
        let now = ctx.stream_time().unwrap_or(first);
        let (time, store) = (id.time(), ctx.windows_at::<Vec<u8>, i64>(self.store));
        let age = match ids.age(time, now) {
            // A handler of the machine's clock may forward records while stream time stands still.
            IdAge::Future(_) => ids.age(time, now.max(first)),
            age => age,
        };
        let (bucket, is_old) = match age {
            IdAge::Current(bucket) => (bucket, false),
            IdAge::TooOld(_) if generation > 0 => {
                // The time of an id is always the same.
                self.mark_replayed(generation, time);
                (ids.bucket_of(now), true)
            }
            IdAge::TooOld(behind) => {
                let remember = ids.remember();
                return self.too_old(|store| IdentityError::OldId {
                    store,
                    time,
                    behind,
                    remember,
                });
            }
            IdAge::Future(ahead) => {
                return Err(self.fault(|store| IdentityError::FutureId { store, time, ahead }));
            }
        };
        let key = &self.buffers.key;
        // An older copy of a replayed record was stored at its stream time, which may be any remembered one.
        let others = is_old.then(|| ids.buckets(now).skip(1));
        for bucket in std::iter::once(bucket).chain(others.into_iter().flatten()) {
            if let Some(first) = store.read(key, bucket).map_err(|e| row_fault(ctx, e))? {
                let first = Timestamp(first);
                return Ok(Seen::Duplicate { first });
            }
        }
        store.check_start(bucket).map_err(Fault::State)?;
        store.write(key, bucket, &first.0).map_err(Fault::State)?;
        if generation > 0 && !is_old {
            // For copies that come when the id is too old.
            self.mark_replayed(generation, time);
            let written = store.write(&self.buffers.key, ids.bucket_of(now), &first.0);
            written.map_err(Fault::State)?;
        }
        Ok(Seen::New)
    }

    /// Judges an id that never expires.
    fn judge_for_ever(&self, ctx: &Ctx<'_>, time: Option<Timestamp>) -> Result<Seen, Fault> {
        let store = ctx.store_at::<Vec<u8>, i64>(self.store);
        let key = &self.buffers.key;
        if let Some(first) = store.read(key).map_err(|e| row_fault(ctx, e))? {
            let first = Timestamp(first);
            return Ok(Seen::Duplicate { first });
        }
        let first = time.map_or(-1, |time| time.0);
        store.write(key, &first).map_err(Fault::State)?;
        Ok(Seen::New)
    }

    fn fault(&self, error: impl FnOnce(Arc<str>) -> IdentityError) -> Fault {
        permanent(error(Arc::clone(self.seen.shared_name())))
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
        let time = || {
            let time = record.timestamp.filter(|time| time.0 >= 0);
            time.ok_or(Fault::NoTime(record.timestamp))
        };
        let seen = match self.identify(ctx, &record)? {
            None if self.strictness.no_id => {
                return Err(self.fault(|store| IdentityError::NoId { store }));
            }
            None => Seen::NoId,
            Some((Judge::Window(window), generation)) => {
                let time = time()?;
                let seen = self.judge(ctx, &window, time)?;
                if seen == Seen::TooOld {
                    self.judge_too_old(ctx, &window, (time, generation))?
                } else {
                    if seen == Seen::New && generation > 0 {
                        let at = ctx.stream_time().map_or(time, |seen| seen.max(time));
                        let sighting = Sighting { at, first: time };
                        self.note_replayed(ctx, &window, (sighting, generation))?;
                    }
                    seen
                }
            }
            Some((Judge::Timed(ids, id), generation)) => {
                self.judge_timed(ctx, &ids, id, (time()?, generation))?
            }
            Some((Judge::Ever, _)) => self.judge_for_ever(ctx, record.timestamp)?,
        };
        ctx.judged(seen);
        next.forward(ctx, &mut Some(record.map(|value| Judged::new(value, seen))))
    }
}

/// Returns the number of the replay in a header; 0 without the header.
pub(crate) fn generation(headers: &Headers) -> Result<u64, Fault> {
    let Some(header) = headers.get(GENERATION) else {
        return Ok(0);
    };
    let text = str::from_utf8(header).ok();
    // `parse` accepts a sign.
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| {
        let value = String::from_utf8_lossy(header).into_owned();
        permanent(IdentityError::Generation { value })
    })
}

fn permanent(error: IdentityError) -> Fault {
    Fault::User(Failure::permanent(error))
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
