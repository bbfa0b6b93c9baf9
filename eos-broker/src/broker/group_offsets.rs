//! OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{Broker, Context, code, text};
use crate::groups::{Commit, Committed, Group};
use crate::transactions::Participant;

/// OffsetCommit: from this version on, an unknown group has its own error code.
const UNKNOWN_GROUP: i16 = 9;
/// OffsetFetch: from this version on, a request names several groups.
const MANY_GROUPS: i16 = 8;

/// Replaces CONCURRENT_TRANSACTIONS, which old producers do not retry, by an error that they retry.
fn for_consumers(error: Error) -> Error {
    match error {
        Error::ConcurrentTransactions => Error::CoordinatorNotAvailable,
        other => other,
    }
}

/// One offset in a request.
struct Asked<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: &'a Option<StrBytes>,
}

/// The result of OffsetFetch for one partition: offset, leader epoch, metadata, error.
type Found = (i32, i64, i32, String, i16);

impl Broker {
    pub(super) fn offset_commit(
        &mut self,
        request: OffsetCommitRequest,
        context: &Context,
    ) -> OffsetCommitResponse {
        let commit = Commit {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_deref(),
            generation: request.generation_id_or_member_epoch,
            transactional: false,
        };
        let unknown = if context.version >= UNKNOWN_GROUP {
            Error::GroupIdNotFound
        } else {
            Error::IllegalGeneration
        };
        let allowed = self.may_commit(&request.group_id, commit, unknown, context.now);
        let mut topics = Vec::new();
        for topic in &request.topics {
            let mut partitions = Vec::new();
            for it in &topic.partitions {
                let asked = Asked {
                    topic: &topic.name,
                    partition: it.partition_index,
                    offset: it.committed_offset,
                    leader_epoch: it.committed_leader_epoch,
                    metadata: &it.committed_metadata,
                };
                let result = allowed.and_then(|()| self.keep(&request.group_id, asked, None));
                partitions.push(
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(it.partition_index)
                        .with_error_code(code(&result)),
                );
            }
            topics.push(
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions),
            );
        }
        OffsetCommitResponse::default().with_topics(topics)
    }

    pub(super) fn txn_offset_commit(
        &mut self,
        request: TxnOffsetCommitRequest,
        context: &Context,
    ) -> TxnOffsetCommitResponse {
        let commit = Commit {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_deref(),
            generation: request.generation_id,
            transactional: true,
        };
        let producer = (request.producer_id.0, request.producer_epoch);
        let group = Participant::Group(request.group_id.to_string());
        let id = &request.transactional_id;
        let known = self.groups.get(request.group_id.as_str());
        let is_open = known.is_some_and(|group| group.offsets.is_open(producer));
        let verified = if self.options.transaction_partition_verification && !is_open {
            let verified = (self.transactions).verify(id, producer.0, producer.1, &group);
            verified.map_err(for_consumers)
        } else {
            Ok(())
        };
        let allowed = verified.and_then(|()| {
            let unknown = Error::IllegalGeneration;
            self.may_commit(&request.group_id, commit, unknown, context.now)
        });
        let mut topics = Vec::new();
        for topic in &request.topics {
            let mut partitions = Vec::new();
            for it in &topic.partitions {
                let asked = Asked {
                    topic: &topic.name,
                    partition: it.partition_index,
                    offset: it.committed_offset,
                    leader_epoch: it.committed_leader_epoch,
                    metadata: &it.committed_metadata,
                };
                let keep = |()| self.keep(&request.group_id, asked, Some(producer));
                let result = allowed.and_then(keep);
                partitions.push(
                    TxnOffsetCommitResponsePartition::default()
                        .with_partition_index(it.partition_index)
                        .with_error_code(code(&result)),
                );
            }
            topics.push(
                TxnOffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions),
            );
        }
        TxnOffsetCommitResponse::default().with_topics(topics)
    }

    fn may_commit(
        &mut self,
        group: &str,
        commit: Commit<'_>,
        unknown: Error,
        now: i64,
    ) -> Result<(), Error> {
        // Kafka's oldest clients had no group. Only transactions require one.
        if group.is_empty() && commit.transactional {
            return Err(Error::InvalidGroupId);
        }
        if !self.groups.contains_key(group) {
            if commit.generation >= 0 {
                return Err(unknown);
            }
            let delay = self.options.group_initial_rebalance_delay_ms;
            self.groups.insert(group.to_owned(), Group::new(delay));
        }
        match self.groups.get_mut(group) {
            Some(group) => group.check_commit(commit, now),
            None => Err(unknown),
        }
    }

    fn keep(
        &mut self,
        group: &str,
        asked: Asked<'_>,
        producer: Option<(i64, i16)>,
    ) -> Result<(), Error> {
        self.partition(asked.topic, asked.partition)?;
        let metadata = asked.metadata.as_deref().unwrap_or_default();
        if metadata.len() > self.options.offset_metadata_max_bytes {
            return Err(Error::OffsetMetadataTooLarge);
        }
        let group = self.groups.get_mut(group).ok_or(Error::UnknownMemberId)?;
        let at = (asked.topic.to_owned(), asked.partition);
        let offset = Committed::new(asked.offset, asked.leader_epoch, metadata.to_owned());
        match producer {
            None => group.offsets.commit(at, offset),
            Some(producer) => {
                group.offsets.check_epoch(producer)?;
                group.offsets.commit_in(producer, at, offset);
            }
        }
        Ok(())
    }

    pub(super) fn offset_fetch(
        &self,
        request: OffsetFetchRequest,
        context: &Context,
    ) -> OffsetFetchResponse {
        let stable = request.require_stable;
        if context.version >= MANY_GROUPS {
            let groups = request.groups.into_iter().map(|asked| {
                let topics = asked.topics.as_ref().map(|topics| {
                    let topics = topics.iter();
                    topics
                        .map(|it| (it.name.to_string(), it.partition_indexes.clone()))
                        .collect()
                });
                let found = self.offsets_of(&asked.group_id, topics, stable);
                let topics = found.into_iter().map(|(name, partitions)| {
                    let partitions = partitions.into_iter().map(|it| {
                        OffsetFetchResponsePartitions::default()
                            .with_partition_index(it.0)
                            .with_committed_offset(it.1)
                            .with_committed_leader_epoch(it.2)
                            .with_metadata(Some(text(&it.3)))
                            .with_error_code(it.4)
                    });
                    OffsetFetchResponseTopics::default()
                        .with_name(TopicName(text(&name)))
                        .with_partitions(partitions.collect())
                });
                let topics = topics.collect();
                OffsetFetchResponseGroup::default()
                    .with_group_id(asked.group_id)
                    .with_topics(topics)
            });
            return OffsetFetchResponse::default().with_groups(groups.collect());
        }
        let topics = request.topics.as_ref().map(|topics| {
            let topics = topics.iter();
            topics
                .map(|it| (it.name.to_string(), it.partition_indexes.clone()))
                .collect()
        });
        let found = self.offsets_of(&request.group_id, topics, stable);
        let topics = found.into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|it| {
                OffsetFetchResponsePartition::default()
                    .with_partition_index(it.0)
                    .with_committed_offset(it.1)
                    .with_committed_leader_epoch(it.2)
                    .with_metadata(Some(text(&it.3)))
                    .with_error_code(it.4)
            });
            OffsetFetchResponseTopic::default()
                .with_name(TopicName(text(&name)))
                .with_partitions(partitions.collect())
        });
        OffsetFetchResponse::default().with_topics(topics.collect())
    }

    fn offsets_of(
        &self,
        group: &str,
        topics: Option<Vec<(String, Vec<i32>)>>,
        stable: bool,
    ) -> Vec<(String, Vec<Found>)> {
        let group = self.groups.get(group);
        let topics = topics.unwrap_or_else(|| {
            let mut all: Vec<(String, Vec<i32>)> = Vec::new();
            for ((topic, partition), _) in group.into_iter().flat_map(|it| it.offsets.all()) {
                match all.last_mut() {
                    Some((name, partitions)) if name == topic => partitions.push(*partition),
                    _ => all.push((topic.clone(), vec![*partition])),
                }
            }
            all
        });
        let find = |topic: &str, partition: i32| -> Found {
            let at = (topic.to_owned(), partition);
            if stable && group.is_some_and(|it| it.offsets.is_unstable(&at)) {
                let error = Error::UnstableOffsetCommit.code();
                return (partition, -1, -1, String::new(), error);
            }
            match group.and_then(|it| it.offsets.get(&at)) {
                Some(it) => (
                    partition,
                    it.offset,
                    it.leader_epoch,
                    it.metadata.clone(),
                    0,
                ),
                None => (partition, -1, -1, String::new(), 0),
            }
        };
        let found = topics.into_iter().map(|(name, partitions)| {
            let found = partitions.iter().map(|it| find(&name, *it)).collect();
            (name, found)
        });
        found.collect()
    }

    pub(super) fn offset_delete(&mut self, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
        let answer = OffsetDeleteResponse::default();
        let Some(group) = self.groups.get_mut(request.group_id.as_str()) else {
            let error = if request.group_id.is_empty() {
                Error::InvalidGroupId
            } else {
                Error::GroupIdNotFound
            };
            return answer.with_error_code(error.code());
        };
        let active = !group.members.is_empty();
        let of_consumers = group.protocol_type.as_deref() == Some("consumer");
        if active && !of_consumers {
            return answer.with_error_code(Error::NonEmptyGroup.code());
        }
        let mut topics = Vec::new();
        for topic in request.topics {
            let subscribed = active && group.subscribes_to(&topic.name);
            let partitions = topic.partitions.iter().map(|it| {
                let at = (topic.name.to_string(), it.partition_index);
                let error = if subscribed {
                    Error::GroupSubscribedToTopic.code()
                } else {
                    group.offsets.delete(&at);
                    0
                };
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(it.partition_index)
                    .with_error_code(error)
            });
            let partitions = partitions.collect();
            topics.push(
                OffsetDeleteResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions),
            );
        }
        answer.with_topics(topics)
    }
}
