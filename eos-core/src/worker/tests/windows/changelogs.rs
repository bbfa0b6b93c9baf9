//! The changelog of windows: its restore, its trimming, and the terms in it.

use std::collections::BTreeSet;

use super::*;

#[test]
fn what_is_kept_per_window_is_in_the_windowed_changelog() {
    let mut windows = Windows::new();
    assert_eq!(
        windows.take(&["a@0", "b@99", "c@100"]),
        ["0:1", "0:2", "100:1"]
    );
    let broker = windows.bench.kafka.broker();
    let logs: Vec<_> = broker.changelogs.keys().cloned().collect();
    assert_eq!(logs, [changelog()], "and in no other one");
    let records: Vec<_> = broker.changelogs[&changelog()].iter().flatten().collect();
    let id = StoreId::stamped(Family::Windowed, "counts").to_be_bytes();
    let last = changelog::commit_record_key(Family::Windowed);
    for (key, value) in &records {
        assert!(key.starts_with(&id) || key[..] == last, "{key:?}");
        assert!(value.is_some(), "no tombstones");
    }
    assert_eq!(records.last().unwrap().0, last);
}

#[test]
fn windows_are_rebuilt_from_their_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@99", "c@100"]);
    windows.restart_without_a_database();
    assert!(windows.bench.calls_begin_with(READ));
    assert_eq!(windows.take(&["d@100", "e@50"]), ["100:2", "0:3"]);
}

#[test]
fn a_changelog_that_is_trimmed_while_it_is_read_is_read_from_its_new_front() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@500", "c@510"]);
    let (end, reads) = windows.restart_while_trimmed(1);
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(reads, 2);
    assert_eq!(windows.take(&["d@520"]), ["500:3"]);
}

#[test]
fn a_changelog_that_is_gone_wherever_it_is_read_stops_the_task() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@500", "c@510", "d@520", "e@530", "f@540"]);
    let (end, reads) = windows.restart_while_trimmed(i64::MAX);
    let error = end.unwrap_err().to_string();
    assert!(
        error.contains("its first records were deleted meanwhile"),
        "{error}"
    );
    assert_eq!(reads, 4);
}

#[test]
fn a_database_forgets_what_is_over_and_the_changelog_gets_no_tombstones() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@100", "c@200"]);
    windows.take(&["d@300"]);
    // 0 and 100 are over at 300: their retention is 150.
    let logged = windows.bench.kafka.broker().changelogs[&changelog()].clone();
    let values = logged.iter().flatten().map(|(_, value)| value);
    assert!(values.into_iter().all(Option::is_some));
    assert_eq!(windows.kept(), [200, 300]);
}

/// A restore reads the expired windows. Only the next commit stores the terms under which they are over.
#[test]
fn the_first_commit_behind_a_restore_forgets_what_is_over() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@100", "c@200"]);
    windows.take(&["d@300"]);
    windows.restart_without_a_database();
    windows.take(&["drop@301"]);
    assert_eq!(windows.kept(), [200, 300]);
}

#[test]
fn windows_of_another_length_are_refused_and_nothing_is_lost() {
    for elsewhere in [false, true] {
        let mut windows = Windows::new();
        windows.take(&["a@10", "b@110"]);
        windows.deploy_at(elsewhere, Tumbling::of(ms(200)).grace(ms(50)));
        windows.bench.feed(0, &["c@120"]);
        let error = windows.bench.end().unwrap_err().to_string();
        assert!(
            error.contains("store counts: its windows are 100ms long"),
            "{error}"
        );
        assert!(error.contains("200ms long in this program"), "{error}");
        assert!(error.contains("under another app name"), "{error}");
        windows.deploy(graceful(50));
        assert_eq!(windows.take(&[]), ["100:2"]);
    }
}

