//! Paused tasks.

use super::*;
use crate::ErrorPolicy;
use crate::paused::Resume;

/// A record that waits for the next transaction does not affect a verdict in this one.
#[test]
fn a_verdict_ends_with_its_commit_also_if_a_record_waits() {
    let clock = Clock::default();
    let slow = clock.clone();
    let mut bench = Bench::with_clock(clock, Guarantee::ExactlyOnce, move |app| {
        app.source(&text("in"))
            .on_error(ErrorPolicy::pause())
            .try_map(move |value| match &value[..] {
                "bad" => Err(Failure::from("bad")),
                "slow" => {
                    // Longer than the transaction may stay open.
                    slow.pass(Duration::from_secs(25));
                    Ok(value)
                }
                _ => Ok(value),
            })
            .to(&Topic::plain("out"));
    });
    bench.assign(&[0]);
    bench.settle();
    bench.take(&["bad"]);
    assert_eq!(bench.committed(0), Some(3));
    let pauses = Arc::clone(&bench.worker.shared.spec.pauses);
    bench.feed(0, &["slow"]);
    pauses.resume(pauses.paused()[0].id, Resume::Skip).unwrap();
    bench.steps_until(|bench| bench.committed(0) == Some(4));
    let tasks: Vec<_> = bench.worker.tasks.values().collect();
    assert_eq!(tasks.len(), 1);
    assert!(tasks[0].pauses.is_empty(), "{:?}", tasks[0].pauses);
    bench.settle();
    assert_eq!(bench.committed(0), Some(5));
    assert_eq!(bench.visible().last().map(String::as_str), Some("slow"));
}

/// The failed calls of a paused task start again only after a decision.
#[test]
fn a_paused_task_with_failed_calls_lets_its_worker_rest() {
    let mut bench = Bench::with(Guarantee::ExactlyOnce, |app| {
        let calls =
            crate::Calls::at_once(2).retry(9, crate::Backoff::fixed(Duration::from_millis(1)));
        app.source(&text("in"))
            .on_error(ErrorPolicy::pause())
            .map_async("ask", calls, |value: String| async move {
                match &value[..] {
                    "bad" => Err(Failure::permanent("bad")),
                    "later" => Err(Failure::from("later")),
                    _ => Ok(value),
                }
            })
            .to(&Topic::plain("out"));
    });
    bench.assign(&[0]);
    bench.settle();
    bench.take(&["bad", "later", "later"]);
    let pauses = Arc::clone(&bench.worker.shared.spec.pauses);
    assert_eq!(pauses.paused().len(), 1);
    for _ in 0..10 {
        match bench.worker.step().unwrap() {
            Step::Idle(nap) => assert!(nap >= Duration::from_millis(20), "{nap:?}"),
            other => panic!("{other:?}"),
        }
        bench.clock.pass(STEP);
    }
    pauses.resume(pauses.paused()[0].id, Resume::Skip).unwrap();
    bench.settle();
    let at = pauses.paused().remove(0).at;
    assert_eq!(at.to_string(), "record 4 of in-0");
}
