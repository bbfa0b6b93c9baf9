//! The obligations of a ledger.

use std::task::Poll;
use std::time::Duration;

use eos_core::boundary::{LedgerError, LedgerFailure, Plan};
use eos_protocol::state::TopicUuid;

use super::subject::{SLICE, Subject, WAIT, moved, offset, partition, topic, until};

/// Checks that a ledger keeps the obligations of [`eos_core::boundary`]. `make` returns an empty ledger.
///
/// # Panics
/// If it violates one. The text begins with its number.
pub fn ledger(make: &mut dyn FnMut() -> Subject) {
    commits_rows_with_positions(&make());
    fences_the_owner_before(&make());
    waits_for_or_ends_a_transaction(&make());
    forgets_a_pending_take_over(&make());
    compares_every_position(&make());
    shows_nothing_before_the_commit(&make());
    reports_only_what_is_committed(&make());
    resolves_a_commit_without_a_result(&make());
    ends_older_sessions(&make());
    goes_back_with_its_rows(&make());
    refuses_other_topics(&make());
}

fn commits_rows_with_positions(subject: &Subject) {
    let mut a = subject.worker("a");
    a.init();
    let taken = a.take_over(0);
    assert!(
        taken.offset.is_none(),
        "L1: a new position has {:?}",
        taken.offset
    );
    let done = a.commits(&taken, 1, "first");
    assert!(done.is_ok(), "L2: {done:?}");
    subject.holds("L2", &[1]);
    let found = a.look(0);
    let expected = (Some(offset(10)), "first");
    assert!(
        (found.offset, &*found.name) == expected,
        "L2: the position is {found:?}, not {expected:?}"
    );
    let again = a.take_over(0);
    assert!(
        (again.offset, &*again.name) == expected && again.epoch > taken.epoch,
        "L1: after {taken:?} a take-over returns {again:?}"
    );
}

fn fences_the_owner_before(subject: &Subject) {
    let (mut a, mut b) = (subject.worker("a"), subject.worker("b"));
    a.init();
    b.init();
    let before = a.take_over(0);
    let after = b.take_over(0);
    let done = a.commits(&before, 1, "zombie");
    let is_moved = |error: &LedgerError| error.failure == LedgerFailure::Moved(vec![partition(0)]);
    assert!(
        done.as_ref().is_err_and(is_moved),
        "L1: a transaction under a lower epoch ends with {done:?}"
    );
    let aborted = until(|| a.session.abort(SLICE));
    assert!(aborted.is_ok(), "L4: {aborted:?}");
    let done = b.commits(&after, 2, "owner");
    assert!(done.is_ok(), "L1: the owner can't commit: {done:?}");
    subject.holds("L1", &[2]);
}

fn waits_for_or_ends_a_transaction(subject: &Subject) {
    let (mut a, mut b) = (subject.worker("a"), subject.worker("b"));
    a.init();
    b.init();
    let before = a.take_over(0);
    let well = a
        .begins(&[&before])
        .and_then(|()| a.writes(1))
        .and_then(|()| a.sets(&[moved(&before, 10, "a")]));
    assert!(well.is_ok(), "L3: {well:?}");
    // The owner has done everything but the commit, and is frozen.
    let after = b.take_over(0);
    let done = a.ends();
    assert!(
        done.is_err() || after.offset == Some(offset(10)),
        "L1: a transaction committed behind a take-over that had returned {after:?}"
    );
    let done = b.commits(&after, 2, "b");
    assert!(done.is_ok(), "L1: the new owner can't commit: {done:?}");
    let both = if after.offset.is_some() {
        &[1, 2][..]
    } else {
        &[2]
    };
    subject.holds("L1", both);
}

