//! Ids that contain a time.

use std::time::Duration;

use eos_core::identity::{Dedup, Seen, SeenIds};
use eos_core::{App, ErrorPolicy, Stream, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use super::{BEGIN, MINUTE, app_with, ids, input, old, output, own, pipe, read, repeated};

const DAY: i64 = 24 * 60 * MINUTE;

fn week() -> SeenIds<String> {
    SeenIds::time_embedded("seen", Duration::from_secs(7 * 86_400)).trust_times()
}

/// A UUIDv7 of a time after the begin.
fn uuid(at: i64, number: u32) -> String {
    let time = format!("{:012x}", BEGIN + at);
    format!("{}-{}-7000-8000-0000{number:08x}", &time[..8], &time[8..])
}

/// A ULID of a time after the begin.
fn ulid(at: i64, number: u32) -> String {
    let number = u128::from((BEGIN + at).unsigned_abs()) << 80 | u128::from(number);
    let digit = |place: u32| {
        let digit = (number >> (5 * place)) as usize & 31;
        char::from(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit])
    };
    (0..26).rev().map(digit).collect()
}

fn app(change: impl FnOnce(Dedup<String, String>) -> Stream<String, String>) -> App {
    app_with(&week(), ErrorPolicy::fail(), change)
}

fn by_uuid() -> App {
    app(|dedup| {
        let dedup = dedup.duplicates_to(&repeated()).too_old_to(&old());
        dedup.by_uuid_v7(String::clone)
    })
}

/// R47: an id is remembered for seven days, by the time in it and not by that of its record.
#[test]
fn an_id_of_seven_days_is_judged_and_an_older_one_is_not() {
    let now = 30 * DAY;
    let [edge, beyond, early] = [now - 7 * DAY, now - 7 * DAY - 1, now + 10 * MINUTE];
    let [edge, beyond, early] = [edge, beyond, early].map(|at| uuid(at, 1));
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("k", &edge, now),
                ("k", &edge, now),
                ("l", &edge, now),
                ("k", &beyond, now),
                ("k", &early, now),
                // The record is late, and its id is not.
                ("k", &early, now - 20 * DAY),
                ("k", &edge.to_uppercase(), now),
            ],
        );
        (
            ids(driver),
            read(driver, &repeated()).len(),
            read(driver, &old()),
        )
    };
    let expected = (
        vec![edge.clone(), edge.clone(), early.clone()],
        3,
        own(&[("k", &beyond)]),
    );
    assert_eq!(scenario(&mut TestDriver::new(by_uuid())), expected);
    let places = crash_everywhere(|| TestDriver::new(by_uuid()), scenario);
    assert!(places > 20, "{places}");
}

#[test]
fn ids_expire_as_stream_time_moves() {
    let first = uuid(0, 1);
    let mut driver = TestDriver::new(by_uuid());
    pipe(&mut driver, &[("k", &first, 0)]);
    // The row still exists, but the id is too old.
    for (at, duplicates, too_old) in [(7 * DAY, 1, 0), (7 * DAY + 1, 1, 1), (14 * DAY, 1, 2)] {
        pipe(&mut driver, &[("k", &first, at)]);
        let totals = driver.metrics().unwrap().totals;
        assert_eq!(
            (totals.dedup_duplicates, totals.dedup_too_old),
            (duplicates, too_old)
        );
    }
    pipe(&mut driver, &[("k", &uuid(14 * DAY, 2), 14 * DAY)]);
    assert_eq!(ids(&mut driver).len(), 2);
}

/// Letters that are too old pass in a generation. A second replay of the generation passes none of them, as long as the
/// rows of the first one are kept.
#[test]
fn a_replayed_id_that_is_too_old_passes_once_in_a_generation() {
    let start = || TestDriver::new(by_uuid());
    let first = uuid(0, 1);
    let replays = [
        (Some("1"), 8 * DAY, true),
        (Some("1"), 8 * DAY + MINUTE, false),
        (Some("1"), 13 * DAY, false),
        (Some("1"), 15 * DAY, false),
        (Some("2"), 15 * DAY, true),
        (Some("1"), 16 * DAY, true),
        (None, 16 * DAY, false),
    ];
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("k", &first, 0)]);
        let mut passed = vec![ids(driver).len()];
        for (generation, at, _) in &replays {
            // Stream time moves with another record.
            pipe(driver, &[("k", &uuid(*at, 9), *at)]);
            ids(driver);
            let mut record = Input::<String, String>::new("k", &first).at(Timestamp(BEGIN + at));
            if let Some(generation) = generation {
                record = record.header("eos-replay-generation", *generation);
            }
            driver.pipe_input(&input(), record);
            passed.push(ids(driver).len());
        }
        passed
    };
    let expected: Vec<usize> = std::iter::once(1)
        .chain(replays.iter().map(|(_, _, passes)| usize::from(*passes)))
        .collect();
    assert_eq!(scenario(&mut start()), expected);
}

