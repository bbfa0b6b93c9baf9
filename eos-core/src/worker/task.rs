//! A task: its progress, nodes and fetched records.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_protocol::state::PerFamily;
use eos_protocol::{
    Attempt, IdleTime, Lag, MaxIdle, Merge, Nonce, Now, Offset, Supply, TaskProgress, Timestamp,
    TopicPartition, recommit_due,
};

use super::ahead::Ahead;
use super::between::Between;
use super::key_places::KeyPlaces;
use super::own_moments::OwnMoments;
use super::parked_keys::ParkedKeys;
use super::past_sets::PastSets;
use super::task_pause::TaskPause;
use super::task_state::TaskState;
use super::ticks::Ticks;
use crate::client::{Message, Records};
use crate::rules;
use crate::topology::{CallSpec, Chains, Entry, Raw};
use crate::views::ViewTicket;

/// The readiness of a task for records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// The state is not restored yet.
    Restoring,
    /// The first-start offset is not committed yet (rule 10).
    Unclaimed,
    /// The task may take records.
    Ready,
    /// A rewind is in progress (rule 8).
    Rewinding,
}

impl Readiness {
    fn at_start(claimed: bool) -> Self {
        match claimed || !rules::commits_first_start() {
            true => Self::Ready,
            false => Self::Unclaimed,
        }
    }
}

/// A due item to retry.
#[derive(Debug, Clone)]
pub(super) struct DueAttempt {
    /// The index of its store, its key and its moment.
    pub(super) item: (usize, Vec<u8>, Timestamp),
    pub(super) attempt: Attempt,
}

/// A task.
pub(super) struct Task<R> {
    pub(super) progress: TaskProgress,
    pub(super) chains: Chains,
    /// The listing for views. It is withdrawn before the state closes.
    view: Option<ViewTicket>,
    /// The state of the stores. `None` if the stage has no stores, and during a restore.
    pub(super) state: Option<TaskState>,
    pub(super) readiness: Readiness,
    /// The time at which the worker started the task.
    started: Now,
    /// The time of the last commit of the task's offsets.
    committed_at: Option<Now>,
    /// Whether the open transaction commits the task's offsets again without change.
    pub(super) recommits: bool,
    /// The record to retry, if there is one. The task is parked until then.
    pub(super) attempt: Option<Attempt>,
    /// The due item to retry, if there is one. The task is parked until then.
    pub(super) due_attempt: Option<DueAttempt>,
    /// The failed records and items at which the task stands still until a decision. After an abort, an earlier one may fail,
    /// and the decision about the later one still counts.
    pub(super) pauses: Vec<TaskPause>,
    /// The keys with sequenced dead letters, if a source has these.
    pub(super) parked: Option<Box<ParkedKeys>>,
    /// The keys of the inputs, if the stage joins records by them.
    pub(super) places: Option<Box<KeyPlaces>>,
    /// The moments of its key before the next record.
    pub(super) own_moments: Option<Box<OwnMoments>>,
    /// The moments that handlers of timers have set into the past.
    pub(super) past_sets: PastSets,
    /// The ticks that are set.
    pub(super) ticks: Ticks,
    /// The due items that may come before the next record.
    pub(super) between: Between,
    /// Stream time while the inputs are idle, if the stage closes windows then.
    pub(super) idle: Option<IdleTime>,
    /// The offset and the time of the last head of each input. Empty if no time comes from key and value.
    own_times: Vec<Option<(Offset, Option<Timestamp>)>>,
    /// The merge order of the inputs.
    pub(super) merge: Merge,
    /// The last known supply of each input, with the time of the query.
    pub(super) supplies: Vec<(Now, Supply)>,
    /// The begin of the wait for an input while another input has a record, or the time of the last log line about it.
    pub(super) waits_since: Option<Now>,
    /// The fetched records of each input.
    pub(super) fetched: Vec<R>,
    /// The records that are admitted ahead of their turn, if the stage makes asynchronous calls.
    pub(super) ahead: Option<Box<Ahead>>,
    /// Whether the task has many records that it can take at once.
    pub(super) has_backlog: bool,
    /// Whether a committed offset covers the start.
    pub(super) claimed: bool,
    /// The stream time that an abort returned. Only without the defence `stream_time`.
    pub(super) time_given_back: Option<Timestamp>,
}

impl<R> Task<R> {
    /// Returns whether the task is paused and waits for a decision.
    pub(super) fn stands_still(&self) -> bool {
        self.pauses.iter().any(TaskPause::stands_still)
    }
}

