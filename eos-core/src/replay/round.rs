//! The intake of letters, and the rounds that write them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use eos_protocol::letter::{self, WaitingLetter};
use eos_protocol::replay_round::{Round, RoundLimits};
use eos_protocol::sequence::{Replay as Action, SequenceError};
use eos_protocol::{Clock, Offset, Partition, Timestamp};

use super::Replay;
use super::first_format::FirstFormat;
use super::letter::{Bytes, Place, ReplayError, read, release_of, replayed};
use super::passed::Passed;
use super::stuck::{Stuck, Why};
use crate::Ctx;
use crate::failure::Failure;
use crate::output::Output;
use crate::store::{KeyValueStore, OrderedStore, OrderedView};
use crate::store_handle::Store;

/// The bounds of a round, which is one unit of work.
pub(super) const LIMITS: RoundLimits = RoundLimits {
    read: 4_000,
    letters: 1_000,
    bytes: 1 << 20,
};
/// The time after which a letter that failed during the replay is written, in milliseconds.
const PAUSE_MS: i64 = 5_000;

/// The stores of a replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) letters: Store<OrderedStore<Vec<u8>, Vec<u8>>>,
    pub(super) passed: Store<KeyValueStore<u32, Passed>>,
}

type Origin = Output<Place, Option<Vec<u8>>>;
type Letters<'a> = OrderedView<'a, Vec<u8>, Vec<u8>>;

/// One start of a replay.
#[derive(Debug)]
pub(super) struct Rounds {
    replay: Replay,
    /// The random number of the start.
    start: u64,
    rows: Rows,
    outputs: BTreeMap<String, Origin>,
    stuck: Mutex<BTreeMap<Partition, Stuck>>,
    /// The partitions with letters that were written since the last log line about the end.
    unreported: Mutex<BTreeSet<Partition>>,
    /// The cuts of the last rounds, see [`Round::cut`].
    cuts: Mutex<BTreeMap<Partition, Vec<u8>>>,
}

/// The fate of a stored letter in this start.
enum Fate<'a> {
    /// Another start writes the letter, because its record failed before `since`, or not before `until`.
    Late,
    /// A later round writes the letter.
    Soon,
    Stuck(Why),
    Written(&'a Origin),
}

/// The topic, the partition, the key and the episode of letters that follow each other.
type Group = (String, u32, Option<Vec<u8>>, Option<Offset>);

fn group_of(letter: &WaitingLetter<'_>) -> Group {
    let key = letter.key.map(<[u8]>::to_vec);
    let episode = letter.number.map(|number| number.episode);
    (letter.topic.to_owned(), letter.partition, key, episode)
}

