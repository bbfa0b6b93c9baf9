//! Open transactions: those that end, and those that hang.
//!
//! The coordinator will end the former. No component will end the latter.

use kafka_wire::{CONSUMER_OFFSETS, OpenProducer};

use super::evidence::{Evidence, LogEnd, Output};
use super::verdict::{Example, Verdict};

pub(super) fn find(evidence: &Evidence, verdict: &mut Verdict) {
    for output in &evidence.outputs {
        for hangs in &output.hanging {
            verdict.hanging.add(|| hanging(&output.topic, hangs));
        }
        for (partition, end) in (0..).zip(&output.ends) {
            if end.last_stable < end.high_watermark && !hangs_there(output, partition, *end) {
                verdict.open.add(|| Example {
                    topic: Some(output.topic.clone()),
                    partition: Some(partition),
                    offset: Some(end.last_stable),
                    note: format!(
                        "a transaction that begins here is open: the log goes on to {}",
                        end.high_watermark
                    ),
                    ..Example::default()
                });
            }
        }
    }
    for transaction in &evidence.open {
        let (id, state) = (&transaction.transactional_id, &transaction.state);
        verdict.open.add(|| Example {
            note: format!("transactional id {id} is in state {state}"),
            ..Example::default()
        });
    }
    for hangs in &evidence.hanging_offsets {
        verdict.hanging.add(|| hanging(CONSUMER_OFFSETS, hangs));
    }
    if evidence.committed.is_none() && evidence.hanging_offsets.is_empty() {
        verdict.open.add(|| Example {
            note: "an open transaction holds offsets of the group".to_owned(),
            ..Example::default()
        });
    }
}

/// Returns whether a hanging transaction holds back this partition.
fn hangs_there(output: &Output, partition: i32, end: LogEnd) -> bool {
    let mut hanging = output.hanging.iter();
    hanging.any(|found| found.partition == partition && found.first_offset <= end.last_stable)
}

fn hanging(topic: &str, found: &OpenProducer) -> Example {
    Example {
        topic: Some(topic.to_owned()),
        partition: Some(found.partition),
        offset: Some(found.first_offset),
        note: format!(
            "the transaction of producer {} (epoch {}) that begins here is open, and no coordinator \
             knows it: kafka-transactions.sh abort ends it",
            found.producer_id, found.producer_epoch
        ),
        ..Example::default()
    }
}
