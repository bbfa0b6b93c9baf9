//! Tests of sequenced dead letters: each sequence of a key, and a model of all of them.

use super::*;

fn at(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

fn number(episode: i64, n: u64) -> LetterNumber {
    let episode = at(episode);
    LetterNumber { episode, n }
}

fn letter(episode: i64, n: u64) -> Option<Replay> {
    Some(Replay::Record(number(episode, n)))
}

/// A key whose record at offset 17 failed, with two records behind it.
fn three() -> Option<ParkedKey> {
    let mut row = Some(ParkedKey::first(at(17)));
    assert_eq!(arrives(&mut row, None), Arrival::Park(number(17, 2)));
    assert_eq!(arrives(&mut row, None), Arrival::Park(number(17, 3)));
    row
}

fn process(row: &mut Option<ParkedKey>) {
    if !row.as_mut().unwrap().advance() {
        *row = None;
    }
}

#[test]
fn a_replay_in_order_releases_the_key_after_the_highest_letter() {
    let mut row = three();
    for n in 1..=3 {
        assert!(row.is_some(), "letter {n} is outstanding");
        let arrival = arrives(&mut row, letter(17, n));
        assert_eq!(arrival, Arrival::ProcessLetter(number(17, n)));
        process(&mut row);
    }
    assert_eq!(row, None);
    assert_eq!(arrives(&mut row, None), Arrival::Process);
}

/// Letter 1 fails again: letter 2 must not overtake it.
#[test]
fn a_letter_that_fails_again_keeps_its_number_and_the_later_ones_wait() {
    let mut row = three();
    let again = |row: &mut Option<ParkedKey>| arrives(row, letter(17, 1));
    assert_eq!(again(&mut row), Arrival::ProcessLetter(number(17, 1)));
    assert_eq!(
        arrives(&mut row, letter(17, 2)),
        Arrival::Park(number(17, 2))
    );
    assert_eq!(arrives(&mut row, None), Arrival::Park(number(17, 4)));
    assert_eq!(
        arrives(&mut row, letter(17, 3)),
        Arrival::Park(number(17, 3))
    );
    assert_eq!(again(&mut row), Arrival::ProcessLetter(number(17, 1)));
}

#[test]
fn a_second_replay_is_left_out() {
    let mut row = three();
    process(&mut row);
    assert_eq!(arrives(&mut row, letter(17, 1)), Arrival::Repeated);
    process(&mut row);
    process(&mut row);
    for n in 1..=3 {
        assert_eq!(arrives(&mut row, letter(17, n)), Arrival::Repeated);
    }
}

#[test]
fn letters_of_an_earlier_episode_are_left_out() {
    let mut row = Some(ParkedKey::first(at(40)));
    assert_eq!(arrives(&mut row, letter(17, 1)), Arrival::Repeated);
    let discard = Some(Replay::Discard(number(17, 1)));
    assert_eq!(arrives(&mut row, discard), Arrival::Repeated);
    let release = Some(Replay::Release(Some(at(17))));
    assert_eq!(arrives(&mut row, release), Arrival::Repeated);
    assert_eq!(row, Some(ParkedKey::first(at(40))));
}

#[test]
fn a_discard_counts_in_any_order() {
    let mut row = three();
    let discard = |n| Some(Replay::Discard(number(17, n)));
    assert_eq!(arrives(&mut row, discard(3)), Arrival::Done);
    assert_eq!(arrives(&mut row, discard(3)), Arrival::Repeated);
    assert_eq!(arrives(&mut row, letter(17, 3)), Arrival::Repeated);
    assert_eq!(arrives(&mut row, discard(1)), Arrival::Done);
    assert_eq!(row.as_ref().unwrap().next(), number(17, 2));
    process(&mut row);
    assert_eq!(row, None, "2 is processed, 3 is discarded");
}

#[test]
fn the_highest_letter_can_be_discarded_last() {
    let mut row = three();
    process(&mut row);
    process(&mut row);
    let discard = Some(Replay::Discard(number(17, 3)));
    assert_eq!(arrives(&mut row, discard), Arrival::Done);
    assert_eq!(row, None);
}

#[test]
fn a_release_ends_the_episode() {
    for episode in [None, Some(at(17))] {
        let mut row = three();
        let release = Some(Replay::Release(episode));
        assert_eq!(arrives(&mut row, release), Arrival::Done);
        assert_eq!(row, None);
        assert_eq!(arrives(&mut row, release), Arrival::Repeated);
        assert_eq!(arrives(&mut row, letter(17, 1)), Arrival::Repeated);
    }
}

/// A record may be parked between the start of the replay and the arrival of the release.
#[test]
fn a_release_gives_up_no_letter_behind_its_number() {
    let through = |n| Some(Replay::ReleaseThrough(number(17, n)));
    let mut row = three();
    let discard = Some(Replay::Discard(number(17, 3)));
    assert_eq!(arrives(&mut row, through(1)), Arrival::Done);
    assert_eq!(arrives(&mut row, through(1)), Arrival::Repeated);
    assert_eq!(arrives(&mut row, None), Arrival::Park(number(17, 4)));
    assert_eq!(arrives(&mut row, discard), Arrival::Done);
    assert_eq!(arrives(&mut row, through(2)), Arrival::Done);
    assert_eq!(row.as_ref().unwrap().next(), number(17, 4));
    assert_eq!(arrives(&mut row, through(3)), Arrival::Repeated);
    assert_eq!(
        arrives(&mut row, through(5)),
        Arrival::Repeated,
        "never given"
    );
    let other = Some(Replay::ReleaseThrough(number(18, 4)));
    assert_eq!(arrives(&mut row, other), Arrival::Repeated);
    assert_eq!(arrives(&mut row, through(4)), Arrival::Done);
    assert_eq!(row, None);
    assert_eq!(arrives(&mut row, through(4)), Arrival::Repeated);
}

#[test]
fn a_number_that_was_never_given_is_left_out() {
    let mut row = three();
    assert_eq!(arrives(&mut row, letter(17, 4)), Arrival::Repeated);
}

#[test]
fn headers_come_back() {
    let n = number(17, 3);
    assert_eq!(n.header(), "1 17 3");
    assert_eq!(LetterNumber::of_header(b"1 17 3"), Ok(n));
    let replays = [
        (Replay::Record(n), "1 record 17 3"),
        (Replay::Discard(n), "1 discard 17 3"),
        (Replay::ReleaseThrough(n), "1 release 17 3"),
        (Replay::Release(Some(at(17))), "1 release 17"),
        (Replay::Release(None), "1 release"),
    ];
    for (replay, text) in replays {
        assert_eq!(replay.header(), text);
        assert_eq!(Replay::of_header(text.as_bytes()), Ok(replay));
    }
    let wrong: [&[u8]; 9] = [
        b"",
        b"2 17 3",
        b"1 -1 3",
        b"1 17 0",
        b"1 17",
        b"1 record 17",
        b"2 release",
        b"1 bury 17 3",
        b"\xff",
    ];
    for value in wrong {
        assert!(LetterNumber::of_header(value).is_err(), "{value:?}");
        let error = Replay::of_header(value).unwrap_err();
        let is_newer = value.starts_with(b"2 ");
        assert_eq!(
            matches!(error, SequenceError::Newer { version: 2, .. }),
            is_newer
        );
        let (error, fix) = (
            error.to_string(),
            if is_newer {
                "newest version"
            } else {
                "1 record 17 3"
            },
        );
        assert!(
            error.contains("eos-replay") && error.contains(fix),
            "{error}"
        );
    }
}

#[test]
fn rows_come_back() {
    let mut row = three().unwrap();
    assert_eq!(ParkedKey::decode(&row.encode()), Ok(row.clone()));
    assert!(row.discard(3));
    assert_eq!(ParkedKey::decode(&row.encode()), Ok(row.clone()));
    let bytes = row.encode();
    for length in 0..bytes.len() - 8 {
        let error = ParkedKey::decode(&bytes[..length]);
        assert_eq!(error, Err(SequenceError::Row(length)));
    }
    let mut newer = bytes;
    newer[0] = 2;
    assert!(ParkedKey::decode(&newer).is_err());
}

/// Draws numbers: a linear congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Records, failures, replays of any stored letter in any order, repeated replays, discards and releases. Each record is
/// processed at most once, in the order of arrival, and none is lost.
#[test]
fn any_history_processes_each_record_once_and_in_order() {
    for seed in 0..2_000 {
        let mut draw = Draw(seed);
        let mut row: Option<ParkedKey> = None;
        // The record of each letter that was ever written, and the results.
        let mut letters: Vec<(LetterNumber, i64)> = Vec::new();
        let (mut processed, mut given_up) = (Vec::new(), Vec::new());
        let (mut offset, mut identity) = (0, 0);
        let mut step = |row: &mut Option<ParkedKey>, replay: Option<(Replay, i64)>, fails: bool| {
            offset += 1;
            let id = replay.map_or_else(
                || {
                    identity += 1;
                    identity
                },
                |(_, id)| id,
            );
            let before = row.clone();
            match arrives(row, replay.map(|it| it.0)) {
                Arrival::Process if fails => {
                    *row = Some(ParkedKey::first(at(offset)));
                    letters.push((number(offset, 1), id));
                }
                Arrival::ProcessLetter(number) if fails => letters.push((number, id)),
                Arrival::Park(number) => letters.push((number, id)),
                Arrival::Process => processed.push(id),
                Arrival::ProcessLetter(_) => {
                    processed.push(id);
                    if !row.as_mut().unwrap().advance() {
                        *row = None;
                    }
                }
                Arrival::Repeated => {}
                Arrival::Done => match replay {
                    Some((Replay::Discard(_), id)) => given_up.push(id),
                    _ => {
                        let before = before.unwrap();
                        let left = |n| row.as_ref().is_some_and(|row| row.awaits(n));
                        let open = letters.iter();
                        let open = open.filter(|(n, _)| before.awaits(*n) && !left(*n));
                        given_up.extend(open.map(|(_, id)| *id));
                    }
                },
            }
            letters.clone()
        };
        let mut known = Vec::new();
        for _ in 0..60 {
            let fails = draw.below(3) == 0;
            let replay = match (draw.below(4), known.len() as u64) {
                (0, _) | (_, 0) => None,
                (kind, count) => {
                    let (n, id): (LetterNumber, i64) = known[draw.below(count) as usize];
                    let replay = match (kind, draw.below(8)) {
                        (1, 0) => Replay::Discard(n),
                        (1, 1) => Replay::Release(Some(n.episode)),
                        (2, 0) => Replay::ReleaseThrough(n),
                        _ => Replay::Record(n),
                    };
                    Some((replay, id))
                }
            };
            known = step(&mut row, replay, fails);
        }
        // Each letter arrives again, in order, and nothing fails.
        known.sort_unstable();
        known.dedup();
        for (n, id) in known {
            step(&mut row, Some((Replay::Record(n), id)), false);
        }
        assert_eq!(row, None, "seed {seed}: the key is parked for ever");
        assert!(
            processed.is_sorted_by(|a, b| a < b),
            "seed {seed}: {processed:?}"
        );
        let mut all: Vec<i64> = processed.into_iter().chain(given_up).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (1..=identity).collect::<Vec<_>>(), "seed {seed}");
    }
}