/// A take-over that the worker has given up must not fence a later one of the same worker.
fn forgets_a_pending_take_over(subject: &Subject) {
    let (mut a, mut b) = (subject.worker("a"), subject.worker("b"));
    a.init();
    b.init();
    let before = a.take_over(0);
    let begun = a
        .begins(&[&before])
        .and_then(|()| a.writes(1))
        .and_then(|()| until(|| a.session.flush(SLICE)));
    assert!(begun.is_ok(), "L4: {begun:?}");
    let asked = b.positions.take_over(&[partition(0)], SLICE);
    assert!(
        asked.is_pending(),
        "L1: a position that a transaction holds is taken over at once: {asked:?}"
    );
    b.positions.forget();
    b.take_over(1);
    let aborted = until(|| a.session.abort(SLICE));
    assert!(aborted.is_ok(), "L4: {aborted:?}");
    let taken = b.take_over(0);
    // Work of the reader for the first call completes before this call.
    b.take_over(1);
    let found = b.look(0);
    assert!(
        found.epoch == taken.epoch,
        "L1: a take-over that was given up raised the epoch of {taken:?} to {:?}",
        found.epoch
    );
    let done = b.commits(&taken, 2, "b");
    assert!(done.is_ok(), "L1: the owner can't commit: {done:?}");
    subject.holds("L1", &[2]);
}

fn compares_every_position(subject: &Subject) {
    let mut a = subject.worker("a");
    a.init();
    let (first, second) = (a.take_over(0), a.take_over(1));
    let done = a.commits(&first, 1, "one");
    assert!(done.is_ok(), "L2: {done:?}");
    // The first position is where it was not expected, and the second one is right.
    let begun = a.begins(&[&second]).and_then(|()| a.writes(2));
    assert!(begun.is_ok(), "L3: {begun:?}");
    let done = a.sets(&[moved(&first, 11, "two"), moved(&second, 11, "two")]);
    let is_moved = |error: &LedgerError| error.failure == LedgerFailure::Moved(vec![partition(0)]);
    assert!(
        done.as_ref().is_err_and(is_moved),
        "L3: a move from an old offset ends with {done:?}"
    );
    let aborted = until(|| a.session.abort(SLICE));
    assert!(aborted.is_ok(), "L4: {aborted:?}");
    subject.holds("L3", &[1]);
    assert!(a.look(1).offset.is_none(), "L3: the other position moved");
}

fn shows_nothing_before_the_commit(subject: &Subject) {
    let mut a = subject.worker("a");
    a.init();
    let taken = a.take_over(0);
    let set = a
        .begins(&[&taken])
        .and_then(|()| a.writes(1))
        .and_then(|()| a.sets(&[moved(&taken, 10, "a")]))
        .and_then(|()| until(|| a.session.flush(SLICE)));
    assert!(set.is_ok(), "L3: {set:?}");
    let mut other = subject.worker("b");
    subject.holds("L4", &[]);
    assert!(
        other.look(0).offset.is_none(),
        "L4: a position moved before the commit"
    );
    let aborted = until(|| a.session.abort(SLICE));
    assert!(aborted.is_ok(), "L4: {aborted:?}");
    subject.holds("L4", &[]);
    let done = a.commits(&taken, 2, "b");
    assert!(
        done.is_ok(),
        "L4: a session can't go on after an abort: {done:?}"
    );
    let mut dropped = subject.worker("c");
    dropped.init();
    let taken = dropped.take_over(1);
    let begun = dropped.begins(&[&taken]).and_then(|()| dropped.writes(3));
    assert!(begun.is_ok(), "L4: {begun:?}");
    drop(dropped);
    let after = other.take_over(1);
    assert!(
        after.offset.is_none(),
        "L4: a dropped session left {after:?}"
    );
    subject.holds("L4", &[2]);
}

fn reports_only_what_is_committed(subject: &Subject) {
    let mut a = subject.worker("a");
    a.init();
    let taken = a.take_over(0);
    let mut wrong = moved(&taken, 10, "wrong");
    wrong.expected.from = Some(offset(5));
    let begun = a.begins(&[&taken]).and_then(|()| a.writes(1));
    assert!(begun.is_ok(), "L4: {begun:?}");
    let set = a.sets(&[wrong]);
    assert!(set.is_err(), "L3: a move from a wrong offset succeeds");
    let done = until(|| a.session.commit(WAIT));
    assert!(
        done.is_err(),
        "L5: the commit of a failed transaction reports success"
    );
    assert!(
        a.session.is_spoiled() || until(|| a.session.abort(SLICE)).is_ok(),
        "L5: after {done:?} the session goes on with the failed transaction"
    );
    subject.holds("L5", &[]);
}

