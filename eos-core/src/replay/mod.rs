//! Apps that write dead letters back to the topics of their origin.

mod first_format;
mod letter;
mod passed;
mod round;
mod stuck;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::letter::{Decisions, LostKey};
use eos_protocol::replay_round::RoundLimits;

pub use letter::ReplayError;
use letter::{Place, PlaceCodec};
use passed::Passed;
use round::{Rounds, Rows};

use crate::App;
use crate::client::Headers;
use crate::codec::Plain;
use crate::failure::Failure;
use crate::record::Record;
use crate::runtime::time_of_day::time_of_day;
use crate::store::OrderedStore;
use crate::timer::Clock;
use crate::topic::Topic;
use crate::topology::Mistake;

/// The interval between two rounds. A round writes its letters in the order of their numbers.
const ROUND: Duration = Duration::from_millis(500);
/// The largest record that a topic takes by default (`max.message.bytes`). The producer's own limit is lower.
const LARGEST: u32 = 1_048_588;

/// An app that writes dead letters back to the topics of their origin. Created by [`App::replay`].
///
/// It replays the letters that failed before [`until`](Self::until), by default before the app was created. Letters
/// that fail again stay for the next start of the app. The app runs until it is stopped.
#[derive(Debug, Clone)]
#[must_use = "call `app` to get the app"]
pub struct Replay {
    name: String,
    letters: String,
    origins: Vec<String>,
    /// The time of the declaration.
    began: Timestamp,
    since: Timestamp,
    until: Timestamp,
    generation: Option<u64>,
    decisions: Decisions,
    limits: RoundLimits,
}

impl App {
    /// Creates a replay of the dead letters of a topic. The replay writes each letter back to the topic and the
    /// partition of its origin, with its key, value, timestamp and headers. Letters of one key are written in the order
    /// of their numbers.
    ///
    /// The app is named `<topic>-replay`, so a topic has one replay, and each letter is replayed once. A second start
    /// continues. [`Replay::named`] sets another name.
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
    /// A record that is not a dead letter fails with [`ReplayError`]. So does the letter of a timer, of a final result,
    /// or of a record that waited in a reorder step. By default, the app then stops. If a topic of [`Replay::to`] does
    /// not exist, the app does not start.
    ///
    /// A letter whose number a newer version of eos wrote stops the app, whatever its policy. Upgrade the replay.
    pub fn replay(letters: &str) -> Replay {
        Replay {
            name: format!("{letters}-replay"),
            letters: letters.to_owned(),
            origins: Vec::new(),
            began: time_of_day(),
            since: Timestamp(i64::MIN),
            until: time_of_day(),
            generation: None,
            decisions: Decisions::default(),
            limits: round::LIMITS,
        }
    }
}

impl Replay {
    /// Adds a topic of origin, which must exist. Letters of other topics wait for a start that names their topic. The
    /// app logs a warning with the count of these letters.
    pub fn to(mut self, origin: &str) -> Self {
        self.origins.push(origin.to_owned());
        self
    }

    /// Sets the name of the app. An app with another name reads the dead-letter topic from its beginning.
    ///
    /// Set another name if a start fails because its changelog or the offsets of its group are lost. Kafka deletes the
    /// offsets of a group without members after seven days (`offsets.retention.minutes`). Letters with a number are
    /// still processed only once. Other letters become new records again, so leave out the replayed ones with
    /// [`since`](Self::since).
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Leaves out letters without a number if their records failed before this time. These letters stay in the store of
    /// the replay, and a start with an earlier time writes them. Letters with a number are always written, because the
    /// app processes each number once.
    pub fn since(mut self, failed_at: Timestamp) -> Self {
        self.since = failed_at;
        self
    }

    /// Sets the end of the replay: letters whose records failed at this time or later wait for a later start.
    ///
    /// With a time in the future, the replay also writes letters that fail while it runs, five seconds after their failure.
    pub fn until(mut self, failed_before: Timestamp) -> Self {
        self.until = failed_before;
        self
    }