impl<R: Records> Task<R> {
    pub(super) fn new(
        progress: TaskProgress,
        chains: Chains,
        claimed: bool,
        max_idle: MaxIdle,
        now: Now,
    ) -> Self {
        let mut fetched = Vec::new();
        fetched.resize_with(progress.inputs().len(), R::default);
        let max_idle = if rules::waits_for_all_inputs() {
            max_idle
        } else {
            MaxIdle::Never
        };
        let readiness = Readiness::at_start(claimed);
        let mut sources = chains.inputs.iter().flatten();
        let has_own_time = sources.any(|source| source.entry.has_own_time());
        Self {
            merge: Merge::new(max_idle, progress.inputs().len()),
            supplies: vec![(now, Supply::Empty { lag: Lag::Unknown }); progress.inputs().len()],
            started: now,
            waits_since: None,
            committed_at: None,
            recommits: false,
            attempt: None,
            due_attempt: None,
            pauses: Vec::new(),
            parked: ParkedKeys::of(
                &chains,
                progress.inputs().iter().map(|input| &input.partition.topic),
            ),
            places: None,
            own_moments: None,
            past_sets: PastSets::default(),
            ticks: Ticks::default(),
            between: Between::default(),
            idle: None,
            own_times: match has_own_time {
                true => vec![None; progress.inputs().len()],
                false => Vec::new(),
            },
            progress,
            chains,
            view: None,
            state: None,
            readiness,
            fetched,
            ahead: None,
            has_backlog: false,
            claimed,
            time_given_back: None,
        }
    }

    /// Advances stream time when the inputs have been idle for this long.
    pub(super) fn closes_when_idle(&mut self, after: Option<Duration>) {
        self.idle = after.map(IdleTime::new);
    }

    /// Returns the stream time up to which items are due.
    pub(super) fn stream_time(&self) -> Option<Timestamp> {
        let idle = self.idle.as_ref().and_then(IdleTime::stream_time);
        self.progress.stream_time().max(idle)
    }

    /// Returns the stream time before the next record.
    #[inline]
    pub(super) fn seen(&self) -> Option<Timestamp> {
        let seen = self.progress.stream_time();
        match self.time_given_back {
            None => seen,
            given_back => seen.max(given_back),
        }
    }

    /// Returns the offset and the time of the first fetched record of an input.
    #[inline]
    pub(super) fn head_place(&mut self, input: usize) -> Option<(Offset, Option<Timestamp>)> {
        let record = self.fetched.get(input).and_then(Records::first)?;
        let (offset, timestamp) = (record.offset(), record.timestamp());
        match self.own_times.is_empty() {
            true => Some((offset, timestamp)),
            false => Some((offset, self.own_head_time(input, true))),
        }
    }

    /// Returns the time of the next record of an input: its timestamp, or the one in its key and value. A record whose own
    /// time can't be read has none here. So it comes first, and it does not advance stream time.
    #[inline]
    pub(super) fn head_time(&mut self, input: usize) -> Option<Timestamp> {
        match self.own_times.is_empty() {
            true => self
                .fetched
                .get(input)
                .and_then(Records::first)?
                .timestamp(),
            false => self.own_head_time(input, false),
        }
    }

    /// Returns the time in the key and value of the next record of an input. `again`: reads it again if it could not be read
    /// before. Only a record that is processed now does so: a task may wait in front of the record for a long time.
    #[inline(never)]
    fn own_head_time(&mut self, input: usize, again: bool) -> Option<Timestamp> {
        let record = self.fetched.get(input).and_then(Records::first)?;
        let mut sources = self.chains.inputs.get(input).into_iter().flatten();
        let Some(source) = sources.find(|it| it.entry.has_own_time()) else {
            return record.timestamp();
        };
        let (offset, slot) = (record.offset(), self.own_times.get_mut(input)?);
        if let Some((_, time)) = slot.filter(|(of, _)| *of == offset)
            && (time.is_some() || !again)
        {
            return time;
        }
        let headers = record.headers();
        let raw = Raw {
            key: record.key(),
            value: record.value(),
            timestamp: record.timestamp(),
            headers: &headers,
        };
        let time = own_time(&*source.entry, &raw);
        *slot = Some((offset, time));
        time
    }

    /// Returns the time in the key and value of a record of an input, if the topic has such times.
    pub(super) fn own_time_of(&self, input: usize, raw: &Raw<'_>) -> Option<Timestamp> {
        let mut sources = self.chains.inputs.get(input).into_iter().flatten();
        let source = sources.find(|it| it.entry.has_own_time())?;
        own_time(&*source.entry, raw)
    }

