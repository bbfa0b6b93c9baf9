//! Logs: memory, acks, retention, compaction.

use super::*;

#[test]
fn memory_is_bounded_and_the_limit_is_named() {
    for (name, limit) in [
        ("log.memory.max.bytes", (1_000, usize::MAX)),
        ("partition.memory.max.bytes", (usize::MAX, 1_000)),
    ] {
        let options = BrokerOptions {
            log_memory_max_bytes: limit.0,
            partition_memory_max_bytes: limit.1,
            ..BrokerOptions::default()
        };
        let mut model = Model::with(options);
        let mut answers = (0..100).map(|_| model.produce(plain()));
        let refused = answers.find(|it| it.0 != 0).expect("memory is bounded");
        drop(answers);
        let why = refused.2.expect("a reason");
        assert_eq!((refused.0, refused.1), (Error::PolicyViolation.code(), -1));
        assert!(why.contains(&format!("{name}=1000")), "{why}");
        let held = model.broker.partition("t", 0).expect("there").bytes();
        assert!(held <= 1_000 && held == model.broker.bytes, "{held}");
    }
}

/// A producer that lost the response to a batch would treat it as lost if a full memory rejected the retry. But the
/// batch is in the log.
#[test]
fn memory_is_reserved_for_appended_batches_only() {
    let batch = |sequence| produced(Some((7, 0, sequence)), false, &[("k", Some("v"), 0)]);
    let size = batch(0).len();
    for limit in [(2 * size, usize::MAX), (usize::MAX, 2 * size)] {
        let mut model = Model::with(BrokerOptions {
            log_memory_max_bytes: limit.0,
            partition_memory_max_bytes: limit.1,
            ..BrokerOptions::default()
        });
        let mut produce = |sequence| {
            let answer = model.produce(batch(sequence));
            (answer.0, answer.1)
        };
        assert_eq!((produce(0), produce(1)), ((0, 0), (0, 1)));
        assert_eq!(produce(2), (Error::PolicyViolation.code(), -1));
        assert_eq!((produce(0), produce(1)), ((0, 0), (0, 1)), "duplicates");
        let gap = (Error::OutOfOrderSequenceNumber.code(), -1);
        assert_eq!(produce(4), gap, "it would not fit in later either");
    }
}

#[test]
fn without_acks_there_is_no_answer_but_the_record() {
    let mut model = Model::new();
    let ticket = model.send_records(plain(), 0);
    let done = Output::Nothing(Unanswered::Done(ticket));
    assert_eq!(model.output(ticket), Some(done));
    assert_eq!(model.last_stable(), 1);
}

#[test]
fn retention_and_compaction_happen_on_demand() {
    let mut model = Model::new();
    model.produce(plain());
    model.broker.apply_retention(604_800_000);
    assert_eq!(model.broker.partition("t", 0).expect("there").start(), 0);
    model.broker.apply_retention(604_800_001);
    assert_eq!(model.broker.partition("t", 0).expect("there").start(), 1);
    assert_eq!(model.broker.bytes, 0);
    let compacted = [("cleanup.policy", "compact")];
    model.broker.add_topic("c", 1, &compacted).expect("created");
    let place = model.broker.topics["c"].place();
    let log = model.broker.partition_mut("c", 0).expect("there");
    for _ in 0..3 {
        let batch = crate::log::Batch::read(plain());
        log.produce(batch, place, 0).expect("appended");
    }
    let before = log.bytes();
    model.broker.compact(0);
    let log = model.broker.partition("c", 0).expect("there");
    assert_eq!((log.start(), log.end(), 3 * log.bytes()), (0, 3, before));
}

#[test]
fn a_tombstone_outlives_its_first_compaction() {
    let mut model = Model::new();
    let compacted = [("cleanup.policy", "compact"), ("delete.retention.ms", "70")];
    model.broker.add_topic("c", 1, &compacted).expect("created");
    let place = model.broker.topics["c"].place();
    let log = model.broker.partition_mut("c", 0).expect("there");
    for records in [
        [("k", Some("v"), 0)],
        [("k", None, 0)],
        [("other", None, 0)],
    ] {
        let batch = crate::log::Batch::read(produced(None, false, &records));
        log.produce(batch, place, 0).expect("appended");
    }
    let held = |model: &mut Model, now| {
        model.broker.compact(now);
        model.broker.bytes
    };
    let both = held(&mut model, 1_000_000);
    assert_eq!(held(&mut model, 1_000_069), both);
    let neither = held(&mut model, 1_000_070);
    // The last batch stays without records, to keep the log's end.
    assert!(neither > 0 && neither < both / 2 + 1, "{both}, {neither}");
}
