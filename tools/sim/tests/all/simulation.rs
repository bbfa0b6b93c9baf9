//! Tests of the whole runtime under seeds.
//!
//! No fault loses, doubles, reorders or tears records.

use eos_sim::{Kind, Run, Seeds, Shape};

/// The number of seeds that a test run has time for. `EOS_SEEDS` overrides it.
const SEEDS: u64 = 500;

/// The behaviour that the shapes cover, in alphabetical order.
const SEEN: [&str; 53] = [
    "a record closed several windows",
    "a record joined sessions",
    "calls failed for good",
    "calls took too long",
    "changelogs of windows were cut off",
    "changelogs were compacted",
    "commits came before a slow record",
    "epochs were stale",
    "gaps were given up",
    "ids were seen before",
    "ids with a time were from the future",
    "ids with a time were seen before",
    "ids with a time were too old",
    "letters were replayed",
    "moments came before a record of their key",
    "moments failed",
    "moments failed behind others of their key",
    "moments of the wall clock came",
    "moments saw rows that expired later",
    "moments were set into the past",
    "numbers of failed records were passed over",
    "numbers were repeated",
    "other producers had open transactions",
    "records became dead letters",
    "records came too late for their windows",
    "records counted twice",
    "records failed behind the deduplication",
    "records made sliding windows",
    "records met only closed partners",
    "records took seconds",
    "records waited for their time",
    "records went out alone",
    "records were joined",
    "records were late for their order",
    "records were left out",
    "records were lost",
    "records were merged by time",
    "records were pairs",
    "records were repeated",
    "records were too old for their ids",
    "records were tried again",
    "results had a row of a global table",
    "results went on once per commit",
    "rows had partners",
    "rows moved to another group",
    "rows stayed in their group",
    "rows were deleted",
    "rows were expired when a record read them",
    "streams had one aggregate",
    "tasks were resumed",
    "the clock was set back and ticks were repeated",
    "the ledger failed",
    "windows closed while the input was idle",
];

#[test]
fn whatever_goes_wrong_each_record_counts_once() {
    let count = std::env::var("EOS_SEEDS").map_or(SEEDS, |it| it.parse().unwrap());
    let seeds = Seeds {
        from: 0,
        count,
        threads: 2,
        shape: None,
        without: None,
    };
    let summary = seeds.run();
    let took = summary.took.as_secs_f64();
    println!(
        "{} seeds, {} faults, {} records, {:.1} s per 1,000 seeds",
        summary.seeds,
        summary.faults,
        summary.records,
        took * 1_000.0 / count as f64
    );
    let violated = summary.violated.iter().map(|it| {
        let seed = it.run.seed;
        format!(
            "cargo xtask sim --seed {seed} --trace\n{}",
            it.violations[0]
        )
    });
    let violated: Vec<_> = violated.collect();
    assert!(violated.is_empty(), "{}", violated.join("\n"));
    assert_eq!(summary.seeds, count);
    let shapes: Vec<Shape> = summary.shapes.keys().copied().collect();
    assert!(count < SEEDS || shapes == Shape::ALL, "{shapes:?}");
    // Each behaviour that a shape covers has occurred often.
    let seen: Vec<&str> = summary.seen.keys().copied().collect();
    assert!(count < SEEDS || seen == SEEN, "{seen:?}");
    for (what, times) in &summary.seen {
        // One of 40 seeds has a shape of the smallest weight, so the check needs enough seeds.
        assert!(
            count < SEEDS || *times >= count / 100,
            "{times} times only {what}"
        );
    }
    assert!(summary.faults >= 5 * count, "{} faults", summary.faults);
    let never = summary.coverage.pairs().filter(|(.., hits)| *hits == 0);
    let never: Vec<_> = never
        .map(|(place, kind, _)| format!("{kind:?} {place}"))
        .collect();
    assert!(
        count < SEEDS || never.is_empty(),
        "possible, but never happened: {never:?}"
    );
    for kind in Kind::ALL {
        let hits: u64 = summary
            .coverage
            .pairs()
            .filter(|(_, it, _)| *it == kind)
            .map(|(.., hits)| hits)
            .sum();
        assert!(hits >= count / 50, "{kind:?} happened {hits} times only");
    }
}

#[test]
fn a_run_is_the_same_whenever_it_is_repeated() {
    let traced = |seed| {
        let run = Run {
            traced: true,
            ..Run::of_seed(seed)
        };
        run.run()
    };
    for seed in 0..6 {
        let (one, other) = (traced(seed), traced(seed));
        assert!(!one.trace.is_empty() && !one.fired.is_empty());
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!(one.took_ms, other.took_ms, "seed {seed}");
    }
    let shapes: std::collections::BTreeSet<Shape> =
        (0..500).map(|seed| Run::of_seed(seed).shape).collect();
    assert_eq!(shapes.len(), Shape::ALL.len());
}

#[test]
fn a_process_may_die_in_its_clean_stop() {
    // In this run a process dies while its clean stop waits for the database.
    let outcome = Run {
        shape: Shape::Timers,
        traced: true,
        ..Run::of_seed(1_480)
    }
    .run();
    assert_eq!(outcome.violations, [""; 0]);
    let died = |line: &String| line.contains("dies in its clean stop");
    assert!(
        outcome.trace.iter().any(died),
        "no process died in its clean stop: find another seed"
    );
}

/// A recorded run can be repeated from its list of faults alone. Shrinking depends on this.
#[test]
fn a_run_can_be_repeated_from_its_faults() {
    let mut whole = 0;
    for seed in 0..6 {
        let drawn = Run::of_seed(seed).run();
        let plan = Run {
            plan: Some(drawn.fired.clone()),
            ..drawn.run.clone()
        };
        let repeated = plan.run();
        assert!(!repeated.fired.is_empty(), "seed {seed}");
        assert_eq!(repeated.fired, drawn.fired, "seed {seed}");
        // A run that finished its work before drawing all faults had to wait for them. Its repetition need not wait.
        if drawn.fired.len() >= drawn.run.faults {
            assert_eq!(repeated.took_ms, drawn.took_ms, "seed {seed}");
            whole += 1;
        }
    }
    assert!(whole > 0);
}
