//! Ids within a window: when they count as seen, and the records that fail.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eos_core::identity::{Dedup, Seen, SeenIds};
use eos_core::{App, ErrorPolicy, Failure, KeyValueStore, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use super::{
    BEGIN, MINUTE, app, app_with, five_minutes, ids, input, minutes, old, output, own, pipe, read,
    repeated,
};

#[test]
fn an_id_is_new_again_exactly_a_window_after_its_first_record() {
    let records = [
        ("k", "a", 0),
        ("k", "a", 5 * MINUTE - 1),
        ("k", "a", 5 * MINUTE),
        ("k", "b", 5 * MINUTE),
        ("k", "a", 10 * MINUTE - 1),
    ];
    let mut driver = TestDriver::new(app(&five_minutes()));
    pipe(&mut driver, &records);
    assert_eq!(ids(&mut driver), ["a", "a", "b"]);
    assert_eq!(
        read(&mut driver, &repeated()),
        own(&[("k", "a"), ("k", "a")])
    );
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.dedup_new, totals.dedup_duplicates), (3, 2));
    let places = crash_everywhere(
        || TestDriver::new(app(&five_minutes())),
        |driver| {
            pipe(driver, &records);
            driver.committed()
        },
    );
    assert!(places > 20, "{places}");
}

/// The results of one commit run through the deduplication one after the other.
#[test]
fn ids_behind_results_of_commits_are_counted() {
    let mut app = App::new("a");
    app.source(&input())
        .group_by_key()
        .count(&KeyValueStore::<String, u64>::plain("counts"))
        .emit_per_commit()
        .to_stream()
        .dedup(&SeenIds::for_ever("seen").per_partition())
        .by(|count| *count)
        .map(|count| count.to_string())
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.hold();
    pipe(
        &mut driver,
        &[("a", "", 0), ("b", "", 0), ("c", "", 0), ("c", "", 0)],
    );
    driver.release();
    assert_eq!(read(&mut driver, &output()), own(&[("a", "1"), ("c", "2")]));
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.dedup_new, totals.dedup_duplicates), (2, 1));
}

#[test]
fn duplicates_stay_dropped_after_a_crash_or_a_rebalance() {
    let scenario = |driver: &mut TestDriver| {
        let at =
            |id: &str, at: i64| Input::<String, String>::new("k", id).at(Timestamp(BEGIN + at));
        driver.pipe_all(&input(), [at("a", 0), at("a", 1), at("b", 2)]);
        driver.pipe_all(&input(), [at("b", 3), at("c", 4)]);
        driver.rebalance();
        driver.pipe_all(&input(), [at("c", 5), at("a", 6), at("d", 7)]);
        (ids(driver), read(driver, &repeated()).len())
    };
    let own = |ids: [&str; 4]| ids.map(str::to_owned).to_vec();
    let expected = (own(["a", "b", "c", "d"]), 4);
    assert_eq!(
        scenario(&mut TestDriver::new(app(&five_minutes()))),
        expected
    );
    let places = crash_everywhere(|| TestDriver::new(app(&five_minutes())), scenario);
    assert!(places > 20, "{places}");
}

#[test]
fn an_id_counts_within_its_key_or_within_its_partition() {
    let records = [("k", "a", 0), ("l", "a", 1), ("l", "a", 2)];
    let mut driver = TestDriver::new(app(&five_minutes()));
    pipe(&mut driver, &records);
    assert_eq!(read(&mut driver, &output()), own(&[("k", "a"), ("l", "a")]));
    let mut driver = TestDriver::new(app(&five_minutes().per_partition()));
    pipe(&mut driver, &records);
    assert_eq!(read(&mut driver, &output()), own(&[("k", "a")]));
}

#[test]
fn equal_ids_of_two_tenants_are_different() {
    let seen = five_minutes().per_partition();
    let app = app_with(&seen, ErrorPolicy::fail(), |dedup| {
        dedup
            .tenant(|value| value[..1].to_owned())
            .by(|value| value[1..].to_owned())
    });
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[("k", "a12345", 0), ("k", "b12345", 1), ("k", "a12345", 2)],
    );
    assert_eq!(ids(&mut driver), ["a12345", "b12345"]);
}

