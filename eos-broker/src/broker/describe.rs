//! DescribeTransactions, ListTransactions, DescribeProducers.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::describe_transactions_response::{
    TopicData, TransactionState as Described,
};
use kafka_protocol::messages::list_transactions_response::TransactionState as Listed;
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse, ProducerId,
    TopicName, TransactionalId,
};

use super::{Broker, Context, text};
use crate::transactions::{Participant, State, Transaction};

/// The topic in which Kafka stores committed offsets. In this broker it is only a name.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

impl Broker {
    pub(super) fn describe_transactions(
        &self,
        request: DescribeTransactionsRequest,
    ) -> DescribeTransactionsResponse {
        let states = request.transactional_ids.into_iter().map(|id| {
            let answer = Described::default().with_transactional_id(id.clone());
            if id.is_empty() {
                return answer.with_error_code(Error::InvalidRequest.code());
            }
            match self.transactions.get(&id) {
                None => answer.with_error_code(Error::TransactionalIdNotFound.code()),
                Some(it) => answer
                    .with_transaction_state(text(it.state.name()))
                    .with_transaction_timeout_ms(it.timeout_ms)
                    .with_transaction_start_time_ms(it.started)
                    .with_producer_id(ProducerId(it.producer_id))
                    .with_producer_epoch(it.epoch)
                    .with_topics(self.topics_of(it)),
            }
        });
        DescribeTransactionsResponse::default().with_transaction_states(states.collect())
    }

    fn topics_of(&self, transaction: &Transaction) -> Vec<TopicData> {
        let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for participant in &transaction.participants {
            let (topic, partition) = match participant {
                Participant::Partition(topic, partition) => (topic.clone(), *partition),
                Participant::Group(group) => {
                    (OFFSETS_TOPIC.to_owned(), self.offsets_partition(group))
                }
            };
            topics.entry(topic).or_default().push(partition);
        }
        let data = topics.into_iter().map(|(topic, mut partitions)| {
            partitions.sort_unstable();
            partitions.dedup();
            TopicData::default()
                .with_topic(TopicName(text(&topic)))
                .with_partitions(partitions)
        });
        data.collect()
    }

    /// Returns the partition in which Kafka would store a group's offsets, from Java's hash of the group's name.
    fn offsets_partition(&self, group: &str) -> i32 {
        let hash = group.encode_utf16().fold(0i32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(i32::from(unit))
        });
        // Kafka's `Utils.abs` returns 0 for the only number without a positive counterpart.
        hash.checked_abs().unwrap_or(0) % self.options.offsets_topic_num_partitions.max(1)
    }

    pub(super) fn list_transactions(
        &self,
        request: ListTransactionsRequest,
        context: &Context,
    ) -> ListTransactionsResponse {
        let states = &request.state_filters;
        let unknown = states.iter().filter(|it| !State::is_name(it)).cloned();
        let ids = &request.producer_id_filters;
        let wanted = |it: &Transaction| {
            let age = context.now - it.started;
            let long_enough =
                request.duration_filter < 0 || (it.started >= 0 && age > request.duration_filter);
            (states.is_empty() || states.iter().any(|name| &**name == it.state.name()))
                && (ids.is_empty() || ids.contains(&ProducerId(it.producer_id)))
                && long_enough
        };
        let found = self.transactions.iter().filter(|(_, it)| wanted(it));
        let listed = found.map(|(id, it)| {
            Listed::default()
                .with_transactional_id(TransactionalId(text(id)))
                .with_producer_id(ProducerId(it.producer_id))
                .with_transaction_state(text(it.state.name()))
        });
        ListTransactionsResponse::default()
            .with_unknown_state_filters(unknown.collect())
            .with_transaction_states(listed.collect())
    }

    pub(super) fn describe_producers(
        &self,
        request: DescribeProducersRequest,
    ) -> DescribeProducersResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let partitions = topic.partition_indexes.iter().map(|index| {
                let answer = PartitionResponse::default().with_partition_index(*index);
                match self.partition(&topic.name, *index) {
                    Err(error) => answer.with_error_code(error.code()),
                    Ok(log) => {
                        let all = log.producers.iter().map(|(id, it)| {
                            ProducerState::default()
                                .with_producer_id(ProducerId(id))
                                .with_producer_epoch(i32::from(it.epoch))
                                .with_last_sequence(it.last_sequence())
                                .with_last_timestamp(it.last_timestamp)
                                .with_coordinator_epoch(it.coordinator_epoch)
                                .with_current_txn_start_offset(it.open_from.unwrap_or(-1))
                        });
                        answer.with_active_producers(all.collect())
                    }
                }
            });
            let partitions = partitions.collect();
            topics.push(
                TopicResponse::default()
                    .with_name(topic.name)
                    .with_partitions(partitions),
            );
        }
        DescribeProducersResponse::default().with_topics(topics)
    }
}
