//! The addition of partitions to a transaction before the first write.

use std::collections::BTreeMap;

use eos_protocol::CallSite;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{AddPartitionsToTxnRequest, RequestKind, ResponseKind};
use kafka_wire::batch::ProducerIdentity;

use super::{Place, Writer};
use crate::client::call::Call;
use crate::client::errors::{Sense, sense};
use crate::client::fabric::Wire;
use crate::client::network::Line;
use crate::client::requests::text;

impl Writer {
    pub(super) fn add_partitions(&mut self, wire: &mut Wire<'_>) {
        if !self.is_transactional() {
            return;
        }
        let Some(identity) = self.identity else {
            return;
        };
        if self.adding.is_none() && self.failed.is_none() && self.end.is_none() {
            let waiting = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
            let new = waiting
                .map(|(place, _)| *place)
                .filter(|place| !self.added.contains(place));
            let new: Vec<Place> = new.collect();
            if !new.is_empty() {
                let call = Call::new(Line::Coordinator, self.add_request(identity, &new));
                self.adding = Some((call, new));
            }
        }
        let Some((mut call, new)) = self.adding.take() else {
            return;
        };
        let Some(ResponseKind::AddPartitionsToTxn(answer)) = call.poll(wire) else {
            self.adding = Some((call, new));
            return;
        };
        let topics = answer.results_by_topic_v3_and_below.iter();
        let partitions = topics.flat_map(|topic| &topic.results_by_partition);
        let errors: Vec<i16> = partitions.map(|it| it.partition_error_code).collect();
        let worst = errors
            .iter()
            .copied()
            .max_by_key(|error| sense(*error) as u8);
        let worst = worst.unwrap_or(0);
        match sense(worst) {
            Sense::Well => {
                self.over(&call);
                self.added.extend(new);
            }
            Sense::Again => {
                call.again(wire);
                self.adding = Some((call, new));
            }
            _ => {
                self.over(&call);
                self.fail(CallSite::Flush, worst);
            }
        }
    }

    fn add_request(&self, identity: ProducerIdentity, new: &[Place]) -> RequestKind {
        let mut topics: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in new {
            topics.entry(*topic).or_default().push(*partition);
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            AddPartitionsToTxnTopic::default()
                .with_name(text(&self.topics[topic]).into())
                .with_partitions(partitions)
        });
        AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(text(self.id()).into())
            .with_v3_and_below_producer_id(identity.id.into())
            .with_v3_and_below_producer_epoch(identity.epoch)
            .with_v3_and_below_topics(topics.collect())
            .into()
    }
}
