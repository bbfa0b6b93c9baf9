//! All transitions of a left row.

use super::ForeignKind::{Inner, Left};
use super::*;

fn row(foreign: Option<&str>, is_out: bool) -> LeftRow {
    LeftRow {
        token: 4,
        foreign: foreign.map(|key| key.as_bytes().to_vec()),
        right: Right::Unknown,
        result: is_out.then(|| Stamp {
            time: Some(Timestamp(9)),
            value: b"r".to_vec(),
        }),
    }
}

/// (unsubscribes, subscribes, outcome)
type Step = (bool, Option<bool>, Outcome);

fn step(kind: ForeignKind, row: Option<&LeftRow>, update: LeftUpdate<'_>) -> Step {
    let step = update_left(kind, row, update);
    (step.unsubscribes, step.subscribes, step.outcome)
}

#[test]
fn a_new_row_subscribes_and_waits() {
    for (kind, to_none) in [(Inner, false), (Left, true)] {
        let found = step(kind, None, LeftUpdate::Key(b"a"));
        assert_eq!(found, (false, Some(to_none), Outcome::Unchanged));
    }
}

#[test]
fn a_new_row_without_a_foreign_key_sends_nothing() {
    let found = step(Inner, None, LeftUpdate::NoKey);
    assert_eq!(found, (false, None, Outcome::Unchanged));
    let found = step(Left, None, LeftUpdate::NoKey);
    assert_eq!(found, (false, None, Outcome::Alone));
}

#[test]
fn an_unknown_right_row_is_subscribed_again_and_another_foreign_key_ends_the_former() {
    for kind in [Inner, Left] {
        for is_out in [false, true] {
            let to_none = Some(kind == Left || is_out);
            let before = row(Some("a"), is_out);
            let same = step(kind, Some(&before), LeftUpdate::Key(b"a"));
            assert_eq!(same, (false, to_none, Outcome::Unchanged));
            let other = step(kind, Some(&before), LeftUpdate::Key(b"b"));
            assert_eq!(other, (true, to_none, Outcome::Unchanged));
        }
    }
}

/// Each state of the right row, except an unknown one.
fn known() -> [Right; 2] {
    let stamp = Stamp {
        time: Some(Timestamp(3)),
        value: b"right".to_vec(),
    };
    [Right::Missing, Right::Known(stamp)]
}

#[test]
fn the_same_foreign_key_needs_no_answer_if_the_right_row_is_known() {
    for (kind, right, is_out, expected) in [
        (Inner, 0, false, Outcome::Unchanged),
        (Inner, 0, true, Outcome::Deleted),
        (Left, 0, true, Outcome::Alone),
        (Inner, 1, false, Outcome::Joined),
        (Inner, 1, true, Outcome::Joined),
        (Left, 1, true, Outcome::Joined),
    ] {
        let before = LeftRow {
            right: known()[right].clone(),
            ..row(Some("a"), is_out)
        };
        let same = step(kind, Some(&before), LeftUpdate::Key(b"a"));
        assert_eq!(same, (false, None, expected), "{kind:?} {before:?}");
        let other = step(kind, Some(&before), LeftUpdate::Key(b"b"));
        let to_none = Some(kind == Left || is_out);
        assert_eq!(other, (true, to_none, Outcome::Unchanged));
    }
}

#[test]
fn a_long_right_value_is_not_kept() {
    let time = Some(Timestamp(3));
    let [missing, right] = known();
    assert_eq!(Right::of_answer(time, Some(b"right"), 5), right);
    assert_eq!(Right::of_answer(time, Some(b"right"), 4), Right::Unknown);
    assert_eq!(Right::of_answer(time, None, 1), missing);
    for value in [None, Some(&b""[..])] {
        assert_eq!(Right::of_answer(time, value, 0), Right::Unknown);
    }
}

/// KAFKA-16394, KAFKA-16407.
#[test]
fn a_foreign_key_that_becomes_null_ends_the_subscription() {
    let out = row(Some("a"), true);
    let found = step(Inner, Some(&out), LeftUpdate::NoKey);
    assert_eq!(found, (true, None, Outcome::Deleted));
    let waiting = row(Some("a"), false);
    let found = step(Inner, Some(&waiting), LeftUpdate::NoKey);
    assert_eq!(found, (true, None, Outcome::Unchanged));
    let found = step(Left, Some(&out), LeftUpdate::NoKey);
    assert_eq!(found, (true, None, Outcome::Alone));
}

