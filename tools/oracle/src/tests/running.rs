//! Running values: every update of a key is checked.

use super::*;

/// Returns the row of `out` with this number.
fn row(evidence: &mut Evidence, seq: u64) -> &mut Row {
    let mut rows = evidence.outputs[0].rows.iter_mut();
    rows.find(|row| row.seq == Some(seq)).unwrap()
}

#[test]
fn stale() {
    let mut evidence = counted();
    // The update of seq 33 was made from the state before seq 23, and so were all later updates.
    for seq in (33..100).step_by(10) {
        row(&mut evidence, seq).value -= 1;
    }
    let verdict = finished(&evidence, [("stale", 1)]);
    assert_eq!(
        verdict.stale.examples[0].to_string(),
        "seq 33, key key 3, out-1, offset 16: it carries 3, and the inputs up to its own make 4; \
         seq 23 of its key carries 3"
    );
}

#[test]
fn stale_although_the_last_value_is_right() {
    let mut evidence = counted();
    row(&mut evidence, 0).value = 0;
    row(&mut evidence, 50).value = 7;
    row(&mut evidence, 60).value = 8;
    let verdict = judge(&evidence, Expectation::Finished);
    // One of them lasts from 50 to 60.
    assert_eq!(kinds(&verdict), [("stale", 2)]);
    let notes = verdict.stale.examples.iter().map(|found| &found.note[..]);
    let expected = [
        "it carries 0, and the inputs up to its own make 1",
        "it carries 7, and the inputs up to its own make 6; seq 40 of its key carries 5",
    ];
    assert!(notes.eq(expected));
}

#[test]
fn keys_go_stale_each_for_itself() {
    let mut evidence = counted();
    row(&mut evidence, 50).value = 1;
    row(&mut evidence, 52).value = 1;
    finished(&evidence, [("stale", 2)]);
}

#[test]
fn what_is_lost_or_reordered_is_not_stale_for_that() {
    let mut evidence = counted();
    remove(&mut evidence, 0, 41);
    remove(&mut evidence, 1, 41);
    finished(&evidence, [("lost", 2), ("offsets", 1)]);

    let mut evidence = counted();
    evidence.outputs[0].rows.swap(0, 5);
    finished(&evidence, [("reordered", 1)]);
}

#[test]
fn what_is_doubled_is_not_stale_for_that() {
    let mut evidence = counted();
    let rows = &mut evidence.outputs[0].rows;
    let again = Row {
        offset: 58,
        // The record was counted once more.
        value: rows[10].value + 1,
        ..rows[10]
    };
    rows.insert(50, again);
    finished(&evidence, [("doubled", 1)]);
}

#[test]
fn what_is_not_said_to_run_is_not_compared() {
    let mut evidence = counted();
    evidence.outputs[1].rows[3].value = 1_000;
    finished(&evidence, []);
}

#[test]
fn partitions_add_up_apart() {
    // One key in two partitions, and amounts in the values of the input.
    let mut keys = Keys::default();
    let key = keys.intern(None);
    let row = |seq, partition, offset, value| Row {
        seq: Some(seq),
        key,
        partition,
        offset,
        value,
    };
    let sums = Fold::new(|contents, record| {
        let bytes = contents.get(&b"sum"[..]).cloned().unwrap_or(vec![0; 8]);
        let sum = i64::from_be_bytes(bytes.try_into().unwrap()) + record.value;
        contents.insert(b"sum".into(), sum.to_be_bytes().into());
        sum
    });
    let rows = vec![row(0, 0, 0, -5), row(1, 1, 0, 100), row(2, 0, 1, 7)];
    let mut evidence = Evidence {
        input: Input::new("in", rows, vec![2, 1]).unwrap(),
        outputs: vec![Output {
            topic: "out".into(),
            rows: vec![row(0, 0, 0, -5), row(1, 0, 1, 100), row(2, 0, 2, 2)],
            running: Some(sums),
            ..Output::default()
        }],
        committed: Some(vec![Some(2), Some(1)]),
        keys,
        ..Evidence::default()
    };
    finished(&evidence, []);
    evidence.outputs[0].rows[2].value = 102;
    let verdict = finished(&evidence, [("stale", 1)]);
    assert_eq!(
        verdict.stale.examples[0].note,
        "it carries 102, and the inputs up to its own make 2; seq 0 of its key carries -5"
    );
}
