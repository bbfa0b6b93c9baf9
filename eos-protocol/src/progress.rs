//! A task's progress: its inputs' offsets and its last transaction's name.

use crate::guarantee::Guarantee;
use crate::halving::Taken;
use crate::ids::{Nonce, Offset, Seq, TaskId, Timestamp, TopicPartition};
use crate::item_name::ItemName;
use crate::name::{LayoutHash, TransactionName};
use crate::state::{PerFamily, StoreNames, TopicDigest};

/// The count of numbers that each start of a task skips under `AtLeastOnce`. An owner makes fewer attempts before it
/// detects that it has lost the task.
pub const START_STEP: u64 = 1_000;

/// One input partition of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to read, as of the last committed transaction. At most once: the records before it are claimed.
    pub committed: Offset,
    /// The next offset to read.
    pub next: Offset,
    /// The first record since the last commit.
    first: Option<Offset>,
    /// The offset of the last start or rewind.
    from: Offset,
    /// At most once: the offset that is being committed.
    claiming: Option<Offset>,
    /// The expected first record, until the first record has arrived.
    expected: Option<Expected>,
}

/// The expected next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    /// The first record before the rewind.
    first: Option<Offset>,
    /// Whether a later record arrived first, and the rewind was repeated.
    asked_again: bool,
    /// Whether the log has lost the expected record, so that a later one may come instead.
    gone: bool,
}

/// The decision about a delivered record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Process it.
    Process,
    /// Drop the record, because it was delivered and processed before, since the last start or rewind. When librdkafka
    /// resumes a partition, it continues after the last offset that it counts as consumed. At that moment, a batch may
    /// already be on its way to the worker.
    Repeated,
    /// Drop all fetched records of this input and seek to this offset. The first record after a rewind is a later one
    /// than before the rewind, and may have been fetched before it.
    Rewind(Offset),
    /// A later record came first again. Check whether the log has lost the record at this offset (retention,
    /// compaction, `DeleteRecords`). If so, call [`TaskProgress::lost`]. Otherwise stop.
    Missing(Offset),
}

/// The progress of one task.
///
/// Every transaction that touches the task carries the offsets of *all* its inputs under one name, advanced or not
/// (design rule 2). Group fencing works per partition: with the offset of another task, a zombie could commit beside
/// the new owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProgress {
    /// The task.
    pub task: TaskId,
    inputs: Vec<Input>,
    layout: LayoutHash,
    width: u32,
    last: Option<TransactionName>,
    guarantee: Guarantee,
    /// At most once: whether the group may have lower offsets than the claimed ones, because a transaction was
    /// discarded.
    reclaims: bool,
    /// The lowest number that no earlier attempt has used, if its records may still be in a changelog.
    unused: Seq,
    touched: bool,
    sealed: Option<TransactionName>,
    stream_time: Option<Timestamp>,
    changelogs: PerFamily<Option<TopicDigest>>,
    stores: StoreNames,
    /// The due items of the open transaction.
    items: Vec<ItemName>,
}

/// A record that is out of order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{partition}: offset {got} was delivered, but the next one to read is {next}")]
pub struct OutOfOrder {
    /// The partition.
    pub partition: TopicPartition,
    /// The record's offset.
    pub got: Offset,
    /// The expected offset.
    pub next: Offset,
}

impl TaskProgress {
    /// Creates the progress of a task that resumes at committed offsets. `last` is the name in their metadata.
    #[must_use]
    pub fn resume(
        task: TaskId,
        layout: LayoutHash,
        width: u32,
        inputs: impl IntoIterator<Item = (TopicPartition, Offset)>,
        last: Option<TransactionName>,
    ) -> Self {
        let inputs = inputs
            .into_iter()
            .map(|(partition, at)| Input {
                partition,
                committed: at,
                next: at,
                first: None,
                from: at,
                claiming: None,
                expected: Some(Expected {
                    first: None,
                    asked_again: false,
                    gone: false,
                }),
            })
            .collect();
        let width = last.as_ref().map_or(width, |name| name.width);
        let stream_time = last.as_ref().and_then(|name| name.stream_time);
        Self {
            task,
            inputs,
            layout,
            width,
            last,
            guarantee: Guarantee::ExactlyOnce,
            reclaims: false,
            unused: Seq(0),
            touched: false,
            sealed: None,
            stream_time,
            changelogs: PerFamily::default(),
            stores: StoreNames::default(),
            items: Vec::new(),
        }
    }