/// R47: the store keeps the ids of seven days, and older ones for at most a bucket.
#[test]
fn ids_are_kept_for_seven_days() {
    let mut driver = TestDriver::new(by_uuid());
    let mut most = 0;
    for hour in 0..31 * 24_i64 {
        let id = uuid(hour * 60 * MINUTE, 1);
        // Each id arrives twice.
        pipe(&mut driver, &[("k", id.as_str(), hour * 60 * MINUTE); 2]);
        let rows = driver.stored_rows();
        let of_window = usize::try_from(hour + 1).unwrap().min(7 * 24);
        assert!(rows >= of_window, "{hour}: {rows}");
        most = most.max(rows);
    }
    // A bucket is a sixteenth of the window.
    assert!(most <= 7 * 24 * 17 / 16 + 2, "{most}");
    assert_eq!(ids(&mut driver).len(), 31 * 24);
}

#[test]
fn an_id_from_the_future_is_a_dead_letter() {
    let app = app_with(&week(), ErrorPolicy::dead_letter("letters"), |dedup| {
        dedup.by_uuid_v7(String::clone)
    });
    let mut driver = TestDriver::new(app);
    let [early, now] = [10 * MINUTE + 1, 0].map(|at| uuid(at, 1));
    pipe(&mut driver, &[("k", &early, 0), ("k", &now, 0)]);
    assert_eq!(ids(&mut driver), [now]);
    assert_eq!(
        read(&mut driver, &Topic::plain("letters")),
        own(&[("k", &early)])
    );
}

#[test]
fn other_ids_fail_with_the_reason() {
    let failing = |app: App, id: &str, at: i64| {
        let mut driver = TestDriver::new(app);
        let record = Input::<String, String>::new("k", id).at(Timestamp(BEGIN + at));
        driver.try_pipe(&input(), record).unwrap_err().to_string()
    };
    let strict = || app(|dedup| dedup.by_uuid_v7(String::clone));
    let check = |error: String, word: &str| assert!(error.contains(word), "{error}");
    let v4 = "9b2f1c7e-4a3d-4c5b-8e6f-7a8b9c0d1e2f";
    check(
        failing(strict(), v4, 0),
        "is not a UUID of version 7: it is a UUID of version 4 (store seen)",
    );
    let long = "x".repeat(1_000_000);
    let error = failing(strict(), &long, 0);
    check(error.clone(), "it has 1000000 bytes instead of 36");
    assert!(error.len() < 1_000, "{}", error.len());
    check(
        failing(strict(), &uuid(10 * MINUTE + 1, 1), 0),
        "is 600.001s ahead of stream time; the limit of store seen is 600s",
    );
    check(
        failing(strict(), &uuid(-7 * DAY - 1, 1), 0),
        "is 604800.001s behind stream time; the store seen remembers ids for 604800s",
    );
    check(failing(strict(), "", 0), "the record has no id");
    let by_ulid = app(|dedup| dedup.by_ulid(String::clone));
    check(
        failing(by_ulid, &uuid(0, 1), 0),
        "is not a ULID: it has 36 bytes instead of 26",
    );
    // The id provides the time. Without it, stream time would not advance.
    let mut driver = TestDriver::new(strict());
    let record = Input::<String, String>::new("k", uuid(0, 1)).at(Timestamp(-1));
    assert!(driver.try_pipe(&input(), record).is_err());
}

#[test]
fn ulids_are_ids_with_a_time() {
    let mut driver = TestDriver::new(app(|dedup| dedup.pass_too_old().by_ulid(String::clone)));
    let (id, old) = (ulid(0, 1), ulid(-7 * DAY - 1, 1));
    let lower = id.to_lowercase();
    let other = ulid(0, 2);
    pipe(
        &mut driver,
        &[
            ("k", &id, 0),
            ("k", &lower, 0),
            ("k", &other, 0),
            ("k", &old, 0),
        ],
    );
    assert_eq!(ids(&mut driver), [id, other, old]);
}

#[test]
fn judged_records_have_the_time_of_the_first_record() {
    let mut app = App::new("a");
    app.source(&input())
        .dedup(&week())
        .judge_by_uuid_v7(String::clone)
        .map(|judged| match judged.seen {
            Seen::New => "new".to_owned(),
            Seen::Duplicate { first } => format!("after {}", first.0 - BEGIN),
            Seen::TooOld => "too old".to_owned(),
            _ => "no id".to_owned(),
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    let (id, old) = (uuid(0, 1), uuid(-8 * DAY, 1));
    pipe(
        &mut driver,
        &[
            ("k", &id, MINUTE),
            ("k", &id, 2 * MINUTE),
            ("k", &old, 0),
            ("k", "", 0),
        ],
    );
    assert_eq!(ids(&mut driver), ["new", "after 60000", "too old", "no id"]);
}

#[test]
fn the_window_and_the_ids_belong_together() {
    let refused = |app: App, reason: &str| {
        let text = app.describe().unwrap_err().to_string();
        assert!(text.contains(reason), "{text}");
    };
    refused(
        app(|dedup| dedup.by(String::clone)),
        "the ids have no time, which `time_embedded` counts from",
    );
    let fixed = SeenIds::fixed("seen", Duration::from_secs(300));
    refused(
        app_with(&fixed, ErrorPolicy::fail(), |dedup| {
            dedup.by_ulid(String::clone)
        }),
        "`by_uuid_v7` and `by_ulid` require `SeenIds::time_embedded`",
    );
    let short = week().redelivered_within(Duration::from_secs(8 * 86_400));
    refused(
        app_with(&short, ErrorPolicy::fail(), |dedup| {
            dedup.by_ulid(String::clone)
        }),
        "the window is 604800s, but producers repeat records for 691200s",
    );
}