/// The window was forgotten when it was over. If it opened again, its count would begin at one.
#[test]
fn a_window_that_was_over_stays_closed_when_the_grace_grows() {
    for elsewhere in [false, true] {
        let mut windows = Windows::new();
        windows.deploy(graceful(0));
        windows.take(&["a@10", "b@110"]);
        windows.deploy_at(elsewhere, graceful(500));
        let more = ["c@20", "d@120", "e@300", "f@130"];
        let expected = ["c@20", "100:2", "300:1", "100:3"];
        assert_eq!(windows.take(&more), expected, "{elsewhere}");
        // The next start of the same program keeps the window closed as well.
        windows.deploy_at(elsewhere, graceful(500));
        assert_eq!(windows.take(&["g@30", "h@140"]), ["g@30", "100:4"]);
    }
}

#[test]
fn a_smaller_grace_holds_at_once() {
    let mut windows = Windows::new();
    windows.deploy(graceful(500));
    windows.take(&["a@10", "b@110"]);
    windows.deploy(graceful(0));
    assert_eq!(windows.take(&["c@20", "d@120"]), ["c@20", "100:2"]);
}

/// A program must store the terms under which it forgets windows, even if it counts nothing. The next program may be
/// the previous one.
#[test]
fn what_a_smaller_grace_has_forgotten_is_not_open_again_for_the_larger_one() {
    let mut windows = Windows::new();
    windows.deploy(graceful(500));
    windows.take(&["a@10", "b@110"]);
    windows.deploy(graceful(0));
    windows.take(&["drop@120"]);
    windows.deploy(graceful(500));
    assert_eq!(windows.take(&["c@20", "d@120"]), ["c@20", "100:2"]);
    windows.deploy_at(true, graceful(500));
    assert_eq!(windows.take(&["e@20", "f@120"]), ["e@20", "100:3"]);
}

/// The program has committed nothing, so the restored state is the old one.
#[test]
fn a_program_that_only_started_has_forgotten_nothing() {
    let mut windows = Windows::new();
    windows.deploy(graceful(500));
    windows.take(&["a@10", "b@110"]);
    windows.deploy_at(true, graceful(0));
    windows.bench.settle();
    windows.deploy(graceful(500));
    assert_eq!(windows.take(&["c@20", "d@120"]), ["0:2", "100:2"]);
}

#[test]
fn a_trimmed_changelog_contains_the_window_terms() {
    let mut windows = Windows::new();
    windows.deploy(graceful(0));
    windows.take(&["a@10", "b@20"]);
    windows.take(&["c@390"]);
    let trimmed = windows.trimmed().unwrap();
    windows.trim(trimmed);
    windows.deploy_at(true, graceful(500));
    assert_eq!(windows.take(&["d@410", "e@310"]), ["400:1", "300:2"]);
    assert_eq!(windows.take(&["f@210"]), ["f@210"]);
}

#[test]
fn a_changelog_goes_as_far_as_all_windows_are_over() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@20"]);
    assert_eq!(windows.trimmed(), None);
    windows.take(&["c@159"]);
    assert_eq!(windows.trimmed(), None, "kept for 150 ms from 10 on");
    let before = windows.log().len() as i64;
    windows.take(&["d@400"]);
    let trimmed = windows.trimmed().unwrap();
    assert_eq!(trimmed, before, "everything up to the last transaction");
    let last = changelog::commit_record_key(Family::Windowed);
    let rest = windows.log().split_off(trimmed as usize);
    assert!(rest.iter().flatten().any(|key| key[..] == last), "{rest:?}");
    // The rest of the changelog suffices.
    windows.trim(trimmed);
    windows.restart_without_a_database();
    assert_eq!(windows.take(&["e@410", "f@20"]), ["400:2", "f@20"]);
}

#[test]
fn without_a_later_commit_record_nothing_of_it_goes() {
    let mut windows = Windows::new();
    windows.take(&["a@10"]);
    // Stream time advances, and nothing is written.
    windows.take(&["drop@5000"]);
    windows.take(&["drop@9000"]);
    assert_eq!(windows.trimmed(), None);
    windows.restart_without_a_database();
    assert_eq!(windows.take(&["b@9001"]), ["9000:1"]);
}