    /// Sets the changelogs of its stage, with the topic ids at the start of this process. Its transaction names carry
    /// the ids. If a successor finds other ids, these topics lack some of the state.
    #[must_use]
    pub fn with_changelogs(mut self, topics: PerFamily<Option<TopicDigest>>) -> Self {
        self.changelogs = topics;
        self
    }

    /// Sets the names of its stores. Transaction names include them, so that an error can name a renamed store.
    #[must_use]
    pub fn with_stores(mut self, stores: StoreNames) -> Self {
        self.stores = stores;
        self
    }

    /// Sets the guarantee.
    #[must_use]
    pub fn with_guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// Gives each attempt a number of its own.
    ///
    /// At least once, a discarded attempt at a transaction leaves its records in the changelogs, and records of an
    /// earlier owner of the task may arrive late. Restores order them by number. So no number is used twice: each
    /// attempt takes the next one, and each start of a task skips [`START_STEP`] numbers, which are more than a
    /// previous owner can still use. The task commits its offsets under the first of them before its first record.
    #[must_use]
    pub fn with_own_numbers(mut self) -> Self {
        let last = self.last.as_ref().map_or(0, |name| name.seq.0);
        self.unused = Seq(last.saturating_add(START_STEP));
        self
    }

    /// Its input partitions, in the order of its stage's topics.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The name of its last committed transaction.
    #[must_use]
    pub fn last(&self) -> Option<&TransactionName> {
        self.last.as_ref()
    }

    /// The name with which the open transaction was sealed.
    #[must_use]
    pub fn sealed(&self) -> Option<&TransactionName> {
        self.sealed.as_ref()
    }

    /// Returns whether the open transaction holds an effect of this task.
    #[must_use]
    pub fn touched(&self) -> bool {
        self.touched
    }

    /// The records and due items that the open transaction took from each input and clock, if any. They identify an
    /// abort (rule 9). Call it before [`discarded`](Self::discarded) or [`committed`](Self::committed).
    pub fn taken(&self) -> impl Iterator<Item = Taken> {
        let records = self.inputs.iter().filter_map(|input| {
            Some(Taken {
                partition: input.partition.clone(),
                first: input.first?,
                next: input.next,
            })
        });
        let items = self.items.iter().map(|item| Taken {
            partition: item.partition(self.task),
            first: Offset::ZERO,
            next: Offset::ZERO.next(),
        });
        records.chain(items)
    }

    /// Marks a due item as handled: the next transaction covers it.
    pub fn handled_due(&mut self, item: ItemName) {
        self.touched = true;
        self.items.push(item);
    }

    /// Adds the task to the open transaction without a record.
    pub fn touch(&mut self) {
        self.touched = true;
    }

    /// Admits a record of input number `input` before processing. Offsets may jump forward (control records,
    /// compaction), never back. The first record after a rewind has to be the first record before it, or has to be
    /// confirmed (design rule 8).
    ///
    /// # Errors
    /// [`OutOfOrder`] if the record is before the offset of the last start or rewind.
    #[inline(always)]
    pub fn admit(&mut self, input: usize, offset: Offset) -> Result<Admission, OutOfOrder> {
        // Nearly all records take this path.
        let place = self.inputs.get(input);
        if place.is_some_and(|it| it.expected.is_none() && offset >= it.next.max(it.from)) {
            return Ok(Admission::Process);
        }
        self.admit_checked(input, offset)
    }

