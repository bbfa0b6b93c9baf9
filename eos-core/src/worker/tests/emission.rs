//! Results that are emitted once per commit: the last one of each key, in the transaction of its records.

use std::sync::atomic::{AtomicU32, Ordering};

use super::state::{Disk, stateful};
use super::*;
use crate::stream::Grouped;
use crate::topology::{Apply, Forward, Kind};
use crate::{KeyValueStore, Record, Stream, Table};

/// Uses the value as the key, because all records of the fake have the same key.
fn keyed(stream: Stream<String, String>) -> Grouped<String, String> {
    let keyed: Stream<String, String> = stream.then(Kind::KeyBy, || {
        let key_by = |record: Record<String, String>, next: &mut Forward<'_, '_, '_>| {
            let key = record.value.clone();
            next.record(record.with_key(key))
        };
        Box::new(Apply::new(Arc::new(key_by)))
    });
    keyed.group_by_key()
}

fn by_value(app: &mut App) -> Grouped<String, String> {
    keyed(app.source(&text("in")))
}

fn counts(app: &mut App) -> Table<String, u64, u64> {
    by_value(app).count(&KeyValueStore::plain("counts"))
}

/// `word=count@time`.
fn told(app: &mut App, table: Table<String, u64, u64>) {
    let out = app.output(&text("out"));
    table.to_stream().for_each(move |ctx, result| {
        assert_eq!(ctx.timestamp(), result.timestamp);
        assert!(result.headers.is_empty() && ctx.headers().is_empty());
        match &result.key[..] {
            "poison" => return Err("poison".into()),
            "panic" => panic!("at the disco"),
            _ => {}
        }
        let time = result.timestamp.map_or(-1, |time| time.0);
        let text = format!("{}={}@{time}", result.key, result.value);
        ctx.emit(&out, result.key, text)
    });
}

fn per_commit(app: &mut App) {
    let group = by_value(app);
    count_per_commit(app, group);
}

fn count_per_commit(app: &mut App, group: Grouped<String, String>) {
    let counts = group.count(&KeyValueStore::plain("counts"));
    told(app, counts.emit_per_commit());
}

fn bench_of(disk: &Disk, words: &[&str], declare: impl FnOnce(&mut App)) -> Bench {
    let bench = Bench::of(stateful(disk, 0), declare);
    bench.feed(0, words);
    bench.assign(&[0]);
    bench
}

fn bench(words: &[&str]) -> Bench {
    bench_of(&Disk::default(), words, per_commit)
}

#[test]
fn every_update_is_emitted_by_default() {
    let mut bench = bench_of(&Disk::default(), &["b", "a", "b"], |app| {
        let table = counts(app);
        told(app, table);
    });
    bench.settle();
    assert_eq!(bench.visible(), ["b=1@0", "a=1@1", "b=2@2"]);
}

#[test]
fn the_last_result_of_each_key_is_emitted_once_per_commit_in_key_order() {
    let mut bench = bench(&["b", "a", "b", "a", "b"]);
    bench.settle();
    assert_eq!(bench.visible(), ["a=2@3", "b=3@4"]);
    bench.take(&["c", "a"]);
    let new = &bench.visible()[2..];
    assert_eq!(new, ["a=3@6", "c=1@5"], "b was not touched");
    assert_eq!(bench.committed(0), Some(7));
}

#[test]
fn a_row_that_is_gone_at_the_commit_is_one_tombstone() {
    let mut bench = bench_of(&Disk::default(), &["b", "a", "b", "a", "b"], |app| {
        let out = app.output(&text("out"));
        let at_most_once = |_: &String, _: String, n: u64| Some(n + 1).filter(|n| *n < 2);
        by_value(app)
            .aggregate_or_delete(&KeyValueStore::plain("counts"), || 0, at_most_once)
            .emit_per_commit()
            .to_stream()
            .for_each(move |ctx, row| {
                let time = row.timestamp.map_or(-1, |time| time.0);
                let text = format!("{}={:?}@{time}", row.key, row.value);
                ctx.emit(&out, row.key, text)
            });
    });
    bench.settle();
    assert_eq!(bench.visible(), ["a=None@4", "b=Some(1)@4"]);
}

#[test]
fn calling_it_twice_changes_nothing() {
    let mut bench = bench_of(&Disk::default(), &["b", "a", "b"], |app| {
        let table = counts(app).emit_per_commit().emit_per_commit();
        told(app, table);
    });
    bench.settle();
    assert_eq!(bench.visible(), ["a=1@1", "b=2@2"]);
}

