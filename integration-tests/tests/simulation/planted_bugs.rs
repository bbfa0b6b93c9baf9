//! Control of the simulation. Each defence of the runtime is removed in turn, and a seed must find an expected
//! violation. A simulation that never finds a violation proves nothing.

use eos_sim::{Outcome, Seeds, Shape};

/// A task can't start, because its committed positions and its data do not match.
const REFUSED: &[&str] = &["a task is refused"];
/// Inputs without an output.
const LOST: &[&str] = &["VIOLATED lost"];
/// An output that the loop over the input does not compute.
const UNEXPECTED: &[&str] = &["VIOLATED unexpected"];
/// Missing, doubled or reordered outputs.
const ORDER: &[&str] = &["VIOLATED lost", "VIOLATED reordered", "VIOLATED doubled"];
/// A duplicate that a deduplication lets pass.
const PASSED: &[&str] = &["VIOLATED unexpected", "VIOLATED doubled"];
/// A window that closes although the input is not idle.
const EARLY: &[&str] = &["VIOLATED early"];
/// Inputs with several outputs.
const DOUBLED: &[&str] = &["VIOLATED doubled"];
/// Not everything is processed in time.
const STILL: &[&str] = &["it stands still"];
/// A worker ended with an error after which it could have continued.
const ENDED: &[&str] = &["it could have gone on"];
/// A record that should not fail.
const FAILED: &[&str] = &["a record failed"];
/// A changelog or a database differs from the state that a loop over the input computes, for a partition or after a
/// repartition topic.
const STATE: &[&str] = &["VIOLATED state_", " holds {"];

/// Each removed defence, the largest number of seeds to try, and texts. A violation must contain one of these texts.
/// The number is mostly several times the number that was needed.
const PLANTED: [(&str, u64, &[&str]); 40] = [
    ("every_touched_task", 200, REFUSED),
    ("rewind", 200, LOST),
    ("in_doubt", 300, DOUBLED),
    ("restart_table", 300, STATE),
    ("purge_after_commit", 500, &["an offset is gone"]),
    ("restoring", 500, STATE),
    ("membership", 4_000, DOUBLED),
    ("apply_after_commit", 1_500, REFUSED),
    (
        "quarantine",
        6_000,
        &["VIOLATED doubled", "a task is refused"],
    ),
    ("drain", 50, &["a task is refused", "VIOLATED lost"]),
    ("offsets", 50, REFUSED),
    ("offsets_inside", 50, LOST),
    ("next_offset", 50, STILL),
    ("checked_member", 50, ENDED),
    ("settle", 150, DOUBLED),
    ("close", 50, &["is not assigned"]),
    ("revoked_start", 100, STILL),
    ("restore_per_task", 1_000, STATE),
    ("replay", 100, STATE),
    (
        "abort_in_doubt",
        100,
        &["Abort while a commit has no response"],
    ),
    ("stale_records", 100, LOST),
    (
        "rewind_retained",
        150,
        &["VIOLATED lost", "it stands still"],
    ),
    ("overlay", 150, STATE),
    ("coverage", 400, STILL),
    ("interrupted", 300, STATE),
    ("generation", 50, ENDED),
    ("restore_to_end", 3_000, REFUSED),
    ("task_lock", 1_500, &["workers of process"]),
    ("keep_in_doubt", 1_500, STATE),
    // Databases that apply a transaction while the next one runs.
    ("read_in_flight", 50, &["VIOLATED stale"]),
    ("restore_written", 50, &["VIOLATED stale"]),
    ("data_with_position", 300, STATE),
    ("apply_order", 400, STATE),
    // Windows.
    ("stream_time", 300, LOST),
    ("forget_over", 100, STATE),
    ("trim", 500, STATE),
    // Tasks with several inputs.
    ("sibling_offsets", 100, REFUSED),
    (
        "merge_by_time",
        400,
        &["VIOLATED merged", "VIOLATED joined"],
    ),
    // Records that fail or take long.
    ("failed_effects", 200, DOUBLED),
    ("held_back", 400, DOUBLED),
];

