//! A client whose calls can be observed from outside.
//!
//! Every client call should return within a slice of time. If a call does not return, the worker's thread cannot
//! continue. It is abandoned (see [`supervise`](super::supervise)), and must have no effect if the call ends later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use eos_protocol::{CallSite, Offset, Partition, TopicName, TopicPartition, code};

use crate::client::{
    Change, Client, ClientError, ClusterFacts, CommittedOffset, LogEnds, NewTopic, OffsetBounds,
    OffsetToCommit, Outgoing, Producer, ProducerSpec, Result, Source, SourceEvent, SourceSpec,
};
use crate::failpoints::{self, Point};

/// The observable state of one worker's thread.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Odd during a call. Each call has its own numbers. Only the worker's thread writes it.
    calls: AtomicU64,
    abandoned: AtomicBool,
}

impl Watch {
    /// Returns the number of the call in flight, if there is one.
    pub(super) fn call(&self) -> Option<u64> {
        let calls = self.calls.load(Ordering::Relaxed);
        (calls % 2 == 1).then_some(calls)
    }

    /// Abandons the thread: its calls fail from now on.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Begins a call, which ends when the result is dropped.
    fn begin(&self) -> UnderWay<'_> {
        self.calls.store(self.next(), Ordering::Relaxed);
        UnderWay(self)
    }

    fn next(&self) -> u64 {
        self.calls.load(Ordering::Relaxed) + 1
    }

    /// Like [`begin`](Self::begin), but fails for an abandoned thread.
    pub(super) fn enter(&self, call: CallSite) -> Result<UnderWay<'_>> {
        if self.is_abandoned() {
            let text = "a call hung, and another thread replaced this one";
            return Err(ClientError::new(call, code::LOCAL_DESTROY, text));
        }
        Ok(self.begin())
    }
}

/// A call in flight. See [`Watch::enter`].
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a Watch);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls.store(self.0.next(), Ordering::Relaxed);
    }
}

/// A client of one worker, with observed calls.
#[derive(Debug)]
pub(super) struct Watched<C> {
    client: Arc<C>,
    watch: Arc<Watch>,
}

impl<C> Watched<C> {
    pub(super) fn new(client: &Arc<C>, watch: &Arc<Watch>) -> Self {
        Self {
            client: Arc::clone(client),
            watch: Arc::clone(watch),
        }
    }

    fn around<T>(&self, inner: T) -> Around<T> {
        Around {
            inner: Some(inner),
            watch: Arc::clone(&self.watch),
        }
    }
}

/// A source or a producer. Its drop is observed, too.
#[derive(Debug)]
pub(super) struct Around<T> {
    /// The value until the drop.
    inner: Option<T>,
    watch: Arc<Watch>,
}

impl<T> Around<T> {
    fn call<R>(&mut self, call: CallSite, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let _under_way = self.watch.enter(call)?;
        self.inner.as_mut().map_or_else(|| Err(gone(call)), f)
    }

    fn poll_call<R>(
        &mut self,
        call: CallSite,
        f: impl FnOnce(&mut T) -> Poll<Result<R>>,
    ) -> Poll<Result<R>> {
        let _under_way = self.watch.enter(call)?;
        self.inner
            .as_mut()
            .map_or_else(|| Poll::Ready(Err(gone(call))), f)
    }

    /// Makes a call that cannot fail. An abandoned thread makes it without effect.
    fn ask<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _under_way = self.watch.begin();
        self.inner.as_mut().map(f)
    }
}

fn gone(call: CallSite) -> ClientError {
    ClientError::new(call, code::LOCAL_DESTROY, "it is closed")
}

impl<T> Drop for Around<T> {
    fn drop(&mut self) {
        let _under_way = self.watch.begin();
        self.inner = None;
    }
}

impl<C: Client> Client for Watched<C> {
    type Source = Around<C::Source>;
    type Producer = Around<C::Producer>;

    fn facts(&self, topics: &[TopicName], within: Duration) -> Result<ClusterFacts> {
        self.client.facts(topics, within)
    }

    fn create_topics(
        &self,
        topics: &[NewTopic],
        within: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>> {
        self.client.create_topics(topics, within)
    }

    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        within: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>> {
        self.client.delete_records(before, within)
    }

    fn keeps_origins(&self) -> bool {
        self.client.keeps_origins()
    }

    fn has_markers(&self) -> bool {
        self.client.has_markers()
    }

    fn source(&self, spec: &SourceSpec) -> Result<Self::Source> {
        let _under_way = self.watch.enter(CallSite::Create)?;
        Ok(self.around(self.client.source(spec)?))
    }

    fn producer(&self, spec: &ProducerSpec) -> Result<Self::Producer> {
        let _under_way = self.watch.enter(CallSite::Create)?;
        Ok(self.around(self.client.producer(spec)?))
    }
}

impl<S: Source> Source for Around<S> {
    type Records = S::Records;
    type Member = S::Member;

    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()> {
        self.call(CallSite::Subscribe, |s| s.subscribe(topics))
    }