/// KAFKA-16434.
#[test]
fn a_foreign_key_that_was_null_subscribes() {
    let before = row(None, true);
    let found = step(Left, Some(&before), LeftUpdate::Key(b"a"));
    assert_eq!(found, (false, Some(true), Outcome::Unchanged));
    let again = step(Left, Some(&before), LeftUpdate::NoKey);
    assert_eq!(again, (false, None, Outcome::Alone));
}

#[test]
fn a_deleted_row_deletes_its_result_at_once() {
    for kind in [Inner, Left] {
        let out = row(Some("a"), true);
        let found = step(kind, Some(&out), LeftUpdate::Deleted);
        assert_eq!(found, (true, None, Outcome::Deleted));
        let waiting = row(Some("a"), false);
        let found = step(kind, Some(&waiting), LeftUpdate::Deleted);
        assert_eq!(found, (true, None, Outcome::Unchanged));
        let found = step(kind, None, LeftUpdate::Deleted);
        assert_eq!(found, (false, None, Outcome::Unchanged));
    }
    let alone = row(None, true);
    let found = step(Left, Some(&alone), LeftUpdate::Deleted);
    assert_eq!(found, (false, None, Outcome::Deleted));
}

#[test]
fn only_an_answer_with_the_token_of_the_row_counts() {
    let waiting = row(Some("a"), false);
    for kind in [Inner, Left] {
        assert_eq!(resolve(kind, Some(&waiting), 4, true), Reached::Result);
        assert_eq!(resolve(kind, Some(&waiting), 3, true), Reached::Stale);
        assert_eq!(resolve(kind, Some(&waiting), 5, true), Reached::Stale);
        assert_eq!(resolve(kind, None, 4, true), Reached::Stale);
        // The row lost its foreign key, and has the token of its last subscription.
        assert_eq!(
            resolve(kind, Some(&row(None, true)), 4, true),
            Reached::Stale
        );
    }
}

#[test]
fn an_answer_without_a_right_row_deletes_or_stands_alone() {
    let (waiting, out) = (row(Some("a"), false), row(Some("a"), true));
    assert_eq!(resolve(Inner, Some(&waiting), 4, false), Reached::Nothing);
    assert_eq!(resolve(Inner, Some(&out), 4, false), Reached::Deleted);
    assert_eq!(resolve(Left, Some(&waiting), 4, false), Reached::Result);
    assert_eq!(resolve(Left, Some(&out), 4, false), Reached::Result);
}

#[test]
fn rows_are_read_as_they_were_written() {
    for foreign in [None, Some(""), Some("abc")] {
        for is_out in [false, true] {
            for right in known().into_iter().chain([Right::Unknown]) {
                let row = LeftRow {
                    right,
                    ..row(foreign, is_out)
                };
                let mut key = Vec::new();
                left_key(&mut key, b"k");
                assert_eq!(has_result(&key, &row.encode()), is_out);
                assert_eq!(LeftRow::decode(&row.encode()), Ok(row));
            }
        }
    }
    let bytes = row(Some("a"), true).encode();
    assert_eq!(
        bytes,
        *b"\x01\0\0\0\0\0\0\0\x04\x03\0\0\0\x01a\0\0\0\0\0\0\0\x09r"
    );
    let [missing, right] = known().map(|right| {
        let row = LeftRow {
            right,
            ..row(Some("a"), true)
        };
        row.encode()
    });
    let expected = b"\x02\0\0\0\0\0\0\0\x04\x0b\0\0\0\x01a\0\0\0\0\0\0\0\x09r";
    assert_eq!(missing, *expected);
    let expected = b"\x02\0\0\0\0\0\0\0\x04\x07\0\0\0\x01a\0\0\0\0\0\0\0\x03\0\0\0\x05right\0\0\0\0\0\0\0\x09r";
    assert_eq!(right, *expected);
    for bytes in [&missing, &right] {
        // Version 1 has no right row. A row cannot both have a right row and lack one.
        for (at, byte) in [(0, 1), (9, 0x0f)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert!(LeftRow::decode(&wrong).is_err());
        }
    }
    assert_eq!(token_of_row(&token_row(8)), Ok(8));
    assert!(!has_result(COUNTER_KEY, &token_row(8)));
    for (bytes, cut) in [&bytes, &missing, &right]
        .into_iter()
        .flat_map(|bytes| (1..bytes.len() - 1).map(move |cut| (bytes, cut)))
    {
        let row = LeftRow::decode(&bytes[..cut]);
        assert!(matches!(row, Err(ForeignError::Damaged { .. })), "{cut}");
    }
    let newer = LeftRow::decode(b"\x03").unwrap_err();
    assert!(
        newer
            .to_string()
            .contains("format 3, this version reads up to 2")
    );
    assert!(token_of_row(b"\x01\0").is_err());
}
