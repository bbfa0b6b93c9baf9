use super::*;
use crate::ids::{Nonce, Timestamp};
use crate::state::restart::tests::{Case, at, inputs, name, offset};
use crate::state::{Offsets, Restart};

const PATIENCE: Duration = Duration::from_secs(30);

fn secs(secs: u64) -> Now {
    Now(Duration::from_secs(secs))
}

fn record(seq: u64, nonce: u64) -> Option<CommitRecord> {
    Some(CommitRecord {
        seq: Seq(seq),
        nonce: Nonce(nonce),
    })
}

fn begin(case: &Case) -> Restore {
    match case.decide().unwrap() {
        Restart::Replay(reading) | Restart::Rebuild { reading, .. } => {
            Restore::new(reading, PATIENCE, secs(0), secs(0))
        }
        other => panic!("{other:?}"),
    }
}

/// Transaction 5, attempt 50, with a changelog of 80 offsets that has to end with commit record 5.
fn rebuild() -> Restore {
    begin(&Case::with(None))
}

fn take(restore: &mut Restore, at: i64, commit: Option<CommitRecord>) -> bool {
    let taken = restore.took(Family::Plain, offset(at), 10, commit, None, secs(1));
    taken.unwrap()
}

fn done(restore: &Restore) -> Option<Result<Restored, RestartError>> {
    match restore.finish(secs(2)) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn stops(restore: &Restore) -> (RestartError, String) {
    let error = done(restore).unwrap().unwrap_err();
    let text = error.to_string();
    (error, text)
}

#[test]
fn c_equals_m_is_whole_and_only_then_it_has_a_number() {
    let mut restore = rebuild();
    assert_eq!(
        restore.wanted().collect::<Vec<_>>(),
        [(Family::Plain, offset(0))]
    );
    assert!(take(&mut restore, 3, None));
    assert!(matches!(
        restore.checkpoint().standing,
        Standing::Restoring { .. }
    ));
    assert!(take(&mut restore, 78, record(5, 50)));
    assert_eq!(done(&restore), None, "its marker is still to come");
    restore.ended(Family::Plain, offset(80), secs(1));
    let Some(Ok(Restored::At(position))) = done(&restore) else {
        panic!("{restore:?}")
    };
    let mut expected = at(5, 50, Some(5), 80);
    if let Standing::At { wall_time, .. } = &mut expected.standing {
        *wall_time = Timestamp(1_000 * 3_600_000);
    }
    assert_eq!(*position, expected);
}

#[test]
fn c_above_m_stops() {
    let mut restore = rebuild();
    take(&mut restore, 70, record(5, 50));
    take(&mut restore, 79, record(6, 60));
    let (error, text) = stops(&restore);
    assert!(matches!(error, RestartError::OffsetsBehind { .. }));
    assert!(
        text.contains("a-0-changelog-3 ends with transaction 6"),
        "{text}"
    );
    assert!(text.contains("name transaction 5"), "{text}");
}

#[test]
fn c_above_m_is_seen_though_the_named_record_came() {
    // The reader continues to the LSO, also where an open transaction holds back the rest.
    let mut restore = rebuild();
    take(&mut restore, 40, record(5, 50));
    assert_eq!(done(&restore), None);
    take(&mut restore, 50, record(6, 60));
    restore.ended(Family::Plain, offset(60), secs(1));
    assert!(matches!(
        stops(&restore).0,
        RestartError::OffsetsBehind { .. }
    ));
}

#[test]
fn c_below_m_stops() {
    let mut restore = rebuild();
    take(&mut restore, 70, record(4, 40));
    restore.ended(Family::Plain, offset(80), secs(1));
    let (error, text) = stops(&restore);
    assert!(matches!(error, RestartError::ChangelogLost { .. }));
    assert!(text.contains("ends with transaction 4"), "{text}");
    assert!(text.contains("name transaction 5"), "{text}");
}

#[test]
fn an_empty_changelog_that_should_not_be_stops_at_once() {
    let mut case = Case::with(None);
    case.changelog.end = offset(0);
    let (error, text) = stops(&begin(&case));
    assert!(matches!(
        error,
        RestartError::ChangelogLost { found: None, .. }
    ));
    assert!(text.contains("ends with no transaction"), "{text}");
}

#[test]
fn a_changelog_that_no_transaction_touched_is_whole_when_it_is_empty() {
    let mut case = Case::with(None);
    case.name = name(5, 50, None);
    case.changelog.end = offset(0);
    assert!(matches!(done(&begin(&case)), Some(Ok(Restored::At(_)))));
}

#[test]
fn another_attempt_at_the_named_transaction_stops() {
    let mut restore = rebuild();
    let found = restore.took(Family::Plain, offset(9), 1, record(5, 51), None, secs(1));
    let error = found.unwrap_err();
    assert!(
        matches!(error, RestartError::OtherHistory { .. }),
        "{error}"
    );
}

#[test]
fn a_replay_knows_the_commit_records_that_it_has() {
    // The plain stores have no records since transaction 2: c is the local state's commit record.
    let mut case = Case::with(Some(at(3, 7, Some(2), 40)));
    case.name = name(5, 50, Some(2));
    let mut restore = begin(&case);
    restore.ended(Family::Plain, offset(80), secs(1));
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
}

#[test]
fn an_interrupted_restore_resumes_and_remembers_what_it_saw() {
    let mut restore = rebuild();
    take(&mut restore, 60, record(5, 50));
    let checkpoint = restore.checkpoint();
    assert_eq!(checkpoint.changelogs.plain, Some(offset(61)));

    let mut resumed = begin(&Case::with(Some(checkpoint)));
    assert_eq!(
        resumed.wanted().collect::<Vec<_>>(),
        [(Family::Plain, offset(61))]
    );
    resumed.ended(Family::Plain, offset(80), secs(1));
    assert!(matches!(done(&resumed), Some(Ok(Restored::At(_)))));
}

/// The end is that of a read_uncommitted reader: the LSO is too early.
#[test]
fn the_lso_is_not_the_end_while_the_named_record_is_missing() {
    let mut restore = rebuild();
    take(&mut restore, 30, record(4, 40));
    restore.ended(Family::Plain, offset(40), secs(1));
    assert_eq!(
        done(&restore),
        None,
        "transaction 5 is decided, but its marker is not here yet"
    );
    take(&mut restore, 50, record(5, 50));
    restore.ended(Family::Plain, offset(80), secs(1));
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
}

#[test]
fn what_a_dead_owner_holds_open_is_not_waited_for() {
    let mut restore = rebuild();
    take(&mut restore, 30, record(5, 50));
    restore.ended(Family::Plain, offset(40), secs(1));
    let Some(Ok(Restored::At(position))) = done(&restore) else {
        panic!("{restore:?}")
    };
    assert_eq!(
        position.changelogs.plain,
        Some(offset(40)),
        "the rest is still to be read"
    );
}

#[test]
fn nothing_is_taken_twice_or_from_beyond_the_end() {
    let mut restore = rebuild();
    assert!(take(&mut restore, 30, None));
    assert!(!take(&mut restore, 30, None));
    assert!(
        !take(&mut restore, 80, record(6, 60)),
        "it came after the offsets were read"
    );
    let before = restore.checkpoint();
    assert!(!take(&mut restore, 99, None));
    assert_eq!(restore.checkpoint(), before);
}

#[test]
fn every_changelog_has_to_arrive_before_the_number_is_written() {
    let Ok(Restart::Rebuild { mut reading, .. }) = Case::with(None).decide() else {
        panic!()
    };
    reading.parts.windowed = reading.parts.plain.clone();
    let Expect::Named { name, .. } = &mut reading.expect else {
        panic!()
    };
    name.windowed = Some(Seq(4));
    let mut restore = Restore::new(reading, PATIENCE, secs(0), secs(0));
    take(&mut restore, 79, record(5, 50));
    assert_eq!(done(&restore), None);
    let taken = restore.took(
        Family::Windowed,
        offset(79),
        1,
        record(4, 40),
        None,
        secs(1),
    );
    assert_eq!(taken, Ok(true));
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
}

#[test]
fn a_first_start_stops_at_the_first_committed_record() {
    let partition = &inputs(0)[0].0;
    let found = Case::with(None).decide_with(Offsets::Missing { partition });
    let Ok(Restart::FirstIfEmpty { reading, .. }) = found else {
        panic!("{found:?}")
    };
    let mut empty = Restore::new(reading.clone(), PATIENCE, secs(0), secs(0));
    let mut full = Restore::new(reading, PATIENCE, secs(0), secs(0));
    // A lagging follower has an earlier LSO of its own: nothing shows that the reader has seen all records.
    empty.ended(Family::Plain, offset(0), secs(1));
    assert_eq!(done(&empty), None, "more may be to come");
    empty.ended(Family::Plain, offset(80), secs(1));
    assert_eq!(done(&empty), Some(Ok(Restored::First)), "only aborted ones");
    let found = full.took(Family::Plain, offset(3), 1, None, None, secs(1));
    let text = found.unwrap_err().to_string();
    assert!(
        text.contains("changelog a-0-changelog-3 has committed records"),
        "{text}"
    );
}

#[test]
fn a_slow_database_is_not_taken_for_silent_brokers() {
    let mut restore = rebuild();
    restore.waits_for_database(secs(60));
    assert_eq!(restore.stalled(secs(89)), None);
    assert!(restore.stalled(secs(90)).is_some(), "the wait starts over");
}

#[test]
fn a_restore_without_progress_reports_the_cause() {
    let mut restore = rebuild();
    assert_eq!(restore.stalled(secs(29)), None);
    let silent = restore.stalled(secs(30)).unwrap();
    assert_eq!(silent.by, StalledBy::Silence);
    assert!(silent.to_string().contains("a-0-changelog-3"), "{silent}");

    take(&mut restore, 3, None);
    assert_eq!(restore.stalled(secs(30)), None, "it moved at 1 s");
    restore.ended(Family::Plain, offset(10), secs(2));
    restore.ended(Family::Plain, offset(10), secs(20));
    let held = restore.stalled(secs(32)).unwrap();
    assert_eq!(held.by, StalledBy::OpenTransaction { lso: offset(10) });
    assert!(held.to_string().contains("kafka-transactions.sh"), "{held}");
    assert!(held.to_string().contains("for 30 s"), "{held}");

    take(&mut restore, 12, None);
    let silent = restore.stalled(secs(99)).unwrap();
    assert_eq!(silent.by, StalledBy::Silence, "that transaction is over");
    take(&mut restore, 79, record(5, 50));
    assert_eq!(restore.stalled(secs(999)), None, "it is done");
}

#[test]
fn records_deleted_from_the_changelog_meanwhile_are_found_by_a_query() {
    let mut restore = rebuild();
    take(&mut restore, 39, None);
    assert_eq!(restore.asked(Family::Plain, offset(40), offset(90)), Ok(()));
    let front = restore.asked(Family::Plain, offset(41), offset(90));
    assert!(matches!(front, Err(RestartError::TrimmedMeanwhile { .. })));
    let tail = restore.asked(Family::Plain, offset(0), offset(79));
    assert!(matches!(tail, Err(RestartError::ChangelogShorter { .. })));
}

#[test]
fn reading_for_longer_than_deletions_are_kept_stops() {
    let mut case = Case::with(None);
    case.changelog.delete_retention = Duration::from_secs(100);
    let mut restore = begin(&case);
    take(&mut restore, 79, record(5, 50));
    assert!(matches!(restore.finish(secs(100)), Poll::Ready(Ok(_))));
    let late = restore.finish(secs(101));
    assert!(
        matches!(late, Poll::Ready(Err(RestartError::TooSlow { .. }))),
        "{late:?}"
    );
}

#[test]
fn progress_counts_down() {
    let mut restore = rebuild();
    let progress = restore.progress(secs(1));
    assert_eq!((progress.remaining, progress.eta), (80, None));
    take(&mut restore, 9, None);
    take(&mut restore, 19, None);
    let expected = Progress {
        records: 2,
        bytes: 20,
        remaining: 60,
        eta: Some(Duration::from_secs(30)),
    };
    assert_eq!(restore.progress(secs(10)), expected);
    restore.ended(Family::Plain, offset(80), secs(11));
    assert_eq!(restore.progress(secs(11)).eta, Some(Duration::ZERO));
}

/// A record of attempt `seq`. Returns whether it belongs in the store.
fn take_of(restore: &mut Restore, at: i64, seq: u64, is_commit: bool) -> bool {
    let attempt = record(seq, seq * 10);
    let commit = attempt.filter(|_| is_commit);
    let taken = restore.took(Family::Plain, offset(at), 1, commit, attempt, secs(1));
    taken.unwrap()
}

fn at_least_once(local: Option<crate::state::Position>) -> Case {
    Case {
        guarantee: Guarantee::AtLeastOnce,
        ..Case::with(local)
    }
}

#[test]
fn at_least_once_takes_state_that_is_ahead_and_counts_twice() {
    let mut restore = begin(&at_least_once(None));
    assert!(take_of(&mut restore, 78, 5, true));
    assert!(take_of(&mut restore, 79, 6, true));
    assert!(restore.is_ahead());
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
}

#[test]
fn at_least_once_refuses_state_that_is_behind() {
    let mut restore = begin(&at_least_once(None));
    assert!(take_of(&mut restore, 78, 4, true));
    restore.ended(Family::Plain, offset(80), secs(1));
    assert!(matches!(
        stops(&restore).0,
        RestartError::ChangelogLost { .. }
    ));
}

#[test]
fn records_of_a_former_owner_that_arrive_late_are_left_out() {
    let mut restore = begin(&at_least_once(None));
    assert!(take_of(&mut restore, 10, 4, false), "in time");
    assert!(take_of(&mut restore, 70, 5, false));
    assert!(!take_of(&mut restore, 71, 4, false), "late");
    assert!(
        !take_of(&mut restore, 72, 4, true),
        "so is its commit record"
    );
    assert!(take_of(&mut restore, 79, 5, true));
    assert_eq!(restore.late(), 2);
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
    // A late record may be the last one.
    let mut restore = begin(&at_least_once(None));
    assert!(take_of(&mut restore, 70, 5, true));
    assert!(!take_of(&mut restore, 79, 4, true));
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
}

#[test]
fn another_attempt_at_the_number_of_a_transaction_is_late() {
    let mut restore = begin(&Case::with(None));
    assert!(take(&mut restore, 70, record(5, 50)));
    let attempt = record(5, 51);
    let taken = restore.took(Family::Plain, offset(79), 1, None, attempt, secs(1));
    assert!(!taken.unwrap());
}

#[test]
fn a_copy_knows_the_attempt_that_it_has() {
    let mut restore = begin(&at_least_once(Some(at(4, 40, Some(4), 60))));
    assert!(!take_of(&mut restore, 61, 3, false));
    assert!(take_of(&mut restore, 79, 5, true));
    assert!(matches!(done(&restore), Some(Ok(Restored::At(_)))));
}
