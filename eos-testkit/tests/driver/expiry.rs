//! Rows that expire, with a crash at every effect.

use std::time::Duration;

use eos_core::state::OrderedStore;
use eos_core::{App, ErrorPolicy, Failure, KeyValueStore, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn store() -> KeyValueStore<String, String> {
    KeyValueStore::plain("codes").expire_after(MS(100))
}

/// Emits the kept value of each record's key, and keeps the new one. A value of `?` only reads, and `-` deletes.
fn app() -> App {
    let mut app = App::new("a");
    let codes = app.store(&store());
    app.source(&input())
        .with_store(&codes)
        .process(move |ctx, record| {
            let store = ctx.store(&codes);
            let kept = store.get(&record.key)?;
            match &*record.value {
                "?" => {}
                "-" => store.delete(&record.key)?,
                value => store.put(&record.key, &value.to_owned())?,
            }
            ctx.forward(record.key, kept.unwrap_or("none".to_owned()))
        })
        .to(&output());
    app
}

fn pipe(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    for (key, value, time) in records {
        driver.pipe_at(&input(), *key, *value, Timestamp(*time));
    }
}

fn read(driver: &mut TestDriver) -> Vec<String> {
    driver
        .read_pairs(&output())
        .into_iter()
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn a_row_is_gone_exactly_when_its_time_has_passed() {
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("a", "x", 1_000),
                ("b", "y", 1_050),
                ("a", "?", 1_099),
                ("c", "?", 1_100),
                ("a", "?", 1_100),
                ("b", "z", 1_149),
                // Stream time counts, not the time of the record.
                ("a", "w", 1_010),
                ("a", "?", 1_248),
                ("b", "?", 1_248),
                ("b", "?", 1_249),
                ("a", "?", 1_249),
            ],
        );
        read(driver)
    };
    let mut driver = TestDriver::new(app());
    let expected = [
        "none", "none", "x", "none", "none", "y", "none", "w", "z", "none", "none",
    ];
    assert_eq!(scenario(&mut driver), expected);
    assert!(driver.store(&store()).is_empty());
    let places = crash_everywhere(
        || TestDriver::new(app()),
        |driver| (scenario(driver), driver.store(&store()).into_map()),
    );
    assert!(places > 30, "{places}");
}

#[test]
fn a_deleted_row_and_a_renewed_one() {
    let mut driver = TestDriver::new(app());
    pipe(
        &mut driver,
        &[
            ("a", "x", 0),
            ("a", "-", 10),
            ("a", "?", 20),
            ("b", "1", 20),
            ("b", "2", 90),
            ("c", "", 150),
            ("b", "?", 189),
            ("b", "?", 190),
        ],
    );
    assert_eq!(
        read(&mut driver),
        ["none", "x", "none", "none", "1", "none", "2", "none"]
    );
}

/// The database loses the row, too, and so does a restored one.
#[test]
fn expired_rows_leave_the_changelog() {
    let mut driver = TestDriver::new(app());
    pipe(
        &mut driver,
        &[("a", "x", 0), ("b", "y", 50), ("c", "z", 110)],
    );
    driver.crash_and_lose_state();
    pipe(&mut driver, &[("d", "w", 151)]);
    let keys: Vec<_> = driver.store(&store()).into_map().into_keys().collect();
    assert_eq!(keys, ["c", "d"]);
    let raw = driver.cluster().read("a-in-changelog", 0);
    let deleted = raw.iter().filter(|it| it.value.is_none()).count();
    assert_eq!(deleted, 2, "a tombstone for each of `a` and `b`");
}

#[test]
fn scans_leave_expired_rows_out() {
    let start = || {
        let mut app = App::new("a");
        let last =
            app.store(&OrderedStore::<(String, u64), String>::plain("last").expire_after(MS(100)));
        app.source(&input())
            .with_store(&last)
            .process(move |ctx, record| {
                let store = ctx.store(&last);
                let time = record.timestamp.map_or(0, |time| time.0.unsigned_abs());
                store.put(&(record.key.clone(), time), &record.value)?;
                let kept = store
                    .prefix(&record.key)
                    .map(|it| Ok(it?.1))
                    .collect::<Result<Vec<_>, Failure>>()?;
                let later = (record.key.clone(), 50)..;
                let some = store.range(later).reverse().count();
                ctx.forward(record.key, format!("{} {some}", kept.join(",")))
            })
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("a", "x", 10),
                ("a", "y", 60),
                ("b", "z", 70),
                ("a", "w", 110),
                ("b", "v", 165),
            ],
        );
        read(driver)
    };
    let expected = ["x 0", "x,y 1", "z 1", "y,w 3", "z,v 2"];
    assert_eq!(scenario(&mut start()), expected);
    crash_everywhere(start, scenario);
}

