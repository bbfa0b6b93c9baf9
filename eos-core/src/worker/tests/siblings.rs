//! Tasks that read the same partition of several topics.

use super::*;

fn side(partition: i32) -> TopicPartition {
    TopicPartition::new("side", tp(partition).partition)
}

/// One task that reads `in` and `side` in the order of time. The fake's times are its offsets.
fn bench(input: &[&str], beside: &[&str]) -> Bench {
    let mut bench = Bench::with(Guarantee::ExactlyOnce, |app| {
        let side = app.source(&text("side"));
        // The first one declared drives.
        let main = app.source(&text("in"));
        side.merge(main).to(&Topic::plain("out"));
    });
    bench.worker.shared.spec.input_partitions = BTreeMap::from([("side".into(), 2)]);
    bench.kafka.broker().input.insert(tp(0), texts(input));
    bench.kafka.broker().input.insert(side(0), texts(beside));
    bench.assign_these([side(0)]);
    bench
}

#[test]
fn a_sibling_comes_with_its_driver_and_goes_with_it() {
    let mut bench = bench(&["a0", "a1"], &["b0", "b1", "b2"]);
    bench.settle();
    assert_eq!(bench.visible(), ["b0", "a0", "b1", "a1", "b2"]);
    bench.assert_called("assign side-0@0 in-0@0");
    let (own, name) = bench.kafka.broker().committed[&tp(0)].clone();
    let (beside, same) = bench.kafka.broker().committed[&side(0)].clone();
    assert_eq!((own, beside), (2, 3));
    assert_eq!(name, same, "rule 2: under one name");

    bench.revoke_this(side(0), false);
    bench.settle();
    assert_eq!(bench.kafka.calls(), ["unassign [side-0, in-0]"]);
}

#[test]
fn the_source_of_a_worker_reads_several_topics_or_one() {
    let reads_several = |bench: &Bench| {
        let source = bench.kafka.broker().source_spec.clone().unwrap();
        source.reads_several_topics
    };
    assert!(reads_several(&bench(&[], &[])));
    // One task for each topic.
    assert!(reads_several(&Bench::with(Guarantee::ExactlyOnce, |app| {
        app.source(&text("in")).to(&Topic::plain("out"));
        app.source(&text("side")).to(&Topic::plain("out"));
    })));
    assert!(!reads_several(&Bench::with(
        Guarantee::ExactlyOnce,
        |app| {
            app.source(&text("in")).to(&Topic::plain("out"));
            app.source(&text("in")).to(&Topic::plain("out"));
        }
    )));
}

/// Rule 2: a transaction commits all inputs of a touched task, even those that have not advanced.
#[test]
fn a_sibling_without_records_is_committed_too() {
    let mut bench = bench(&[], &["b0"]);
    bench.settle();
    assert_eq!(bench.committed_of(&side(0)), Some(1));
    assert_eq!(bench.committed(0), Some(0));
}

#[test]
fn kip_695_a_task_waits_for_a_sibling_with_an_unknown_end() {
    let mut bench = bench(&["a0"], &[]);
    bench.kafka.broker().silent.insert(side(0));
    bench.settle();
    assert_eq!(bench.visible(), Vec::<String>::new());
    let said = |bench: &Bench| bench.worker.tasks.values().next().unwrap().waits_since;
    let first = said(&bench);
    assert!(first.is_some());
    bench.clock.pass(Duration::from_secs(30));
    bench.step();
    assert!(said(&bench) > first, "it says so after half a minute");
    bench.kafka.broker().silent.clear();
    bench.settle();
    assert_eq!(bench.visible(), ["a0"]);
}

#[test]
fn an_abort_rewinds_all_inputs_of_a_task() {
    let mut bench = bench(&["a0"], &["b0"]);
    bench.settle();
    bench.fails(CallSite::Commit, abortable(code::INVALID_TXN_STATE));
    bench.feed(0, &["a1"]);
    bench.feed_to(side(0), &["b1"]);
    bench.settle();
    assert_eq!(bench.visible(), ["b0", "a0", "b1", "a1"]);
    assert_eq!(bench.committed_of(&side(0)), Some(2));
    assert_eq!(bench.committed(0), Some(2));
}

/// One input seeks again after the rewind. The fetched records of the other input must stay.
#[test]
fn an_input_that_asks_again_does_not_cost_the_other_one_its_records() {
    let mut bench = bench(&["a0"], &["b0"]);
    bench.settle();
    bench.fails(CallSite::Commit, abortable(code::INVALID_TXN_STATE));
    bench.feed(0, &["a1", "a2", "a3"]);
    bench.feed_to(side(0), &["b1", "b2", "b3"]);
    bench.kafka.broker().late_seeks = 1;
    bench.settle();
    assert_eq!(bench.kafka.broker().late_seeks, 0, "the fault has fired");
    let of = |letter: char| {
        let mut values = bench.visible();
        values.retain(|value| value.starts_with(letter));
        values
    };
    assert_eq!(of('a'), ["a0", "a1", "a2", "a3"]);
    assert_eq!(of('b'), ["b0", "b1", "b2", "b3"]);
}
