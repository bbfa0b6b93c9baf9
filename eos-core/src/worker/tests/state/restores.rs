//! Restarts and restores: the state that a worker starts from, and the errors that stop it.

use super::*;

#[test]
fn a_restart_on_an_exact_database_reads_nothing() {
    let (mut bench, disk) = counted();
    bench.restart(&disk);
    bench.take(&["a", "c"]);
    assert!(!bench.read_changelog());
    bench.assert_counted();
}

#[test]
fn a_restart_without_a_database_rebuilds_it() {
    let (mut bench, disk) = counted();
    bench.restart_on_wiped(&disk);
    bench.take(&["a", "c"]);
    assert!(bench.read_changelog());
    bench.assert_counted();
    drop(bench);
    assert_eq!(disk.seq(), 3, "the first start, and twice words");
}

#[test]
fn a_database_of_before_is_brought_to_the_committed_offsets() {
    let (mut bench, disk) = counted();
    // The database on `disk` stays as it is while the task runs on another disk.
    let elsewhere = Disk::default();
    bench.restart(&elsewhere);
    bench.take(&["a", "c", "c"]);
    bench.assert_counted();
    bench.restart(&disk);
    bench.take(&["c"]);
    assert!(bench.read_changelog());
    bench.assert_counted();
}

/// librdkafka treats any (un)assign as the response to a revocation, even to one that it has not reported yet.
#[test]
fn nothing_is_assigned_for_a_restore_while_a_transaction_is_open() {
    let (mut bench, disk) = both_counted();
    bench.restart_on_wiped(&disk);
    bench.settle();
    bench.kafka.calls();
    // The transaction of the first task stays open as long as no time passes.
    bench.feed(0, &["a"]);
    bench.step();
    bench.assign(&[1]);
    for _ in 0..20 {
        bench.step();
    }
    bench.settle();
    let calls = bench.kafka.calls();
    let mut open = false;
    for call in &calls {
        match &call[..] {
            "begin" => open = true,
            "commit" | "abort" => open = false,
            // The response to the assignment itself. It adds nothing.
            "assign " => {}
            call => assert!(!(open && call.contains("assign")), "{calls:#?}"),
        }
    }
    let read = |call: &&String| call.starts_with("assign app-in-changelog-1");
    assert!(calls.iter().any(|call| read(&call)), "{calls:#?}");
    bench.assert_both_counted();
}

#[test]
fn a_task_that_is_revoked_while_it_is_restored_comes_back() {
    let (mut bench, disk) = counted();
    bench.restart_on_wiped(&disk);
    // The end of the changelog is not readable yet.
    bench.kafka.broker().open_at_end = 5;
    bench.cut_changelog(2);
    bench.settle();
    assert!(bench.read_changelog());
    bench.revoke(0, false);
    bench.settle();
    let calls = bench.kafka.calls();
    let gone = |call: &String| call.starts_with("unassign") && call.contains("changelog");
    assert!(calls.iter().any(gone), "{calls:#?}");
    bench.assign(&[0]);
    bench.settle();
    assert!(bench.read_changelog());
}

#[test]
fn offsets_are_queried_again_while_another_task_works() {
    let (mut bench, disk) = both_counted();
    bench.restart(&disk);
    bench.settle();
    let kept = bench.kafka.broker().committed.remove(&tp(1)).unwrap();
    // The transaction of the first task is open when partition 1 is assigned without an offset.
    bench.feed(0, &["a"]);
    bench.step();
    bench.assign(&[1]);
    for _ in 0..12 {
        bench.step();
    }
    bench.kafka.broker().committed.insert(tp(1), kept);
    bench.settle();
    bench.assert_both_counted();
}

/// While a coordinator loads, it has no offsets for a moment.
#[test]
fn offsets_that_are_missing_for_a_moment_stop_no_task() {
    let (mut bench, disk) = counted();
    bench.restart(&disk);
    let kept = std::mem::take(&mut bench.kafka.broker().committed);
    bench.settle_without_commit();
    bench.kafka.broker().committed = kept;
    bench.take(&["a"]);
    bench.assert_counted();
}