/// As `PLANTED`, for the defences of one operator. Only seeds of this shape are tried.
const OF_A_SHAPE: &[(&str, Shape, u64, &[&str])] = &[
    ("paused_offset", Shape::Pausing, 20, LOST),
    ("replay_bypasses_dedup", Shape::Parked, 20, PASSED),
    // A letter that counts as a repetition is never processed.
    ("parked_after_release", Shape::Parked, 20, STILL),
    ("last_letter", Shape::Parked, 20, LOST),
    // Letters with new numbers never come to an end.
    ("letter_numbers", Shape::Parked, 20, STILL),
    ("fire_once", Shape::Timers, 20, ORDER),
    ("into_the_past", Shape::Timers, 50, ORDER),
    ("due_index", Shape::Timers, 20, LOST),
    ("next_due", Shape::Timers, 100, LOST),
    ("cursor_inside", Shape::OnClose, 100, LOST),
    ("windows_behind_cursor", Shape::OnClose, 50, LOST),
    ("next_due", Shape::OnClose, 100, LOST),
    ("fire_once", Shape::Sessions, 20, ORDER),
    ("due_index", Shape::Sessions, 20, LOST),
    ("fire_once", Shape::WallTimers, 20, ORDER),
    ("due_index", Shape::WallTimers, 20, LOST),
    ("next_due", Shape::WallTimers, 100, LOST),
    // A tick comes again after the clock was set back a little.
    ("tick_set", Shape::WallTimers, 20, DOUBLED),
    ("due_index", Shape::Expiring, 20, ORDER),
    ("expired_rows", Shape::Expiring, 20, UNEXPECTED),
    ("fire_once", Shape::Sliding, 20, ORDER),
    ("due_index", Shape::Sliding, 20, LOST),
    ("final_marks", Shape::Sliding, 20, DOUBLED),
    ("alone_and_paired", Shape::Joins, 20, UNEXPECTED),
    ("rows_of_joins", Shape::Joins, 50, LOST),
    ("next_visit", Shape::Joins, 20, LOST),
    // Not `fire_once`: each visit that writes its row removes its moment from the index, too.
    ("last_visit", Shape::Joins, 20, DOUBLED),
    ("due_index", Shape::Joins, 20, LOST),
    ("subtract_without_add", Shape::Tables, 20, UNEXPECTED),
    ("old_row_first", Shape::Tables, 20, FAILED),
    ("other_row", Shape::Tables, 20, UNEXPECTED),
    ("tombstones", Shape::Tables, 20, UNEXPECTED),
    ("ledger_one_transaction", Shape::Ledger, 20, LOST),
    ("ledger_locks", Shape::Ledger, 100, DOUBLED),
    ("ledger_compares", Shape::Ledger, 1_000, DOUBLED),
    ("take_over_again", Shape::Ledger, 300, STILL),
    // A response of a former right row produces a result.
    (
        "answer_tokens",
        Shape::Foreign,
        50,
        &["VIOLATED unexpected", "VIOLATED lost", "VIOLATED older"],
    ),
    (
        "newest_right",
        Shape::Foreign,
        20,
        &["VIOLATED older", "VIOLATED lost"],
    ),
    ("fan_out_anew", Shape::Foreign, 50, LOST),
    ("missing_row", Shape::Foreign, 20, LOST),
    ("unsubscribe", Shape::Foreign, 20, STATE),
    // One of the streams starts from the initial result again.
    ("cogrouped_row", Shape::Cogroup, 20, UNEXPECTED),
    // The joins emit nothing for the second stream.
    ("cogrouped_changes", Shape::Cogroup, 20, UNEXPECTED),
    ("joined_row", Shape::Cogroup, 20, UNEXPECTED),
    ("other_row", Shape::Cogroup, 20, UNEXPECTED),
    // A result lacks a row that was there before the start.
    ("global_start", Shape::Cogroup, 20, UNEXPECTED),
    // A compaction removes a row, and the record that replaces it is behind the end.
    ("global_ends", Shape::Cogroup, 3_000, UNEXPECTED),
    (
        "global_position",
        Shape::Cogroup,
        300,
        &["VIOLATED unexpected", "VIOLATED state_global"],
    ),
    ("idle_evidence", Shape::Idle, 20, EARLY),
    ("cursor_inside", Shape::Idle, 100, LOST),
    ("dedup_key", Shape::Dedup, 20, UNEXPECTED),
    ("sightings", Shape::Dedup, 20, UNEXPECTED),
    ("timed_ids", Shape::Dedup, 20, UNEXPECTED),
    // An id is remembered although its record failed.
    ("failed_effects", Shape::Dedup, 20, UNEXPECTED),
    ("async_order", Shape::Async, 20, LOST),
    // Without transactions.
    ("claim_first", Shape::AtMostOnce, 20, DOUBLED),
    // The offsets commit before the changelog is acknowledged.
    ("drain", Shape::CountedAtLeastOnce, 20, STATE),
    (
        "attempt_numbers",
        Shape::CountedAtLeastOnce,
        200,
        &["VIOLATED state_", "a task is refused"],
    ),
    // A restore leaves out late records of former owners.
    ("late_attempts", Shape::CountedAtLeastOnce, 3_000, STATE),
    ("late_result", Shape::Async, 60, UNEXPECTED),
    ("watermark", Shape::Sequences, 20, UNEXPECTED),
    ("epoch_order", Shape::Sequences, 20, UNEXPECTED),
    // A mark is kept although its record failed.
    ("failed_effects", Shape::Sequences, 20, UNEXPECTED),
    ("waiting_records", Shape::Reorder, 20, LOST),
    ("fire_once", Shape::Reorder, 20, ORDER),
    // Not `due_index` and `into_the_past`: a record whose lower numbers are never called is held a thousand times
    // before it fails, and such a run takes minutes.
    // A record waits although it failed.
    (
        "failed_effects",
        Shape::Reorder,
        20,
        &["VIOLATED unexpected", "VIOLATED lost"],
    ),
];

