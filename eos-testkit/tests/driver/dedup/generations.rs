//! Replays in another generation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use eos_core::identity::SeenIds;
use eos_core::{App, ErrorPolicy, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use super::{BEGIN, MINUTE, app, app_with, five_minutes, ids, input, output, pipe, repeated};

#[test]
fn another_generation_passes_once() {
    let mut driver = TestDriver::new(app(&five_minutes()));
    let replay = |generation: &str| {
        Input::<String, String>::new("k", "a")
            .header("eos-replay-generation", generation.as_bytes())
    };
    pipe(&mut driver, &[("k", "a", 0), ("k", "a", 0)]);
    for generation in ["0", "1", "1", "2"] {
        driver.pipe_input(&input(), replay(generation));
    }
    assert_eq!(ids(&mut driver).len(), 3);
    // R65: all records arrive again in each generation.
    for (generation, passing) in [
        (None, 200),
        (Some("0"), 0),
        (Some("1"), 200),
        (Some("1"), 0),
    ] {
        let all = (0..200).map(|n| {
            let record = Input::<String, String>::new("k", format!("id {n}"));
            match generation {
                Some(generation) => record.header("eos-replay-generation", generation),
                None => record,
            }
        });
        driver.pipe_all(&input(), all.collect::<Vec<_>>());
        assert_eq!(ids(&mut driver).len(), passing, "{generation:?}");
    }
    let error = driver
        .try_pipe(&input(), replay("-1"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("eos-replay-generation has the value \"-1\", which is not"),
        "{error}"
    );
}

#[test]
fn a_generation_that_is_no_number_fails_its_record() {
    let record = |generation: &[u8]| {
        Input::<String, String>::new("k", "a").header("eos-replay-generation", generation)
    };
    for wrong in [&b"\xff\xfe"[..], b"", b"1 ", b"+1", b"18446744073709551616"] {
        let error = TestDriver::new(app(&five_minutes()))
            .try_pipe(&input(), record(wrong))
            .unwrap_err()
            .to_string();
        for part in [
            "the header eos-replay-generation has the value",
            "which is not a number from 0 to 2^64 - 1",
        ] {
            assert!(error.contains(part), "{error}");
        }
        // It passes neither as a record of generation 0 nor as one of another generation.
        let policy = ErrorPolicy::dead_letter("letters");
        let app = app_with(&five_minutes(), policy, |it| it.by(String::clone));
        let mut driver = TestDriver::new(app);
        driver.pipe_input(&input(), record(wrong));
        assert!(ids(&mut driver).is_empty(), "{wrong:?}");
        pipe(&mut driver, &[("k", "a", 0)]);
        assert_eq!(ids(&mut driver), ["a"], "{wrong:?}");
        let letters = driver.read_pairs(&Topic::<String, String>::plain("letters"));
        assert_eq!(letters.len(), 1, "{wrong:?}");
    }
    let mut driver = TestDriver::new(app(&five_minutes()));
    for _ in 0..2 {
        driver.pipe_input(&input(), record(b"18446744073709551615"));
    }
    assert_eq!(ids(&mut driver), ["a"], "the last generation");
}

#[test]
fn a_replay_into_a_missing_topic_does_not_start() {
    let replay = || App::replay("orders-dlq").to("orders").as_generation(1);
    let mut driver = TestDriver::of(move || replay().app());
    driver.kill();
    driver.cluster().delete_topic("orders").unwrap();
    let restarted = catch_unwind(AssertUnwindSafe(|| driver.restart()));
    assert!(restarted.is_err());
    let error = driver.error().unwrap().to_string();
    assert!(
        error.contains("the output topic orders") && error.contains("is missing. Create it"),
        "{error}"
    );
}

/// A dead letter may be replayed long after the window of its id has expired. With a generation, it passes once. Two
/// letters with one id are two records if they were more than a window apart.
#[test]
fn a_replayed_record_that_is_too_old_passes_once_in_a_generation() {
    let records = [
        (Some("1"), 0, true),
        (Some("1"), 1, false),
        (Some("1"), 30, true),
        (Some("1"), 33, false),
        (Some("1"), 0, false),
        (Some("2"), 1, true),
        (None, 0, false),
    ];
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("k", "z", 55 * MINUTE)]);
        for (generation, at, _) in records {
            let record = Input::<String, String>::new("k", "a");
            let mut record = record.at(Timestamp(BEGIN + at * MINUTE));
            if let Some(generation) = generation {
                record = record.header("eos-replay-generation", generation);
            }
            driver.pipe_input(&input(), record);
        }
        driver.read_pairs(&output())
    };
    let strict = |seen: &SeenIds<String>| {
        app_with(seen, ErrorPolicy::dead_letter("letters"), |it| {
            it.duplicates_to(&repeated()).by(String::clone)
        })
    };
    let passing = records.iter().filter(|(.., passes)| *passes).count();
    let mut driver = TestDriver::new(strict(&five_minutes()));
    assert_eq!(scenario(&mut driver).len(), 1 + passing);
    assert_eq!(driver.read_pairs(&repeated()).len(), 3);
    let letters = driver.read(&Topic::<String, String>::plain("letters"));
    let [letter] = &letters[..] else {
        panic!("{letters:?}");
    };
    let text = letter.headers.get("__streams.errors.message").unwrap();
    let text = String::from_utf8_lossy(text);
    assert!(
        text.contains("replay it with `.as_generation(1)`"),
        "{text}"
    );
    // A restart in the middle changes nothing.
    crash_everywhere(|| TestDriver::new(strict(&five_minutes())), scenario);
}
