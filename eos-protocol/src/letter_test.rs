use proptest::prelude::*;

use super::*;

fn number(episode: i64, n: u64) -> LetterNumber {
    let episode = Offset::new(episode).unwrap();
    LetterNumber { episode, n }
}

fn letter<'a>() -> WaitingLetter<'a> {
    WaitingLetter {
        topic: "t",
        partition: 2,
        offset: 3,
        app: "a",
        key: Some(b"k"),
        value: Some(b""),
        time: Some(Timestamp(4)),
        failed_at: Timestamp(5),
        number: Some(number(6, 7)),
        headers: vec![("h", Some(b"v"))],
    }
}

const AT: Offset = Offset::ZERO;

#[test]
fn the_format_is_pinned() {
    let letter = letter();
    let row_key =
        *b"t\0\0\0\0\x02\0\0\0\0\0\0\0\x01k\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08";
    assert_eq!(letter.row_key(Offset::new(8).unwrap()), row_key);
    assert_eq!(
        letter.encode(),
        *b"\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x03\0\x01a\x01\x01h\x02v"
    );
}

#[test]
fn damaged_rows_are_errors() {
    let letter = letter();
    let (row_key, row) = (letter.row_key(AT), letter.encode());
    for len in 0..row.len() {
        // Without its header, the letter is whole.
        let is_whole = WaitingLetter::decode(&row_key, &row[..len]).is_ok();
        assert_eq!(is_whole, len == row.len() - 4, "{len}");
    }
    // The last 8 bytes only distinguish letters.
    for len in 0..row_key.len() - 8 {
        let found = WaitingLetter::decode(&row_key[..len], &row);
        assert_eq!(found, Err(LetterError::Damaged), "{len}");
    }
    let newer = WaitingLetter::decode(&row_key, b"\x03");
    assert_eq!(newer, Err(LetterError::Format(3)));
    assert_eq!(topic_of(&row_key), Some("t"));
    assert_eq!(topic_of(b"t"), None);
}

#[test]
fn letters_of_a_key_are_in_the_order_of_their_numbers() {
    let row_key = |key: Option<&'static [u8]>, episode, n, at| {
        let letter = WaitingLetter {
            key,
            number: Some(number(episode, n)),
            ..letter()
        };
        letter.row_key(Offset::new(at).unwrap())
    };
    let k = Some(&b"k"[..]);
    let rows = [
        row_key(None, 9, 1, 4),
        row_key(k, 6, 2, 9),
        row_key(k, 6, 256, 1),
        row_key(k, 300, 1, 0),
        row_key(Some(b"l"), 0, 1, 0),
        row_key(Some(b"aa"), 0, 1, 0),
    ];
    assert!(rows.is_sorted());
}

#[test]
fn a_decision_is_about_one_key() {
    let mut decisions = Decisions::default();
    decisions.discard("t", b"k", 7);
    decisions.discard("t", b"", 1);
    decisions.release("t", b"l");
    // The same keys and numbers of another topic.
    let mut others = Decisions::default();
    others.discard("u", b"k", 7);
    others.release("u", b"l");
    for key in [b"k", b"l"] {
        let (key, number) = (Some(&key[..]), Some(number(6, 7)));
        let letter = WaitingLetter {
            key,
            number,
            ..letter()
        };
        assert_eq!(others.action(&letter), number.map(Replay::Record));
    }
    let of = |key, number| {
        let letter = letter();
        decisions.action(&WaitingLetter {
            key,
            number,
            ..letter
        })
    };
    let (seven, eight, one) = (number(6, 7), number(6, 8), number(6, 1));
    let k = Some(&b"k"[..]);
    assert_eq!(of(k, Some(seven)), Some(Replay::Discard(seven)));
    assert_eq!(of(k, Some(eight)), Some(Replay::Record(eight)));
    let released = Some(Replay::ReleaseThrough(one));
    assert_eq!(of(Some(b"l"), Some(one)), released);
    assert_eq!(of(Some(b""), Some(one)), Some(Replay::Discard(one)));
    assert_eq!(of(None, Some(one)), Some(Replay::Record(one)), "no key");
    assert_eq!(of(k, None), None, "no number");
}

#[test]
fn a_letter_without_a_key_is_named_by_its_place() {
    let mut decisions = Decisions::default();
    decisions.discard_without_key("t", 2, 6);
    decisions.release("t", b"");
    let of = |key, topic, partition, episode| {
        let number = number(episode, 1);
        let letter = letter();
        let action = decisions.action(&WaitingLetter {
            key,
            topic,
            partition,
            number: Some(number),
            ..letter
        });
        action == Some(Replay::Discard(number))
    };
    assert!(of(None, "t", 2, 6));
    assert!(!of(None, "t", 2, 7));
    assert!(!of(None, "t", 1, 6));
    assert!(!of(None, "u", 2, 6));
    assert!(!of(Some(b""), "t", 2, 6));
    assert!(!of(Some(b"k"), "t", 2, 6));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..4),
        proptest::collection::vec(any::<u8>(), 126..130),
    ]
}

proptest! {
    #[test]
    fn letters_are_read_back(
        topic in "[a-z]{1,9}",
        app in "[a-zä]{0,9}",
        partition in any::<u32>(),
        offset in any::<i64>(),
        time in proptest::option::of(-2_i64..2_000_000_000_000),
        failed_at in any::<i64>(),
        numbered in proptest::option::of((0..i64::MAX, 1..u64::MAX)),
        key in proptest::option::of(bytes()),
        value in proptest::option::of(bytes()),
        headers in proptest::collection::vec(("[a-zä]{0,4}", proptest::option::of(bytes())), 0..4),
        at in 0..i64::MAX,
    ) {
        let headers: Vec<_> = headers.iter().map(|(n, v)| (&**n, v.as_deref())).collect();
        let letter = WaitingLetter {
            topic: &topic,
            partition,
            offset,
            app: &app,
            key: key.as_deref(),
            value: value.as_deref(),
            time: time.map(Timestamp),
            failed_at: Timestamp(failed_at),
            number: numbered.map(|(episode, n)| number(episode, n)),
            headers,
        };
        let (row_key, row) = (letter.row_key(Offset::new(at).unwrap()), letter.encode());
        prop_assert_eq!(WaitingLetter::decode(&row_key, &row), Ok(letter));
        prop_assert_eq!(topic_of(&row_key), Some(&*topic));
    }
}
