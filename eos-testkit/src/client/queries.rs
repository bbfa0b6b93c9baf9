//! A consumer's queries: committed offsets, partition bounds, assignments.

use std::collections::{BTreeMap, BTreeSet};

use eos_client::{ClientError, CommittedOffset, LogEnds, OffsetBounds, OffsetToCommit, Result};
use eos_protocol::{CallSite, Offset, TopicPartition, code};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponsePartitions;
use kafka_protocol::messages::{
    BrokerId, DescribeGroupsRequest, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest,
    ResponseKind,
};

use super::assignor;
use super::call::Call;
use super::errors::plain;
use super::fabric::Wire;
use super::member::ModelMember;
use super::network::Line;
use super::requests::{by_topic, text};

const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
const READ_UNCOMMITTED: i8 = 0;
const READ_COMMITTED: i8 = 1;
/// The wait for all offsets before only the stable ones are returned.
const ALL_STABLE_MS: i64 = 100;

/// Whether to repeat the query, by the code of a response.
fn passes(error: i16) -> bool {
    matches!(
        i32::from(error),
        code::UNSTABLE_OFFSET_COMMIT
            | code::NOT_COORDINATOR
            | code::COORDINATOR_NOT_AVAILABLE
            | code::COORDINATOR_LOAD_IN_PROGRESS
            | code::NOT_LEADER_OR_FOLLOWER
            | code::LEADER_NOT_AVAILABLE
            | code::OFFSET_NOT_AVAILABLE
            | code::NETWORK_EXCEPTION
            | code::REQUEST_TIMED_OUT
    )
}

/// The group's committed offsets, only stable ones (KIP-447).
#[derive(Debug)]
pub(super) struct Committed {
    of: Vec<TopicPartition>,
    call: Call,
    since: i64,
}

impl Committed {
    pub(super) fn new(group: &str, of: &[TopicPartition], now: i64) -> Committed {
        let topics = by_topic(of.iter().map(|it| (it.clone(), ()))).into_iter();
        let topics = topics.map(|(topic, partitions)| {
            OffsetFetchRequestTopics::default()
                .with_name(text(&topic).into())
                .with_partition_indexes(partitions.into_iter().map(|(n, ())| n).collect())
        });
        let asked = OffsetFetchRequestGroup::default()
            .with_group_id(text(group).into())
            .with_member_epoch(-1)
            .with_topics(Some(topics.collect()));
        let request = OffsetFetchRequest::default()
            .with_require_stable(true)
            .with_groups(vec![asked]);
        Committed {
            of: of.to_vec(),
            call: Call::new(Line::Coordinator, request),
            since: now,
        }
    }

    pub(super) fn of(&self) -> &[TopicPartition] {
        &self.of
    }

    pub(super) fn poll(&mut self, wire: &mut Wire<'_>) -> Option<Result<Vec<CommittedOffset>>> {
        let Some(ResponseKind::OffsetFetch(answer)) = self.call.poll(wire) else {
            return None;
        };
        let groups = answer.groups.into_iter();
        let mut found: BTreeMap<(String, i32), OffsetFetchResponsePartitions> = BTreeMap::new();
        let mut error = 0;
        for group in groups {
            error = group.error_code;
            for topic in group.topics {
                for it in topic.partitions {
                    found.insert((topic.name.to_string(), it.partition_index), it);
                }
            }
        }
        let of = |partition: &TopicPartition| {
            let key = (
                partition.topic.as_str().to_owned(),
                partition.partition.get(),
            );
            found.get(&key)
        };
        let errors = self.of.iter().filter_map(of).map(|it| it.error_code);
        let failed = errors.chain([error]).find(|it| *it != 0 && !passes(*it));
        if let Some(failed) = failed {
            return Some(Err(plain(CallSite::Committed, failed)));
        }
        let stable = self.of.iter().filter_map(|partition| {
            let it = of(partition)?;
            (it.error_code == 0).then(|| CommittedOffset {
                partition: partition.clone(),
                offset: Offset::new(it.committed_offset).ok(),
                metadata: it.metadata.as_deref().unwrap_or_default().to_owned(),
            })
        });
        let stable: Vec<_> = stable.collect();
        let waited = wire.now() - self.since >= ALL_STABLE_MS;
        if error == 0 && (stable.len() == self.of.len() || waited && !stable.is_empty()) {
            return Some(Ok(stable));
        }
        self.call.again(wire);
        None
    }
}

/// The bounds of partitions.
#[derive(Debug)]
pub(super) struct Ends {
    of: Vec<TopicPartition>,
    /// First offset, last stable offset, high watermark.
    calls: [Call; 3],
    found: [Option<BTreeMap<TopicPartition, i64>>; 3],
}

impl Ends {
    pub(super) fn new(of: &[TopicPartition]) -> Ends {
        let ask =
            |timestamp, isolation| Call::new(Line::Queries, list_offsets(of, timestamp, isolation));
        Ends {
            of: of.to_vec(),
            calls: [
                ask(EARLIEST, READ_UNCOMMITTED),
                ask(LATEST, READ_COMMITTED),
                ask(LATEST, READ_UNCOMMITTED),
            ],
            found: [None, None, None],
        }
    }

    pub(super) fn of(&self) -> &[TopicPartition] {
        &self.of
    }