/// The largest bounds of a quick run. `EOS_FULL=1` (`cargo xtask soak rocksdb`) runs the bugs with larger bounds, too.
const QUICK: u64 = 100;
const QUICK_OF_A_SHAPE: u64 = 1_000;

#[test]
fn each_is_found_by_a_seed() {
    let (within, within_shape) = match integration_tests::faults::is_full() {
        true => (u64::MAX, u64::MAX),
        false => (QUICK, QUICK_OF_A_SHAPE),
    };
    let of_a_shape = OF_A_SHAPE.iter();
    let of_a_shape = of_a_shape.filter(|(_, _, seeds, _)| *seeds <= within_shape);
    let missed: Vec<String> = PLANTED
        .into_iter()
        .filter(|(_, seeds, _)| *seeds <= within)
        .filter_map(|(name, within, says)| find(name, None, within, says).err())
        .chain(of_a_shape.filter_map(|(name, shape, within, says)| {
            find(name, Some(*shape), *within, says).err()
        }))
        .collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Searches a seed that finds a planted bug by an expected violation. A bug that only causes other violations may be
/// found by chance, or by a check that always fails.
fn find(
    name: &'static str,
    shape: Option<Shape>,
    within: u64,
    says: &[&str],
) -> Result<(), String> {
    let mut others = Vec::new();
    let mut from = 0;
    while from < within {
        let seeds = Seeds {
            from,
            count: within - from,
            threads: 2,
            shape,
            without: Some(name),
        };
        let summary = seeds.run();
        // All seeds that were started have been run to the end, so there is no gap.
        from += summary.seeds;
        for found in &summary.violated {
            let seed = found.run.seed;
            let told = told(found);
            if says.iter().any(|it| told.contains(it)) {
                println!("without {name}: found after {from} seeds, by {seed}: {told}");
                return Ok(());
            }
            println!("without {name}: seed {seed} finds something else: {told}");
            others.push(format!("  seed {seed}: {told}"));
        }
    }
    Err(if others.is_empty() {
        format!("{name}: no seed finds that it is missing, of {within}")
    } else {
        format!(
            "{name}: no seed of {within} says any of {says:?}, only\n{}",
            others.join("\n")
        )
    })
}

/// Returns the violations without the lines about the evidence.
fn told(found: &Outcome) -> String {
    let lines = found.violations.iter().flat_map(|it| it.lines());
    // A verdict begins with lines about the evidence.
    let wrong = lines.filter(|it| {
        !["input ", "output ", "state ", " "]
            .iter()
            .any(|read| it.starts_with(read))
    });
    wrong.collect::<Vec<_>>().join("; ")
}