    fn unsubscribe(&mut self) -> Result<()> {
        self.call(CallSite::Subscribe, Source::unsubscribe)
    }

    fn poll(&mut self) -> Option<SourceEvent> {
        self.ask(Source::poll).flatten()
    }

    fn wait(&mut self, at_most: Duration) {
        let _done = self.ask(|s| s.wait(at_most));
    }

    fn waker(&self) -> Waker {
        let inner = self.inner.as_ref();
        inner.map_or_else(|| Waker::noop().clone(), Source::waker)
    }

    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut Self::Records) -> Result<()> {
        self.call(CallSite::Take, |s| s.take(from, max, into))
    }

    fn committed(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>> {
        self.poll_call(CallSite::Committed, |s| s.committed(of, slice))
    }

    fn bounds(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<OffsetBounds>>> {
        self.poll_call(CallSite::Bounds, |s| s.bounds(of, slice))
    }

    fn ends(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Result<Vec<LogEnds>>> {
        self.poll_call(CallSite::Bounds, |s| s.ends(of, slice))
    }

    fn drained(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.ask(|s| s.drained(of)).flatten()
    }

    fn end(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.ask(|s| s.end(of)).flatten()
    }

    fn held_back(&mut self, of: &TopicPartition) -> Option<u64> {
        self.ask(|s| s.held_back(of)).flatten()
    }

    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset> {
        self.ask(|s| s.high_watermark(of)).flatten()
    }

    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()> {
        self.call(CallSite::Assign, |s| s.assign(at))
    }

    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        self.call(CallSite::Unassign, |s| s.unassign(partitions))
    }

    fn seek(&mut self, to: &[(TopicPartition, Offset)], slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::Seek, |s| s.seek(to, slice))
    }

    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>> {
        self.poll_call(CallSite::Subscribe, Source::assigned)
    }

    fn member(&mut self) -> Result<Self::Member> {
        self.call(CallSite::Member, Source::member)
    }

    fn commit(&mut self, offsets: &[OffsetToCommit], slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::ConsumerCommit, |s| s.commit(offsets, slice))
    }

    fn close(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::Close, |s| s.close(slice))
    }
}

impl<P: Producer> Producer for Around<P> {
    type Member = P::Member;

    fn init(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::Init, |p| p.init(slice))
    }

    fn begin(&mut self) -> Result<()> {
        self.call(CallSite::Begin, Producer::begin)
    }

    fn begin_record(&mut self, partition: &TopicPartition, offset: Offset) {
        let _done = self.ask(|p| p.begin_record(partition, offset));
    }

    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>> {
        self.poll_call(CallSite::Send, |p| p.send(record))
    }

    fn send_changes(
        &mut self,
        topic: usize,
        partition: Partition,
        changes: &[Change<'_>],
    ) -> Result<usize> {
        self.call(CallSite::Send, |p| {
            p.send_changes(topic, partition, changes)
        })
    }

    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &Self::Member,
        slice: Duration,
    ) -> Poll<Result<()>> {
        self.poll_call(CallSite::SendOffsets, |p| {
            p.send_offsets(offsets, member, slice)
        })
    }

    fn flush(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::Flush, |p| p.flush(slice))
    }

    fn commit(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::Commit, |p| {
            failpoints::hit(Point::ClientCommit)?;
            p.commit(slice)
        })
    }

    fn abort(&mut self, slice: Duration) -> Poll<Result<()>> {
        self.poll_call(CallSite::Abort, |p| p.abort(slice))
    }

    fn unanswered(&self) -> bool {
        self.inner.as_ref().is_some_and(Producer::unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_seen_while_it_is_under_way_and_each_has_its_own_number() {
        let watch = Watch::default();
        assert_eq!(watch.call(), None);
        let first = {
            let _under_way = watch.enter(CallSite::Commit).unwrap();
            watch.call().unwrap()
        };
        assert_eq!(watch.call(), None);
        let _under_way = watch.enter(CallSite::Commit).unwrap();
        assert_ne!(watch.call(), Some(first));
    }

    #[test]
    fn an_abandoned_thread_reaches_nothing_any_more() {
        let watch = Watch::default();
        watch.abandon();
        let refused = watch.enter(CallSite::Commit).err().unwrap();
        assert_eq!(refused.fault.code, code::LOCAL_DESTROY);
    }
}
