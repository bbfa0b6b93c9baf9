use super::*;
use crate::joins::{JoinKind, JoinTerms, Within};
use proptest::prelude::*;

const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn at(ms: i64) -> Timestamp {
    Timestamp(ms)
}

#[test]
fn a_window_holds_its_start_and_not_its_end() {
    let windows = Tumbling::of(millis(10));
    let start = |ms| windows.window(at(ms)).map(|w| (w.start.0, w.end.0));
    for (ms, expected) in [
        (0, Some((0, 10))),
        (9, Some((0, 10))),
        (10, Some((10, 20))),
        (25, Some((20, 30))),
        (-1, None),
        (i64::MIN, None),
    ] {
        assert_eq!(start(ms), expected, "{ms}");
    }
}

#[test]
fn stream_time_at_end_and_grace_closes() {
    let (bare, graceful) = (
        Tumbling::of(millis(10)),
        Tumbling::of(millis(10)).grace(millis(5)),
    );
    let window = bare.at(at(0));
    assert!(!bare.is_closed(window, at(9)));
    assert!(bare.is_closed(window, at(10)));
    assert!(!graceful.is_closed(window, at(14)));
    assert!(graceful.is_closed(window, at(15)));
    assert!(graceful.is_closed(window, at(i64::MAX)));
    assert!(!graceful.is_closed(window, at(i64::MIN)));
}

#[test]
fn windows_that_hold_no_moment_or_have_no_end_are_refused() {
    let error = |w: Tumbling| w.check().unwrap_err().to_string();
    assert!(error(Tumbling::of(Duration::ZERO)).starts_with("windows of 0ns are too short"));
    assert!(error(Tumbling::of(Duration::from_micros(999))).contains("999µs"));
    assert!(error(Tumbling::of(Duration::MAX)).starts_with("a length of"));
    let grace = Tumbling::of(millis(1)).grace(Duration::MAX);
    assert!(error(grace).starts_with("a grace of"));
    assert_eq!(Tumbling::of(millis(1)).check(), Ok(()));
    assert!(check_retention(Duration::MAX).is_err());
}