    #[inline(never)]
    fn admit_checked(&mut self, input: usize, offset: Offset) -> Result<Admission, OutOfOrder> {
        let Some(input) = self.inputs.get_mut(input) else {
            return Ok(Admission::Process);
        };
        if offset < input.from {
            return Err(OutOfOrder {
                partition: input.partition.clone(),
                got: offset,
                next: input.next,
            });
        }
        if input.expected.is_none() && offset < input.next {
            return Ok(Admission::Repeated);
        }
        let Some(expected) = &mut input.expected else {
            return Ok(Admission::Process);
        };
        match expected.first.filter(|first| offset > *first) {
            Some(first) if !expected.gone => {
                match std::mem::replace(&mut expected.asked_again, true) {
                    false => Ok(Admission::Rewind(input.from)),
                    true => Ok(Admission::Missing(first)),
                }
            }
            _ => Ok(Admission::Process),
        }
    }

    /// Returns whether the first record before the rewind has not arrived again yet.
    #[must_use]
    pub fn expects_record(&self) -> bool {
        let mut expected = self.inputs.iter().filter_map(|input| input.expected);
        expected.any(|it| it.first.is_some() && !it.gone)
    }

    /// Returns whether the first record before the rewind is still [missing](Admission::Missing).
    #[must_use]
    pub fn misses(&self, partition: &TopicPartition, record: Offset) -> bool {
        let mut inputs = self.inputs.iter();
        let input = inputs.find(|input| input.partition == *partition);
        let expected = input.and_then(|input| input.expected);
        expected.is_some_and(|it| it.first == Some(record) && it.asked_again && !it.gone)
    }

    /// Records that the log of a partition has lost the first record before the rewind. A later record may come now.
    pub fn lost(&mut self, partition: &TopicPartition) {
        let inputs = self.inputs.iter_mut();
        for input in inputs.filter(|input| input.partition == *partition) {
            if let Some(expected) = &mut input.expected {
                expected.gone = true;
            }
        }
    }

    /// Marks a record of input number `input` as processed: the next transaction covers it.
    pub fn advance(&mut self, input: usize, offset: Offset, time: Option<Timestamp>) {
        self.touched = true;
        self.stream_time = self.stream_time.max(time);
        if let Some(input) = self.inputs.get_mut(input) {
            input.next = offset.next();
            input.first.get_or_insert(offset);
            input.expected = None;
        }
    }

    /// Advances stream time to this time, because the inputs are idle.
    pub fn advance_stream_time(&mut self, time: Timestamp) {
        self.stream_time = self.stream_time.max(Some(time));
    }

    /// The highest time of all taken records, including those of the open transaction.
    #[must_use]
    pub fn stream_time(&self) -> Option<Timestamp> {
        self.stream_time
    }

