//! Errors at failpoints lose nothing. Without a defence, the tests see the loss that it prevents.

use super::*;
use crate::failpoints::{Entered, Failpoints};

/// A worker that has committed its first records, and these faults.
fn bench(points: &str, undefended: &str) -> (Bench, Failpoints, Entered) {
    let bench = Bench::running();
    let faults = Failpoints::parse(points, undefended).unwrap();
    let entered = faults.enter();
    (bench, faults, entered)
}

fn positions(faults: &Failpoints) -> Vec<String> {
    let about = |line: &String| line.split_once(' ').unwrap().1.to_owned();
    faults.fired().iter().map(about).collect()
}

#[test]
fn an_error_at_any_step_of_a_transaction_costs_nothing() {
    for point in [
        "poll",
        "begin",
        "first_send",
        "kth_send",
        "pre_offsets",
        "post_offsets",
        "pre_commit",
        "in_commit",
        "post_commit",
        "post_offsets=error;pre_abort",
        "pre_commit=error;in_commit=error;post_commit",
    ] {
        let (mut bench, faults, _entered) = bench(&format!("{point}=error"), "");
        bench.take(&["a", "b", "c"]);
        let planted = point.matches('=').count() + 1;
        assert_eq!(faults.fired().len(), planted, "{point}");
        bench.assert_exact();
        bench.take(&["d"]);
        bench.assert_exact();
    }
}

#[test]
fn an_error_in_a_revocation_costs_nothing() {
    let (mut bench, faults, _entered) = bench("in_revoke=error", "");
    bench.feed(0, &["a", "b"]);
    bench.step();
    bench.revoke(0, false);
    bench.settle();
    assert_eq!(faults.fired().len(), 1);
    let committed = bench.committed(0);
    assert_eq!(committed, Some(3), "the group fenced what was open");
    bench.assign(&[0]);
    bench.settle_exactly();
}

#[test]
fn a_point_fires_once_at_the_configured_hit_or_record() {
    let (mut bench, faults, _entered) = bench("kth_send=error@hit:2;pre_commit=error@record:3", "");
    bench.take(&["a", "b", "c"]);
    assert_eq!(
        positions(&faults),
        [
            "kth_send error hit 2 record 3",
            "pre_commit error hit 1 record 3"
        ],
        "three records, and the same three again"
    );
    bench.assert_exact();
}

#[test]
fn rule_8_without_the_rewind_what_was_aborted_is_lost() {
    let (mut bench, faults, _entered) = bench("pre_offsets=error", "rewind");
    bench.take(&["a", "b"]);
    bench.take(&["c"]);
    assert_eq!(faults.fired().len(), 1);
    bench.assert_done(&["P0R0", "P0R1", "P0R2", "C"], 6);
}

#[test]
fn rule_6_without_the_names_a_commit_of_unknown_outcome_doubles() {
    let (mut bench, faults, _entered) = bench("post_commit=error", "in_doubt");
    bench.take(&["a"]);
    assert_eq!(faults.fired().len(), 1);
    assert_eq!(bench.visible(), ["P0R0", "P0R1", "P0R2", "A", "A"]);
}

#[test]
fn rule_7_without_the_quarantine_a_producer_with_an_unanswered_request_continues() {
    for (undefended, rebuilt) in [("", true), ("quarantine", false)] {
        let (mut bench, _, _entered) = bench("", undefended);
        bench.open(&["a"]);
        bench.kafka.broker().unanswered = true;
        bench.settle();
        let calls = bench.kafka.calls();
        assert_eq!(times(&calls, "new producer") > 0, rebuilt);
    }
}

#[test]
fn rule_2_weakened_the_offset_of_another_task_fences() {
    for (undefended, own, name_is_new) in [("", 4, true), ("every_touched_task", 3, false)] {
        let mut bench = Bench::running_both();
        let before = bench.kafka.broker().committed.clone();
        let faults = Failpoints::parse("", undefended).unwrap();
        let _entered = faults.enter();
        bench.take(&["a"]);
        assert_eq!(bench.visible().len(), 7, "what it made is visible");
        assert_eq!(bench.committed(0), Some(own));
        let after = bench.kafka.broker().committed.clone();
        assert_eq!(before[&tp(0)] != after[&tp(0)], name_is_new);
        assert_eq!(before[&tp(1)], after[&tp(1)], "that one as it was");
    }
}

#[test]
fn faults_count_for_the_thread_that_entered_them() {
    let faults = Failpoints::parse("poll=error", "rewind").unwrap();
    let entered = faults.enter();
    std::thread::spawn(|| {
        let mut bench = Bench::running();
        bench.take(&["a"]);
        bench.assert_exact();
    })
    .join()
    .unwrap();
    assert!(faults.fired().is_empty());
    drop(entered);
    let mut bench = Bench::running();
    bench.take(&["a"]);
    assert!(faults.fired().is_empty());
}

#[test]
fn without_the_look_at_the_member_id_a_successors_records_are_done_again() {
    let (mut bench, _, _entered) = bench("", "membership");
    bench.feed(0, &["a"]);
    super::membership::succeed(&bench, &["a"]);
    bench.settle();
    assert_eq!(bench.visible(), ["P0R0", "P0R1", "P0R2", "A", "A"]);
}
