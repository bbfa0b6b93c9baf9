//! Transactions and their states, as the cluster reports them.

use crate::history::{OpenProducer, TransactionState};
use anyhow::Result;
use kafka_protocol::messages::ListTransactionsRequest;
use kafka_protocol::messages::describe_producers_request::{
    DescribeProducersRequest, TopicRequest,
};

use super::Client;
use super::routing::Node;
use crate::connection::check;
use crate::requests::topic_name;

impl Client {
    /// Returns the open transactions in a topic, from the leaders of its partitions (DescribeProducers, KIP-664).
    ///
    /// # Errors
    /// If a leader does not respond in time.
    pub fn open_producers(&mut self, topic: &str) -> Result<Vec<OpenProducer>> {
        let what = format!("describe the producers of {topic}");
        let count = self.retry(&what, |client, deadline| client.partitions(topic, deadline))?;
        let mut open = Vec::new();
        for partition in 0..count {
            let asked = TopicRequest::default()
                .with_name(topic_name(topic))
                .with_partition_indexes(vec![partition]);
            let request = DescribeProducersRequest::default().with_topics(vec![asked]);
            let found = self.retry(&what, |client, deadline| {
                let answer = client.exchange(Node::Leader(topic, partition), &request, deadline)?;
                let mut found = Vec::new();
                for answered in answer.topics.iter().flat_map(|t| &t.partitions) {
                    check(answered.error_code, || format!("{topic}-{partition}"))?;
                    let producers = answered.active_producers.iter();
                    let producers = producers.filter(|p| p.current_txn_start_offset >= 0);
                    found.extend(producers.map(|p| OpenProducer {
                        partition,
                        producer_id: p.producer_id.0,
                        producer_epoch: i16::try_from(p.producer_epoch).unwrap_or(-1),
                        first_offset: p.current_txn_start_offset,
                    }));
                }
                Ok(found)
            })?;
            open.extend(found);
        }
        Ok(open)
    }

    /// Returns every transactional id of the cluster, with the state of its latest transaction.
    ///
    /// # Errors
    /// If a broker does not respond in time. A list without its share would hide open transactions.
    pub fn transactions(&mut self) -> Result<Vec<TransactionState>> {
        self.retry("list transactions", |client, deadline| {
            let mut states = Vec::new();
            for broker in client.broker_ids(deadline)? {
                let request = ListTransactionsRequest::default();
                let answer = client.exchange(Node::Broker(broker), &request, deadline)?;
                check(answer.error_code, || format!("broker {broker}"))?;
                states.extend(
                    answer
                        .transaction_states
                        .iter()
                        .map(|known| TransactionState {
                            transactional_id: known.transactional_id.to_string(),
                            producer_id: known.producer_id.0,
                            state: known.transaction_state.to_string(),
                        }),
                );
            }
            Ok(states)
        })
    }
}