#[test]
fn results_of_an_aborted_transaction_are_emitted_when_its_records_are_processed_again() {
    let mut bench = bench(&["a", "b"]);
    bench.settle();
    bench.next_flush_aborts();
    bench.take(&["a", "c"]);
    bench.assert_called("abort");
    bench.take(&["c"]);
    let expected = ["a=1@0", "b=1@1", "a=2@2", "c=1@3", "c=2@4"];
    assert_eq!(bench.visible(), expected);
}

#[test]
fn a_restart_emits_what_comes_and_nothing_of_before() {
    for wiped in [false, true] {
        let disk = Disk::default();
        let mut bench = bench_of(&disk, &["a", "b", "a"], per_commit);
        bench.settle();
        bench.replace(stateful(&disk, 0), per_commit);
        if wiped {
            disk.wipe();
        }
        bench.assign(&[0]);
        bench.take(&["a", "a"]);
        assert_eq!(bench.visible(), ["a=2@2", "b=1@1", "a=4@4"]);
    }
}

#[test]
fn an_early_commit_emits_as_well() {
    let disk = Disk::default();
    let mut bench = bench_of(&disk, &["a", "a", "b"], per_commit);
    let mut spec = stateful(&disk, 0);
    spec.state.uncommitted_bytes = 1;
    bench.replace(spec, per_commit);
    bench.settle();
    assert_eq!(bench.visible(), ["a=1@0", "a=2@1", "b=1@2"]);
}

#[test]
fn a_worker_waits_for_a_full_queue_and_emits_no_result_twice() {
    let mut bench = bench(&["a", "b", "c", "b"]);
    bench.pending(CallSite::Send, 3);
    bench.settle();
    assert_eq!(bench.visible(), ["a=1@0", "b=2@3", "c=1@2"]);
}

#[test]
fn a_result_that_was_refused_aborts_the_transaction() {
    let mut bench = bench(&["a", "b"]);
    bench.fails(CallSite::Send, abortable(code::UNKNOWN_PRODUCER_ID));
    bench.settle();
    bench.assert_called("abort");
    assert_eq!(bench.visible(), ["a=1@0", "b=1@1"]);
}

#[test]
fn a_failure_after_it_stops_the_worker_under_every_policy() {
    for word in ["poison", "panic"] {
        let disk = Disk::default();
        let skipping = |app: &mut App| {
            let source = app.source(&text("other"));
            source.to(&Topic::plain("another"));
            let words = app.source(&text("in")).on_error(crate::ErrorPolicy::skip());
            count_per_commit(app, keyed(words));
        };
        let mut bench = bench_of(&disk, &["a"], skipping);
        bench.settle();
        bench.feed(0, &["a", word, "b"]);
        let text = bench.end_with(|e| matches!(e, WorkerError::Results { .. }));
        assert!(
            text.contains("counts") && text.contains("on_error"),
            "{text}"
        );
        assert_eq!(bench.visible(), ["a=1@0"], "nothing of it is visible");
        assert_eq!(bench.committed(0), Some(1));
        bench.assert_called("abort");
    }
}

#[test]
fn a_result_that_is_too_large_stops_the_worker() {
    let disk = Disk::default();
    let mut bench = bench_of(&disk, &["a"], per_commit);
    let mut spec = stateful(&disk, 0);
    spec.output_limits = vec![Some(100), None];
    bench.replace(spec, per_commit);
    bench.feed(0, &["a word that is far too long for its topic"]);
    let error = bench.end().unwrap_err();
    assert!(error.to_string().contains("max.message.bytes"), "{error}");
}

/// A table aggregates the results of another table. Both emit their results at the same commit.
#[test]
fn a_table_behind_a_table_emits_the_results_of_the_same_transaction() {
    let declare = |app: &mut App| {
        let lengths = counts(app)
            .emit_per_commit()
            .to_stream()
            .group_by_key()
            .aggregate(
                &KeyValueStore::plain("sums"),
                || 0,
                |_, n, sum: u64| sum + n,
            )
            .emit_per_commit();
        told(app, lengths);
    };
    let disk = Disk::default();
    let mut bench = bench_of(&disk, &["a", "a", "b"], declare);
    bench.settle();
    assert_eq!(bench.visible(), ["a=2@1", "b=1@2"]);
    bench.take(&["a"]);
    assert_eq!(bench.visible()[2..], ["a=5@3"], "2, and then 3");
    // The state of the second table is in the changelog of the same transaction.
    bench.replace(stateful(&disk, 0), declare);
    disk.wipe();
    bench.assign(&[0]);
    bench.take(&["a"]);
    assert_eq!(bench.visible()[3..], ["a=9@4"]);
}

/// Words. The word "slow" takes longer than a transaction may stay open.
fn slow_words(clock: &Clock, app: &mut App) -> Stream<String, String> {
    let clock = clock.clone();
    app.source(&text("in")).peek(move |word| {
        if word == "slow" {
            clock.pass(Duration::from_secs(29));
        }
    })
}

