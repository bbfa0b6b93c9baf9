//! The intake of letters, and the rounds that write them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use eos_protocol::Partition;
use eos_protocol::letter::{self, WaitingLetter};

use super::first_format::FirstFormat;
use super::letter::{Bytes, Place, read, replayed};
use super::passed::Passed;
use super::stuck::{Stuck, Why};
use super::{Replay, ReplayError};
use crate::Ctx;
use crate::failure::Failure;
use crate::output::Output;
use crate::store::{KeyValueStore, OrderedStore};
use crate::store_handle::Store;

/// The most letters of a round, and the most bytes of their keys and values, in one unit of work.
const LETTERS: usize = 1_000;
const BYTES: usize = 1 << 20;
/// The most letters that a unit of work reads. Those that this start does not write stay.
const READ: usize = 4_000;

/// The stores of a replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) letters: Store<OrderedStore<Vec<u8>, Vec<u8>>>,
    pub(super) passed: Store<KeyValueStore<u32, Passed>>,
}

type Origin = Output<Place, Option<Vec<u8>>>;

/// One start of a replay.
#[derive(Debug)]
pub(super) struct Rounds {
    replay: Replay,
    /// Its random name.
    start: u64,
    rows: Rows,
    outputs: BTreeMap<String, Origin>,
    stuck: Mutex<BTreeMap<Partition, Stuck>>,
}

/// What becomes of a stored letter in this start.
enum Fate<'a> {
    Late,
    Stuck(Why),
    Written(&'a Origin, WaitingLetter<'a>),
}

impl Rounds {
    pub(super) fn new(
        replay: Replay,
        start: u64,
        rows: Rows,
        outputs: BTreeMap<String, Origin>,
    ) -> Self {
        Self {
            replay,
            start,
            rows,
            outputs,
            stuck: Mutex::default(),
        }
    }

    /// Stores a letter until the next round.
    pub(super) fn take(&self, ctx: &Ctx<'_>, record: &Bytes) -> Result<(), Failure> {
        let letter = read(record).map_err(Failure::permanent)?;
        if !self.outputs.contains_key(letter.topic) {
            let known: Vec<_> = self.outputs.keys().map(String::as_str).collect();
            return Err(Failure::permanent(ReplayError::OtherOrigin {
                topic: letter.topic.to_owned(),
                known: known.join(", "),
            }));
        }
        let key = letter.row_key(ctx.offset());
        // A later letter belongs to a later start, which begins at the first row. It does not move the place of this one.
        if letter.failed_at < self.replay.until {
            Passed::arrives(&ctx.store(&self.rows.passed), self.start, &key)?;
        }
        ctx.store(&self.rows.letters).put(&key, &letter.encode())
    }

    /// Writes letters in the order of their numbers. Steps over those that this start does not write.
    pub(super) fn write(&self, ctx: &Ctx<'_>) -> Result<(), Failure> {
        let (rows, view) = (ctx.store(&self.rows.letters), ctx.store(&self.rows.passed));
        let before = Passed::read(&view, self.start)?;
        let mut passed = before.clone();
        let (mut read, mut letters, mut bytes) = (0, 0, 0);
        let mut is_end = true;
        for entry in rows.range(before.key.clone()..) {
            if read >= READ || letters >= LETTERS || bytes >= BYTES {
                is_end = false;
                break;
            }
            let (key, row) = entry?;
            read += 1;
            let old = FirstFormat::decode(&row).transpose();
            let letter = match &old {
                Ok(Some(old)) => old.letter(),
                Ok(None) => WaitingLetter::decode(&key, &row),
                Err(error) => Err(*error),
            };
            let fate = match letter {
                Ok(letter) => self.fate(ctx, letter),
                Err(error) => Fate::Stuck(error.into()),
            };
            match fate {
                Fate::Written(output, letter) => {
                    letters += 1;
                    bytes += letter.bytes();
                    ctx.emit_record(output, replayed(&letter, &self.replay))?;
                    rows.delete(&key)?;
                    continue;
                }
                Fate::Late => {}
                Fate::Stuck(why) => self.is_stuck(ctx.partition(), &key, why),
            }
            if letters == 0 {
                passed.behind(key);
            }
        }
        if is_end {
            self.warn(ctx.partition());
        }
        passed.write(&view, &before)
    }

    fn fate<'a>(&'a self, ctx: &Ctx<'_>, letter: WaitingLetter<'a>) -> Fate<'a> {
        if letter.failed_at >= self.replay.until {
            return Fate::Late;
        }
        match self.outputs.get(letter.topic) {
            // A topic that an earlier start of the replay knew.
            None => Fate::Stuck(Why::Topic),
            Some(output) if letter.partition >= ctx.partitions_of(output.index) => {
                Fate::Stuck(Why::Partition)
            }
            Some(output) => Fate::Written(output, letter),
        }
    }

    fn is_stuck(&self, of: Partition, row_key: &[u8], why: Why) {
        let topic = letter::topic_of(row_key).unwrap_or_default().to_owned();
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        stuck.entry(of).or_default().count(row_key, topic, why);
    }

    /// Warns of the stuck letters of a task, once in this start.
    fn warn(&self, of: Partition) {
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        let told = stuck.get_mut(&of).map(Stuck::tell);
        drop(stuck);
        for it in told.unwrap_or_default() {
            let letters = &self.replay.letters;
            tracing::warn!(app = %format_args!("{letters}-replay"), partition = %of, "{it}");
        }
    }
}
