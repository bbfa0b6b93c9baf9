//! Queries log bounds on a separate thread.
//!
//! `rd_kafka_offsets_for_times` blocks. The admin call `rd_kafka_ListOffsets` returns its result on a queue, but must
//! not be called. When not all leaders are cached, it continues to use its own request after another thread may have
//! completed and freed it (docs/design/0012).
//!
//! The disadvantage: one unresponsive leader costs a request the results of all others. So simultaneous queries share a
//! request only until it fails. A partition that failed alone is a *suspect*. Queries of suspects come last, one at a
//! time. The leader of a suspect may have moved. If no records are fetched from the partition, no other request detects
//! that, so the metadata is refreshed first.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_protocol::{TopicPartition, code};

use super::ffi::{Client, Entry, Failure, OffsetSpec};
use super::wake::Wake;

/// The time limit of a first try, which blocks the other queries.
const FIRST_TRY: Duration = Duration::from_millis(250);
/// The time limit of later tries, because the broker may be slow. The thread may outlive its source for this long.
const LONGEST_TRY: Duration = Duration::from_secs(2);

/// The query thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Lookups(Sender<Question>);

/// A query in flight. Dropping it abandons the query.
#[derive(Debug)]
pub(super) struct Lookup {
    answer: Receiver<Answer>,
    _wanted: Arc<()>,
}

type Answer = Result<Vec<Entry>, Failure>;

#[derive(Debug)]
struct Question {
    of: Vec<TopicPartition>,
    spec: OffsetSpec,
    until: Instant,
    /// The time limit of the next individual try.
    patience: Duration,
    answer: Sender<Answer>,
    wanted: Weak<()>,
}

impl Lookups {
    /// Starts the thread. It signals `wake` with each response.
    pub(super) fn start(client: &Arc<Client>, wake: &Arc<Wake>) -> Result<Self, Failure> {
        let (client, wake) = (Arc::clone(client), Arc::clone(wake));
        let refreshing = Arc::clone(&client);
        Self::asking(
            move |of, spec, within| client.offsets(of, spec, within),
            // If the refresh fails, the next query fails with the same error.
            move |within| drop(refreshing.topic_names(within)),
            move || wake.signal(),
        )
    }

    fn asking(
        ask: impl Fn(&[TopicPartition], OffsetSpec, Duration) -> Answer + Send + 'static,
        refresh: impl Fn(Duration) + Send + 'static,
        answered: impl Fn() + Send + 'static,
    ) -> Result<Self, Failure> {
        let (questions, asked) = channel();
        let thread = Thread {
            asked,
            ask,
            refresh,
            answered,
            suspects: BTreeSet::new(),
        };
        std::thread::Builder::new()
            .name("eos-offsets".into())
            .spawn(move || thread.run())
            .map_err(|e| Failure::no_thread(&e))?;
        Ok(Self(questions))
    }

    /// Queries one end of some partitions. Without a response within `within` the query fails with `_TIMED_OUT`.
    pub(super) fn ask(&self, of: &[TopicPartition], spec: OffsetSpec, within: Duration) -> Lookup {
        let (sender, answer) = channel();
        let wanted = Arc::new(());
        let question = Question {
            of: of.to_vec(),
            spec,
            until: Instant::now() + within,
            patience: FIRST_TRY,
            answer: sender,
            wanted: Arc::downgrade(&wanted),
        };
        // If the thread has ended, the lookup reports a lost channel.
        let _ = self.0.send(question);
        Lookup {
            answer,
            _wanted: wanted,
        }
    }
}

impl Lookup {
    pub(super) fn poll(&self, slice: Duration) -> Poll<Answer> {
        match self.answer.recv_timeout(slice) {
            Ok(answer) => Poll::Ready(answer),
            Err(RecvTimeoutError::Timeout) => Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => Poll::Ready(Err(Failure::new(
                code::LOCAL_STATE,
                "the thread that queries offsets has ended",
            ))),
        }
    }
}

/// The state of the thread. It holds the client, because it may outlive the source.
struct Thread<A, R, D> {
    asked: Receiver<Question>,
    ask: A,
    /// Refreshes the metadata.
    refresh: R,
    answered: D,
    /// Partitions whose leaders did not respond to an individual query.
    suspects: BTreeSet<TopicPartition>,
}

impl<A, R, D> Thread<A, R, D>
where
    A: Fn(&[TopicPartition], OffsetSpec, Duration) -> Answer,
    R: Fn(Duration),
    D: Fn(),
{
    fn run(mut self) {
        let mut open: Vec<Question> = Vec::new();
        loop {
            if open.is_empty() {
                match self.asked.recv() {
                    Ok(question) => open.push(question),
                    Err(_) => return,
                }
            }
            // Queries that arrived meanwhile share the request.
            open.extend(self.asked.try_iter());
            open.retain(Question::is_wanted);
            let spec = open.iter().find(|q| !self.is_suspect(q)).map(|q| q.spec);
            if let Some(spec) = spec {
                let (together, others): (Vec<_>, _) = open
                    .into_iter()
                    .partition(|q| q.spec == spec && !self.is_suspect(q));
                open = others;
                open.extend(self.ask_together(spec, together));
            } else if !open.is_empty() {
                let question = open.remove(0);
                open.extend(self.ask_alone(question));
            }
        }
    }

    fn is_suspect(&self, question: &Question) -> bool {
        question.of.iter().any(|p| self.suspects.contains(p))
    }

    /// Returns the queries without a response.
    fn ask_together(&mut self, spec: OffsetSpec, mut questions: Vec<Question>) -> Vec<Question> {
        if let [_] = questions[..] {
            return questions
                .pop()
                .and_then(|q| self.ask_alone(q))
                .into_iter()
                .collect();
        }
        let all: BTreeSet<_> = questions.iter().flat_map(|q| &q.of).cloned().collect();
        let all: Vec<_> = all.into_iter().collect();
        if let Ok(entries) = (self.ask)(&all, spec, FIRST_TRY) {
            for question in questions {
                let mine = question.of_these(&entries);
                self.tell(&question, Ok(mine));
            }
            return Vec::new();
        }
        // A failed query must not fail the others.
        let alone = questions.into_iter().filter_map(|q| self.ask_alone(q));
        alone.collect()
    }

    /// Returns the query if it is still open.
    fn ask_alone(&mut self, mut question: Question) -> Option<Question> {
        if !question.is_wanted() {
            return None;
        }
        if self.is_suspect(&question) {
            (self.refresh)(question.patience);
        }
        let answer = (self.ask)(&question.of, question.spec, question.patience);
        let late = answer.as_ref().is_err_and(Failure::is_time_out);
        if late {
            self.suspects.extend(question.of.iter().cloned());
            question.patience = (question.patience * 2).min(LONGEST_TRY);
        } else {
            for partition in &question.of {
                self.suspects.remove(partition);
            }
        }
        if late && Instant::now() < question.until {
            return Some(question);
        }
        self.tell(&question, answer);
        None
    }

    fn tell(&self, question: &Question, answer: Answer) {
        // Fails if the lookup, and with it the receiver, was just dropped.
        let _ = question.answer.send(answer);
        (self.answered)();
    }
}