/// R62, R64: concurrent requests of many senders arrive at different partitions. A repartition brings equal ids into
/// one task.
#[test]
fn equal_ids_of_many_partitions_have_one_effect() {
    let start = || {
        let mut app = App::new("a");
        app.source(&input())
            .key_by(String::clone)
            .repartition(&Topic::plain("by-id"))
            .dedup(&five_minutes())
            .by_key()
            .to(&output());
        let driver = TestDriver::builder().partitions("in", 4).instances(2);
        driver.start(app)
    };
    let scenario = |driver: &mut TestDriver, senders: usize| {
        let request = |sender: usize, id: String| {
            let partition = i32::try_from(sender % 4).unwrap();
            Input::<String, String>::new(format!("sender {sender}"), id).to_partition(partition)
        };
        let same = (0..senders).map(|sender| request(sender, "same".to_owned()));
        driver.pipe_all(&input(), same);
        let own = (0..senders).map(|sender| request(sender, format!("own {sender}")));
        driver.pipe_all(&input(), own);
        let mut ids = ids(driver);
        ids.sort();
        ids
    };
    let expected = |senders: usize| {
        let own = (0..senders).map(|sender| format!("own {sender}"));
        let mut all: Vec<_> = own.chain(["same".to_owned()]).collect();
        all.sort();
        all
    };
    assert_eq!(scenario(&mut start(), 64), expected(64));
    let places = crash_everywhere(start, |driver| {
        assert_eq!(scenario(driver, 8), expected(8));
    });
    assert!(places > 20, "{places}");
}

#[test]
fn a_sliding_window_moves_and_an_endless_one_stays() {
    let sliding = || SeenIds::sliding("seen", minutes(5));
    let ever = SeenIds::for_ever("seen");
    let records = [
        ("k", "a", 0),
        ("k", "a", 4 * MINUTE),
        ("k", "a", 8 * MINUTE),
        ("k", "b", 8 * MINUTE),
        ("k", "a", 13 * MINUTE),
    ];
    let new = |seen: SeenIds<String>| {
        let mut driver = TestDriver::new(app(&seen));
        pipe(&mut driver, &records);
        let new = ids(&mut driver);
        let places = crash_everywhere(
            || TestDriver::new(app(&seen)),
            |driver| {
                pipe(driver, &records);
                driver.committed()
            },
        );
        assert!(places > 20, "{places}");
        new
    };
    assert_eq!(new(sliding()), ["a", "b", "a"]);
    assert_eq!(new(sliding().at_most(minutes(7))), ["a", "a", "b", "a"]);
    assert_eq!(new(ever), ["a", "b"]);
}

#[test]
fn a_record_without_an_id_fails_unless_it_may_pass() {
    let by_option = |dedup: Dedup<String, String>| {
        dedup.by(|value| (value != "none").then(|| value.replace("empty", "")))
    };
    let failing = || app_with(&five_minutes(), ErrorPolicy::fail(), by_option);
    for value in ["none", "empty"] {
        let mut driver = TestDriver::new(failing());
        let error = driver
            .try_pipe(&input(), Input::<String, String>::new("k", value))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the record has no id (store seen). Set the id in the producer"),
            "{error}"
        );
    }
    let passing = |dedup: Dedup<String, String>| by_option(dedup.pass_without_id());
    let mut driver = TestDriver::new(app_with(&five_minutes(), ErrorPolicy::fail(), passing));
    pipe(
        &mut driver,
        &[("k", "none", 0), ("k", "empty", 1), ("k", "none", 2)],
    );
    assert_eq!(ids(&mut driver), ["none", "empty", "none"]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_missing_id, 3);
}

#[test]
fn a_record_that_is_too_old_fails_or_goes_elsewhere_or_passes() {
    let records = [
        ("k", "now", 60 * MINUTE),
        ("k", "late", 55 * MINUTE),
        ("k", "old", 55 * MINUTE - 1),
    ];
    let build = |change: fn(Dedup<String, String>) -> Dedup<String, String>| {
        let app = app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
            change(dedup).by(String::clone)
        });
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, &records[..2]);
        driver
    };
    let old_record =
        || Input::<String, String>::new("k", "old").at(Timestamp(BEGIN + records[2].2));
    let mut driver = build(|dedup| dedup);
    let error = driver
        .try_pipe(&input(), old_record())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is 300.001s behind stream time; the limit of store seen is 300s"),
        "{error}"
    );
    let mut driver = build(|dedup| dedup.too_old_to(&old()));
    driver.pipe_input(&input(), old_record());
    assert_eq!(ids(&mut driver), ["now", "late"]);
    assert_eq!(read(&mut driver, &old()), own(&[("k", "old")]));
    let mut driver = build(Dedup::pass_too_old);
    driver.pipe_input(&input(), old_record());
    assert_eq!(ids(&mut driver), ["now", "late", "old"]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_too_old, 1);
}

