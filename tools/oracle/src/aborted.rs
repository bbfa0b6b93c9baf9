//! Visible data that its own transaction did not commit.
//!
//! Two kinds of evidence show it. Neither depends on the response to a reader of committed data:
//!
//! - *The markers.* A record belongs to the transaction that its producer's next marker ends. If that marker aborts,
//!   has another epoch, or is missing, no reader may receive the record.
//! - *The coordinators' log.* A delayed EndTxn(commit) of one transaction may arrive in the next (the gap that KIP-890
//!   closes). Then a normal marker commits the first half of the next transaction, and only its second half is aborted.
//!   The first half lacks the offsets, which an application sends last. So the log of the coordinators shows a commit
//!   with outputs and without offsets.
//!
//! An EndTxn that arrives even later, after the offsets, separates outputs from each other or from the offsets. Such
//! outputs are counted as lost, torn and offsets.

use kafka_wire::{CONSUMER_OFFSETS, LoggedTransaction, Span};

use super::evidence::{Evidence, Output};
use super::examples;
use super::records::Row;
use super::verdict::{Example, Finding};

/// Counts records by the first kind of evidence, and transactions by the second.
pub(super) fn find(evidence: &Evidence, finding: &mut Finding) {
    for output in &evidence.outputs {
        for row in &output.rows {
            if let Some(note) = span_of(output, row).and_then(complaint) {
                finding.add(|| examples::of_row(evidence, output, row, note));
            }
        }
    }
    for commit in &evidence.commits {
        let of_output = |(topic, _): &&(String, i32)| {
            let mut outputs = evidence.outputs.iter();
            outputs.any(|output| output.topic == *topic)
        };
        let written: Vec<_> = commit.partitions.iter().filter(of_output).collect();
        let mut partitions = commit.partitions.iter();
        let offsets = partitions.any(|(topic, _)| topic == CONSUMER_OFFSETS);
        if let (Some((topic, partition)), false) = (written.first(), offsets) {
            finding.add(|| half(commit, topic, *partition, written.len()));
        }
    }
}

/// Returns the batch that contains a row.
fn span_of<'a>(output: &'a Output, row: &Row) -> Option<&'a Span> {
    let spans = output.spans.get(usize::try_from(row.partition).ok()?)?;
    let after = spans.partition_point(|span| span.first <= row.offset);
    let span = spans.get(after.checked_sub(1)?)?;
    (row.offset <= span.last).then_some(span)
}

/// Returns the reason why no reader may receive the records of a batch.
fn complaint(span: &Span) -> Option<String> {
    if !span.transactional {
        return None;
    }
    let (producer, epoch) = (span.producer_id, span.producer_epoch);
    let Some(end) = span.end else {
        return Some(format!(
            "no marker of producer {producer} ends its transaction"
        ));
    };
    if !end.commits {
        return Some(format!(
            "the marker at offset {} aborts it (producer {producer})",
            end.offset
        ));
    }
    (end.producer_epoch != epoch).then(|| {
        format!(
            "producer {producer} wrote it in epoch {epoch}, the marker at offset {} commits epoch {}",
            end.offset, end.producer_epoch
        )
    })
}

fn half(commit: &LoggedTransaction, topic: &str, partition: i32, partitions: usize) -> Example {
    Example {
        topic: Some(topic.to_owned()),
        partition: Some(partition),
        note: format!(
            "{} (producer {}, epoch {}) committed what it wrote to {partitions} partitions without any \
             offset: part of a transaction, or of one that was aborted",
            commit.transactional_id, commit.producer_id, commit.producer_epoch
        ),
        ..Example::default()
    }
}
