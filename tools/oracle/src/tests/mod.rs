//! One planted violation of each kind, and a clean run.
//!
//! A judge that never reports a violation proves nothing, and neither does a judge that always reports one.

mod events;
mod offsets;
mod outputs;
mod running;
mod state;
mod transactions;

use super::*;

const PARTITIONS: i32 = 2;
const PER_PARTITION: i64 = 50;
const KEYS: u64 = 10;

/// Returns a finished, clean run: 100 records of 10 keys in 2 partitions, processed into 2 outputs.
fn clean() -> Evidence {
    let mut keys = Keys::default();
    let interned: Vec<Key> = (0..KEYS)
        .map(|key| keys.intern(Some(format!("key {key}").as_bytes())))
        .collect();
    let row = |seq: u64| Row {
        seq: Some(seq),
        key: interned[(seq % KEYS) as usize],
        partition: (seq % 2) as i32,
        offset: (seq / 2) as i64,
        value: 0,
    };
    let mut rows: Vec<Row> = (0..100).map(row).collect();
    rows.sort_by_key(|row| (row.partition, row.offset));
    let output = |topic: &str| Output {
        topic: topic.to_owned(),
        rows: rows.clone(),
        uncommitted: 107,
        spans: vec![vec![span(0, 49, true)]; PARTITIONS as usize],
        hanging: Vec::new(),
        ends: vec![
            LogEnd {
                last_stable: 60,
                high_watermark: 60,
            };
            PARTITIONS as usize
        ],
        running: None,
    };
    Evidence {
        keys,
        outputs: vec![output("out"), output("audit")],
        committed: Some(vec![Some(PER_PARTITION); PARTITIONS as usize]),
        input: Input::new("in", rows, vec![PER_PARTITION; PARTITIONS as usize]).unwrap(),
        open: Vec::new(),
        commits: vec![commit(&["out", "audit", "__consumer_offsets"])],
        hanging_offsets: Vec::new(),
        state: Vec::new(),
    }
}

/// Returns the same run of a counting application. `out` carries the count of its key, and each partition has a
/// changelog and a database.
fn counted() -> Evidence {
    let mut evidence = clean();
    evidence.outputs[0].running = Some(counts());
    for row in &mut evidence.outputs[0].rows {
        row.value = (row.seq.unwrap() / KEYS + 1) as i64;
    }
    keep_state(&mut evidence, PER_PARTITION);
    evidence
}

/// Returns the fold of a counting application.
fn counts() -> Fold {
    Fold::new(|contents, record| {
        let key = record.key.unwrap().to_vec();
        let text = contents
            .get(&key)
            .map(|count| String::from_utf8_lossy(count));
        let count = text.map_or(0, |text| text.parse::<i64>().unwrap()) + 1;
        contents.insert(key, count.to_string().into_bytes());
        count
    })
}

/// Returns the count of each key in a partition below an offset, computed without the fold.
fn counts_below(partition: i32, offset: i64) -> Contents {
    let of_key = |key: u64| {
        let mut numbers = (0..offset as u64).map(|offset| offset * 2 + partition as u64);
        let count = numbers.by_ref().filter(|seq| seq % KEYS == key).count();
        let pair = (format!("key {key}"), count.to_string());
        (count > 0).then(|| (pair.0.into_bytes(), pair.1.into_bytes()))
    };
    (0..KEYS).filter_map(of_key).collect()
}

/// Adds a changelog and a database of each partition, at an offset, in this order.
fn keep_state(evidence: &mut Evidence, offset: i64) {
    evidence.state.clear();
    for partition in 0..PARTITIONS {
        let contents = counts_below(partition, offset);
        let copy = |name| StateCopy::new(name, &counts(), partition, contents.clone());
        evidence.state.push(copy("changelog of counts"));
        evidence.state.push(StateCopy {
            position: Some(offset),
            ..copy("database of counts")
        });
    }
}

/// Returns a transaction that ends right after its last record.
fn span(first: i64, last: i64, commits: bool) -> Span {
    Span {
        first,
        last,
        records: (last - first + 1) as u32,
        producer_id: 4,
        producer_epoch: 0,
        transactional: true,
        end: Some(Marker {
            offset: last + 1,
            producer_epoch: 0,
            commits,
        }),
    }
}

/// Returns a commit of partition 0 of each of these topics.
fn commit(topics: &[&str]) -> LoggedTransaction {
    LoggedTransaction {
        transactional_id: "app-0".into(),
        producer_id: 4,
        producer_epoch: 0,
        state: "PrepareCommit",
        partitions: topics.iter().map(|topic| ((*topic).into(), 0)).collect(),
        at: 0,
    }
}