/// A step in front of the deduplication sets a wrong time. Its row would keep the rows of all records from expiring.
#[test]
fn an_id_at_a_time_far_ahead_that_a_step_sets_fails() {
    let mut app = App::new("a");
    let seen = five_minutes();
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .process_values(|ctx, record| {
            let year = if record.value == "ahead" {
                365 * 24 * 60 * MINUTE
            } else {
                0
            };
            let time = record.timestamp.map_or(0, |time| time.0) + year;
            ctx.forward_record(record.at(Timestamp(time)))
        })
        .dedup(&seen)
        .by(String::clone)
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[("k", "a", 0), ("k", "ahead", 1), ("k", "b", 2)],
    );
    assert_eq!(ids(&mut driver), ["a", "b"]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

/// One wrong timestamp would make all current records too old.
#[test]
fn a_record_from_the_future_fails_and_moves_no_time() {
    let hour = 60 * MINUTE;
    let records = [("k", "a", 0), ("k", "early", hour), ("k", "b", 1)];
    let app =
        |seen: SeenIds<String>| app_with(&seen, ErrorPolicy::skip(), |it| it.by(String::clone));
    let long = || SeenIds::fixed("seen", minutes(120)).lateness(minutes(90));
    let mut driver = TestDriver::new(app(long()));
    pipe(&mut driver, &records);
    pipe(
        &mut driver,
        &[("k", "future", hour + MINUTE), ("k", "c", 2)],
    );
    assert_eq!(ids(&mut driver), ["a", "early", "b", "c"]);
    assert_eq!(driver.stream_time("in", 0), Some(Timestamp(BEGIN + hour)));
    let mut driver = TestDriver::new(app(long().trust_times()));
    pipe(&mut driver, &[("k", "future", 24 * hour), ("k", "a", 0)]);
    assert_eq!(
        ids(&mut driver),
        ["future"],
        "the other one is too old and skipped"
    );
    let mut app = App::new("a");
    app.source(&input())
        .dedup(&long())
        .by(String::clone)
        .to(&output());
    let mut driver = TestDriver::new(app);
    let future = Input::<String, String>::new("k", "a").at(Timestamp(BEGIN + 2 * hour));
    let error = driver.try_pipe(&input(), future).unwrap_err().to_string();
    assert!(
        error.contains("s ahead of the machine's clock; the limit is 3600s"),
        "{error}"
    );
}

#[test]
fn the_id_of_a_failed_record_is_not_remembered() {
    let start = || {
        let calls = AtomicU32::new(0);
        let app = app_with(&five_minutes(), ErrorPolicy::skip(), |dedup| {
            dedup.by(String::clone).try_map(move |value| {
                match calls.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(Failure::from("the service is down")),
                    _ => Ok(value),
                }
            })
        });
        TestDriver::new(app)
    };
    let mut driver = start();
    pipe(&mut driver, &[("k", "a", 0), ("k", "a", 1), ("k", "a", 2)]);
    assert_eq!(ids(&mut driver), ["a"]);
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.skipped, totals.dedup_duplicates), (1, 1));
}

#[test]
fn judged_records_say_what_is_known() {
    let mut app = App::new("a");
    app.source(&input())
        .dedup(&five_minutes())
        .judge_by(String::clone)
        .map(|judged| match judged.seen {
            Seen::New => format!("{} is new", judged.value),
            Seen::Duplicate { first } => format!("again after {}", first.0 - BEGIN),
            Seen::TooOld => "too old".to_owned(),
            _ => "no id".to_owned(),
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    let records = [
        ("k", "a", 10 * MINUTE),
        ("k", "a", 11 * MINUTE),
        ("k", "b", 0),
        ("k", "", 0),
    ];
    pipe(&mut driver, &records);
    assert_eq!(
        ids(&mut driver),
        ["a is new", "again after 600000", "too old", "no id"]
    );
}

/// A closure in front forwards records with times of its own, which may be ahead of stream time.
#[test]
fn records_with_times_ahead_of_stream_time_are_judged() {
    let start = || {
        let mut app = App::new("a");
        app.source(&input())
            .process_values(|ctx, record| {
                let ahead: i64 = record.value.parse()?;
                let time = Timestamp(BEGIN + ahead * MINUTE);
                ctx.forward_record(record.with_value("a".to_owned()).at(time))
            })
            .dedup(&five_minutes())
            .judge_by(String::clone)
            .map(|judged| format!("{:?}", judged.seen == Seen::New))
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("k", "10", 0),
                ("k", "8", 1),
                ("k", "14", 2),
                ("k", "15", 3),
                ("k", "0", 4),
            ],
        );
        ids(driver)
    };
    assert_eq!(
        scenario(&mut start()),
        ["true", "false", "false", "true", "true"]
    );
    crash_everywhere(start, scenario);
}