/// The worker gives up at once, so the commit may still be under way when its successor looks.
fn resolves_a_commit_without_a_result(subject: &Subject) {
    let mut successor = subject.worker("b");
    successor.init();
    for round in 0..20 {
        let mut a = subject.worker(&format!("a{round}"));
        a.init();
        let taken = a.take_over(0);
        let (number, at) = (round + 1, i64::try_from(round + 1).expect("a small number"));
        let name = format!("round-{round}");
        let begun = a.begins(&[&taken]).and_then(|()| a.writes(number));
        assert!(begun.is_ok(), "L4: {begun:?}");
        let set = a.sets(&[moved(&taken, at, &name)]);
        assert!(set.is_ok(), "L3: {set:?}");
        let flushed = until(|| a.session.flush(SLICE));
        assert!(flushed.is_ok(), "L3: {flushed:?}");
        let done = a.session.commit(Duration::from_micros(round * 50));
        let is_known = matches!(done, Poll::Ready(Ok(())));
        assert!(
            is_known || a.session.is_spoiled(),
            "L5: after {done:?} the session is used again"
        );
        drop(a);
        let after = successor.take_over(0);
        let is_committed = after.name == name;
        assert!(
            is_committed || !is_known,
            "L5: a reported commit is lost: {after:?}"
        );
        assert!(
            (subject.rows)().contains(&number) == is_committed,
            "L6: the row and the position of round {round} disagree: {after:?}"
        );
    }
}

fn goes_back_with_its_rows(subject: &Subject) {
    let Some(lose) = &subject.lose_last_commit else {
        return;
    };
    let mut a = subject.worker("a");
    a.init();
    let mut taken = a.take_over(0);
    for number in 1..=2 {
        let done = a.commits(&taken, number, &number.to_string());
        assert!(done.is_ok(), "L2: {done:?}");
        taken = a.look(0);
    }
    lose();
    let mut b = subject.worker("b");
    b.init();
    let after = b.take_over(0);
    let expected: &[u64] = if after.name == "2" { &[1, 2] } else { &[1] };
    subject.holds("L7", expected);
    assert!(after.name != "2", "L7: no commit was lost");
}

fn ends_older_sessions(subject: &Subject) {
    let (mut older, mut newer) = (subject.worker("a"), subject.worker("a"));
    older.init();
    let taken = older.take_over(0);
    let begun = older.begins(&[&taken]).and_then(|()| older.writes(1));
    assert!(begun.is_ok(), "L6: {begun:?}");
    newer.init();
    let done = older
        .sets(&[moved(&taken, 10, "older")])
        .and_then(|()| older.ends());
    assert!(
        done.is_err(),
        "L6: a session committed behind a newer one of the same worker"
    );
    let _ended = until(|| older.session.abort(SLICE));
    let begun = older.session.begin().and_then(|()| older.writes(1));
    assert!(
        begun.is_err() || older.session.is_spoiled(),
        "L6: an older session goes on"
    );
    let taken = newer.take_over(0);
    let done = newer.commits(&taken, 2, "newer");
    assert!(done.is_ok(), "L6: the newer session can't commit: {done:?}");
    subject.holds("L6", &[2]);
}

fn refuses_other_topics(subject: &Subject) {
    let mut a = subject.worker("a");
    a.init();
    let taken = a.take_over(0);
    let done = a.commits(&taken, 1, "first");
    assert!(done.is_ok(), "L2: {done:?}");
    let plan = subject.plan();
    let other_topic = Plan {
        topics: vec![(topic(), Some(TopicUuid(2)))],
        ..plan.clone()
    };
    let other_cluster = Plan {
        cluster_id: Some("cluster-2".into()),
        ..plan
    };
    for plan in [other_topic, other_cluster] {
        let mut other = subject.worker_of("b", &plan);
        let of = [partition(0)];
        let taken = until(|| other.positions.take_over(&of, SLICE));
        let is_fatal = |error: &LedgerError| error.failure == LedgerFailure::Fatal;
        assert!(
            taken.as_ref().is_err_and(is_fatal),
            "L8: a position of another topic or cluster is {taken:?}"
        );
    }
}
