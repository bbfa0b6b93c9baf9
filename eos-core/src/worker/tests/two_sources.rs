//! Two sources of one topic, each with a policy of its own: a record counts for both or for none.

use super::*;
use crate::Backoff;
use crate::ErrorPolicy;

/// One source bills every record. The other one keeps statistics, and fails at the value `odd`.
fn bench(bills: impl Into<ErrorPolicy>, stats: impl Into<ErrorPolicy>) -> Bench {
    let (bills, stats) = (bills.into(), stats.into());
    let declare = move |app: &mut App| {
        app.source(&text("in"))
            .on_error(bills)
            .map(|v| format!("bill {v}"))
            .to(&Topic::plain("out"));
        app.source(&text("in"))
            .on_error(stats)
            .try_map(|v| match &v[..] {
                "odd" => Err::<String, Failure>("odd".into()),
                _ => Ok(format!("stat {v}")),
            })
            .to(&Topic::plain("stats"));
    };
    let spec = WorkerSpec {
        output_partitions: vec![1; 4],
        output_limits: vec![None; 4],
        ..spec(0, Guarantee::ExactlyOnce)
    };
    let bench = Bench::of(spec, declare);
    bench.feed(0, &["x", "odd", "y"]);
    bench.assign(&[0]);
    bench
}

#[test]
fn a_source_that_skips_drops_nothing_of_one_that_fails() {
    let mut bench = bench(ErrorPolicy::fail(), ErrorPolicy::skip());
    bench.end_with(|e| matches!(e, WorkerError::Record { .. }));
    assert_eq!(bench.visible(), ["bill x", "stat x"]);
    assert_eq!(bench.committed(0), Some(1), "what came before it counts");
}

#[test]
fn a_source_that_skips_drops_nothing_of_one_with_dead_letters() {
    let mut bench = bench(ErrorPolicy::dead_letter("dlq"), ErrorPolicy::skip());
    bench.settle();
    assert_eq!(
        bench.visible(),
        ["bill x", "stat x", "odd", "bill y", "stat y"],
        "the record is kept as a dead letter"
    );
    assert_eq!(bench.committed(0), Some(3));
}

#[test]
fn the_failed_source_is_tried_again_before_the_other_ones_answer_counts() {
    let retry =
        ErrorPolicy::retry(2, Backoff::fixed(Duration::from_secs(1))).then(ErrorPolicy::skip());
    let mut bench = bench(ErrorPolicy::fail(), retry);
    bench.end_with(|e| matches!(e, WorkerError::Record { .. }));
    assert_eq!(bench.totals().retried, 2);
}

#[test]
fn of_two_dead_letter_topics_the_failed_sources_is_written() {
    let mut bench = bench(
        ErrorPolicy::dead_letter("of-bills"),
        ErrorPolicy::dead_letter("of-stats"),
    );
    bench.settle();
    let letters = |topic: &str| {
        let topics = bench.worker.shared.topology.output_names();
        let output = topics.iter().position(|it| it.as_str() == topic).unwrap();
        let broker = bench.kafka.broker();
        broker.visible.iter().filter(|it| it.0 == output).count()
    };
    assert_eq!((letters("of-bills"), letters("of-stats")), (0, 1));
}
