//! Transactions that readers must not receive, or that never end.

use super::*;

#[test]
fn what_a_marker_aborts_is_not_to_be_seen() {
    let mut evidence = clean();
    // Three records of partition 1 are visible although the markers abort them.
    evidence.outputs[1].spans[1] = vec![span(0, 46, true), span(47, 49, false)];
    let verdict = finished(&evidence, [("aborted", 3)]);
    let example = &verdict.aborted.examples[0];
    assert_eq!(example.topic.as_deref(), Some("audit"));
    assert_eq!((example.partition, example.offset), (Some(1), Some(47)));
    assert_eq!(
        example.note,
        "the marker at offset 50 aborts it (producer 4)"
    );
}

#[test]
fn a_commit_of_another_epoch_is_not_its_own() {
    let mut evidence = clean();
    let mut other = span(0, 49, true);
    other.producer_epoch = 1;
    evidence.outputs[0].spans[0] = vec![other];
    finished(&evidence, [("aborted", 50)]);
}

#[test]
fn what_no_marker_ends_is_not_to_be_seen() {
    let mut evidence = clean();
    let mut open = span(0, 49, true);
    open.end = None;
    evidence.outputs[0].spans[0] = vec![open];
    finished(&evidence, [("aborted", 50)]);
    // There are no markers outside of transactions.
    evidence.outputs[0].spans[0][0].transactional = false;
    finished(&evidence, []);
}

#[test]
fn a_commit_of_outputs_without_offsets_is_half_a_transaction() {
    let mut evidence = clean();
    evidence.commits.push(commit(&["audit", "out"]));
    // A commit with offsets alone is a first start. Topics of other applications are not judged.
    evidence.commits.push(commit(&["__consumer_offsets"]));
    evidence.commits.push(commit(&["other"]));
    let verdict = finished(&evidence, [("aborted", 1)]);
    let note = &verdict.aborted.examples[0].note;
    assert!(
        note.contains("wrote to 2 partitions without any offset"),
        "{note}"
    );
}

#[test]
fn a_transaction_that_no_coordinator_knows_hangs() {
    let hangs = OpenProducer {
        partition: 1,
        producer_id: 9,
        producer_epoch: 0,
        first_offset: 55,
    };
    let mut evidence = clean();
    evidence.outputs[0].ends[1].last_stable = 55;
    evidence.outputs[0].hanging.push(hangs);
    let verdict = finished(&evidence, [("hanging", 1)]);
    assert_eq!(verdict.hanging.examples[0].offset, Some(55));

    let mut evidence = clean();
    evidence.committed = None;
    evidence.hanging_offsets.push(hangs);
    finished(&evidence, [("hanging", 1)]);
}

#[test]
fn open_transaction() {
    let mut evidence = clean();
    evidence.outputs[0].ends[1].last_stable = 55;
    evidence.open.push(TransactionState {
        transactional_id: "app-0".into(),
        producer_id: 4,
        state: "Ongoing".into(),
    });
    let verdict = finished(&evidence, [("open", 2)]);
    assert_eq!(verdict.open.examples[0].partition, Some(1));
    assert_eq!(verdict.open.examples[0].offset, Some(55));
}

#[test]
fn offsets_held_by_an_open_transaction() {
    let mut evidence = clean();
    evidence.committed = None;
    finished(&evidence, [("open", 1)]);
}
