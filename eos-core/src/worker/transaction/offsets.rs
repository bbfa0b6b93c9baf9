//! The offsets of a transaction: gathered when intake ends, and added to it.

use std::task::Poll;

use eos_protocol::{CallSite, Event, Nonce, Offset, TopicPartition, checked_membership};

use super::{SLICE, Worker, error};
use crate::client::{Client, ClientError, GroupMetadata, OffsetToCommit, Producer, Source};
use crate::failpoints::{self, Defence, Point};

impl<C: Client> Worker<C> {
    /// Rule 2: the offsets of all inputs of every touched task, under one name each.
    pub(super) fn seal(&mut self) {
        let nonce = self.calls.nonce.take();
        let nonce = nonce.unwrap_or_else(|| self.fresh_nonce());
        let sealed = self.tasks.values_mut().flat_map(|task| {
            let mut offsets = if task.progress.touched() || !task.recommits {
                task.seal(nonce)
            } else {
                task.progress.recommit()
            };
            if failpoints::undefended(Defence::SiblingOffsets) {
                offsets.truncate(1);
            }
            offsets
        });
        self.calls.offsets = sealed.map(to_commit).collect();
        if failpoints::undefended(Defence::EveryTouchedTask) {
            self.weaken_offsets();
        }
        if failpoints::undefended(Defence::NextOffset) {
            for one in &mut self.calls.offsets {
                one.offset = Offset::new(one.offset.get() - 1).unwrap_or(one.offset);
            }
        }
        self.feed(Event::Sealed);
    }

    /// No two attempts have the same one.
    pub(super) fn fresh_nonce(&self) -> Nonce {
        if failpoints::undefended(Defence::Nonce) {
            return Nonce(0);
        }
        Nonce(self.env.entropy())
    }

    /// Without rule 2: the offsets of any one task that is owned, rather of one that is not
    /// touched. They fence the transaction, but not by what it holds.
    fn weaken_offsets(&mut self) {
        let mut idle = self.tasks.values().map(|task| task.progress.recommit());
        let any = idle.find(|offsets| !offsets.is_empty());
        match any {
            Some(offsets) => self.calls.offsets = offsets.into_iter().map(to_commit).collect(),
            None => self.calls.offsets.truncate(1),
        }
    }

    pub(super) fn send_offsets(&mut self) {
        self.calls.send_offsets = false;
        let done = if failpoints::undefended(Defence::Offsets) {
            Poll::Ready(Ok(()))
        } else if failpoints::undefended(Defence::OffsetsInside) {
            self.source.commit(&self.calls.offsets, SLICE)
        } else {
            self.try_send_offsets()
        };
        match done {
            Poll::Pending => self.calls.send_offsets = true,
            Poll::Ready(Ok(())) => self.feed(Event::OffsetsSent),
            Poll::Ready(Err(error)) => self.failed(error),
        }
    }

    fn try_send_offsets(&mut self) -> Poll<Result<(), ClientError>> {
        if self.calls.offsets.is_empty() {
            // librdkafka would send nothing, and the transaction would not be fenced by the group.
            let text = "no task of this transaction is ours any more";
            return Poll::Ready(Err(ClientError::new(
                CallSite::SendOffsets,
                eos_protocol::code::UNKNOWN_MEMBER_ID,
                text,
            )));
        }
        #[cfg(feature = "failpoints")]
        if let Some(first) = self.first_member.take() {
            let done = self.send_offsets_as(&first);
            self.first_member = Some(first);
            return done;
        }
        let member = self.source.member()?;
        let done = self.send_offsets_as(&member);
        #[cfg(feature = "failpoints")]
        if failpoints::undefended(Defence::Generation) {
            self.first_member = Some(member);
        }
        done
    }

    fn send_offsets_as(
        &mut self,
        member: &<C::Source as Source>::Member,
    ) -> Poll<Result<(), ClientError>> {
        match checked_membership(member.generation_id(), member.member_id()) {
            Ok(generation) => self.generation = generation.get(),
            Err(_) if failpoints::undefended(Defence::CheckedMember) => {}
            Err(not) => return Poll::Ready(Err(error::not_a_member(&not))),
        }
        if !self.is_member(member.member_id()) && !failpoints::undefended(Defence::CheckedMember) {
            let text = "the group took this worker for dead meanwhile";
            return Poll::Ready(Err(ClientError::new(
                CallSite::SendOffsets,
                eos_protocol::code::UNKNOWN_MEMBER_ID,
                text,
            )));
        }
        let slice = self.slice();
        let Some(producer) = &mut self.producer else {
            return Poll::Pending;
        };
        failpoints::hit(Point::PreOffsets)?;
        let done = producer.send_offsets(&self.calls.offsets, member, slice);
        if matches!(done, Poll::Ready(Ok(()))) {
            failpoints::hit(Point::PostOffsets)?;
        }
        done
    }
}

fn to_commit((partition, offset, metadata): (TopicPartition, Offset, String)) -> OffsetToCommit {
    OffsetToCommit {
        partition,
        offset,
        metadata,
    }
}