impl Question {
    fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    fn of_these(&self, entries: &[Entry]) -> Vec<Entry> {
        let mine = entries.iter().filter(|e| self.of.contains(&e.partition));
        mine.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::Partition;

    use super::*;

    fn tp(topic: &str) -> TopicPartition {
        TopicPartition::new(topic, Partition::ZERO)
    }

    /// Simulates brokers of which one is frozen: a request with its partition takes all its time.
    fn frozen(of: &[TopicPartition], spec: OffsetSpec, within: Duration) -> Answer {
        if of.contains(&tp("frozen")) {
            std::thread::sleep(within);
            return Err(Failure::of(code::LOCAL_TIMED_OUT));
        }
        if of.contains(&tp("gone")) {
            return Err(Failure::of(code::UNKNOWN_TOPIC_OR_PARTITION));
        }
        let entry = |partition: &TopicPartition| Entry {
            partition: partition.clone(),
            offset: if spec == OffsetSpec::First { 3 } else { 7 },
            metadata: String::new(),
            code: 0,
        };
        Ok(of.iter().map(entry).collect())
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn both_ends_of_several_partitions_are_returned_to_each_query() {
        let lookups = Lookups::asking(frozen, |_| (), || ()).unwrap();
        let first = lookups.ask(&[tp("a"), tp("b")], OffsetSpec::First, LONG);
        let end = lookups.ask(&[tp("b")], OffsetSpec::End, LONG);
        let offsets = |lookup: &Lookup| match lookup.poll(LONG) {
            Poll::Ready(Ok(entries)) => entries.iter().map(|e| e.offset).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!((offsets(&first), offsets(&end)), (vec![3, 3], vec![7]));
    }

    #[test]
    fn a_leader_that_does_not_respond_delays_no_other_one() {
        let lookups = Lookups::asking(frozen, |_| (), || ()).unwrap();
        let start = Instant::now();
        let stuck = lookups.ask(&[tp("frozen")], OffsetSpec::End, LONG);
        for _ in 0..3 {
            // A query of the frozen partition is repeated again and again.
            let probe = lookups.ask(&[tp("frozen")], OffsetSpec::End, LONG);
            let gone = lookups.ask(&[tp("gone")], OffsetSpec::End, LONG);
            let well = lookups.ask(&[tp("a")], OffsetSpec::End, LONG);
            assert!(matches!(well.poll(LONG), Poll::Ready(Ok(_))));
            assert!(matches!(gone.poll(LONG), Poll::Ready(Err(_))));
            assert!(probe.poll(Duration::ZERO).is_pending());
        }
        assert!(
            start.elapsed() < Duration::from_secs(6),
            "{:?}",
            start.elapsed()
        );
        assert!(stuck.poll(Duration::ZERO).is_pending());
    }

    /// The leader died, and no fetch from the partition makes the client detect it.
    #[test]
    fn a_partition_that_has_another_leader_is_found_again() {
        let known = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let refreshed = Arc::clone(&known);
        let lookups = Lookups::asking(
            move |of, spec, within| {
                let moved = of.contains(&tp("moved"));
                if moved && !known.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(Failure::of(code::LOCAL_TIMED_OUT));
                }
                frozen(of, spec, within)
            },
            move |_| refreshed.store(true, std::sync::atomic::Ordering::Relaxed),
            || (),
        )
        .unwrap();
        let moved = lookups.ask(&[tp("moved")], OffsetSpec::End, LONG);
        assert!(matches!(moved.poll(LONG), Poll::Ready(Ok(_))));
    }

    #[test]
    fn a_question_fails_when_its_time_is_up_and_the_thread_ends_with_its_source() {
        let (told, ended) = channel();
        let lookups = Lookups::asking(frozen, |_| (), move || told.send(()).unwrap()).unwrap();
        let within = Duration::from_millis(100);
        let stuck = lookups.ask(&[tp("frozen")], OffsetSpec::End, within);
        let Poll::Ready(Err(failure)) = stuck.poll(LONG) else {
            panic!()
        };
        assert!(failure.is_time_out());
        ended.recv().unwrap();
        let _forgotten = lookups.ask(&[tp("frozen")], OffsetSpec::End, LONG);
        drop((lookups, _forgotten));
        assert!(ended.recv_timeout(LONG).is_err(), "its end is dropped");
    }
}