/// A record that took too long for the open transaction waits in the scratch until that transaction is committed.
#[test]
fn a_record_that_waits_for_its_own_transaction_counts_once() {
    let clock = Clock::default();
    let declare = |app: &mut App| {
        let words = slow_words(&clock, app);
        count_per_commit(app, keyed(words));
    };
    let spec = stateful(&Disk::default(), 0);
    let mut bench = Bench::on_empty(clock.clone(), spec, declare);
    bench.assign(&[0]);
    bench.take(&["a", "b", "slow", "a"]);
    assert_eq!(bench.visible(), ["a=1@0", "b=1@1", "a=2@3", "slow=1@2"]);
}

/// Behind the records of another task, the record would be too slow for each next transaction as well.
#[test]
fn a_record_that_was_given_back_begins_the_next_transaction() {
    let clock = Clock::default();
    let runs = Arc::new(AtomicU32::new(0));
    let declare = |app: &mut App| {
        let ran = Arc::clone(&runs);
        let words = slow_words(&clock, app).peek(move |word| {
            ran.fetch_add(u32::from(word == "slow"), Ordering::Relaxed);
        });
        count_per_commit(app, keyed(words));
    };
    let spec = stateful(&Disk::default(), 0);
    let mut bench = Bench::on_empty(clock.clone(), spec, declare);
    bench.feed(0, &["a", "slow"]);
    bench.feed(1, &["b", "c"]);
    bench.assign(&[0, 1]);
    bench.settle();
    assert_eq!(bench.visible().len(), 4);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

/// The record waits for a transaction of its own, and is given back. It is delivered again, and still counts as skipped
/// once.
#[test]
fn a_record_that_was_given_back_is_counted_as_skipped_once() {
    for (policy, letters) in [
        (crate::ErrorPolicy::skip(), 0),
        (crate::ErrorPolicy::dead_letter("letters"), 1),
    ] {
        let clock = Clock::default();
        let slow = clock.clone();
        let declare = move |app: &mut App| {
            let source = app.source(&text("in")).on_error(policy);
            let words = source.try_map(move |word| {
                if word != "poison" {
                    return Ok(word);
                }
                slow.pass(Duration::from_secs(29));
                Err("poison".into())
            });
            count_per_commit(app, keyed(words));
        };
        let mut spec = stateful(&Disk::default(), 0);
        spec.output_partitions = vec![1; 3];
        spec.output_limits = vec![None; 3];
        let mut bench = Bench::on_empty(clock, spec, declare);
        bench.assign(&[0]);
        bench.take(&["a", "b", "poison", "a"]);
        assert_eq!(bench.committed(0), Some(4));
        let totals = bench.totals();
        let counted = (totals.skipped, totals.dead_letters);
        assert_eq!(counted, (1 - letters, letters));
        assert_eq!(totals.records_in, 4);
    }
}

/// A replayed letter deletes the row of its parked key. The letter is given back, and so is the row.
#[test]
fn a_letter_that_was_given_back_is_not_left_out() {
    let clock = Clock::default();
    let runs = Arc::new(AtomicU32::new(0));
    let (slow, ran) = (clock.clone(), Arc::clone(&runs));
    let declare = move |app: &mut App| {
        let policy = crate::ErrorPolicy::dead_letter("letters").in_sequence("parked");
        let source = app.source(&text("in")).on_error(policy);
        let words = source.try_map(move |word| {
            if word == "slow" {
                if ran.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err("broken".into());
                }
                slow.pass(Duration::from_secs(29));
            }
            Ok(word)
        });
        count_per_commit(app, keyed(words));
    };
    let mut spec = stateful(&Disk::default(), 0);
    spec.output_partitions = vec![1; 3];
    spec.output_limits = vec![None; 3];
    let mut bench = Bench::on_empty(clock, spec, declare);
    bench.feed(1, &["slow"]);
    bench.assign(&[0, 1]);
    bench.settle();
    assert_eq!(bench.totals().dead_letters, 1);
    let place = (tp(1), 1);
    let letter = "1 record 0 1".to_owned();
    bench.kafka.broker().replays.insert(place, letter);
    bench.feed(0, &["a"]);
    bench.feed(1, &["slow", "then"]);
    bench.settle();
    assert_eq!(
        runs.load(Ordering::Relaxed),
        3,
        "it fails, is given back, and counts"
    );
    let visible = bench.visible();
    let counts: Vec<_> = visible.iter().filter(|it| it.contains('=')).collect();
    assert_eq!(counts, ["a=1@0", "slow=1@1", "then=1@2"]);
    assert_eq!(bench.totals().dead_letters, 1);
}