    /// The number of the open transaction, if it touches the task.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        let next = self.last.as_ref().map_or(Seq(1), |name| name.seq.next());
        next.max(self.unused)
    }

    /// At most once: whether a committed offset covers this record of input number `input`. Only such a record may be
    /// processed.
    #[must_use]
    pub fn is_claimed(&self, input: usize, offset: Offset) -> bool {
        let input = self.inputs.get(input);
        input.is_some_and(|input| offset < input.committed) && !self.reclaims
    }

    /// At most once: adds the records of input number `input` before this offset to the next claim.
    pub fn claim(&mut self, input: usize, to: Offset) {
        let reclaims = self.reclaims;
        if let Some(input) = self.inputs.get_mut(input)
            && (to > input.committed || reclaims)
        {
            input.claiming = Some(to.max(input.committed));
            self.touched = true;
        }
    }

    /// At most once: seals the claim. Returns the offsets behind the claimed records, as [`seal`](Self::seal) does.
    pub fn seal_claim(&mut self, nonce: Nonce) -> Vec<(TopicPartition, Offset, String)> {
        let mut offsets = self.seal(nonce, PerFamily::default());
        for (input, (_, offset, _)) in self.inputs.iter().zip(&mut offsets) {
            *offset = input.claiming.unwrap_or(input.committed);
        }
        offsets
    }

    /// At most once: records the commit of the claim. The claimed records may be processed.
    pub fn claimed(&mut self) {
        if let Some(name) = self.sealed.take() {
            self.last = Some(name);
            self.reclaims = false;
            for input in &mut self.inputs {
                input.committed = input.claiming.take().unwrap_or(input.committed);
            }
        }
    }

    /// At most once: whether the group has exactly these offsets, so that the task has no records to return.
    #[must_use]
    pub fn has_processed_claims(&self) -> bool {
        (self.inputs.iter()).all(|input| input.next == input.committed)
    }

    /// Seals the task's part of the transaction: the offsets of all its inputs, under a new name. `wrote` lists the
    /// changelogs to which the task wrote. From now on its commit record is the last one there, with the number of
    /// the [sealed](Self::sealed) name. Empty if the transaction does not touch the task.
    pub fn seal(
        &mut self,
        nonce: Nonce,
        wrote: PerFamily<bool>,
    ) -> Vec<(TopicPartition, Offset, String)> {
        if !self.touched {
            return Vec::new();
        }
        let seq = self.next_seq();
        let before = self.last.as_ref().map(TransactionName::commit_records);
        let before = before.unwrap_or_default();
        let name = TransactionName {
            layout: self.layout,
            width: self.width,
            seq,
            nonce,
            plain: wrote.plain.then_some(seq).or(before.plain),
            windowed: wrote.windowed.then_some(seq).or(before.windowed),
            stream_time: self.stream_time,
            topics: self.changelogs,
            stores: self.stores.clone(),
        };
        let text = name.to_string();
        self.sealed = Some(name);
        self.inputs
            .iter()
            .map(|i| (i.partition.clone(), i.next, text.clone()))
            .collect()
    }

    /// The committed offsets of all its inputs with their name. A repeated commit prevents the broker from expiring the
    /// offsets of an idle task. It changes nothing, so the task is no part of that transaction's outcome.
    ///
    /// Empty if the open transaction touches the task, because it carries the offsets. Also empty if the offsets have
    /// no name of this library. A transaction gives them one.
    #[must_use]
    pub fn recommit(&self) -> Vec<(TopicPartition, Offset, String)> {
        let Some(name) = self.last.as_ref().filter(|_| !self.touched) else {
            return Vec::new();
        };
        let text = name.to_string();
        self.inputs
            .iter()
            .map(|i| (i.partition.clone(), i.committed, text.clone()))
            .collect()
    }

    /// Records the commit of the transaction.
    pub fn committed(&mut self) {
        if let Some(name) = self.sealed.take() {
            self.last = Some(name);
            for input in &mut self.inputs {
                input.committed = input.next;
                input.first = None;
            }
            self.items.clear();
        }
        self.touched = false;
    }

    /// Discards the transaction and returns to the last committed offsets. Returns the seek targets: every input of a
    /// touched task. At most once: does not return, because no record may be processed again.
    pub fn discarded(&mut self) -> Vec<(TopicPartition, Offset)> {
        let tried = self.next_seq();
        self.sealed = None;
        if self.guarantee == Guarantee::AtMostOnce {
            self.touched = false;
            self.reclaims = true;
            for input in &mut self.inputs {
                input.claiming = None;
                input.first = None;
            }
            return Vec::new();
        }
        self.stream_time = self.last.as_ref().and_then(|name| name.stream_time);
        if !std::mem::take(&mut self.touched) {
            return Vec::new();
        }
        if self.unused > Seq(0) {
            self.unused = tried.next();
        }
        self.items.clear();
        for input in &mut self.inputs {
            input.next = input.committed;
            let before = input.expected.and_then(|expected| expected.first);
            input.from = input.committed;
            input.expected = Some(Expected {
                first: input.first.take().or(before),
                asked_again: false,
                gone: false,
            });
        }
        self.inputs
            .iter()
            .map(|i| (i.partition.clone(), i.committed))
            .collect()
    }
}

#[cfg(test)]
#[path = "progress_test.rs"]
mod tests;
