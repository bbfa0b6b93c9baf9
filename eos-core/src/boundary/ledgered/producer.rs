//! A producer of Kafka, or a session of a ledger.

use std::collections::BTreeSet;
use std::fmt;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::ledger::Move;
use eos_protocol::{CallSite, Offset, Partition, TopicPartition, code};

use super::failed;
use super::standing::Standing;
use crate::boundary::{Answer, Effect, LedgerFailure, Origin, Session};
use crate::client::{Change, ClientError, OffsetToCommit, Outgoing, Producer, Result};
use crate::failpoints::{self, Point};

/// The producer of a worker.
#[derive(Debug)]
pub enum LedgeredProducer<P> {
    /// A producer of Kafka.
    Kafka(P),
    /// A session of a ledger.
    Ledger(Writer),
}

/// A session of a ledger, as a producer.
pub struct Writer {
    session: Box<dyn Session>,
    standing: Standing,
    /// Whether the session is connected. The positions follow.
    is_connected: bool,
    /// The input record of the next effects.
    origin: Option<(TopicPartition, Offset)>,
    /// The partitions whose positions the transaction holds.
    held: BTreeSet<TopicPartition>,
    /// The moves of the transaction, once they are known.
    moves: Vec<Move>,
    /// Whether the move of positions is under way.
    is_moving: bool,
}

impl Writer {
    pub(super) fn new(session: Box<dyn Session>, standing: Standing) -> Self {
        Self {
            session,
            standing,
            is_connected: false,
            origin: None,
            held: BTreeSet::new(),
            moves: Vec::new(),
            is_moving: false,
        }
    }

    fn init(&mut self, slice: Duration) -> Poll<Result<()>> {
        if !self.is_connected {
            let done = std::task::ready!(self.session.init(slice));
            self.check(CallSite::Init, done)?;
            self.is_connected = true;
        }
        self.standing.lock().take_over_again(slice)
    }

    fn begin(&mut self) -> Result<()> {
        self.held.clear();
        self.moves.clear();
        self.is_moving = false;
        self.origin = None;
        let done = self.session.begin();
        self.check(CallSite::Begin, done)
    }

    fn begin_record(&mut self, partition: &TopicPartition, offset: Offset) {
        match &mut self.origin {
            Some((known, at)) if known == partition => *at = offset,
            origin => *origin = Some((partition.clone(), offset)),
        }
    }

    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>> {
        let Some((partition, offset)) = &self.origin else {
            let text = "a row without an input record cannot be written to a ledger";
            let call = CallSite::Send;
            return Poll::Ready(Err(ClientError::new(call, code::LEDGER_FATAL, text)));
        };
        let effect = Effect {
            place: record.topic,
            origin: Origin {
                partition,
                offset: *offset,
            },
            key: record.key,
            row: record.value,
            timestamp: record.timestamp,
            headers: record.headers,
        };
        let mut held = Ok(());
        if !self.held.contains(partition) {
            let expected = self.standing.lock().book.expected(partition);
            held = self.session.hold(expected.as_slice());
            self.held.insert(partition.clone());
            if let Err(error) = failpoints::hit(Point::Held) {
                return Poll::Ready(Err(error));
            }
        }
        let written = match held {
            Ok(()) => self.session.write(&effect),
            Err(error) => Poll::Ready(Err(error)),
        };
        written.map(|done| self.check(CallSite::Send, done))
    }

    fn send_offsets(&mut self, offsets: &[OffsetToCommit], slice: Duration) -> Poll<Result<()>> {
        let moves = offsets
            .iter()
            .map(|it| (&it.partition, it.offset, it.metadata.as_str()));
        let moves = self.standing.lock().book.moves(moves);
        let moves = match moves {
            Ok(moves) => moves,
            Err(absent) => {
                let text = format!("this worker has not taken over {}", listed(&absent));
                self.standing.lock().moved(absent);
                let call = CallSite::SendOffsets;
                return Poll::Ready(Err(ClientError::new(call, code::LEDGER_MOVED, text)));
            }
        };
        let done = self.session.set(&moves, slice);
        self.is_moving = done.is_pending();
        let done = std::task::ready!(done);
        self.moves = moves;
        Poll::Ready(self.check(CallSite::SendOffsets, done))
    }

