//! Records that the outputs contain, and missing records.

use super::*;

#[test]
fn lost() {
    let mut evidence = clean();
    remove(&mut evidence, 0, 41);
    remove(&mut evidence, 1, 41);
    let verdict = finished(&evidence, [("lost", 2), ("offsets", 1)]);
    let example = Example {
        seq: Some(41),
        key: Some("key 1".into()),
        topic: Some("in".into()),
        partition: Some(1),
        offset: Some(20),
        note: "it is not in out".into(),
    };
    assert_eq!(verdict.lost.examples[0], example);
}

#[test]
fn lost_below_the_committed_offset_of_a_stopped_run() {
    let mut evidence = stopped();
    remove(&mut evidence, 0, 4);
    remove(&mut evidence, 1, 4);
    behind(&evidence, [("lost", 2), ("offsets", 1)]);
}

#[test]
fn doubled() {
    let mut evidence = clean();
    for output in &mut evidence.outputs {
        let again = Row {
            offset: 58,
            ..output.rows[10]
        };
        output.rows.insert(50, again);
    }
    let verdict = finished(&evidence, [("doubled", 2)]);
    assert_eq!(verdict.doubled.examples[0].offset, Some(58));
    assert_eq!(
        verdict.doubled.examples[0].note,
        "it is also at out-0, offset 10"
    );
}

#[test]
fn reordered() {
    let mut evidence = clean();
    let rows = &mut evidence.outputs[0].rows;
    // Numbers 0 and 10 have the same key and lie 5 apart in partition 0.
    (rows[0].seq, rows[5].seq) = (rows[5].seq, rows[0].seq);
    let verdict = finished(&evidence, [("reordered", 1)]);
    assert_eq!(verdict.reordered.examples[0].seq, Some(0));
    assert_eq!(
        verdict.reordered.examples[0].note,
        "it comes after seq 10 of the same key"
    );
}

#[test]
fn other_keys_may_overtake() {
    let mut evidence = clean();
    evidence.outputs[0].rows.swap(0, 1);
    finished(&evidence, []);
}

#[test]
fn one_key_is_in_order_by_input_partition() {
    let mut keys = Keys::default();
    let key = keys.intern(None);
    let row = |seq, partition, offset| Row {
        seq: Some(seq),
        key,
        partition,
        offset,
        value: 0,
    };
    let input = vec![row(0, 0, 0), row(1, 0, 1), row(2, 1, 0), row(3, 1, 1)];
    let mut evidence = Evidence {
        input: Input::new("in", input, vec![2, 2]).unwrap(),
        outputs: vec![Output {
            topic: "out".into(),
            rows: vec![row(2, 0, 0), row(3, 0, 1), row(0, 0, 2), row(1, 0, 3)],
            ..Output::default()
        }],
        committed: Some(vec![Some(2), Some(2)]),
        keys,
        ..Evidence::default()
    };
    finished(&evidence, []);
    // A row of the other partition in between does not hide it.
    evidence.outputs[0].rows = vec![row(1, 0, 0), row(2, 0, 1), row(0, 0, 2), row(3, 0, 3)];
    let verdict = finished(&evidence, [("reordered", 1)]);
    assert_eq!(verdict.reordered.examples[0].seq, Some(0));
}

#[test]
fn a_key_in_two_partitions_counts_as_reordered() {
    let mut evidence = clean();
    let row = remove(&mut evidence, 0, 98);
    evidence.outputs[0].rows.push(Row {
        partition: 1,
        ..row
    });
    finished(&evidence, [("reordered", 1)]);
}

#[test]
fn foreign() {
    let mut evidence = clean();
    evidence.outputs[0].rows[3].seq = Some(4_000);
    let mut nameless = evidence.outputs[1].rows[0];
    nameless.seq = None;
    evidence.outputs[1].rows.push(nameless);
    let verdict = judge(&evidence, Expectation::Finished);
    // Also the record that it replaced.
    let expected = [("lost", 1), ("foreign", 2), ("torn", 1), ("offsets", 1)];
    assert_eq!(kinds(&verdict), expected);
    assert_eq!(verdict.foreign.examples[0].seq, Some(4_000));
}

#[test]
fn rekeyed() {
    let mut evidence = clean();
    let key = evidence.keys.intern(None);
    evidence.outputs[0].rows[7].key = key;
    finished(&evidence, [("rekeyed", 1)]);
}

#[test]
fn torn() {
    let mut evidence = stopped();
    // The row is beyond the committed offset, so it is not lost. But half of its transaction is visible.
    let mut row = evidence.outputs[0].rows[0];
    (row.seq, row.offset) = (Some(60), 30);
    evidence.outputs[0].rows.push(row);
    let verdict = behind(&evidence, [("torn", 1), ("offsets", 1)]);
    assert_eq!(
        verdict.torn.examples[0].note,
        "it is in out and not in audit"
    );
}
