//! A source whose committed offsets may be in a ledger.

use std::task::{Poll, Waker};
use std::time::Duration;

use eos_protocol::{CallSite, FirstStart, Offset, TopicName, TopicPartition, code, first_position};

use super::standing::Standing;
use crate::client::{
    ClientError, CommittedOffset, LogEnds, OffsetBounds, OffsetToCommit, Result, Source,
    SourceEvent,
};
use crate::rules;

/// A source of Kafka records. With a ledger, the committed offsets are there.
#[derive(Debug)]
pub struct LedgeredSource<S> {
    inner: S,
    standing: Option<Standing>,
    first_start: FirstStart,
}

impl<S> LedgeredSource<S> {
    pub(super) fn new(inner: S, ledger: Option<(Standing, FirstStart)>) -> Self {
        let (standing, first_start) = ledger.unzip();
        Self {
            inner,
            standing,
            first_start: first_start.unwrap_or_default(),
        }
    }
}

impl<S: Source> LedgeredSource<S> {
    /// Decides where partitions without a position start. The consumer group may have an offset of each.
    fn first_positions(
        &mut self,
        mut found: Vec<CommittedOffset>,
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        let bare = found.iter().filter(|it| it.offset.is_none());
        let bare: Vec<TopicPartition> = bare.map(|it| it.partition.clone()).collect();
        if bare.is_empty() {
            return Poll::Ready(Ok(found));
        }
        for group in std::task::ready!(self.inner.committed(&bare, slice))? {
            let partition = &group.partition;
            let metadata = match rules::knows_copies_of_positions() {
                true => group.metadata.as_str(),
                false => "",
            };
            let start = first_position(partition, group.offset, metadata, self.first_start);
            let start = start.map_err(|error| {
                ClientError::new(CallSite::Committed, code::LEDGER_FATAL, error.to_string())
            })?;
            for it in found.iter_mut().filter(|it| it.partition == *partition) {
                it.offset = start;
            }
        }
        Poll::Ready(Ok(found))
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
        let Some(standing) = &self.standing else {
            return self.inner.committed(of, slice);
        };
        let found = std::task::ready!(standing.lock().committed(of, slice))?;
        self.first_positions(found, slice)
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
