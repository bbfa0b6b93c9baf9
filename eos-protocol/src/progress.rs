//! How far a task has come: its inputs' offsets and the name of its last transaction.

use crate::halving::Taken;
use crate::ids::{Nonce, Offset, Seq, TaskId, Timestamp, TopicPartition};
use crate::name::{LayoutHash, TransactionName};
use crate::state::PerFamily;

/// One input partition of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to read as of the last committed transaction.
    pub committed: Offset,
    /// The next offset to read now.
    pub next: Offset,
    /// The first record since the last commit.
    first: Option<Offset>,
    /// What the last start or rewind asked for.
    from: Offset,
    /// As long as its first record has not arrived: what that should be.
    expected: Option<Expected>,
}

/// What the next record should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    /// The record that came first before the rewind.
    first: Option<Offset>,
    /// Whether a later one came already, and the rewind was repeated.
    asked_again: bool,
}

/// What to do with a record that was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Process it.
    Process,
    /// Drop it: it was delivered and processed before, since the last start or rewind. (librdkafka
    /// goes on at the last offset that it knows to be taken when it resumes a partition, and a
    /// batch may be on its way to us at that moment.)
    Repeated,
    /// Drop everything fetched of this input and go back there: the first record after a rewind is
    /// a later one than before it. If it is so once more, the one before was removed meanwhile
    /// (compaction, DeleteRecords); if not, this one was fetched before the rewind.
    GoBack(Offset),
}

/// The progress of one task.
///
/// Every transaction that touches the task carries the offsets of *all* its inputs, advanced or
/// not, all under one name (design rule 2): group fencing works per partition, and with another
/// task's offset instead a zombie commits beside the new owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProgress {
    /// The task.
    pub task: TaskId,
    inputs: Vec<Input>,
    layout: LayoutHash,
    width: u32,
    last: Option<TransactionName>,
    touched: bool,
    sealed: Option<TransactionName>,
    stream_time: Option<Timestamp>,
}

/// A record that must not come now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{partition}: offset {got} was delivered, but the next one to read is {next}")]
pub struct OutOfOrder {
    /// The partition.
    pub partition: TopicPartition,
    /// The record's offset.
    pub got: Offset,
    /// What was to come.
    pub next: Offset,
}

impl TaskProgress {
    /// A task that resumes at committed offsets, `last` being the name beside them.
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
                expected: Some(Expected {
                    first: None,
                    asked_again: false,
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
            touched: false,
            sealed: None,
            stream_time,
        }
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

    /// The name under which the open transaction was sealed.
    #[must_use]
    pub fn sealed(&self) -> Option<&TransactionName> {
        self.sealed.as_ref()
    }

    /// Whether the open transaction holds an effect of this task.
    #[must_use]
    pub fn touched(&self) -> bool {
        self.touched
    }

    /// What the open transaction took of each input, if anything: what an abort is known by
    /// (rule 9). To be asked before [`discarded`](Self::discarded) or
    /// [`committed`](Self::committed).
    pub fn taken(&self) -> impl Iterator<Item = Taken> {
        self.inputs.iter().filter_map(|input| {
            Some(Taken {
                partition: input.partition.clone(),
                first: input.first?,
                next: input.next,
            })
        })
    }

    /// Puts the task into the open transaction without a record.
    pub fn touch(&mut self) {
        self.touched = true;
    }

    /// A record of input number `input` is about to be processed: checks that it is one to come.
    /// Offsets may jump forward (control records, compaction), never back; but the first record
    /// after a rewind has to be the one that was first before it, or be confirmed (design rule 8).
    ///
    /// # Errors
    /// [`OutOfOrder`] if it lies before what the last start or rewind asked for.
    pub fn admit(&mut self, input: usize, offset: Offset) -> Result<Admission, OutOfOrder> {
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
        if let Some(expected) = &mut input.expected
            && expected.first.is_some_and(|first| offset > first)
            && !std::mem::replace(&mut expected.asked_again, true)
        {
            return Ok(Admission::GoBack(input.from));
        }
        Ok(Admission::Process)
    }

    /// A record of input number `input` is done: the next transaction covers it.
    pub fn advance(&mut self, input: usize, offset: Offset, time: Option<Timestamp>) {
        self.touched = true;
        self.stream_time = self.stream_time.max(time);
        if let Some(input) = self.inputs.get_mut(input) {
            input.next = offset.next();
            input.first.get_or_insert(offset);
            input.expected = None;
        }
    }

    /// The highest time of the records that it has taken, those of the open transaction included.
    #[must_use]
    pub fn stream_time(&self) -> Option<Timestamp> {
        self.stream_time
    }

    /// The number of the open transaction, if it touches the task.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.last.as_ref().map_or(Seq(1), |name| name.seq.next())
    }

