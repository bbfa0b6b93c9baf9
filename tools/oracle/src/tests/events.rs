//! Repeated records: each event once in the output, and each repetition once beside it.

use super::*;

/// Returns a clean run of a deduplication: every fifth record of the second half repeats one of the first.
fn deduplicated() -> (Evidence, Output) {
    let mut evidence = clean();
    let event = |seq: u64| if is_repeated(seq) { seq - 50 } else { seq };
    let with_event = |row: &Row| Row {
        value: event(row.seq.unwrap()) as i64,
        ..*row
    };
    let rows: Vec<Row> = evidence.outputs[0].rows.iter().map(with_event).collect();
    let ends = evidence.input.ends.clone();
    evidence.input = Input::new("in", rows.clone(), ends).unwrap();
    let (repeated, first) = rows
        .into_iter()
        .partition(|row| is_repeated(row.seq.unwrap()));
    let mut repeats = evidence.outputs.pop().unwrap();
    evidence.outputs[0].rows = first;
    repeats.rows = repeated;
    (evidence, repeats)
}

fn is_repeated(seq: u64) -> bool {
    seq >= 50 && seq.is_multiple_of(5)
}

/// Judges both parts.
#[track_caller]
fn found(run: (Evidence, Output)) -> [Vec<(&'static str, u64)>; 2] {
    let parts = split(run.0, run.1).unwrap();
    parts.map(|part| kinds(&judge(&part, Expectation::Finished)))
}

#[test]
fn a_clean_deduplication_is_clean() {
    let (evidence, repeats) = deduplicated();
    let [first, repeated] = split(evidence, repeats).unwrap();
    assert_eq!((first.input.len(), repeated.input.len()), (90, 10));
    for part in [first, repeated] {
        assert_eq!(judge(&part, Expectation::Finished), Verdict::default());
    }
}

#[test]
fn an_event_that_passes_twice_is_doubled() {
    let (mut evidence, mut repeats) = deduplicated();
    let row = repeats.rows.remove(0);
    let last = evidence.outputs[0].rows.len();
    let row = Row { offset: 58, ..row };
    evidence.outputs[0].rows.insert(last, row);
    let found = found((evidence, repeats));
    // It is also missing beside the output.
    let lost = vec![("lost", 1), ("offsets", 1)];
    assert_eq!(found, [vec![("doubled", 1)], lost]);
}

#[test]
fn an_event_that_passes_never_is_lost() {
    let (mut evidence, repeats) = deduplicated();
    remove(&mut evidence, 0, 41);
    let lost = vec![("lost", 1), ("offsets", 1)];
    assert_eq!(found((evidence, repeats)), [lost, vec![]]);
}

#[test]
fn a_first_record_among_the_repetitions_is_foreign() {
    let (mut evidence, mut repeats) = deduplicated();
    repeats.rows.push(remove(&mut evidence, 0, 41));
    let lost = vec![("lost", 1), ("offsets", 1)];
    assert_eq!(found((evidence, repeats)), [lost, vec![("foreign", 1)]]);
}

#[test]
fn a_repetition_that_is_written_twice_is_doubled() {
    let (evidence, mut repeats) = deduplicated();
    let again = repeats.rows[0];
    repeats.rows.insert(
        1,
        Row {
            offset: 59,
            ..again
        },
    );
    assert_eq!(found((evidence, repeats)), [vec![], vec![("doubled", 1)]]);
}

#[test]
fn an_event_in_two_partitions_can_not_be_judged() {
    let (mut evidence, repeats) = deduplicated();
    let mut rows = evidence.outputs[0].rows.clone();
    // Number 1 is in the other partition.
    rows.iter_mut()
        .find(|row| row.seq == Some(1))
        .unwrap()
        .value = 0;
    let ends = evidence.input.ends.clone();
    evidence.input = Input::new("in", rows, ends).unwrap();
    let error = split(evidence, repeats).unwrap_err();
    assert!(matches!(error, InputError::Twice { seq: 0, .. }), "{error}");
}