/// The changes that the copy missed are trimmed, and all its windows are over. It continues with the rest of the
/// changelog, and its old windows never appear again.
#[test]
fn a_copy_whose_windows_have_all_expired_continues_with_a_trimmed_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@20"]);
    windows.take(&["c@30"]);
    // The last one of them is trimmed, and the copy on this host has never seen it.
    let records = ["d@40", "e@400", "f@800"];
    let kind = windows.away(&records, |windows| windows.trimmed().unwrap());
    assert_eq!(kind, RestoreKind::Replayed);
    assert_eq!(windows.take(&["g@810", "h@50"]), ["800:2", "h@50"]);
    assert_eq!(windows.kept(), [800]);
}

/// The app's own trimming does not delete this much: the deleted records may have a later value of a live window.
#[test]
fn a_copy_with_a_live_window_is_rebuilt_from_a_trimmed_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@20"]);
    windows.take(&["c@30"]);
    let records = ["d@40", "e@50"];
    let kind = windows.away(&records, |windows| {
        assert_eq!(windows.trimmed(), None);
        let log = windows.log();
        let commit = changelog::commit_record_key(Family::Windowed);
        let ends = (0..)
            .zip(&log)
            .filter(|(_, key)| key.as_deref() == Some(&commit));
        let ends: Vec<i64> = ends.map(|(at, _)| at).collect();
        ends[ends.len() - 2] + 1
    });
    assert_eq!(kind, RestoreKind::Rebuilt);
    assert_eq!(windows.take(&["f@60"]), ["0:6"]);
}