    /// Waits for the rows.
    ///
    /// The state machine requests the move of positions and the flush at the same time, but a session has one call at a
    /// time. A flush would discard the pending move. The move would then run twice, and find the positions already
    /// moved.
    fn flush(&mut self, slice: Duration) -> Poll<Result<()>> {
        if self.is_moving {
            return Poll::Pending;
        }
        let done = self.session.flush(slice);
        done.map(|done| self.check(CallSite::Flush, done))
    }

    fn commit(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.standing.lock().book.commits(&self.moves);
        let done = std::task::ready!(self.session.commit(slice));
        if done.is_ok() {
            self.standing.lock().book.committed();
        }
        Poll::Ready(self.check(CallSite::Commit, done))
    }

    fn abort(&mut self, slice: Duration) -> Poll<Result<()>> {
        let done = self.session.abort(slice);
        done.map(|done| self.check(CallSite::Abort, done))
    }

    /// Records the positions of a failure.
    fn check(&self, call: CallSite, done: Answer) -> Result<()> {
        done.map_err(|error| {
            if let LedgerFailure::Moved(partitions) = &error.failure {
                self.standing.lock().moved(partitions.iter().cloned());
            }
            failed(call, error)
        })
    }
}

fn listed(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("origin", &self.origin)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl<P: Producer> Producer for LedgeredProducer<P> {
    type Member = P::Member;

    fn init(&mut self, slice: Duration) -> Poll<Result<()>> {
        match self {
            Self::Kafka(producer) => producer.init(slice),
            Self::Ledger(writer) => writer.init(slice),
        }
    }

    fn begin(&mut self) -> Result<()> {
        match self {
            Self::Kafka(producer) => producer.begin(),
            Self::Ledger(writer) => writer.begin(),
        }
    }

    fn begin_record(&mut self, partition: &TopicPartition, offset: Offset) {
        match self {
            Self::Kafka(producer) => producer.begin_record(partition, offset),
            Self::Ledger(writer) => writer.begin_record(partition, offset),
        }
    }

    #[inline]
    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>> {
        match self {
            Self::Kafka(producer) => producer.send(record),
            Self::Ledger(writer) => writer.send(record),
        }
    }

    fn send_changes(
        &mut self,
        topic: usize,
        partition: Partition,
        changes: &[Change<'_>],
    ) -> Result<usize> {
        match self {
            Self::Kafka(producer) => producer.send_changes(topic, partition, changes),
            // An app with a ledger has no stores.
            Self::Ledger(_) => Ok(changes.len()),
        }
    }

    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &Self::Member,
        slice: Duration,
    ) -> Poll<Result<()>> {
        match self {
            Self::Kafka(producer) => producer.send_offsets(offsets, member, slice),
            Self::Ledger(writer) => writer.send_offsets(offsets, slice),
        }
    }

    fn flush(&mut self, slice: Duration) -> Poll<Result<()>> {
        match self {
            Self::Kafka(producer) => producer.flush(slice),
            Self::Ledger(writer) => writer.flush(slice),
        }
    }

    fn commit(&mut self, slice: Duration) -> Poll<Result<()>> {
        match self {
            Self::Kafka(producer) => producer.commit(slice),
            Self::Ledger(writer) => writer.commit(slice),
        }
    }

    fn abort(&mut self, slice: Duration) -> Poll<Result<()>> {
        match self {
            Self::Kafka(producer) => producer.abort(slice),
            Self::Ledger(writer) => writer.abort(slice),
        }
    }

    fn unanswered(&self) -> bool {
        match self {
            Self::Kafka(producer) => producer.unanswered(),
            Self::Ledger(writer) => writer.session.is_spoiled(),
        }
    }
}