/// A restore that starts over commits the open transaction of its siblings. Otherwise it would spin until that
/// commit is due.
#[test]
fn a_restore_that_starts_over_ends_the_open_transaction() {
    let (mut bench, disk) = counted();
    let log = TopicPartition::new(CHANGELOG, Partition::new(1).unwrap());
    bench.assign(&[1]);
    bench.settle();
    bench.feed(1, &["x"]);
    bench.settle();
    let older = bench.kafka.broker().committed[&tp(1)].clone();
    bench.feed(1, &["y"]);
    bench.settle();
    bench.restart(&disk);
    bench.settle();
    let newer = bench.kafka.broker().committed.insert(tp(1), older).unwrap();
    // The changelog is ahead of these offsets. Its records become readable later.
    let mut broker = bench.kafka.broker();
    let rest = broker.changelogs.get_mut(&log).unwrap().split_off(0);
    broker.open_at_end = i64::try_from(rest.len()).unwrap();
    drop(broker);
    bench.assign(&[1]);
    for _ in 0..10 {
        bench.step();
    }
    bench.open(&["a"]);
    bench.kafka.calls();
    let mut broker = bench.kafka.broker();
    broker.open_at_end = 0;
    broker.changelogs.get_mut(&log).unwrap().extend(rest);
    drop(broker);
    // No time passes, so the commit does not become due.
    for _ in 0..10 {
        bench.step();
    }
    let calls = bench.kafka.calls();
    assert!(calls.iter().any(|call| call == "commit"), "{calls:#?}");
    assert!(calls.contains(&format!("unassign [{log}]")), "{calls:#?}");
    bench.kafka.broker().committed.insert(tp(1), newer);
    bench.settle();
    let mut counts = bench.visible();
    counts.sort();
    assert_eq!(counts, ["a=1", "a=2", "a=3", "b=1", "x=1", "y=1"]);
}

#[test]
fn reset_offsets_stop_the_task() {
    let (mut bench, disk) = counted();
    bench.restart(&disk);
    let reset = (0, String::new());
    bench.kafka.broker().committed.insert(tp(0), reset);
    let error = bench.restart_error();
    assert_error(&error, |e| matches!(e, RestartError::OffsetReset { .. }));
    assert!(error.to_string().contains("--reset-offsets"), "{error}");
}

#[test]
fn offsets_that_are_gone_stop_the_task_even_without_a_database() {
    let (mut bench, disk) = counted();
    bench.restart_on_wiped(&disk);
    bench.kafka.broker().committed.clear();
    let error = bench.restart_error();
    assert_error(&error, |e| matches!(e, RestartError::OffsetGone { .. }));
}

#[test]
fn a_changelog_that_lost_its_end_stops_the_task() {
    let (mut bench, disk) = counted();
    bench.take(&["a"]);
    bench.restart_on_wiped(&disk);
    bench.cut_changelog(4);
    let error = bench.restart_error();
    assert_error(&error, |e| matches!(e, RestartError::ChangelogLost { .. }));
}

/// Compaction removes the named commit record once a new owner has written another one. The former owner reads the
/// offsets again, and finds those of the new owner.
#[test]
fn a_commit_record_that_a_new_owner_replaced_is_no_lost_one() {
    let (mut bench, disk) = counted();
    bench.take(&["a"]);
    bench.restart_on_wiped(&disk);
    let replaced = bench.kafka.broker().changelogs[&changelog()].clone();
    bench.cut_changelog(2);
    bench.kafka.calls();
    let restore_starts_over = |bench: &Bench| {
        let calls = bench.kafka.calls();
        calls
            .iter()
            .any(|call| call.starts_with("unassign [app-in-changelog"))
    };
    bench.steps_until(restore_starts_over);
    let mut broker = bench.kafka.broker();
    broker.changelogs.insert(changelog(), replaced);
    drop(broker);
    bench.take(&["c"]);
    bench.assert_counted();
}

