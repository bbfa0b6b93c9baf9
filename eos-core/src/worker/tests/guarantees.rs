//! Workers without transactions.

use super::*;
#[cfg(feature = "failpoints")]
use crate::failpoints::Failpoints;

#[test]
fn at_most_once_the_offset_commits_before_the_record_is_processed() {
    let mut bench = Bench::with(Guarantee::AtMostOnce, shout);
    bench.assign(&[0]);
    bench.settle();
    let calls = bench.kafka.calls();
    for call in ["init", "begin", "send_offsets", "commit"] {
        assert_eq!(times(&calls, call), 0, "{call}");
    }
    // The start is claimed first.
    bench.feed(0, &["a", "b"]);
    bench.settle();
    let calls = bench.kafka.calls();
    assert_order(&calls, &["consumer commit", "send", "flush"]);
    assert_eq!(times(&calls, "consumer commit"), 1, "{calls:?}");
}

#[test]
fn at_most_once_a_failed_commit_processes_nothing() {
    let mut bench = Bench::started(Guarantee::AtMostOnce, shout);
    bench.kafka.calls();
    bench.fails(CallSite::ConsumerCommit, abortable(-192));
    bench.feed(0, &["a"]);
    bench.steps(3);
    let calls = bench.kafka.calls();
    assert_eq!(times(&calls, "send"), 0, "{calls:?}");
}

/// The claim opens a transaction that takes no records any more, so no record would end it.
#[test]
fn at_most_once_a_stop_or_a_revocation_in_a_claim_does_not_wait_for_the_interval() {
    for (stops, last) in [(true, "close"), (false, "unassign [in-0]")] {
        let mut bench = Bench::started(Guarantee::AtMostOnce, shout);
        bench.kafka.calls();
        bench.pending(CallSite::ConsumerCommit, 3);
        bench.feed(0, &["a"]);
        bench.step();
        assert_eq!(bench.worker.state(), State::Claiming);
        match stops {
            true => bench.worker.stop(StopMode::Restart),
            false => bench.revoke(0, false),
        }
        // The clock stands still.
        for _ in 0..20 {
            if bench.worker.step().unwrap() == Step::Stopped {
                break;
            }
        }
        bench.assert_called(last);
    }
}

/// A commit that may still arrive would reset the offsets of a later one. The group refuses it from a former member.
#[test]
#[cfg(feature = "failpoints")]
fn a_worker_leaves_the_group_behind_a_commit_that_may_still_arrive() {
    for (undefended, leaves) in [("", 1), ("leave_unclear", 0)] {
        let mut bench = Bench::started(Guarantee::AtMostOnce, shout);
        let faults = Failpoints::parse("", undefended).unwrap();
        let _entered = faults.enter();
        bench.kafka.calls();
        bench.fails(CallSite::ConsumerCommit, abortable(-192));
        bench.feed(0, &["a"]);
        bench.steps(4);
        let calls = bench.kafka.calls();
        assert_eq!(
            times(&calls, "unsubscribe"),
            leaves,
            "{undefended}: {calls:?}"
        );
    }
}

#[test]
fn at_least_once_without_stores_a_worker_stays_with_such_a_commit() {
    let mut bench = Bench::started(Guarantee::AtLeastOnce, shout);
    bench.kafka.calls();
    bench.fails(CallSite::ConsumerCommit, abortable(-192));
    bench.feed(0, &["a"]);
    bench.settle();
    bench.assert_not_called("unsubscribe");
    assert_eq!(times(&bench.visible(), "A"), 2, "it repeats the record");
}
