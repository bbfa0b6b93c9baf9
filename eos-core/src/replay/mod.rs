//! Apps that write dead letters back to the topics of their origin.

mod letter;
mod passed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;

pub use letter::ReplayError;
use letter::{Letter, Place, PlaceCodec};
use passed::Passed;

use crate::client::Headers;
use crate::codec::Plain;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::Record;
use crate::runtime::time_of_day::time_of_day;
use crate::store::{KeyValueStore, OrderedStore};
use crate::store_handle::Store;
use crate::timer::Clock;
use crate::topic::Topic;
use crate::{App, Ctx};

/// The interval between two rounds. A round writes its letters in the order of their numbers.
const ROUND: Duration = Duration::from_millis(500);
/// The most letters of a round, and the most bytes of their keys and values.
const LETTERS: usize = 1_000;
const BYTES: usize = 1 << 20;
/// The most letters that a round reads. Letters that failed too late for this replay stay in the store.
const READ: usize = 4_000;

type Letters = Store<OrderedStore<Vec<u8>, Letter>>;
type PassedStore = Store<KeyValueStore<u32, Passed>>;

/// An app that writes dead letters back to the topics of their origin. Created by [`App::replay`].
///
/// It replays the letters that failed before [`until`](Self::until), by default before the app was created. Letters
/// that fail again stay for the next start of the app. It runs until it is stopped.
#[derive(Debug, Clone)]
#[must_use = "call `app` to get the app"]
pub struct Replay {
    letters: String,
    origins: Vec<String>,
    until: Timestamp,
    generation: Option<u64>,
    discards: BTreeSet<(Vec<u8>, u64)>,
    releases: BTreeSet<Vec<u8>>,
}

impl App {
    /// Creates a replay of the dead letters of a topic. The replay writes each letter back to the topic and the
    /// partition of its origin, with its key, value, timestamp and headers. Letters of one key are written in the order
    /// of their numbers.
    ///
    /// The app is named `<topic>-replay`, so a topic has one replay, and each letter is replayed once. A second start
    /// continues.
    ///
    /// Letters of [`ErrorPolicy::in_sequence`](crate::ErrorPolicy::in_sequence) carry their numbers in the header
    /// `eos-sequence`, and replayed records in the header `eos-replay`. The app that receives them processes each
    /// number once, in order, even if a letter arrives several times. Letters of other policies arrive as new records.
    ///
    /// ```no_run
    /// # use eos_core::App;
    /// # fn main() -> eos_core::Result<()> {
    /// let replay = App::replay("orders-dlq").to("orders").app();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A record that is not a dead letter of these topics fails with [`ReplayError`]. By default, the app then stops.
    /// If a topic of [`Replay::to`] does not exist, the app does not start.
    pub fn replay(letters: &str) -> Replay {
        Replay {
            letters: letters.to_owned(),
            origins: Vec::new(),
            until: time_of_day(),
            generation: None,
            discards: BTreeSet::new(),
            releases: BTreeSet::new(),
        }
    }
}

impl Replay {
    /// Adds a topic of origin. It must exist. Letters of other topics fail.
    pub fn to(mut self, origin: &str) -> Self {
        self.origins.push(origin.to_owned());
        self
    }

    /// Sets the end of the replay: letters whose records failed at this time or later wait for a later start.
    pub fn until(mut self, failed_before: Timestamp) -> Self {
        self.until = failed_before;
        self
    }

