//! A source whose committed offsets may be in a ledger.

use std::task::{Poll, Waker};
use std::time::Duration;

use eos_protocol::{Offset, TopicName, TopicPartition};

use super::standing::Standing;
use crate::client::{
    CommittedOffset, LogEnds, OffsetBounds, OffsetToCommit, Result, Source, SourceEvent,
};

/// A source of Kafka records. With a ledger, the committed offsets are there.
#[derive(Debug)]
pub struct LedgeredSource<S> {
    inner: S,
    standing: Option<Standing>,
}

impl<S> LedgeredSource<S> {
    pub(super) fn new(inner: S, standing: Option<Standing>) -> Self {
        Self { inner, standing }
    }
}

impl<S: Source> Source for LedgeredSource<S> {
    type Records = S::Records;
    type Member = S::Member;

    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()> {
        self.inner.subscribe(topics)
    }

    fn unsubscribe(&mut self) -> Result<()> {
        if let Some(standing) = &self.standing {
            standing.lock().left();
        }
        self.inner.unsubscribe()
    }

    fn poll(&mut self) -> Option<SourceEvent> {
        let event = self.inner.poll();
        let Some(standing) = &self.standing else {
            return event;
        };
        let mut standing = standing.lock();
        match &event {
            Some(SourceEvent::Assigned(partitions)) => standing.assigned(partitions),
            Some(SourceEvent::Revoked { partitions, .. }) => standing.revoked(partitions),
            Some(_) => {}
            None => {
                let moved = standing.take_moved();
                return (!moved.is_empty()).then_some(SourceEvent::Moved(moved));
            }
        }
        event
    }

    fn wait(&mut self, at_most: Duration) {
        self.inner.wait(at_most);
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut Self::Records) -> Result<()> {
        self.inner.take(from, max, into)
    }

    fn committed(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        match &self.standing {
            Some(standing) => standing.lock().committed(of, slice),
            None => self.inner.committed(of, slice),
        }
    }

    fn bounds(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<OffsetBounds>>> {
        self.inner.bounds(of, slice)
    }

    fn ends(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Result<Vec<LogEnds>>> {
        self.inner.ends(of, slice)
    }

    fn drained(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.inner.drained(of)
    }

    fn end(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.inner.end(of)
    }

    fn held_back(&mut self, of: &TopicPartition) -> Option<u64> {
        self.inner.held_back(of)
    }

    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.inner.high_watermark(of)
    }

    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()> {
        self.inner.assign(at)
    }

    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        if let Some(standing) = &self.standing {
            standing.lock().unassigned(partitions);
        }
        self.inner.unassign(partitions)
    }

    fn seek(&mut self, to: &[(TopicPartition, Offset)], slice: Duration) -> Poll<Result<()>> {
        self.inner.seek(to, slice)
    }

    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>> {
        self.inner.assigned()
    }

    fn member(&mut self) -> Result<Self::Member> {
        self.inner.member()
    }

    fn commit(&mut self, offsets: &[OffsetToCommit], slice: Duration) -> Poll<Result<()>> {
        self.inner.commit(offsets, slice)
    }

    fn close(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.inner.close(slice)
    }
}