    /// Returns whether the times of an input's records are in their keys and values.
    #[inline(always)]
    pub(super) fn has_own_times(&self, input: usize) -> bool {
        // Nearly all tasks have none.
        !self.own_times.is_empty() && self.reads_own_times(input)
    }

    #[inline(never)]
    fn reads_own_times(&self, input: usize) -> bool {
        let mut sources = self.chains.inputs.get(input).into_iter().flatten();
        sources.any(|it| it.entry.has_own_time())
    }

    /// Returns whether the task takes records and has none, and waits for no retry and no decision.
    pub(super) fn is_idle(&self) -> bool {
        self.readiness == Readiness::Ready
            && self.attempt.is_none()
            && self.due_attempt.is_none()
            && self.ahead.as_ref().is_none_or(|ahead| ahead.is_empty())
            && self.pauses.is_empty()
            && self.fetched.iter().all(|records| records.first().is_none())
    }

    /// Returns whether the task has items that become due.
    pub(super) fn has_due(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(TaskState::has_due)
    }

    /// Updates the task after a commit. `held`: the task processed one record that is not part of the transaction.
    pub(super) fn committed(&mut self, now: Now, held: bool) {
        if self.progress.touched() || std::mem::take(&mut self.recommits) {
            self.committed_at = Some(now);
        }
        if self.progress.touched() {
            self.progress.committed();
            self.pauses.retain(|pause| !pause.rule.is_over());
            // The chains that processed the held record may still have to discard it.
            if !held {
                self.chains.committed();
            }
            self.claimed = true;
            if self.readiness == Readiness::Unclaimed {
                self.readiness = Readiness::Ready;
            }
        }
    }

    /// At most once: claims all fetched records, or commits the offsets of a start or of an idle task. Returns the offsets
    /// under the name of the claim.
    pub(super) fn seal_claim(
        &mut self,
        nonce: Nonce,
        now: Now,
    ) -> Vec<(TopicPartition, Offset, String)> {
        match self.readiness {
            Readiness::Ready => {}
            Readiness::Unclaimed => self.progress.touch(),
            Readiness::Restoring | Readiness::Rewinding => return Vec::new(),
        }
        if self.is_overdue(now) {
            self.progress.touch();
        }
        // A record that waits for a decision or a retry keeps its place in the group.
        let retries = self.attempt.as_ref();
        let waits = self.stands_still() || retries.is_some_and(|it| !it.wait(now).is_zero());
        for (input, fetched) in self.fetched.iter().enumerate().filter(|_| !waits) {
            if let Some(last) = fetched.last() {
                self.progress.claim(input, last.offset().next());
            }
        }
        self.progress.seal_claim(nonce)
    }

    /// At most once: the claim is committed.
    pub(super) fn take_claim(&mut self, now: Now) {
        if self.progress.sealed().is_none() {
            return;
        }
        self.progress.claimed();
        self.committed_at = Some(now);
        self.claimed = true;
        if self.readiness == Readiness::Unclaimed {
            self.readiness = Readiness::Ready;
        }
    }

    /// Returns the offsets, under the name of the sealed transaction.
    pub(super) fn seal(&mut self, nonce: Nonce) -> Vec<(TopicPartition, Offset, String)> {
        let mut wrote = PerFamily::default();
        if let Some(state) = &mut self.state {
            state.sealed();
            wrote = state.wrote();
        }
        self.progress.seal(nonce, wrote)
    }

    /// Keeps the changes of the current record. Returns their size in bytes until the commit.
    pub(super) fn keep(&mut self) -> usize {
        self.state.as_mut().map_or(0, |state| {
            let before = state.store.bytes();
            state.store.keep_record();
            state.store.bytes().saturating_sub(before)
        })
    }

    /// Forgets the attempt at a processed record.
    #[inline(always)]
    pub(super) fn end_attempt(&mut self, input: usize, offset: Offset) {
        let Some(attempt) = &self.attempt else {
            return;
        };
        let from = self.progress.inputs().get(input);
        if attempt.offset == offset && from.is_some_and(|it| it.partition == attempt.partition) {
            self.attempt = None;
        }
    }

    /// Forgets the changes of the current record.
    pub(super) fn forget(&mut self) {
        self.chains.discard();
        if let Some(parked) = &mut self.parked {
            parked.changed();
        }
        self.ticks.forget();
        if let Some(state) = &mut self.state {
            state.store.drop_record();
        }
    }

