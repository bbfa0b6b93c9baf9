//! Deletes records that are no longer needed.
//!
//! Each deletion has its own client, which gets its brokers only after the request: the only way to keep librdkafka
//! 2.12.1 from using freed memory (docs/design/0025). A client costs a connection or a few, and deletions are rare.

use std::time::Duration;

use eos_client::{ClientError, Result};
use eos_protocol::{CallSite, Offset, TopicPartition, code};

use super::config::KafkaConfig;
use super::ffi::{Entry, Failure};
use super::inquiry::Inquiry;

/// Deletes the records before these offsets. Returns the new log start offset of each partition.
pub(super) fn delete_records(
    config: &KafkaConfig,
    before: &[(TopicPartition, Offset)],
    within: Duration,
) -> Result<Vec<(TopicPartition, Result<Offset>)>> {
    // librdkafka rejects an empty request.
    if before.is_empty() {
        return Ok(Vec::new());
    }
    let call = CallSite::DeleteRecords;
    let inquiry = Inquiry::open_without_brokers(config, "eos-deletions", within)?;
    let entries = inquiry.deleted(before, &config.bootstrap);
    let entries = entries.map_err(|failure| inquiry.explain(failure, call))?;
    let outcome = |partition: &TopicPartition| {
        let entry = entries.iter().find(|entry| entry.partition == *partition);
        let Some(entry) = entry else {
            let text = format!("{partition}: no broker responded");
            return Err(ClientError::new(call, code::LOCAL_TIMED_OUT, text));
        };
        match Offset::new(entry.offset) {
            Ok(begins) if entry.code == 0 => Ok(begins),
            _ => {
                let failure = Failure::of(entry.code);
                let text = format!("{partition}: {}", failure.text);
                Err(Failure { text, ..failure }.at(call))
            }
        }
    };
    let answers = before.iter();
    Ok(answers
        .map(|(partition, _)| (partition.clone(), outcome(partition)))
        .collect())
}

impl Inquiry {
    fn deleted(
        &self,
        before: &[(TopicPartition, Offset)],
        bootstrap: &str,
    ) -> Result<Vec<Entry>, Failure> {
        let within = self.left();
        self.client.order_deletion(before, within, &self.answers)?;
        self.client.meet(bootstrap)?;
        let Some(event) = self.answer(within)? else {
            return Err(Failure::of(code::LOCAL_TIMED_OUT));
        };
        event.check()?;
        Ok(event.deleted())
    }
}