    /// Sets the header `eos-replay-generation`, which is part of the scope of an id. A deduplication then accepts
    /// records that it accepted before. It applies to the letters that this start writes.
    ///
    /// A deduplication does not store the id of a failed record. So a replay without a generation processes the record,
    /// unless the sender sent it again and the second copy was processed. With a new generation, that record is
    /// processed twice.
    ///
    /// Two kinds of letters need a generation:
    ///
    /// - letters that are older than the window of their [`SeenIds`](crate::identity::SeenIds)
    /// - letters of [`dedup_by_sequence`](crate::Stream::dedup_by_sequence) whose producer has reached a higher number
    pub fn as_generation(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Discards a letter of the topic `origin`: the key with these bytes no longer waits for this number. The header
    /// `eos-sequence` of a letter ends with its number. If the letter is lost, the next letter of its key carries the
    /// discard.
    ///
    /// It applies to the letters that this start writes: those that failed before [`until`](Self::until).
    /// Remove the call afterwards, because a later letter of the key may have the same number. For a record without a
    /// key, call [`discard_without_key`](Self::discard_without_key).
    pub fn discard(mut self, origin: &str, key: impl AsRef<[u8]>, number: u64) -> Self {
        self.decisions.discard(origin, key.as_ref(), number);
        self
    }

    /// Discards the letter of a record without a key. `origin` and `partition` are those of the record. `offset` is the
    /// second number of the header `eos-sequence`.
    ///
    /// Each such letter is the only one of its sequence and has number 1, so the number does not identify it.
    pub fn discard_without_key(mut self, origin: &str, partition: u32, offset: i64) -> Self {
        self.decisions
            .discard_without_key(origin, partition, offset);
        self
    }

    /// Discards those letters of a key of the topic `origin` that failed before [`until`](Self::until).
    ///
    /// If the key has no later letters, it is released, and its new records are processed again. Later letters stay
    /// parked, and their key as well. If the letters are lost, call [`release_lost`](Self::release_lost).
    pub fn release(mut self, origin: &str, key: impl AsRef<[u8]>) -> Self {
        self.decisions.release(origin, key.as_ref());
        self
    }

    /// Releases a key of the topic `origin` whose letters are lost, for example by the retention of the dead-letter topic.
    /// `app` is the app that parked the key, and `partition` is the partition of its records.
    ///
    /// Each start writes one record to `origin`, with the key, without a value, and with the header `eos-replay`. It writes
    /// the record again if partition 0 of the dead-letter topic moves between processes, so run the replay in one process.
    /// The app gives up all letters of the key, also existing ones. For other readers of the topic, the record is a
    /// tombstone. Remove the call afterwards.
    pub fn release_lost(
        mut self,
        app: &str,
        origin: &str,
        partition: u32,
        key: impl AsRef<[u8]>,
    ) -> Self {
        self.decisions.release_lost(LostKey {
            app: app.to_owned(),
            topic: origin.to_owned(),
            partition,
            key: key.as_ref().to_vec(),
        });
        self
    }

    /// Returns the app. Set its properties and run it like any other app. [`App::on_error`] sets the policy for records
    /// that are not dead letters.
    ///
    /// The app does not start without a topic of [`to`](Self::to), or if a decision names another topic.
    #[must_use]
    pub fn app(self) -> App {
        let mut app = App::new(&self.name);
        app.set("message.max.bytes", LARGEST);
        let stores = Rows {
            letters: app.store(&OrderedStore::plain("letters")),
            passed: Passed::store(&mut app),
        };
        let mut outputs = BTreeMap::new();
        for origin in &self.origins {
            let topic = Topic::with(origin, PlaceCodec, Plain);
            let topic = topic.partition_by("replay", |place: &Place, _| place.partition);
            outputs.insert(origin.clone(), app.output(&topic));
        }
        if outputs.is_empty() {
            app.wrong(Mistake::ReplayWithoutTopic);
        }
        for topic in self.decisions.topics() {
            if !outputs.contains_key(topic) {
                app.wrong(Mistake::ReplayTopic {
                    topic: topic.to_owned(),
                    known: self.origins.join(", "),
                });
            }
        }
        let source = Topic::<Option<Vec<u8>>, Option<Vec<u8>>>::plain(&self.letters);
        let start = RandomState::new().hash_one(&self.letters);
        let rounds = Arc::new(Rounds::new(self, start, stores, outputs));
        let intake = Arc::clone(&rounds);
        app.source(&source)
            .with_store(&stores.letters)
            .with_store(&stores.passed)
            .on_tick("rounds", Clock::Wall, ROUND, move |ctx, _| {
                rounds.write(ctx)
            })
            .for_each(move |ctx, record| intake.take(ctx, &record));
        app
    }
}

/// Sets the limits of a round. With low limits, a test needs only a few letters.
pub fn with_limits(mut replay: Replay, limits: RoundLimits) -> Replay {
    replay.limits = limits;
    replay
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
    let letter = letter::read(&record).map_err(Failure::permanent)?;
    let replay = App::replay("");
    let action = replay.decisions.action(&letter);
    let record = letter::replayed(&letter, &replay, action);
    let partition = i32::try_from(record.key.partition).unwrap_or(i32::MAX);
    Ok((partition, record.headers))
}
