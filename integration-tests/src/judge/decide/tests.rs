//! One planted violation of each kind, and a clean run: a judge that never complains proves
//! nothing, and neither does one that always does.

use xtask::wire::{LoggedTransaction, Marker, OpenProducer, Span, TransactionState};

use super::*;
use crate::judge::{Input, Key, Keys, LogEnd};

const PARTITIONS: i32 = 2;
const PER_PARTITION: i64 = 50;
const KEYS: u64 = 10;

/// A finished, clean run: 100 records of 10 keys in 2 partitions, processed into 2 outputs.
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
    };
    Evidence {
        keys,
        outputs: vec![output("out"), output("audit")],
        committed: Some(vec![Some(PER_PARTITION); PARTITIONS as usize]),
        input: Input::new("in", rows, vec![PER_PARTITION; PARTITIONS as usize]).unwrap(),
        open: Vec::new(),
        commits: vec![commit(&["out", "audit", "__consumer_offsets"])],
        hanging_offsets: Vec::new(),
    }
}

/// A transaction that ends right after its last record.
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

/// A commit of partition 0 of each of these.
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

/// The same run, stopped after the first 30 records of each partition.
fn stopped() -> Evidence {
    let mut evidence = clean();
    for output in &mut evidence.outputs {
        output.rows.retain(|row| row.offset < 30);
    }
    evidence.committed = Some(vec![Some(30); PARTITIONS as usize]);
    evidence
}

/// Takes the record with this number out of an output.
fn remove(evidence: &mut Evidence, output: usize, seq: u64) -> Row {
    let rows = &mut evidence.outputs[output].rows;
    let at = rows.iter().position(|row| row.seq == Some(seq)).unwrap();
    rows.remove(at)
}

/// The kinds found, with their counts.
fn kinds(verdict: &Verdict) -> Vec<(&'static str, u64)> {
    let findings = verdict.findings().into_iter();
    let counts = findings.map(|(name, finding)| (name, finding.count));
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_clean_run_is_clean() {
    let verdict = judge(&clean(), Expectation::Finished);
    assert_eq!(verdict, Verdict::default());
    assert!(verdict.is_clean());
    assert!(judge(&clean(), Expectation::Behind).is_clean());
}

#[test]
fn a_stopped_run_is_clean_only_where_it_may_be_behind() {
    assert!(judge(&stopped(), Expectation::Behind).is_clean());
    let verdict = judge(&stopped(), Expectation::Finished);
    assert_eq!(kinds(&verdict), [("lost", 80), ("offsets", 2)]);
    assert_eq!(
        verdict.offsets.examples[0].note,
        "committed 30 is not at the end 50"
    );
}

#[test]
fn lost() {
    let mut evidence = clean();
    remove(&mut evidence, 0, 41);
    remove(&mut evidence, 1, 41);
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("lost", 2), ("offsets", 1)]);
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
    let verdict = judge(&evidence, Expectation::Behind);
    assert_eq!(kinds(&verdict), [("lost", 2), ("offsets", 1)]);
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
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("doubled", 2)]);
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
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("reordered", 1)]);
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
    assert!(judge(&evidence, Expectation::Finished).is_clean());
}

#[test]
fn a_key_in_two_partitions_counts_as_reordered() {
    let mut evidence = clean();
    let row = remove(&mut evidence, 0, 98);
    evidence.outputs[0].rows.push(Row {
        partition: 1,
        ..row
    });
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("reordered", 1)]);
}

#[test]
fn foreign() {
    let mut evidence = clean();
    evidence.outputs[0].rows[3].seq = Some(4_000);
    let mut nameless = evidence.outputs[1].rows[0];
    nameless.seq = None;
    evidence.outputs[1].rows.push(nameless);
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(verdict.foreign.count, 2);
    assert_eq!(verdict.foreign.examples[0].seq, Some(4_000));
    assert_eq!(verdict.lost.count, 1, "the record whose place it took");
}

#[test]
fn rekeyed() {
    let mut evidence = clean();
    let key = evidence.keys.intern(None);
    evidence.outputs[0].rows[7].key = key;
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("rekeyed", 1)]);
}

