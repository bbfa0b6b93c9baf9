use super::*;

const RETENTION: Duration = Duration::from_millis(160);

fn offset(n: i64) -> Offset {
    Offset::new(n).unwrap()
}

fn at(ms: i64) -> Option<Timestamp> {
    Some(Timestamp(ms))
}

fn commit(trim: &mut Trim, wrote: bool, time: i64) -> Option<i64> {
    trim.begin_seal();
    trim.sealed(wrote);
    trim.committed(at(time)).map(Offset::get)
}

#[test]
fn what_was_written_a_retention_ago_goes() {
    let mut trim = Trim::new(RETENTION);
    assert_eq!(commit(&mut trim, true, 1_000), None, "nothing was observed");
    trim.observe(offset(10), at(1_000));
    assert_eq!(commit(&mut trim, true, 1_159), None, "not over yet");
    assert_eq!(commit(&mut trim, true, 1_160), Some(10));
    assert_eq!(commit(&mut trim, true, 1_161), None, "it is gone already");
}

/// Without it a restart would take the changelog for one with lost data.
#[test]
fn the_last_commit_record_stays() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(1_000));
    assert_eq!(commit(&mut trim, true, 1_010), None);
    trim.observe(offset(20), at(1_010));
    assert_eq!(
        commit(&mut trim, false, 9_000),
        Some(10),
        "the last commit record lies between 10 and 20 in any case"
    );
    assert_eq!(commit(&mut trim, false, 9_500), None);
    assert_eq!(
        commit(&mut trim, true, 9_600),
        Some(20),
        "now there is a later one"
    );
}

#[test]
fn without_a_commit_record_of_our_own_nothing_goes() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(1_000));
    assert_eq!(commit(&mut trim, false, 9_000), None);
    trim.sealed(true);
    trim.discarded();
    assert_eq!(commit(&mut trim, false, 9_001), None, "it was aborted");
    assert_eq!(commit(&mut trim, true, 9_002), Some(10));
}

#[test]
fn an_lso_reported_after_the_seal_waits() {
    let mut trim = Trim::new(RETENTION);
    trim.sealed(true);
    trim.observe(offset(10), at(1_000));
    assert_eq!(
        trim.committed(at(9_000)),
        None,
        "its commit record may be below"
    );
    assert_eq!(commit(&mut trim, true, 9_000), Some(10));
}

#[test]
fn a_transaction_in_doubt_counts_with_its_own_time() {
    let mut trim = Trim::new(RETENTION);
    // The committed stream time is 1000, but the open transaction has seen 5000, and may be below the LSO already.
    trim.observe(offset(10), at(5_000));
    assert_eq!(commit(&mut trim, true, 5_100), None);
    assert_eq!(commit(&mut trim, true, 5_160), Some(10));
}

#[test]
fn without_times_nothing_is_in_a_window() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), None);
    trim.sealed(true);
    assert_eq!(trim.committed(None), None);
    assert_eq!(commit(&mut trim, true, 0), Some(10));
}

#[test]
fn an_lso_that_goes_back_is_not_believed() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(0));
    trim.observe(offset(5), at(1_000));
    assert_eq!(commit(&mut trim, true, 200), Some(10));
}

#[test]
fn what_is_remembered_stays_little_and_what_goes_is_never_late_by_much() {
    let mut trim = Trim::new(RETENTION);
    let mut gone = 0;
    for time in 0..10_000 {
        // One record each millisecond: the record at offset n has time n.
        trim.observe(offset(time), at(time));
        if let Some(to) = commit(&mut trim, true, time) {
            assert!(to <= time - 160, "{to} at {time}");
            gone = to;
        }
        assert!(trim.observed.len() <= 40, "{}", trim.observed.len());
        assert!(gone >= time - 160 - 25, "only {gone} at {time}");
    }
}

/// A series of owners gets the same results as a single owner.
#[test]
fn the_next_owner_continues_with_the_note() {
    let mut trim = Trim::new(RETENTION);
    let mut results = Vec::new();
    for n in 0..40 {
        trim.observe(offset(10 * n), at(20 * n));
        results.extend(commit(&mut trim, true, 20 * n + 1));
        let mut next = Trim::new(RETENTION);
        assert!(next.resume(&trim.take_note().unwrap()));
        trim = next;
    }
    assert_eq!(results, (0..=31).map(|n| 10 * n).collect::<Vec<_>>());
}

