//! Replays in another generation.

use eos_core::identity::SeenIds;
use eos_core::{ErrorPolicy, Timestamp, Topic};
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

/// A dead letter may come back long after the window of its id has expired. With a generation it passes once. Two letters with
/// one id are two records if they were more than a window apart.
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
