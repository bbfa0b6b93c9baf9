//! Sends records in batches, one batch of a partition at a time.

use eos_protocol::{CallSite, code};
use kafka_protocol::messages::ResponseKind;
use kafka_wire::batch::{BatchBuilder, ProducerIdentity};
use kafka_wire::requests;

use super::{Place, Writer};
use crate::client::call::Call;
use crate::client::errors::{Sense, sense};
use crate::client::fabric::Wire;
use crate::client::network::Line;

impl Writer {
    pub(super) fn produce(&mut self, wire: &mut Wire<'_>) {
        let Some(identity) = self.identity.or_else(|| self.idempotent(wire)) else {
            return;
        };
        let transactional = self.is_transactional();
        if self.failed.is_none() {
            let places: Vec<Place> = self.queues.keys().copied().collect();
            for place in places {
                let in_it = !transactional || self.added.contains(&place);
                if in_it && !self.produces.contains_key(&place) {
                    self.next_batch(place, identity);
                }
            }
        }
        for (place, (mut call, count)) in std::mem::take(&mut self.produces) {
            let Some(ResponseKind::Produce(answer)) = call.poll(wire) else {
                self.produces.insert(place, (call, count));
                continue;
            };
            let partitions = answer
                .responses
                .iter()
                .flat_map(|it| &it.partition_responses);
            let error = partitions.map(|it| it.error_code).find(|it| *it != 0);
            let error = error.unwrap_or(0);
            match sense(error) {
                // An earlier copy of the request has already arrived.
                _ if i32::from(error) == code::DUPLICATE_SEQUENCE => {
                    self.over(&call);
                    *self.sequences.entry(place).or_default() += count;
                }
                Sense::Well => {
                    self.over(&call);
                    *self.sequences.entry(place).or_default() += count;
                }
                Sense::Again => {
                    call.again(wire);
                    self.produces.insert(place, (call, count));
                }
                _ => {
                    self.over(&call);
                    self.fail(CallSite::Flush, error);
                }
            }
        }
    }

    fn next_batch(&mut self, place: Place, identity: ProducerIdentity) {
        let Some(queue) = self.queues.get_mut(&place).filter(|it| !it.is_empty()) else {
            return;
        };
        let mut batch = BatchBuilder::new(256);
        for record in queue.drain(..) {
            let headers = record.headers.iter();
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_deref()));
            batch.push(
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                headers,
            );
        }
        let (topic, partition) = place;
        let count = batch.count();
        let sequence = self.sequences.get(&place).copied().unwrap_or(0);
        let transactional = self.is_transactional();
        let batch = batch.close(identity, sequence, transactional);
        let (topic_name, id) = (&self.topics[topic], self.transactional_id.as_deref());
        let records = batch.into_bytes();
        let request = requests::produce(topic_name, partition, records, id, -1);
        self.produces
            .insert(place, (Call::new(Line::Data, request), count));
    }
}