#[test]
fn a_note_of_another_version_or_a_damaged_one_is_ignored() {
    let mut trim = Trim::new(RETENTION);
    for n in 0..5 {
        trim.observe(offset(10 * n), at(100 * n));
    }
    let note = trim.take_note().unwrap();
    assert_eq!(note.len(), 1 + 5 * 16);
    let mut newer = note.clone();
    newer[0] += 1;
    let mut swapped = note.clone();
    swapped[1..33].rotate_left(16);
    let mut negative = note.clone();
    negative[1] = 0x80;
    for damaged in [&newer[..], &swapped, &negative, &note[..40], &[]] {
        let mut next = Trim::new(RETENTION);
        assert!(!next.resume(damaged), "{damaged:?}");
        assert_eq!(next, Trim::new(RETENTION));
    }
    assert!(Trim::new(RETENTION).resume(&note));
}

#[test]
fn a_longer_retention_delays_the_trim() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(1_000));
    trim.keep_for(2 * RETENTION);
    assert_eq!(commit(&mut trim, true, 1_319), None);
    assert_eq!(commit(&mut trim, true, 1_320), Some(10));
}

#[test]
fn a_note_is_written_once_a_step_and_again_after_an_abort() {
    let mut trim = Trim::new(RETENTION);
    let mut notes = 0;
    for n in 0..160 {
        trim.observe(offset(n), at(n));
        notes += usize::from(trim.take_note().is_some());
    }
    // 160 ms in steps of about 10 ms.
    assert!((16..=20).contains(&notes), "{notes}");
    trim.discarded();
    assert!(
        trim.take_note()
            .is_some_and(|note| note.len() <= 1 + 20 * 16)
    );
    assert_eq!(trim.take_note(), None);
}

/// A restore over a local copy knows the latest window only, and an abort sets stream time back.
#[test]
fn an_earlier_time_replaces_later_ones() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(800));
    trim.observe(offset(20), at(1_000));
    trim.observe(offset(30), at(900));
    trim.observe(offset(40), at(950));
    trim.observe(offset(50), at(950));
    let mut next = Trim::new(RETENTION);
    assert!(next.resume(&trim.take_note().unwrap()));
    next.observe(offset(60), at(1_110));
    assert_eq!(commit(&mut next, true, 1_060), Some(30));
    assert_eq!(commit(&mut next, true, 1_109), None);
    assert_eq!(commit(&mut next, true, 1_110), Some(50));
}

#[test]
fn a_stream_time_that_stands_still_needs_no_note() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(800));
    trim.observe(offset(20), at(1_000));
    assert!(trim.take_note().is_some());
    for n in 3..20 {
        trim.observe(offset(10 * n), at(1_000));
        assert_eq!(trim.take_note(), None);
    }
    trim.observe(offset(300), at(900));
    assert!(trim.take_note().is_some());
}

/// The log may hold years of windows.
#[test]
fn a_restore_keeps_few_observations() {
    let mut trim = Trim::new(RETENTION);
    for n in 0..10_000 {
        trim.observe(offset(n), at(100 * n));
        trim.forget_expired(at(1_000_000));
    }
    assert!(
        trim.take_note()
            .is_some_and(|note| note.len() < 1 + 20 * 16)
    );
    assert_eq!(commit(&mut trim, true, 1_000_000), Some(9_998));
}

/// Without transactions, the LSO is the end of the log.
#[test]
fn an_lso_that_includes_the_commit_record_does_not_delete_it() {
    let mut trim = Trim::new(RETENTION);
    trim.observe(offset(10), at(1_000));
    trim.begin_seal();
    // The commit record is at 11, and another task waits for the producer.
    trim.observe(offset(12), at(1_010));
    trim.sealed(true);
    trim.committed(at(1_010));
    assert_eq!(commit(&mut trim, false, 9_000), Some(10));
}
