//! Moments of the machine's clock that come before a record of their key.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::timers::Due;
use crate::{Timer, Timestamp};

/// The closure in front of the timer takes longer than the time between two moments. If each run of the record had a time of
/// its own, new moments would come before it without end.
#[test]
fn a_slow_record_does_not_wait_for_moments_without_end() {
    let mut spec = spec(0, Guarantee::ExactlyOnce);
    spec.output_partitions = vec![1; 3];
    spec.output_limits = vec![None; 3];
    let clock = Clock::default();
    let (slow, runs) = (clock.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&runs);
    let mut bench = Bench::on_empty(clock, spec, |app| {
        let timer = app.timer(&Timer::<String>::wall_clock("flush"));
        app.source(&text("in"))
            .map(move |value| {
                slow.pass(Duration::from_millis(150));
                counted.fetch_add(1, Ordering::Relaxed);
                value
            })
            .on_timer(&timer, move |ctx, due: Due<String>| {
                let next = Timestamp(due.at.0 + 100);
                ctx.timer(&timer).set(&due.key, next)?;
                ctx.forward(due.key, "due".to_owned())
            })
            .process_values(move |ctx, record| {
                let after = Duration::from_millis(100);
                ctx.timer(&timer).set_in(record.key, after)?;
                ctx.forward(record.value)
            })
            .to(&text("out"));
    });
    bench.assign(&[0]);
    bench.feed(0, &["a", "b", "c"]);
    bench.steps(60);
    let records: Vec<String> = bench.visible();
    let records = records.iter().filter(|value| *value != "due");
    assert_eq!(records.collect::<Vec<_>>(), ["a", "b", "c"]);
    let runs = runs.load(Ordering::Relaxed);
    assert!(
        (3..=6).contains(&runs),
        "each record runs twice at most: {runs}"
    );
}