    /// Discards the task's part of the transaction. Returns the offsets to which the inputs rewind.
    pub(super) fn discard(&mut self, in_rebalance: bool) -> Vec<(TopicPartition, Offset)> {
        self.chains.discard();
        self.own_moments = None;
        self.past_sets = PastSets::default();
        self.ticks.forget();
        if let Some(state) = &mut self.state {
            state.discard();
        }
        if let Some(idle) = &mut self.idle {
            idle.restart();
        }
        if !rules::rewinds_stream_time() {
            self.time_given_back = self.progress.stream_time();
        }
        if !rules::rewinds_after_abort() || (in_rebalance && !rules::rewinds_retained_tasks()) {
            return Vec::new();
        }
        let back = self.progress.discarded();
        if let Some(parked) = &mut self.parked {
            parked.aborted();
        }
        for pause in &mut self.pauses {
            pause.rule.aborted(!back.is_empty());
        }
        if !back.is_empty() {
            if rules::drops_stale_records() {
                self.drop_fetched();
            }
            self.readiness = Readiness::Rewinding;
        }
        back
    }

    /// Returns whether an idle task must commit its offsets again.
    pub(super) fn is_overdue(&self, now: Now) -> bool {
        self.readiness == Readiness::Ready
            && !self.progress.touched()
            && recommit_due(self.started, self.committed_at, now)
    }

    /// Ends the rewind.
    pub(super) fn rewound(&mut self) {
        self.readiness = if self.claimed {
            Readiness::Ready
        } else {
            Readiness::Unclaimed
        };
    }

    /// Begins the restore of the state, before the first record.
    pub(super) fn restores(&mut self, view: ViewTicket) {
        self.view = Some(view);
        self.readiness = Readiness::Restoring;
    }

    /// Ends the restore of the state.
    pub(super) fn restored(&mut self, state: TaskState) {
        if let Some(view) = &self.view {
            view.restored(state.store.reader());
        }
        self.state = Some(state);
        self.readiness = Readiness::at_start(self.claimed);
    }

    /// Returns whether this partition is one of its inputs.
    pub(super) fn reads(&self, partition: &TopicPartition) -> bool {
        self.progress
            .inputs()
            .iter()
            .any(|input| input.partition == *partition)
    }

    /// Makes asynchronous calls. `start` is the number of the task's start within the worker.
    pub(super) fn makes_calls(&mut self, calls: Option<&CallSpec>, start: u32) {
        let inputs = self.progress.inputs().len();
        self.ahead = calls.map(|calls| Box::new(Ahead::new(calls, inputs, start)));
    }

    /// Returns the record of an input that is processed now.
    pub(super) fn head(&self, input: usize) -> Option<&dyn Message> {
        match &self.ahead {
            Some(ahead) => Some(&ahead.current()?.message),
            None => Some(self.fetched.get(input)?.first()?),
        }
    }

    /// Frees the record of an input that is processed now.
    #[inline]
    pub(super) fn drop_head(&mut self, input: usize) {
        if let Some(ahead) = &mut self.ahead {
            ahead.drop_current();
        } else if let Some(fetched) = self.fetched.get_mut(input) {
            fetched.drop_first();
        }
    }

    /// Drops the fetched records of an input before a seek. Returns the seeks of other inputs: records that are admitted
    /// ahead of their turn are in one order, so all inputs rewind together.
    pub(super) fn rewind(&mut self, input: usize) -> Vec<(TopicPartition, Offset)> {
        if self.ahead.is_none() {
            // Only this input: the client does not deliver the fetched records of the others again.
            self.drop_fetched_of(input);
            return Vec::new();
        }
        self.drop_fetched();
        let inputs = self.progress.inputs().iter().enumerate();
        let others = inputs.filter(|(at, _)| *at != input);
        others
            .map(|(_, it)| (it.partition.clone(), it.next))
            .collect()
    }

    /// Frees the fetched records of one input.
    fn drop_fetched_of(&mut self, input: usize) {
        if let Some(records) = self.fetched.get_mut(input) {
            records.clear();
        }
        if let Some((_, supply)) = self.supplies.get_mut(input) {
            *supply = Supply::Empty { lag: Lag::Unknown };
        }
    }

    fn drop_fetched(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.clear();
        }
        for records in &mut self.fetched {
            records.clear();
        }
        for (_, supply) in &mut self.supplies {
            *supply = Supply::Empty { lag: Lag::Unknown };
        }
    }
}

/// Returns the time in the key and value of a record. A panic of the closure counts as no time. The record panics again when
/// it is processed, and its error policy decides.
fn own_time(entry: &dyn Entry, raw: &Raw<'_>) -> Option<Timestamp> {
    let own = catch_unwind(AssertUnwindSafe(|| entry.own_time(raw)));
    own.ok().flatten()
}