/// The group and the number of the last letter that a round wrote.
type Written = Option<(Group, u64)>;

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
            unreported: Mutex::default(),
            cuts: Mutex::default(),
        }
    }

    /// Stores a letter until the next round.
    pub(super) fn take(&self, ctx: &Ctx<'_>, record: &Bytes) -> Result<(), Failure> {
        let letter = read(record).map_err(|error| match &error {
            // If a policy gave the letter up, the later letters of its key would be replayed without it.
            ReplayError::Number(SequenceError::Newer { .. }) => Failure::fatal(error),
            _ => Failure::permanent(error),
        })?;
        let key = letter.row_key(ctx.offset());
        // A letter that failed too late belongs to a later start, which reads all rows. So the place stays.
        if letter.failed_at < self.replay.until {
            let output = self.outputs.get(letter.topic);
            let exists = |output: &Origin| letter.partition < ctx.partitions_of(output.index);
            let episode = letter
                .episode_range()
                .filter(|_| output.is_some_and(exists));
            // If an earlier letter of the key is too large for its topic, the place is behind it. The new letter must wait for
            // the earlier one.
            let to = episode.as_ref().map_or(&key, |(begin, _)| begin);
            Passed::move_back_to(&ctx.store(&self.rows.passed), self.start, to)?;
        }
        ctx.store(&self.rows.letters).put(&key, &letter.encode())
    }

    /// Writes letters in the order of their numbers. Steps over those that this start does not write.
    pub(super) fn write(&self, ctx: &Ctx<'_>) -> Result<(), Failure> {
        let (rows, view) = (ctx.store(&self.rows.letters), ctx.store(&self.rows.passed));
        let before = Passed::read(&view, self.start)?;
        let mut passed = before.clone();
        if before.is_new() && self.replay.decisions.lost().next().is_some() {
            passed.note_first_round();
            self.release_lost(ctx)?;
        }
        let cut = self.take_cut(ctx.partition());
        let mut round = Round::new(passed.key.clone(), cut, self.replay.limits);
        let mut entries = rows.range(round.next().to_vec()..);
        let (mut written, mut is_end) = (None, false);
        while !round.is_full() {
            let Some(entry) = entries.next() else {
                is_end = true;
                break;
            };
            let (key, row) = entry?;
            let old = FirstFormat::decode(&row).transpose();
            let letter = match &old {
                Ok(Some(old)) => old.letter(),
                Ok(None) => WaitingLetter::decode(&key, &row),
                Err(error) => Err(*error),
            };
            let fate = match &letter {
                Ok(letter) => self.fate(ctx, letter),
                Err(error) => Fate::Stuck((*error).into()),
            };
            let fate = match (fate, &letter) {
                (Fate::Written(output), Ok(letter)) => {
                    self.write_letter(ctx, &rows, (output, letter), &mut written)?
                }
                (fate, _) => fate,
            };
            let mut next = key.clone();
            next.push(0);
            // The later letters of its key wait for it.
            if matches!(fate, Fate::Soon | Fate::Stuck(Why::TooLarge { .. }))
                && let Some((_, behind)) =
                    letter.as_ref().ok().and_then(WaitingLetter::episode_range)
            {
                entries = rows.range(behind.clone()..);
                next = behind;
            }
            match fate {
                Fate::Written(_) => {
                    rows.delete(&key)?;
                    round.writes(letter.map_or(0, |letter| letter.bytes()), next);
                }
                Fate::Soon => round.leaves(next),
                Fate::Late => round.passes(next),
                Fate::Stuck(why) => {
                    self.count_stuck(ctx.partition(), &key, why);
                    round.passes(next);
                }
            }
        }
        if is_end {
            self.warn(ctx.partition());
        }
        self.log_end(ctx, &round, is_end);
        round.place().clone_into(&mut passed.key);
        if let Some(key) = round.cut(is_end) {
            self.cut_at(ctx.partition(), key);
        }
        passed.write(&view, &before)
    }

    /// Releases keys whose letters are lost: once in each start, by the task of the first partition.
    fn release_lost(&self, ctx: &Ctx<'_>) -> Result<(), Failure> {
        if ctx.partition() != Partition::ZERO {
            return Ok(());
        }
        for lost in self.replay.decisions.lost() {
            let Some(output) = self.outputs.get(&lost.topic) else {
                continue;
            };
            let partitions = ctx.partitions_of(output.index);
            if lost.partition < partitions {
                ctx.emit_record(output, release_of(lost))?;
            } else {
                tracing::error!(
                    app = self.replay.name,
                    topic = lost.topic,
                    partition = lost.partition,
                    partitions,
                    "a key can't be released, because the topic has no such partition. Correct the partition in \
                     `release_lost`"
                );
            }
        }
        Ok(())
    }

    /// Takes the cut of the last round.
    fn take_cut(&self, of: Partition) -> Vec<u8> {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.remove(&of).unwrap_or_default()
    }

    fn cut_at(&self, of: Partition, key: Vec<u8>) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.insert(of, key);
    }

    /// Writes the discards of lost letters with lower numbers, and then the letter. Writes neither, and returns
    /// [`Fate::Stuck`], if a record is too large for the topic.
    fn write_letter<'a>(
        &self,
        ctx: &Ctx<'_>,
        rows: &Letters<'_>,
        (output, letter): (&'a Origin, &WaitingLetter<'_>),
        last: &mut Written,
    ) -> Result<Fate<'a>, Failure> {
        let (replay, group) = (&self.replay, group_of(letter));
        let first = ctx.output_count();
        let written = last
            .as_ref()
            .filter(|(last, _)| *last == group)
            .map(|(_, n)| *n);
        for number in replay.decisions.discards_before(letter) {
            let sibling = letter.sibling(number);
            let found = rows.range(sibling.clone()..).next().transpose()?;
            // An existing letter brings its own decision.
            if written >= Some(number.n) || found.is_some_and(|(key, _)| key.starts_with(&sibling))
            {
                continue;
            }
            let discard = Some(Action::Discard(number));
            if let Some(why) = self.emit(ctx, output, letter, discard)? {
                ctx.remove_outputs_from(first);
                return Ok(Fate::Stuck(why));
            }
        }
        let action = replay.decisions.action(letter);
        if let Some(why) = self.emit(ctx, output, letter, action)? {
            // A later round may read the letter again, and write the discards again.
            ctx.remove_outputs_from(first);
            return Ok(Fate::Stuck(why));
        }
        *last = Some((group, letter.number.map_or(0, |number| number.n)));
        Ok(Fate::Written(output))
    }

    /// Writes a letter or a decision. Returns the reason if it is too large.
    fn emit(
        &self,
        ctx: &Ctx<'_>,
        output: &Origin,
        letter: &WaitingLetter<'_>,
        action: Option<Action>,
    ) -> Result<Option<Why>, Failure> {
        ctx.emit_record(output, replayed(letter, &self.replay, action))?;
        let mut limit = ctx.remove_oversize();
        // A decision needs no value. It has one, because other readers of the topic would treat a null as a deletion.
        if limit.is_some() && !matches!(action, None | Some(Action::Record(_))) {
            let mut record = replayed(letter, &self.replay, action);
            record.value = None;
            ctx.emit_record(output, record)?;
            limit = ctx.remove_oversize();
        }
        Ok(limit.map(|limit| Why::TooLarge { limit }))
    }

    fn fate<'a>(&'a self, ctx: &Ctx<'_>, letter: &WaitingLetter<'_>) -> Fate<'a> {
        let is_before = letter.number.is_none() && letter.failed_at < self.replay.since;
        if letter.failed_at >= self.replay.until || is_before {
            return Fate::Late;
        }
        let output = match self.outputs.get(letter.topic) {
            // An earlier or a later start of the replay may name this topic.
            None => return Fate::Stuck(Why::Topic),
            Some(output) if letter.partition >= ctx.partitions_of(output.index) => {
                return Fate::Stuck(Why::Partition);
            }
            Some(output) => output,
        };
        // Without the wait, a letter that fails again at once would be replayed without end, with all later letters of
        // its key.
        let age = |now: Timestamp| now.0.saturating_sub(letter.failed_at.0);
        let now = ctx.time_of(Clock::Wall);
        let is_new =
            letter.failed_at >= self.replay.began && now.is_some_and(|now| age(now) < PAUSE_MS);
        match is_new {
            true => Fate::Soon,
            false => Fate::Written(output),
        }
    }

    /// Logs when a task has no stored letter left to write.
    fn log_end(&self, ctx: &Ctx<'_>, round: &Round, is_end: bool) {
        let of = ctx.partition();
        // Otherwise a letter that fails again is one of this start, and the topic always has unread letters.
        let is_over = ctx.time_of(Clock::Wall) >= Some(self.replay.until);
        let mut unreported = self
            .unreported
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if round.has_written() {
            unreported.insert(of);
        } else if is_over && round.is_last(is_end) && unreported.remove(&of) {
            tracing::info!(
                app = self.replay.name,
                partition = %of,
                "wrote all stored letters that this start can write; waiting for more. Stop the replay once the dead-letter \
                 topic has no unread letters"
            );
        }
    }

    fn count_stuck(&self, of: Partition, row_key: &[u8], why: Why) {
        let topic = letter::topic_of(row_key).unwrap_or_default().to_owned();
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        stuck.entry(of).or_default().count(row_key, topic, why);
    }

    /// Logs the new warnings about the stuck letters of a task.
    fn warn(&self, of: Partition) {
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        let warnings = stuck.get_mut(&of).map(Stuck::new_warnings);
        drop(stuck);
        for it in warnings.unwrap_or_default() {
            tracing::warn!(app = self.replay.name, partition = %of, "{it}");
        }
    }
}
