//! What a request is about: for rules that name a partition, a group or a transactional id.

use kafka_protocol::messages::RequestKind;

/// The partitions and names in a request.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(super) names: Vec<String>,
    partitions: Vec<(String, i32)>,
}

impl About {
    pub(super) fn touches(&self, topic: &str, partition: Option<i32>) -> bool {
        let mut all = self.partitions.iter();
        all.any(|(it, index)| it == topic && partition.is_none_or(|asked| asked == *index))
    }

    fn name(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }

    fn place(&mut self, topic: &str, partitions: impl Iterator<Item = i32>) {
        self.partitions
            .extend(partitions.map(|it| (topic.to_owned(), it)));
    }

    pub(crate) fn of(request: &RequestKind) -> About {
        let mut about = About::default();
        match request {
            RequestKind::Produce(it) => {
                it.transactional_id.iter().for_each(|id| about.name(id));
                for topic in &it.topic_data {
                    about.place(&topic.name, topic.partition_data.iter().map(|it| it.index));
                }
            }
            RequestKind::Fetch(it) => {
                for topic in &it.topics {
                    about.place(&topic.topic, topic.partitions.iter().map(|it| it.partition));
                }
            }
            RequestKind::ListOffsets(it) => {
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::InitProducerId(it) => {
                it.transactional_id.iter().for_each(|id| about.name(id));
            }
            RequestKind::AddPartitionsToTxn(it) => {
                about.name(&it.v3_and_below_transactional_id);
                for topic in &it.v3_and_below_topics {
                    about.place(&topic.name, topic.partitions.iter().copied());
                }
            }
            RequestKind::AddOffsetsToTxn(it) => {
                about.name(&it.transactional_id);
                about.name(&it.group_id);
            }
            RequestKind::EndTxn(it) => about.name(&it.transactional_id),
            RequestKind::TxnOffsetCommit(it) => {
                about.name(&it.transactional_id);
                about.name(&it.group_id);
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::OffsetCommit(it) => {
                about.name(&it.group_id);
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::OffsetFetch(it) => {
                about.name(&it.group_id);
                it.groups
                    .iter()
                    .for_each(|group| about.name(&group.group_id));
            }
            RequestKind::JoinGroup(it) => about.name(&it.group_id),
            RequestKind::SyncGroup(it) => about.name(&it.group_id),
            RequestKind::Heartbeat(it) => about.name(&it.group_id),
            RequestKind::LeaveGroup(it) => about.name(&it.group_id),
            RequestKind::FindCoordinator(it) => {
                about.name(&it.key);
                it.coordinator_keys.iter().for_each(|key| about.name(key));
            }
            RequestKind::DeleteRecords(it) => {
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            _ => {}
        }
        about
    }
}
