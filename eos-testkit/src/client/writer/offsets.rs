//! The offsets of a transaction: two requests in sequence.

use eos_client::{ClientError, OffsetToCommit};
use eos_protocol::CallSite;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{ResponseKind, TxnOffsetCommitRequest};
use kafka_wire::batch::ProducerIdentity;
use kafka_wire::requests;

use super::Writer;
use crate::client::call::Call;
use crate::client::errors::{Sense, sense};
use crate::client::fabric::Wire;
use crate::client::member::ModelMember;
use crate::client::network::Line;
use crate::client::requests::{by_topic, text};

/// The request under way.
#[derive(Debug)]
pub(super) enum Offsets {
    /// AddOffsetsToTxn, and the later request.
    Adding(Call, Box<TxnOffsetCommitRequest>),
    Committing(Call),
}

impl Writer {
    /// Adds offsets until they are added. A transaction's offsets are added in one call.
    pub(in crate::client) fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &ModelMember,
        wire: &mut Wire<'_>,
    ) -> Option<Result<(), ClientError>> {
        if let Some(failure) = self.failure(CallSite::SendOffsets) {
            return Some(Err(failure));
        }
        let identity = self.identity?;
        if self.offsets.is_none() {
            self.offsets = Some(self.first_offsets(offsets, member, identity));
        }
        self.go_on_with_offsets(wire)
    }

    /// `None` if no request is under way, or it has no response.
    pub(super) fn go_on_with_offsets(
        &mut self,
        wire: &mut Wire<'_>,
    ) -> Option<Result<(), ClientError>> {
        let call = CallSite::SendOffsets;
        match self.offsets.take()? {
            Offsets::Adding(mut add, then) => {
                let Some(ResponseKind::AddOffsetsToTxn(answer)) = add.poll(wire) else {
                    self.offsets = Some(Offsets::Adding(add, then));
                    return None;
                };
                match sense(answer.error_code) {
                    Sense::Well => {
                        self.over(&add);
                        self.with_offsets = true;
                        let next = Call::new(Line::Coordinator, *then);
                        self.offsets = Some(Offsets::Committing(next));
                        self.go_on_with_offsets(wire)
                    }
                    Sense::Again => {
                        add.again(wire);
                        self.offsets = Some(Offsets::Adding(add, then));
                        None
                    }
                    _ => {
                        self.over(&add);
                        self.fail(call, answer.error_code);
                        self.failure(call).map(Err)
                    }
                }
            }
            Offsets::Committing(mut commit) => {
                let Some(ResponseKind::TxnOffsetCommit(answer)) = commit.poll(wire) else {
                    self.offsets = Some(Offsets::Committing(commit));
                    return None;
                };
                let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                let error = partitions.map(|it| it.error_code).find(|it| *it != 0);
                match sense(error.unwrap_or(0)) {
                    Sense::Well => {
                        self.over(&commit);
                        Some(Ok(()))
                    }
                    Sense::Again => {
                        commit.again(wire);
                        self.offsets = Some(Offsets::Committing(commit));
                        None
                    }
                    _ => {
                        self.over(&commit);
                        self.fail(call, error.unwrap_or(0));
                        self.failure(call).map(Err)
                    }
                }
            }
        }
    }

    fn first_offsets(
        &self,
        offsets: &[OffsetToCommit],
        member: &ModelMember,
        identity: ProducerIdentity,
    ) -> Offsets {
        let topics = by_topic(offsets.iter().map(|it| (it.partition.clone(), it)));
        let topics = topics.into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(number, it)| {
                TxnOffsetCommitRequestPartition::default()
                    .with_partition_index(number)
                    .with_committed_offset(it.offset.get())
                    .with_committed_leader_epoch(-1)
                    .with_committed_metadata(Some(text(&it.metadata)))
            });
            TxnOffsetCommitRequestTopic::default()
                .with_name(text(&topic).into())
                .with_partitions(partitions.collect())
        });
        let then = TxnOffsetCommitRequest::default()
            .with_transactional_id(text(self.id()).into())
            .with_group_id(text(&member.group).into())
            .with_producer_id(identity.id.into())
            .with_producer_epoch(identity.epoch)
            .with_generation_id(member.generation)
            .with_member_id(text(&member.id))
            .with_group_instance_id(member.instance_id.as_deref().map(text))
            .with_topics(topics.collect());
        let add = requests::add_offsets(self.id(), identity, &member.group);
        Offsets::Adding(Call::new(Line::Coordinator, add), Box::new(then))
    }
}