/// Returns the same run, stopped after the first 30 records of each partition.
fn stopped() -> Evidence {
    let mut evidence = clean();
    for output in &mut evidence.outputs {
        output.rows.retain(|row| row.offset < 30);
    }
    evidence.committed = Some(vec![Some(30); PARTITIONS as usize]);
    evidence
}

/// Returns the counting run, stopped likewise.
fn stopped_counted() -> Evidence {
    let mut evidence = counted();
    for output in &mut evidence.outputs {
        output.rows.retain(|row| row.offset < 30);
    }
    evidence.committed = Some(vec![Some(30); PARTITIONS as usize]);
    keep_state(&mut evidence, 30);
    evidence
}

/// Removes the record with this number from an output, and returns it.
fn remove(evidence: &mut Evidence, output: usize, seq: u64) -> Row {
    let rows = &mut evidence.outputs[output].rows;
    let at = rows.iter().position(|row| row.seq == Some(seq)).unwrap();
    rows.remove(at)
}

/// Returns the kinds of violations, with their counts.
fn kinds(verdict: &Verdict) -> Vec<(&'static str, u64)> {
    let findings = verdict.findings().into_iter();
    let counts = findings.map(|(name, finding)| (name, finding.count));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Judges a finished run, and checks the kinds of violations.
#[track_caller]
fn finished<const N: usize>(evidence: &Evidence, found: [(&str, u64); N]) -> Verdict {
    judged(evidence, Expectation::Finished, found)
}

/// Judges a run that may be behind, and checks the kinds of violations.
#[track_caller]
fn behind<const N: usize>(evidence: &Evidence, found: [(&str, u64); N]) -> Verdict {
    judged(evidence, Expectation::Behind, found)
}

#[track_caller]
fn judged<const N: usize>(
    evidence: &Evidence,
    expectation: Expectation,
    found: [(&str, u64); N],
) -> Verdict {
    let verdict = judge(evidence, expectation);
    assert_eq!(kinds(&verdict), found);
    assert_eq!(verdict.is_clean(), found.is_empty());
    verdict
}

#[test]
fn a_clean_run_is_clean() {
    let verdict = judge(&clean(), Expectation::Finished);
    assert_eq!(verdict, Verdict::default());
    assert!(verdict.is_clean());
    behind(&clean(), []);
}

#[test]
fn a_clean_run_that_counts_is_clean() {
    for expectation in [Expectation::Finished, Expectation::Behind] {
        assert_eq!(judge(&counted(), expectation), Verdict::default());
    }
    let verdict = judge(&stopped_counted(), Expectation::Behind);
    assert_eq!(verdict, Verdict::default());
}

#[test]
fn of_nothing_the_judge_says_nothing_good() {
    behind(&Evidence::default(), [("open", 1)]);
}

#[test]
fn a_stopped_run_is_clean_only_where_it_may_be_behind() {
    behind(&stopped(), []);
    let verdict = finished(&stopped(), [("lost", 80), ("offsets", 2)]);
    assert_eq!(
        verdict.offsets.examples[0].note,
        "committed 30 is not at the end 50"
    );
}

#[test]
fn examples_are_few_and_counts_whole() {
    let mut evidence = clean();
    evidence.outputs[0].rows.clear();
    evidence.outputs[1].rows.clear();
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!((verdict.lost.count, verdict.lost.examples.len()), (200, 5));
}

#[test]
fn an_input_that_cannot_tell_its_records_apart_is_refused() {
    let mut keys = Keys::default();
    let row = Row {
        seq: Some(1),
        key: keys.intern(None),
        partition: 0,
        offset: 0,
        value: 0,
    };
    let twice = Input::new("in", vec![row, Row { offset: 1, ..row }], vec![2]);
    assert!(twice.unwrap_err().to_string().contains("seq 1 twice"));
    let unnumbered = Input::new("in", vec![Row { seq: None, ..row }], vec![1]);
    assert!(
        unnumbered
            .unwrap_err()
            .to_string()
            .contains("without `seq`")
    );
    for partition in [-1, 1] {
        let nowhere = Input::new("in", vec![Row { partition, ..row }], vec![1]).unwrap_err();
        assert!(matches!(nowhere, InputError::NoSuchPartition { .. }));
    }
}

#[test]
fn rows_are_small() {
    assert_eq!(size_of::<Row>(), 40);
}