    pub(super) fn poll(&mut self, wire: &mut Wire<'_>) -> Option<Result<Vec<LogEnds>>> {
        for (call, found) in self.calls.iter_mut().zip(&mut self.found) {
            if found.is_some() {
                continue;
            }
            let Some(ResponseKind::ListOffsets(answer)) = call.poll(wire) else {
                continue;
            };
            let mut offsets = BTreeMap::new();
            for topic in answer.topics {
                for it in topic.partitions {
                    if passes(it.error_code) {
                        call.again(wire);
                        return None;
                    }
                    if it.error_code != 0 {
                        return Some(Err(plain(CallSite::Bounds, it.error_code)));
                    }
                    if let Ok(number) = eos_protocol::Partition::new(it.partition_index) {
                        let partition = TopicPartition::new(&*topic.name.0, number);
                        offsets.insert(partition, it.offset);
                    }
                }
            }
            *found = Some(offsets);
        }
        let [Some(first), Some(stable), Some(high)] = &self.found else {
            return None;
        };
        let offset = |of: &BTreeMap<TopicPartition, i64>, partition| {
            let offset = of.get(partition).copied().unwrap_or(0);
            Offset::new(offset).unwrap_or(Offset::ZERO)
        };
        let all = self.of.iter().map(|partition| {
            let stable = offset(stable, partition);
            LogEnds {
                partition: partition.clone(),
                first: offset(first, partition),
                stable,
                // The queries run in parallel: this offset may be older.
                end: offset(high, partition).max(stable),
            }
        });
        Some(Ok(all.collect()))
    }
}

/// Converts the bounds to the consumer's type.
pub(super) fn as_bounds(ends: Vec<LogEnds>) -> Vec<OffsetBounds> {
    let bounds = ends.into_iter().map(|it| OffsetBounds {
        partition: it.partition,
        first: it.first,
        end: it.stable,
    });
    bounds.collect()
}

fn list_offsets(of: &[TopicPartition], timestamp: i64, isolation: i8) -> ListOffsetsRequest {
    let topics = by_topic(of.iter().map(|it| (it.clone(), ()))).into_iter();
    let topics = topics.map(|(topic, partitions)| {
        let partitions = partitions.into_iter().map(|(number, ())| {
            ListOffsetsPartition::default()
                .with_partition_index(number)
                .with_current_leader_epoch(-1)
                .with_timestamp(timestamp)
        });
        ListOffsetsTopic::default()
            .with_name(text(&topic).into())
            .with_partitions(partitions.collect())
    });
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_topics(topics.collect())
}

/// The assignments of all members of a group.
#[derive(Debug)]
pub(super) struct Everybodys(Call);

impl Everybodys {
    pub(super) fn new(group: &str) -> Everybodys {
        let request = DescribeGroupsRequest::default().with_groups(vec![text(group).into()]);
        Everybodys(Call::new(Line::Coordinator, request))
    }

    /// `None` while the group rebalances.
    pub(super) fn poll(&mut self, wire: &mut Wire<'_>) -> Option<Option<Vec<TopicPartition>>> {
        let Some(ResponseKind::DescribeGroups(answer)) = self.0.poll(wire) else {
            return None;
        };
        let group = answer.groups.into_iter().next();
        let stable = group.filter(|it| it.error_code == 0 && &*it.group_state == "Stable");
        let assigned = stable.map(|group| {
            let members = group.members.iter();
            let shares = members.flat_map(|it| assignor::share(&it.member_assignment));
            shares.collect::<BTreeSet<_>>().into_iter().collect()
        });
        Some(assigned)
    }
}

/// A commit through the consumer, without transactions.
#[derive(Debug)]
pub(super) struct Commit {
    offsets: Vec<OffsetToCommit>,
    call: Call,
}

impl Commit {
    pub(super) fn new(member: &ModelMember, offsets: &[OffsetToCommit]) -> Commit {
        let topics = by_topic(offsets.iter().map(|it| (it.partition.clone(), it)));
        let topics = topics.into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(number, it)| {
                OffsetCommitRequestPartition::default()
                    .with_partition_index(number)
                    .with_committed_offset(it.offset.get())
                    .with_committed_leader_epoch(-1)
                    .with_committed_metadata(Some(text(&it.metadata)))
            });
            OffsetCommitRequestTopic::default()
                .with_name(text(&topic).into())
                .with_partitions(partitions.collect())
        });
        let request = OffsetCommitRequest::default()
            .with_group_id(text(&member.group).into())
            .with_generation_id_or_member_epoch(member.generation)
            .with_member_id(text(&member.id))
            .with_group_instance_id(member.instance_id.as_deref().map(text))
            .with_topics(topics.collect());
        Commit {
            offsets: offsets.to_vec(),
            call: Call::new(Line::Coordinator, request),
        }
    }

    pub(super) fn offsets(&self) -> &[OffsetToCommit] {
        &self.offsets
    }

    pub(super) fn poll(&mut self, wire: &mut Wire<'_>) -> Option<Result<(), ClientError>> {
        let Some(ResponseKind::OffsetCommit(answer)) = self.call.poll(wire) else {
            return None;
        };
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let mut errors = partitions.map(|it| it.error_code);
        match errors.find(|it| *it != 0) {
            None => Some(Ok(())),
            Some(error) if passes(error) => {
                self.call.again(wire);
                None
            }
            Some(error) => Some(Err(plain(CallSite::ConsumerCommit, error))),
        }
    }
}