    /// Sets the header `eos-replay-generation`, which is part of the scope of an id. A deduplication then accepts
    /// records that it accepted before.
    ///
    /// A deduplication does not store the id of a failed record. So a replay without a generation processes the record,
    /// unless the sender sent it again and the second copy was processed. With a new generation, that record is
    /// processed twice.
    ///
    /// Letters that are older than the window of their [`SeenIds`](crate::identity::SeenIds) need a generation, and those of
    /// [`dedup_by_sequence`](crate::Stream::dedup_by_sequence) whose producer has reached a higher number.
    pub fn as_generation(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Discards a letter: the key with these bytes no longer waits for this number. The header `eos-sequence` of a
    /// letter ends with its number.
    pub fn discard(mut self, key: impl AsRef<[u8]>, number: u64) -> Self {
        self.discards.insert((key.as_ref().to_vec(), number));
        self
    }

    /// Discards all letters of a key, and releases the key: its new records are processed again.
    pub fn release(mut self, key: impl AsRef<[u8]>) -> Self {
        self.releases.insert(key.as_ref().to_vec());
        self
    }

    /// Returns the app. Set its properties and run it like any other app. [`App::on_error`] sets the policy for records
    /// that are not dead letters.
    #[must_use]
    pub fn app(self) -> App {
        let mut app = App::new(&format!("{}-replay", self.letters));
        let store = OrderedStore::<Vec<u8>, Letter>::json("letters");
        let rows = app.store(&store);
        let passed = Passed::store(&mut app);
        let mut outputs = BTreeMap::new();
        for origin in &self.origins {
            let topic = Topic::with(origin, PlaceCodec, Plain);
            let topic = topic.partition_by("replay", |place: &Place, _| place.partition);
            outputs.insert(origin.clone(), app.output(&topic));
        }
        let source = Topic::<Option<Vec<u8>>, Option<Vec<u8>>>::plain(&self.letters);
        let replay = Arc::new(self);
        let (intake, known) = (Arc::clone(&replay), outputs.keys().cloned().collect());
        app.source(&source)
            .with_store(&rows)
            .with_store(&passed)
            .on_tick("rounds", Clock::Wall, ROUND, move |ctx, _| {
                let (mut letters, mut bytes) = (0, 0);
                let (rows, view) = (ctx.store(&rows), ctx.store(&passed));
                let before = Passed::read(&view, replay.until)?;
                let mut passed = before.clone();
                for entry in rows.range(before.key.clone()..).take(READ) {
                    let (key, letter) = entry?;
                    if letter.failed_at >= replay.until.0 {
                        if letters == 0 {
                            passed.behind(key);
                        }
                        continue;
                    }
                    rows.delete(&key)?;
                    letters += 1;
                    bytes += letter.bytes();
                    write(ctx, &outputs, letter)?;
                    if letters >= LETTERS || bytes >= BYTES {
                        break;
                    }
                }
                passed.write(&view, &before)
            })
            .for_each(move |ctx, record| intake.take(ctx, (&rows, &passed), &known, record));
        app
    }

    /// Stores a letter until the next round.
    fn take(
        &self,
        ctx: &Ctx<'_>,
        (rows, passed): (&Letters, &PassedStore),
        known: &BTreeSet<String>,
        record: Record<Option<Vec<u8>>, Option<Vec<u8>>>,
    ) -> Result<(), Failure> {
        let letter = Letter::of(record, self).map_err(Failure::permanent)?;
        if !known.contains(&letter.topic) {
            return Err(Failure::permanent(ReplayError::OtherOrigin {
                topic: letter.topic,
                known: known.iter().cloned().collect::<Vec<_>>().join(", "),
            }));
        }
        let key = letter.sort_key(ctx.offset());
        Passed::arrives(&ctx.store(passed), self.until, &key)?;
        ctx.store(rows).put(&key, &letter)
    }
}

/// Returns the partition of origin of a dead letter, and the headers of its replay.
///
/// # Errors
/// If the record is not a dead letter.
pub fn replayed(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: Headers,
) -> Result<(i32, Headers), Failure> {
    let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let mut record = Record::new(bytes(key), bytes(value));
    record.headers = headers;
    let letter = Letter::of(record, &App::replay("")).map_err(Failure::permanent)?;
    let record = letter.into_record()?;
    let partition = i32::try_from(record.key.partition).unwrap_or(i32::MAX);
    Ok((partition, record.headers))
}

fn write(
    ctx: &Ctx<'_>,
    outputs: &BTreeMap<String, Output<Place, Option<Vec<u8>>>>,
    letter: Letter,
) -> Result<(), Failure> {
    // Only an earlier start of the replay declared the topic of this letter.
    let output = outputs.get(&letter.topic).ok_or_else(|| {
        Failure::permanent(ReplayError::OtherOrigin {
            topic: letter.topic.clone(),
            known: outputs.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    })?;
    let record = letter.into_record()?;
    ctx.emit_record(output, record)
}
