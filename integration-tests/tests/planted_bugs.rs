//! A simulation that finds nothing proves nothing: each defence of the runtime is taken away in turn, and a seed
//! has to find it.

use eos_testkit::sim::Seeds;

/// The defence, and within how many seeds it is found: several times as many as it took.
const PLANTED: [(&str, u64); 29] = [
    ("every_touched_task", 200),
    ("rewind", 200),
    ("in_doubt", 300),
    ("restart_table", 300),
    ("purge_after_commit", 500),
    ("restoring", 500),
    ("membership", 4_000),
    ("apply_after_commit", 1_500),
    ("quarantine", 6_000),
    ("drain", 50),
    ("offsets", 50),
    ("offsets_inside", 50),
    ("next_offset", 50),
    ("checked_member", 50),
    ("settle", 150),
    ("close", 50),
    ("revoked_start", 100),
    ("restore_per_task", 150),
    ("replay", 100),
    ("abort_in_doubt", 100),
    ("stale_records", 100),
    ("rewind_retained", 150),
    ("overlay", 150),
    ("coverage", 400),
    ("interrupted", 300),
    ("generation", 50),
    ("restore_to_end", 200),
    ("task_lock", 200),
    ("keep_in_doubt", 1_500),
];

#[test]
fn each_is_found_by_a_seed() {
    let mut missed = Vec::new();
    for (name, within) in PLANTED {
        let seeds = Seeds {
            from: 0,
            count: within,
            threads: 2,
            without: Some(name),
        };
        let summary = seeds.run();
        match summary.violated.first() {
            Some(found) => println!(
                "without {name}: found after {} seeds, by {}: {}",
                summary.seeds,
                found.run.seed,
                found.violations[0].lines().last().unwrap_or_default()
            ),
            None => missed.push(name),
        }
    }
    assert!(
        missed.is_empty(),
        "no seed finds that these are missing: {missed:?}"
    );
}