/// The app never deletes from such a changelog. (The changelog of windows is trimmed: `windows/changelogs.rs`.)
#[test]
fn a_changelog_of_plain_stores_whose_front_goes_while_it_is_read_stops_the_task() {
    let (mut bench, disk) = counted();
    bench.restart_reading(&disk);
    bench.kafka.broker().starts.insert(changelog(), 1);
    bench.changelog_is_out_of_range();
    let error = bench.end().unwrap_err().to_string();
    assert!(
        error.contains("the records deleted before that offset would be missing"),
        "{error}"
    );
}

#[test]
fn a_changelog_that_was_out_of_range_for_a_moment_is_read_on() {
    let (mut bench, disk) = counted();
    bench.restart_reading(&disk);
    bench.changelog_is_out_of_range();
    bench.step();
    bench.settle();
    assert!(
        bench.read_changelog(),
        "the client stops at such a partition"
    );
    bench.take(&["a", "b"]);
    bench.assert_counted();
}

#[test]
fn restores_are_counted_by_what_they_were_made_from() {
    let (mut bench, disk) = counted();
    assert_eq!(bench.restores(), ([0, 0, 0, 1], 0));
    bench.restart(&disk);
    bench.settle();
    assert_eq!(bench.restores(), ([1, 0, 0, 0], 0), "nothing was read");
    let elsewhere = Disk::default();
    bench.restart(&elsewhere);
    bench.take(&["a"]);
    assert_eq!(bench.restores(), ([0, 0, 1, 0], 3), "a, b, a commit record");
    bench.restart(&disk);
    bench.settle();
    let (kinds, records) = bench.restores();
    assert_eq!(kinds, [0, 1, 0, 0]);
    assert!(records >= 2, "a and a commit record: {records}");
    assert!(bench.metrics().restoring.is_empty());
}

#[test]
fn a_restore_reports_the_remaining_offsets() {
    let (mut bench, disk) = counted();
    bench.kafka.broker().open_at_end = 5;
    bench.restart_reading(&disk);
    bench.kafka.broker().open_at_end = 0;
    bench.kafka.broker().starts.insert(changelog(), 4);
    bench.clock.pass(Duration::from_secs(1));
    bench.step();
    let metrics = bench.metrics();
    let [one] = metrics.restoring[..] else {
        panic!("{metrics:?}");
    };
    assert_eq!((one.records, one.remaining), (0, Some(9)));
}

/// The scan for orphaned state may hold a short lock on a database that is to be discarded.
#[test]
fn no_copy_is_restored_on_top_of_the_one_that_was_to_go() {
    let (mut bench, disk) = counted();
    bench.restart_elsewhere();
    let id = StoreId::plain("counts");
    {
        let mut databases = disk.databases.lock().unwrap();
        let database = databases.values_mut().next().unwrap();
        let position = database.position().unwrap().clone();
        let mut batch = eos_state::Batch::new();
        batch.write(id, b"stale", Some(b"x"));
        database.apply(&batch, &position).unwrap();
    }
    *disk.looked_at.lock().unwrap() = true;
    let mut spec = stateful(&disk, 0);
    spec.state.cluster = "another".into();
    bench.replace(spec, counting);
    bench.kafka.calls();
    bench.assign(&[0]);
    bench.steps(1200);
    let still = *disk.looked_at.lock().unwrap();
    assert!(!still, "the worker did not try to discard it");
    bench.take(&["a", "b"]);
    bench.restart_elsewhere();
    let databases = disk.databases.lock().unwrap();
    let database = databases.values().next().unwrap();
    let mut value = Vec::new();
    let mut has = |key: &[u8]| database.get(id, key, &mut value).unwrap();
    assert!(has(b"a"), "it was restored");
    assert!(!has(b"stale"));
}