    /// Seals the task's part of the transaction: the offsets of all its inputs, under a new name.
    /// `wrote` tells to which changelogs it wrote: there its commit record is the last one from now
    /// on, with the number of the [sealed](Self::sealed) name. Nothing if the transaction does not
    /// touch the task.
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
        };
        let text = name.to_string();
        self.sealed = Some(name);
        self.inputs
            .iter()
            .map(|i| (i.partition.clone(), i.next, text.clone()))
            .collect()
    }

    /// The offsets of all its inputs as they are committed, with the name that they have: for a
    /// task that no record touches, before the broker forgets them. To commit them again changes
    /// nothing, so the task is no part of that transaction's outcome. Nothing if a transaction
    /// touches the task, since that one carries them; or if they have no name of ours, which a
    /// transaction gives them.
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

    /// The transaction is committed.
    pub fn committed(&mut self) {
        if let Some(name) = self.sealed.take() {
            self.last = Some(name);
            for input in &mut self.inputs {
                input.committed = input.next;
                input.first = None;
            }
        }
        self.touched = false;
    }

    /// The transaction is gone: back to the last committed offsets. Answers where to seek to:
    /// every input of a touched task.
    pub fn discarded(&mut self) -> Vec<(TopicPartition, Offset)> {
        self.sealed = None;
        self.stream_time = self.last.as_ref().and_then(|name| name.stream_time);
        if !std::mem::take(&mut self.touched) {
            return Vec::new();
        }
        for input in &mut self.inputs {
            input.next = input.committed;
            let before = input.expected.and_then(|expected| expected.first);
            input.from = input.committed;
            input.expected = Some(Expected {
                first: input.first.take().or(before),
                asked_again: false,
            });
        }
        self.inputs
            .iter()
            .map(|i| (i.partition.clone(), i.committed))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Partition, StageId};
    use proptest::prelude::*;

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    const NOTHING: PerFamily<bool> = PerFamily {
        plain: false,
        windowed: false,
    };

    fn two_inputs() -> TaskProgress {
        let p = Partition::new(3).unwrap();
        let inputs = [
            (TopicPartition::new("a", p), offset(10)),
            (TopicPartition::new("b", p), offset(20)),
        ];
        let task = TaskId {
            stage: StageId(0),
            partition: p,
        };
        TaskProgress::resume(task, LayoutHash(7), 6, inputs, None)
    }

    #[test]
    fn rule_2_a_touched_task_commits_all_its_inputs_under_one_name() {
        let mut task = two_inputs();
        assert!(
            task.seal(Nonce(1), NOTHING).is_empty(),
            "an untouched task is no part of the transaction"
        );

        task.advance(0, offset(10), Some(Timestamp(5)));
        let sealed = task.seal(Nonce(2), NOTHING);
        let at: Vec<_> = sealed
            .iter()
            .map(|(tp, o, _)| (tp.to_string(), o.get()))
            .collect();
        assert_eq!(at, [("a-3".into(), 11), ("b-3".into(), 20)]);
        assert_eq!(sealed[0].2, sealed[1].2);
        assert_eq!(
            sealed[0].2,
            "eos1;0000000000000007;6;1;0000000000000002;-;-;5"
        );
    }

    #[test]
    fn each_attempt_has_another_name_but_only_a_commit_counts() {
        let mut task = two_inputs();
        task.touch();
        task.seal(Nonce(1), NOTHING);
        assert_eq!(task.discarded().len(), 2);
        task.touch();
        let retry = task.seal(Nonce(2), NOTHING);
        assert!(
            retry[0].2.contains(";1;0000000000000002;"),
            "{}",
            retry[0].2
        );
        task.committed();
        task.touch();
        assert!(
            task.seal(Nonce(3), NOTHING)[0]
                .2
                .contains(";2;0000000000000003;")
        );
    }

    #[test]
    fn a_name_names_the_last_commit_record_of_each_changelog() {
        let mut task = two_inputs();
        let mut next = |plain, windowed, commits| {
            task.touch();
            task.seal(Nonce(1), PerFamily { plain, windowed });
            let named = task.sealed().unwrap().commit_records();
            if commits {
                task.committed();
            } else {
                task.discarded();
            }
            (named.plain.map(|s| s.0), named.windowed.map(|s| s.0))
        };
        assert_eq!(next(false, false, true), (None, None));
        assert_eq!(next(true, false, true), (Some(2), None));
        assert_eq!(
            next(false, false, true),
            (Some(2), None),
            "it stays the last one"
        );
        assert_eq!(next(true, true, false), (Some(4), Some(4)));
        assert_eq!(
            next(false, true, true),
            (Some(2), Some(4)),
            "4 was aborted before"
        );
    }

    #[test]
    fn rule_9_an_abort_is_known_by_what_it_took() {
        let taken = |task: &TaskProgress| -> Vec<_> {
            let of = |t: Taken| (t.partition.to_string(), t.first.get(), t.next.get());
            task.taken().map(of).collect()
        };
        let mut task = two_inputs();
        task.touch();
        assert_eq!(taken(&task), []);
        task.advance(1, offset(25), None);
        task.advance(1, offset(26), None);
        assert_eq!(taken(&task), [("b-3".into(), 25, 27)]);
        task.discarded();
        assert_eq!(taken(&task), []);
        task.advance(1, offset(25), None);
        task.seal(Nonce(1), NOTHING);
        task.committed();
        task.advance(0, offset(10), None);
        assert_eq!(taken(&task), [("a-3".into(), 10, 11)]);
    }

    #[test]
    fn an_idle_task_is_committed_again_as_it_is() {
        let mut task = two_inputs();
        assert_eq!(task.recommit(), [], "it has no name yet");
        task.advance(0, offset(10), None);
        let sealed = task.seal(Nonce(1), NOTHING);
        task.committed();
        assert_eq!(task.recommit(), sealed);
        let before = task.clone();
        task.committed();
        assert_eq!(task, before, "it is no part of that transaction");
        assert_eq!(task.discarded(), []);
        task.touch();
        assert_eq!(task.recommit(), [], "this transaction carries it");
    }

    #[test]
    fn rule_8_a_rewind_goes_to_the_last_committed_offsets() {
        let mut task = two_inputs();
        task.advance(0, offset(10), None);
        task.seal(Nonce(1), NOTHING);
        task.committed();
        task.advance(0, offset(11), None);
        task.advance(1, offset(25), None);
        let back = task.discarded();
        assert_eq!(
            back.iter().map(|(_, o)| o.get()).collect::<Vec<_>>(),
            [11, 20]
        );
        assert!(
            task.discarded().is_empty(),
            "an untouched task is not rewound"
        );
        // The next transaction starts there too, also if it reads nothing.
        task.touch();
        let sealed = task.seal(Nonce(2), NOTHING);
        assert_eq!(
            sealed.iter().map(|(_, o, _)| o.get()).collect::<Vec<_>>(),
            [11, 20]
        );
    }

    #[test]
    fn rule_8_nothing_is_delivered_twice_and_gaps_are_fine() {
        let mut task = two_inputs();
        assert_eq!(task.admit(0, offset(9)).unwrap_err().next, offset(10));
        let mut task = two_inputs();
        task.admit(0, offset(12)).unwrap();
        task.advance(0, offset(12), None);
        assert_eq!(task.admit(0, offset(12)), Ok(Admission::Repeated));
        assert_eq!(task.admit(0, offset(10)), Ok(Admission::Repeated));
        assert!(task.admit(0, offset(9)).is_err());
        task.admit(0, offset(13)).unwrap();
        task.discarded();
        assert!(task.admit(0, offset(9)).is_err());
        let mut task = two_inputs();
        task.advance(0, offset(12), None);
        task.discarded();
        task.admit(0, offset(10)).unwrap();
    }

    #[test]
    fn rule_8_another_first_record_after_a_rewind_has_to_be_confirmed() {
        let mut task = two_inputs();
        task.advance(0, offset(10), None);
        task.discarded();
        // Fetched before the rewind took hold: the real one comes on the second try.
        assert_eq!(task.admit(0, offset(11)), Ok(Admission::GoBack(offset(10))));
        assert_eq!(task.admit(0, offset(10)), Ok(Admission::Process));
        task.advance(0, offset(10), None);
        assert_eq!(task.admit(0, offset(11)), Ok(Admission::Process));

        // Removed meanwhile: it is the same on the second try.
        task.discarded();
        assert_eq!(task.admit(0, offset(14)), Ok(Admission::GoBack(offset(10))));
        assert_eq!(task.admit(0, offset(14)), Ok(Admission::Process));

        // A second abort before anything was processed still knows what came first.
        task.touch();
        task.discarded();
        assert_eq!(task.admit(0, offset(14)), Ok(Admission::GoBack(offset(10))));
    }

    #[test]
    fn stream_time_never_goes_back_except_with_its_transaction() {
        let mut task = two_inputs();
        task.advance(0, offset(10), Some(Timestamp(50)));
        task.advance(0, offset(11), Some(Timestamp(40)));
        assert!(task.seal(Nonce(1), NOTHING)[0].2.ends_with(";50"));
        task.discarded();
        task.advance(0, offset(10), Some(Timestamp(40)));
        assert!(task.seal(Nonce(2), NOTHING)[0].2.ends_with(";40"));
    }

    proptest! {
        /// Whatever happens, the committed offset is where the last committed transaction ended.
        #[test]
        fn committed_offsets_follow_committed_transactions_only(
            steps in proptest::collection::vec((0u8..3, 0usize..2, 0i64..5), 0..60),
        ) {
            let mut task = two_inputs();
            let mut truth = [10, 20];
            let mut seq = 0;
            for (what, input, gap) in steps {
                match what {
                    0 => {
                        let at = offset(task.inputs()[input].next.get() + gap);
                        task.admit(input, at).unwrap();
                        task.advance(input, at, None);
                    }
                    1 => {
                        let sealed = task.seal(Nonce(0), NOTHING);
                        let next: Vec<i64> = task.inputs().iter().map(|i| i.next.get()).collect();
                        if !sealed.is_empty() {
                            seq += 1;
                            truth.copy_from_slice(&next);
                        }
                        task.committed();
                    }
                    _ => { task.discarded(); }
                }
                let committed: Vec<i64> = task.inputs().iter().map(|i| i.committed.get()).collect();
                prop_assert_eq!(&committed[..], &truth[..]);
                prop_assert_eq!(task.last().map_or(0, |n| n.seq.0), seq);
            }
        }
    }
}