#[test]
fn the_starts_of_a_stretch() {
    let windows = Tumbling::of(millis(10));
    let starts = |from, to| {
        windows
            .starts(at(from), at(to))
            .map(|t| t.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(starts(5, 21), [0, 10, 20]);
    assert_eq!(starts(10, 20), [10]);
    assert_eq!(starts(20, 10), []);
    assert_eq!(starts(-50, 1), [0]);
    assert_eq!(starts(i64::MAX - 3, i64::MAX).len(), 1);
}

#[test]
fn a_window_is_kept_for_its_retention_and_not_longer() {
    // (retention, start, stream time, over)
    for (retention, start, time, over) in [
        (15, 0, Some(14), false),
        (15, 0, Some(15), true),
        (15, 10, Some(24), false),
        (15, 10, Some(25), true),
        (15, 0, None, false),
        (0, 0, Some(0), true),
        (15, 0, Some(i64::MAX), true),
        (15, 0, Some(i64::MIN), false),
    ] {
        let expiry = Expiry::new(millis(retention), millis(10));
        assert_eq!(
            expiry.is_expired(at(start), time.map(at)),
            over,
            "{retention} {start} {time:?}"
        );
    }
}

#[test]
fn a_database_forgets_in_steps_of_an_eighth_and_a_window_at_least() {
    let forgotten = |retention, size| {
        let mut expiry = Expiry::new(millis(retention), millis(size));
        let mut times = Vec::new();
        for time in 0..2_000 {
            if let Some((_, before)) = expiry.due(Some(at(time))) {
                expiry.forgot(before);
                times.push(time);
            }
        }
        times
    };
    assert_eq!(forgotten(1_600, 1), [1_600, 1_800]);
    assert_eq!(forgotten(1_600, 300), [1_600, 1_900]);
    assert_eq!(forgotten(0, 1_000), [0, 1_000]);
    let mut expiry = Expiry::new(millis(100), millis(10));
    assert_eq!(expiry.due(None), None);
    assert_eq!(expiry.due(Some(at(150))), Some((None, at(51))));
    expiry.forgot(at(51));
    assert_eq!(expiry.due(Some(at(161))), None);
    assert_eq!(expiry.due(Some(at(162))), Some((Some(at(51)), at(63))));
    assert_eq!(
        expiry.due(Some(at(90))),
        None,
        "stream time does not go back"
    );
}

/// A store of ids has a few buckets with many rows, so an expired bucket does not wait for a step.
#[test]
fn a_database_forgets_a_bucket_with_the_first_commit_after_its_expiry() {
    let mut expiry = Expiry::of_buckets(millis(170), millis(50));
    let mut dropped = Vec::new();
    for time in (0..400).step_by(7) {
        let over = expiry.expired_before(Some(at(time)));
        if let Some((from, before)) = expiry.due(Some(at(time))) {
            // RocksDB reads all range deletions since the last flush. Overlapping ones would have quadratic cost.
            let last: Option<&(i64, i64)> = dropped.last();
            assert_eq!(from, last.map(|it| at(it.1)));
            expiry.forgot(before);
            dropped.push((time, before.0));
        }
        let expired = (0..400).step_by(50).filter(|start| *start < over.0);
        let kept = expired.filter(|start| dropped.last().is_none_or(|it| *start >= it.1));
        assert_eq!(kept.count(), 0, "{time}: {dropped:?}");
    }
    // A bucket from 0 is expired at 170.
    assert_eq!(
        dropped,
        [(175, 50), (224, 100), (273, 150), (322, 200), (371, 250)]
    );
}

/// A program that keeps windows for `retention`, after a program that kept them for `before`.
fn after(before: Expiry, retention: u64, time: i64) -> (Expiry, bool) {
    let mut expiry = Expiry::new(millis(retention), millis(10));
    let changed = expiry.take_over(&before.terms(), Some(at(time))).unwrap();
    (expiry, changed)
}

#[test]
fn what_was_over_stays_over_when_windows_are_kept_for_longer() {
    let short = Expiry::new(millis(20), millis(10));
    let over = |expiry: &Expiry, time| expiry.expired_before(Some(at(time))).0;
    assert_eq!(over(&short, 100), 81);
    let (long, changed) = after(short, 50, 100);
    assert!(changed);
    // 80 was expired, 90 was not: it has 50 ms from now on.
    let times = [100, 110, 130, 131, 140].map(|time| over(&long, time));
    assert_eq!(times, [81, 81, 81, 82, 91]);
    // The next program reads the limit from the terms beside the windows.
    let (same, changed) = after(long, 50, 110);
    assert!(!changed);
    assert_eq!(over(&same, 110), 81);
    let (fresh, _) = after(Expiry::new(millis(50), millis(10)), 50, 110);
    assert_eq!(over(&fresh, 110), 61, "it was never otherwise");
}

#[test]
fn windows_that_are_kept_for_less_are_over_at_once() {
    let (short, changed) = after(Expiry::new(millis(50), millis(10)), 20, 100);
    assert!(changed);
    assert_eq!(short.expired_before(Some(at(100))).0, 81);
    let (long, _) = after(short, 50, 100);
    assert_eq!(long.expired_before(Some(at(100))).0, 81, "and back");
}

#[test]
fn windows_of_another_length_are_other_windows() {
    let before = Expiry::new(millis(1000), millis(10)).terms();
    let refused = |size| {
        let mut expiry = Expiry::new(millis(1000), millis(size));
        let refused = expiry.take_over(&before, Some(at(100))).unwrap_err();
        refused.to_string()
    };
    assert_eq!(
        refused(20),
        "its windows are 10ms long in the existing state, and 20ms long in this program"
    );
    assert!(refused(0).ends_with("and a closure's own in this program"));
    let mut hopping = Expiry::new(millis(1000), millis(10)).every(millis(5));
    let refused = hopping.take_over(&before, Some(at(100))).unwrap_err();
    let text =
        "its windows are 10ms long in the existing state, and 10ms long, every 5ms in this program";
    assert_eq!(refused.to_string(), text);
}

#[test]
fn the_bytes_of_terms_are_pinned() {
    let terms = Terms {
        size: 0x56,
        advance: 0x56,
        retention: 0x1234,
        expired_before: at(-2),
        cursor: None,
        join: None,
    };
    let bytes = terms.encode();
    let expected = [
        &[1][..],
        &0x56_i64.to_be_bytes(),
        &0x1234_i64.to_be_bytes(),
        &(-2_i64).to_be_bytes(),
    ];
    assert_eq!(bytes[..], expected.concat());
    assert_eq!(Terms::decode(&bytes), Ok(terms.clone()));
    let overlapping = Terms {
        advance: 0x12,
        ..terms.clone()
    };
    let bytes = overlapping.encode();
    let more = [&[2], &expected.concat()[1..], &0x12_i64.to_be_bytes()];
    assert_eq!(bytes[..], more.concat());
    assert_eq!(Terms::decode(&bytes), Ok(overlapping));
    let cursors = [
        (Cursor::before(at(7)), &[0][..]),
        (Cursor::at(at(7), b""), &[1]),
        (Cursor::at(at(7), b"k"), b"\x01k"),
    ];
    for (cursor, key) in cursors {
        let closing = terms.clone().with_cursor(Some(cursor));
        let bytes = closing.encode();
        let (size, start) = (0x56_i64.to_be_bytes(), 7_i64.to_be_bytes());
        let all = [&[3], &expected.concat()[1..], &size, &start, key];
        assert_eq!(bytes[..], all.concat());
        assert_eq!(Terms::decode(&bytes), Ok(closing));
    }
    for (kind, version) in [
        (JoinKind::Inner, 4),
        (JoinKind::Left, 5),
        (JoinKind::Outer, 5),
    ] {
        let join = JoinTerms::new(kind, Within::of(millis(3)));
        let joined = Terms {
            join: Some(join),
            ..terms.clone()
        };
        let mut bytes = joined.encode();
        let size = 0x56_i64.to_be_bytes();
        let mut all = [&[version], &expected.concat()[1..], &size].concat();
        join.encode(&mut all);
        assert_eq!(bytes, all);
        assert_eq!(Terms::decode(&bytes), Ok(joined.clone()));
        // Earlier versions of this library wrote version 4 for all joins.
        bytes[0] = 4;
        assert_eq!(Terms::decode(&bytes), Ok(joined));
    }
}

#[test]
fn bytes_that_are_not_terms_are_reported() {
    let bytes = Expiry::new(millis(20), millis(10)).terms().encode();
    for len in 0..bytes.len() {
        let damaged = Err(TermsError::Damaged { len });
        assert_eq!(Terms::decode(&bytes[..len]), damaged);
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(Terms::decode(&longer).is_err());
    let newer = [&[6], &bytes[1..]].concat();
    assert_eq!(
        Terms::decode(&newer),
        Err(TermsError::Newer {
            version: 6,
            known: 5
        })
    );
    let closing = Expiry::new(millis(20), millis(10)).terms();
    let bytes = closing.with_cursor(Some(Cursor::before(at(3)))).encode();
    for len in 0..bytes.len() {
        let damaged = Err(TermsError::Damaged { len });
        assert_eq!(Terms::decode(&bytes[..len]), damaged);
    }
    assert!(Terms::decode(&[&bytes[..], &[0]].concat()).is_err());
    let join = JoinTerms::new(JoinKind::Inner, Within::of(millis(3)));
    let bytes = Expiry::of_join(join).terms().encode();
    for len in 0..bytes.len() {
        let damaged = Err(TermsError::Damaged { len });
        assert_eq!(Terms::decode(&bytes[..len]), damaged);
    }
    assert!(Terms::decode(&[&bytes[..], &[0]].concat()).is_err());
    let negative = [&[1], &[255; 24][..]].concat();
    assert!(Terms::decode(&negative).is_err());
}

proptest! {
    /// With any sequence of retentions: a window that one of them may have dropped is never shown again.
    #[test]
    fn nothing_that_was_over_is_ever_there_again(
        programs in proptest::collection::vec((0_u64..200, 0_i64..300), 1..8),
    ) {
        let (mut time, mut over) = (0, i64::MIN);
        let mut last: Option<Terms> = None;
        for (retention, passed) in programs {
            let mut expiry = Expiry::new(millis(retention), millis(10));
            if let Some(found) = &last {
                expiry.take_over(found, Some(at(time))).unwrap();
            }
            prop_assert!(expiry.expired_before(Some(at(time))).0 >= over);
            time += passed;
            over = expiry.expired_before(Some(at(time))).0;
            last = Some(Terms::decode(&expiry.terms().encode()).unwrap());
        }
    }

    #[test]
    fn an_open_window_is_never_over(
        size in 1_u64..100, grace in 0_u64..100, longer in 0_u64..100,
        record in 0_i64..10_000, time in 0_i64..10_000,
    ) {
        let windows = Tumbling::of(millis(size)).grace(millis(grace));
        let expiry = Expiry::new(windows.lifetime() + millis(longer), windows.size());
        let window = windows.window(at(record)).unwrap();
        prop_assert!(window.start <= at(record) && at(record) < window.end);
        let (closed, over) = (
            windows.is_closed(window, at(time)),
            expiry.is_expired(window.start, Some(at(time))),
        );
        prop_assert!(closed || !over);
        if longer == 0 {
            prop_assert_eq!(closed, over);
        }
    }
}
