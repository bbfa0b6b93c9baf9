//! From a fetch's answer to the records that its reader sees.

use anyhow::Result;
use kafka_protocol::messages::fetch_response::PartitionData;

use super::{Aborted, Batches, Record};

/// Gives out the records of a fetch from offset `from` on, without markers and without those of the transactions
/// that the leader lists as aborted: it lists none to a reader of everything. Answers where to go on, which is
/// beyond the last record when hidden ones followed it.
///
/// # Errors
/// If a batch is corrupt or compressed.
pub fn visible(data: PartitionData, from: i64, mut each: impl FnMut(Record)) -> Result<i64> {
    let listed = data.aborted_transactions.unwrap_or_default().into_iter();
    let mut aborted = Aborted::new(listed.map(|it| (it.producer_id.0, it.first_offset)));
    let mut next = from;
    for batch in Batches(data.records.unwrap_or_default()) {
        let batch = batch?;
        let hidden = aborted.hides(&batch)?;
        next = next.max(batch.last_offset + 1);
        if hidden || batch.control() {
            continue;
        }
        batch.each(|record| {
            // A batch is answered whole, also the part of it before the asked offset.
            if record.offset >= from {
                each(record);
            }
            Ok(())
        })?;
    }
    Ok(next)
}
