//! The offsets of a transaction.

use std::task::Poll;

use eos_protocol::{CallSite, Offset, checked_membership, code};

use super::{MemberOf, TransactionDriver};
use crate::client::{Client, ClientError, GroupMetadata, Producer, Source};
use crate::failpoints::{self, Point};
use crate::rules;
use crate::worker::group::Membership;
use crate::worker::shared::Shared;
use crate::worker::tasks::Tasks;
use crate::worker::{RecordsOf, SLICE, error};

impl<C: Client> TransactionDriver<C> {
    /// Gathers the offsets. The producer has all results and changes of the transaction.
    pub(in crate::worker) fn gather_offsets(
        &mut self,
        shared: &Shared<C>,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) {
        let nonce = self.nonce(shared);
        self.calls.nonce = None;
        self.calls.seal = false;
        let offsets = &mut self.calls.offsets;
        *offsets = tasks.seal(nonce, shared.spec.guarantee);
        if !rules::commits_every_touched_task() {
            match tasks.offsets_of_any() {
                Some(any) => *offsets = any,
                None => offsets.truncate(1),
            }
        }
        if !rules::commits_next_offsets() {
            for one in offsets {
                one.offset = Offset::new(one.offset.get() - 1).unwrap_or(one.offset);
            }
        }
    }

    /// Adds the offsets to the transaction, under the current group metadata.
    pub(in crate::worker) fn send_offsets(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        membership: &mut Membership,
    ) -> Poll<Result<(), ClientError>> {
        if !rules::sends_offsets() {
            return Poll::Ready(Ok(()));
        }
        if !rules::sends_offsets_in_transaction() {
            return source.commit(&self.calls.offsets, SLICE);
        }
        if self.calls.offsets.is_empty() {
            // librdkafka would send nothing, and the group would not fence the transaction.
            return not_ours("no task of this transaction is assigned to this worker any more");
        }
        if let Some(first) = self.first_member.take() {
            let done = self.send_offsets_as(shared, &first, membership);
            self.first_member = Some(first);
            return done;
        }
        let member = source.member()?;
        let done = self.send_offsets_as(shared, &member, membership);
        if !rules::reads_member_for_each_commit() {
            self.first_member = Some(member);
        }
        done
    }

    /// Commits the offsets through the consumer: without transactions only.
    pub(in crate::worker) fn commit_through_consumer(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        membership: &mut Membership,
    ) -> Poll<Result<(), ClientError>> {
        if self.calls.offsets.is_empty() {
            // At most once: all claimed records are processed.
            return Poll::Ready(Ok(()));
        }
        let member = source.member()?;
        if !membership.is_member(shared, member.member_id()) && rules::checks_member() {
            let (call, code) = (CallSite::ConsumerCommit, code::UNKNOWN_MEMBER_ID);
            let text = "the group removed this worker meanwhile";
            return Poll::Ready(Err(ClientError::new(call, code, text)));
        }
        source.commit(&self.calls.offsets, SLICE)
    }

    fn send_offsets_as(
        &mut self,
        shared: &Shared<C>,
        member: &MemberOf<C>,
        membership: &mut Membership,
    ) -> Poll<Result<(), ClientError>> {
        let checks = rules::checks_member();
        match checked_membership(member.generation_id(), member.member_id()) {
            Ok(generation) => self.generation = generation.get(),
            Err(not) if checks => return Poll::Ready(Err(error::not_a_member(&not))),
            Err(_) => {}
        }
        if !membership.is_member(shared, member.member_id()) && checks {
            return not_ours("the group removed this worker meanwhile");
        }
        let slice = self.slice(shared);
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

fn not_ours(text: &str) -> Poll<Result<(), ClientError>> {
    let (call, code) = (CallSite::SendOffsets, code::UNKNOWN_MEMBER_ID);
    Poll::Ready(Err(ClientError::new(call, code, text)))
}
