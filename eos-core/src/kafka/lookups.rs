//! Asks the brokers where partitions begin and end, on a thread of its own.
//!
//! `rd_kafka_offsets_for_times` blocks. The admin call that answers on a queue, `rd_kafka_ListOffsets`,
//! must not be called: when the leaders are not all cached it goes on using its own request after
//! another thread may have answered and freed it (docs/design/0012).

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_protocol::{TopicPartition, code};

use super::ffi::{Client, Entry, Failure, OffsetSpec};
use super::wake::Wake;

/// How long one call may block: as long as the thread may outlive its source.
const SLICE: Duration = Duration::from_secs(2);

/// The thread that asks; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Lookups(Sender<Question>);

/// A question that is on its way; nobody asks it any more once this is dropped.
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
    answer: Sender<Answer>,
    wanted: Weak<()>,
}

impl Lookups {
    /// Signals `wake` with each answer.
    pub(super) fn start(client: &Arc<Client>, wake: &Arc<Wake>) -> Result<Self, Failure> {
        let (questions, asked) = channel();
        let asker = Asker {
            asked,
            wake: Arc::clone(wake),
            client: Arc::clone(client),
        };
        std::thread::Builder::new()
            .name("eos-offsets".into())
            .spawn(move || asker.run())
            .map_err(|e| Failure::no_thread(&e))?;
        Ok(Self(questions))
    }

    /// Asks for one end of some partitions. Without an answer within `within` the question fails
    /// with `_TIMED_OUT`.
    pub(super) fn ask(&self, of: &[TopicPartition], spec: OffsetSpec, within: Duration) -> Lookup {
        let (sender, answer) = channel();
        let wanted = Arc::new(());
        let question = Question {
            of: of.to_vec(),
            spec,
            until: Instant::now() + within,
            answer: sender,
            wanted: Arc::downgrade(&wanted),
        };
        // A thread that is gone shows as a lookup that has lost its other end.
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
                "the thread that asks for offsets has ended",
            ))),
        }
    }
}

/// It holds the client, so that it may end after the source did.
struct Asker {
    asked: Receiver<Question>,
    wake: Arc<Wake>,
    client: Arc<Client>,
}

impl Asker {
    fn run(self) {
        let mut open: Vec<Question> = Vec::new();
        loop {
            if open.is_empty() {
                match self.asked.recv() {
                    Ok(question) => open.push(question),
                    Err(_) => return,
                }
            }
            // What was asked meanwhile travels in the same request.
            open.extend(self.asked.try_iter());
            open.retain(Question::is_wanted);
            let Some(spec) = open.first().map(|question| question.spec) else {
                continue;
            };
            let (now, later) = open.into_iter().partition(|q| q.spec == spec);
            open = later;
            open.extend(self.answer(spec, now));
        }
    }

    /// Asks once for all of them; returns those that have no answer yet.
    fn answer(&self, spec: OffsetSpec, questions: Vec<Question>) -> Vec<Question> {
        let all: BTreeSet<_> = questions.iter().flat_map(|q| &q.of).collect();
        let found = self.client.offsets(all, spec, SLICE);
        let alone = questions.len() == 1;
        let mut open = Vec::new();
        for question in questions {
            let answer = match &found {
                Ok(entries) => Ok(question.of_these(entries)),
                Err(failure) if !failure.is_time_out() && alone => Err(failure.clone()),
                // One that can't be answered must not fail the others.
                Err(failure) if !failure.is_time_out() => {
                    self.client.offsets(&question.of, spec, SLICE)
                }
                Err(failure) => Err(failure.clone()),
            };
            if answer.as_ref().is_err_and(Failure::is_time_out) && Instant::now() < question.until {
                open.push(question);
                continue;
            }
            // Nobody listens if the lookup was dropped just now.
            let _ = question.answer.send(answer);
            self.wake.signal();
        }
        open
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