/// Stream time is that of all records of the task, also of those that a step in front drops.
#[test]
fn a_dropped_record_from_the_future_moves_no_time_either() {
    let mut app = App::new("a");
    app.source(&input())
        .on_error(ErrorPolicy::skip())
        .filter(|value| value != "dropped")
        .dedup(&five_minutes())
        .by(String::clone)
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[
            ("k", "a", 0),
            ("k", "dropped", 24 * 60 * MINUTE),
            ("k", "b", 1),
        ],
    );
    assert_eq!(ids(&mut driver), ["a", "b"]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

#[test]
fn a_null_key_or_tenant_is_not_an_empty_one() {
    let topic = || Topic::<Option<String>, String>::plain("keyless");
    let seen = || SeenIds::<Option<String>>::fixed("seen", minutes(5));
    let out = || Topic::<Option<String>, String>::plain("kept");
    let mut app = App::new("a");
    app.source(&topic())
        .dedup(&seen())
        .by(String::clone)
        .to(&out());
    let mut driver = TestDriver::new(app);
    for key in [None, Some(String::new()), None] {
        driver.pipe(&topic(), key, "a");
    }
    assert_eq!(driver.read(&out()).len(), 2);
    let tenant = |value: &String| (!value.starts_with('-')).then(String::new);
    let app = app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
        dedup.tenant(tenant).by(|value| value.replace('-', ""))
    });
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("k", "a", 0), ("k", "-a", 1), ("k", "a", 2)]);
    assert_eq!(ids(&mut driver), ["a", "-a"]);
}

#[test]
fn two_deduplications_in_a_row_have_their_own_ids() {
    let start = || {
        let mut app = App::new("a");
        app.source(&input())
            .dedup(&SeenIds::fixed("first", minutes(5)))
            .by(String::clone)
            .dedup(&SeenIds::fixed("second", minutes(10)))
            .by(|value| value[..1].to_owned())
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        let records = [
            ("k", "a1", 0),
            ("k", "a1", 1),
            ("k", "a2", 2),
            ("k", "b1", 3),
        ];
        pipe(driver, &records);
        pipe(driver, &[("k", "a2", 6 * MINUTE), ("k", "a1", 10 * MINUTE)]);
        ids(driver)
    };
    assert_eq!(scenario(&mut start()), ["a1", "b1", "a1"]);
    crash_everywhere(start, scenario);
}

/// R45: two tiers of the same ids. The second one finds what the first one has forgotten.
#[test]
fn a_longer_deduplication_behind_a_shorter_one_finds_late_copies() {
    const DAY: i64 = 24 * 60 * MINUTE;
    let [hour, days] = [60, 4 * 24 * 60].map(minutes);
    let start = move || {
        let mut app = App::new("a");
        app.source(&input())
            .dedup(&SeenIds::fixed("hot", hour).trust_times())
            .by(String::clone)
            .dedup(&SeenIds::fixed("durable", days).trust_times())
            .duplicates_to(&repeated())
            .by(String::clone)
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        let times = [0, 1, 3 * DAY, 4 * DAY - 1, 4 * DAY + 2 * 60 * MINUTE];
        pipe(driver, &times.map(|at| ("k", "a", at)));
        (ids(driver).len(), read(driver, &repeated()).len())
    };
    assert_eq!(scenario(&mut start()), (2, 2));
    crash_everywhere(start, scenario);
}

#[test]
fn windows_that_can_not_work_are_refused() {
    let refused = |seen: SeenIds<String>| {
        let text = app(&seen).describe().unwrap_err().to_string();
        assert!(text.contains("the SeenIds seen: the "), "{text}");
    };
    refused(SeenIds::fixed("seen", Duration::ZERO));
    refused(SeenIds::fixed("seen", minutes(100 * 24 * 60)));
    refused(SeenIds::sliding("seen", minutes(5)).at_most(minutes(4)));
    refused(five_minutes().redelivered_within(minutes(6)));
    // R56: the error names both durations.
    let short = SeenIds::fixed("seen", minutes(60)).redelivered_within(minutes(4 * 24 * 60));
    let text = app(&short).describe().unwrap_err().to_string();
    let expected = "the window is 3600s, but producers repeat records for 345600s";
    assert!(text.contains(expected), "{text}");
    assert!(
        app(&five_minutes().redelivered_within(minutes(5)))
            .describe()
            .is_ok()
    );
}