/// A jump of stream time: the moment of a timer sees the rows of its own time.
#[test]
fn a_moment_sees_the_rows_of_its_time() {
    let start = || {
        let mut app = App::new("a");
        let codes = app.store(&store());
        let idle = app.timer(&Timer::<String>::event_time("idle"));
        app.source(&input())
            .with_store(&codes)
            .on_timer(&idle, move |ctx, due| {
                let kept = ctx.store(&codes).get(&due.key)?;
                ctx.forward(due.key, kept.unwrap_or("none".to_owned()))
            })
            .process(move |ctx, record| {
                ctx.store(&codes).put(&record.key, &record.value)?;
                let at = record.value.parse::<i64>()?;
                ctx.timer(&idle).set(&record.key, Timestamp(at))
            })
            .to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[("a", "99", 0), ("b", "100", 0), ("c", "2000", 1_000)],
        );
        read(driver)
    };
    assert_eq!(scenario(&mut start()), ["99", "none"]);
    crash_everywhere(start, scenario);
}

/// Keeps two rows per record and pauses at the value `stop`. With a timer of the machine's clock, each record sets a
/// moment that has passed.
fn pausing(sets_moments: bool) -> App {
    let mut app = App::new("a");
    let codes = app.store(&store());
    let timer = app.timer(&Timer::<String>::wall_clock("timer"));
    app.source(&input())
        .on_error(ErrorPolicy::pause())
        .with_store(&codes)
        .on_timer(&timer, |ctx, due| ctx.forward(due.key, "due".to_owned()))
        .process(move |ctx, record| {
            if record.value == "stop" {
                return Err(Failure::from("stop"));
            }
            let store = ctx.store(&codes);
            store.put(&record.key, &record.value)?;
            store.put(&format!("{}, again", record.key), &record.value)?;
            match sets_moments {
                true => ctx.timer(&timer).set(&record.key, Timestamp(0)),
                false => Ok(()),
            }
        })
        .to(&output());
    app
}

/// The number of records whose rows are in the changelog, expired ones included, when the last one pauses the task.
fn kept_at_the_end(app: App, times: impl IntoIterator<Item = i64>) -> usize {
    let mut driver = TestDriver::new(app);
    let mut last = 0;
    let records = times.into_iter().enumerate().map(|(n, time)| {
        last = time;
        Input::<String, String>::new(format!("{n:05}"), "x").at(Timestamp(time))
    });
    let mut records: Vec<_> = records.collect();
    records.push(Input::new("end", "stop").at(Timestamp(last)));
    driver.pipe_all(&input(), records);
    assert_eq!(driver.paused().len(), 1);
    let mut rows = std::collections::BTreeSet::new();
    for it in driver.cluster().read("a-in-changelog", 0) {
        let key = it.key.map(|key| key.to_vec()).unwrap_or_default();
        match it.value {
            Some(_) if key.ends_with(b", again") => rows.insert(key),
            _ => rows.remove(&key),
        };
    }
    rows.len()
}

/// Removals have no order relative to records. While a backlog of records lasts, they keep up.
#[test]
fn expired_rows_go_while_records_wait() {
    for sets_moments in [false, true] {
        // Two rows per millisecond, for 100 ms each.
        let kept = kept_at_the_end(pausing(sets_moments), 0..2_000);
        assert!((100..=105).contains(&kept), "{sets_moments}: {kept}");
    }
}

/// H7 of the design: after a jump of stream time, no record waits for the removal of all expired rows.
#[test]
fn a_record_does_not_wait_until_all_expired_rows_are_gone() {
    let times = (0..1_000).map(|_| 0).chain([1_000_000, 1_000_001]);
    let kept = kept_at_the_end(pausing(false), times);
    assert!((990..=1_002).contains(&kept), "{kept}");
}

#[test]
fn a_row_without_stream_time_fails() {
    let mut app = App::new("a");
    let codes = app.store(&store());
    app.source(&input())
        .on_error(ErrorPolicy::fail())
        .with_store(&codes)
        .for_each(move |ctx, record| ctx.store(&codes).put(&record.key, &record.value));
    let mut driver = TestDriver::new(app);
    let record = Input::<String, String>::new("a", "x").at(Timestamp(-1));
    let error = driver.try_pipe(&input(), record).unwrap_err().to_string();
    assert!(
        error.contains("codes") && error.contains("timestamp"),
        "{error}"
    );
}

#[test]
fn operators_and_times_of_zero_are_refused() {
    let mut app = App::new("a");
    app.source(&input())
        .group_by_key()
        .count(&KeyValueStore::plain("counts").expire_after(MS(5)))
        .to(&Topic::plain("counts"));
    let _ = app
        .store(&KeyValueStore::<String, u64>::plain("none").expire_after(Duration::from_micros(7)));
    let error = TestDriver::build(app)
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    for part in [
        "the store counts belongs to an operator",
        "the store none",
        "7µs",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