/// The changelog would be kept until then, and the topic would grow.
#[test]
fn a_closure_can_not_write_to_a_window_of_the_far_future() {
    let write = |trusted: bool| {
        move |app: &mut App| {
            let store = app.store(&WindowStore::<String, u64>::plain("counts").retention(ms(150)));
            let source = app.source(&text("in"));
            let source = match trusted {
                true => source.trust_times(),
                false => source,
            };
            source.with_store(&store).for_each(move |ctx, record| {
                let year_9999 = crate::Timestamp(253_370_764_800_000);
                ctx.store(&store).put(&record.value, year_9999, &1)?;
                Ok(())
            });
        }
    };
    let mut windows = Windows::new();
    for trusted in [true, false] {
        let mut spec = spec_on(&windows.disk);
        spec.most_ahead = Some(Duration::from_secs(3600));
        spec.output_partitions = vec![1];
        spec.output_limits = vec![None];
        windows.bench.replace(spec, write(trusted));
        windows.bench.assign(&[0]);
        if trusted {
            windows.take(&["a@10"]);
            assert!(windows.ahead().1.is_some());
            continue;
        }
        windows.bench.feed(0, &["b@20"]);
        let error = windows.bench.end().unwrap_err().to_string();
        for part in [
            "store counts",
            "ahead of the machine's clock",
            "trust_times",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

/// A closure may write to a window that begins later than its record, up to an hour ahead of the clock.
#[test]
fn a_window_of_the_future_keeps_its_changelog() {
    let ahead = |app: &mut App| {
        let store = app.store(&WindowStore::<String, u64>::plain("counts").retention(ms(150)));
        app.source(&text("in"))
            .with_store(&store)
            .for_each(move |ctx, record| {
                let time = record.timestamp.map_or(0, |time| time.0);
                let start = crate::Timestamp(if time == 10 { 5000 } else { time });
                ctx.store(&store).put(&record.value, start, &1)?;
                Ok(())
            });
    };
    let mut windows = Windows::new();
    let start = |windows: &mut Windows| {
        let mut spec = spec_on(&windows.disk);
        spec.output_partitions = vec![1];
        spec.output_limits = vec![None];
        windows.bench.replace(spec, ahead);
        windows.bench.assign(&[0]);
    };
    start(&mut windows);
    windows.take(&["a@10"]);
    windows.take(&["b@400"]);
    windows.take(&["c@800"]);
    assert_eq!(windows.trimmed(), None, "5000 is to come");
    assert_eq!(windows.ahead(), (Some(800), Some(ms(4_200))));
    // The next owner does not forget it either.
    start(&mut windows);
    windows.bench.settle();
    windows.take(&["d@1200"]);
    windows.take(&["e@1600"]);
    assert_eq!(windows.trimmed(), None);
    assert_eq!(windows.ahead(), (Some(1600), Some(ms(3_400))));
    windows.take(&["f@5150"]);
    assert_eq!(windows.ahead(), (Some(5150), None));
    windows.take(&["g@5400"]);
    assert!(windows.trimmed().is_some());
}

/// Windows are kept for 150 ms, and no owner keeps the task for longer than 60 ms.
#[test]
fn a_changelog_is_trimmed_even_if_no_owner_keeps_the_task_for_a_whole_retention() {
    assert_trimmed("restart", Windows::restart);
    assert_trimmed("rebuild", Windows::restart_without_a_database);
    assert_trimmed("rebuild, then restart", |windows| {
        windows.restart_without_a_database();
        // A late record: the transaction writes no window, only the note of the restore.
        windows.take(&["x@0"]);
        windows.restart();
    });
    assert_trimmed("compact, then rebuild", |windows| {
        windows.compact();
        windows.restart_without_a_database();
    });
    let mut other_host = Disk::default();
    assert_trimmed("two hosts in turn", |windows| {
        std::mem::swap(&mut windows.disk, &mut other_host);
        windows.restart();
    });
}

fn assert_trimmed(case: &str, mut restart: impl FnMut(&mut Windows)) {
    let mut windows = Windows::new();
    let mut fronts = Vec::new();
    for day in 0..20 {
        for at in [0, 20, 40] {
            windows.take(&[&*format!("a@{}", 60 * day + at)]);
        }
        if let Some(front) = windows.trimmed() {
            windows.trim(front);
            fronts.push(front);
        }
        restart(&mut windows);
    }
    let kept = windows.log().len() - usize::try_from(*fronts.last().unwrap()).unwrap();
    assert!(
        fronts.len() > 8 && kept < 60,
        "{case}: {kept} kept: {fronts:?}"
    );
    windows.restart_without_a_database();
    assert_eq!(windows.take(&["b@1190"]), ["1100:6"], "{case}");
}

impl Windows {
    /// Returns the offset before which the worker wants the changelog deleted.
    fn trimmed(&mut self) -> Option<i64> {
        self.bench.settle();
        let due = self.bench.worker.shared.spec.purge_queue.due();
        let log = due.into_iter().find(|(log, _)| *log == changelog());
        log.map(|(_, below)| below.get())
    }

    /// Returns stream time, and the lead of the latest window over it.
    fn ahead(&self) -> (Option<i64>, Option<Duration>) {
        let metrics = self.bench.metrics();
        let [task] = &metrics.tasks[..] else {
            panic!("{metrics:?}");
        };
        (task.stream_time.map(|time| time.0), task.windows_ahead)
    }

    /// Deletes the former values of each key from the changelog, and the former commit records.
    fn compact(&self) {
        let mut broker = self.bench.kafka.broker();
        let log = broker.changelogs.get_mut(&changelog()).unwrap();
        let mut later = BTreeSet::new();
        for record in log.iter_mut().rev() {
            if let Some((key, _)) = record
                && !later.insert(key.clone())
            {
                *record = None;
            }
        }
    }

    fn log(&self) -> Vec<Option<Vec<u8>>> {
        let broker = self.bench.kafka.broker();
        let log = broker.changelogs[&changelog()].iter();
        log.map(|r| r.as_ref().map(|(key, _)| key.clone()))
            .collect()
    }
}

impl Windows {
    /// Moves the task to another host, which takes these records and trims the changelog up to `front`, and back.
    /// Returns the kind of the restore on its return.
    fn away(&mut self, records: &[&str], front: impl FnOnce(&mut Self) -> i64) -> RestoreKind {
        let here = std::mem::take(&mut self.disk);
        self.restart();
        for record in records {
            self.take(&[record]);
        }
        let front = front(self);
        self.trim(front);
        self.disk = here;
        self.restart();
        let restores = self.totals().restores;
        let kinds = restores.iter().filter(|(_, count)| *count == 1);
        let [(kind, _)] = kinds.collect::<Vec<_>>()[..] else {
            panic!("{restores:?}");
        };
        kind
    }
}