#[test]
fn torn() {
    let mut evidence = stopped();
    // Beyond the committed offset, so it is not lost; yet half of its transaction is visible.
    let mut row = evidence.outputs[0].rows[0];
    (row.seq, row.offset) = (Some(60), 30);
    evidence.outputs[0].rows.push(row);
    let verdict = judge(&evidence, Expectation::Behind);
    assert_eq!(verdict.torn.count, 1);
    assert_eq!(
        verdict.torn.examples[0].note,
        "it is in out and not in audit"
    );
    assert_eq!(verdict.lost.count, 0);
    assert_eq!(verdict.offsets.count, 1);
}

#[test]
fn what_a_marker_aborts_is_not_to_be_seen() {
    let mut evidence = clean();
    // Three records of partition 1 are visible that the markers abort.
    evidence.outputs[1].spans[1] = vec![span(0, 46, true), span(47, 49, false)];
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("aborted", 3)]);
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
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("aborted", 50)]);
}

#[test]
fn what_no_marker_ends_is_not_to_be_seen() {
    let mut evidence = clean();
    let mut open = span(0, 49, true);
    open.end = None;
    evidence.outputs[0].spans[0] = vec![open];
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("aborted", 50)]);
    // Outside of transactions there are no markers.
    evidence.outputs[0].spans[0][0].transactional = false;
    assert!(judge(&evidence, Expectation::Finished).is_clean());
}

#[test]
fn a_commit_of_outputs_without_offsets_is_half_a_transaction() {
    let mut evidence = clean();
    evidence.commits.push(commit(&["audit", "out"]));
    // Offsets alone are a first start; topics of others are not judged.
    evidence.commits.push(commit(&["__consumer_offsets"]));
    evidence.commits.push(commit(&["other"]));
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("aborted", 1)]);
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
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("hanging", 1)]);
    assert_eq!(verdict.hanging.examples[0].offset, Some(55));

    let mut evidence = clean();
    evidence.committed = None;
    evidence.hanging_offsets.push(hangs);
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("hanging", 1)]);
}

#[test]
fn offsets_behind() {
    let mut evidence = clean();
    evidence.committed = Some(vec![Some(PER_PARTITION), Some(PER_PARTITION - 3)]);
    for expectation in [Expectation::Finished, Expectation::Behind] {
        let verdict = judge(&evidence, expectation);
        assert_eq!(kinds(&verdict), [("offsets", 1)]);
        let note = &verdict.offsets.examples[0].note;
        assert!(
            note.starts_with("committed 47 is behind: 3 records"),
            "{note}"
        );
    }
}

#[test]
fn offsets_never_committed() {
    let mut evidence = clean();
    evidence.committed = Some(vec![Some(PER_PARTITION), None]);
    let verdict = judge(&evidence, Expectation::Behind);
    assert_eq!(kinds(&verdict), [("offsets", 1)]);
}

#[test]
fn offsets_ahead() {
    let mut evidence = stopped();
    evidence.committed = Some(vec![Some(30), Some(31)]);
    let verdict = judge(&evidence, Expectation::Behind);
    assert_eq!(kinds(&verdict), [("lost", 2), ("offsets", 1)]);
    let note = &verdict.offsets.examples[0].note;
    assert!(
        note.starts_with("committed 31 is ahead: 1 records"),
        "{note}"
    );
}

#[test]
fn offsets_beyond_the_end() {
    let mut evidence = clean();
    evidence.committed = Some(vec![Some(PER_PARTITION + 1), Some(PER_PARTITION)]);
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("offsets", 1)]);
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
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("open", 2)]);
    assert_eq!(verdict.open.examples[0].partition, Some(1));
    assert_eq!(verdict.open.examples[0].offset, Some(55));
}

#[test]
fn offsets_held_by_an_open_transaction() {
    let mut evidence = clean();
    evidence.committed = None;
    let verdict = judge(&evidence, Expectation::Finished);
    assert_eq!(kinds(&verdict), [("open", 1)]);
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
}
