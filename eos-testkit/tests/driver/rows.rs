//! Rows of tables that closures read.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

const MINUTE: Duration = Duration::from_secs(60);

fn clicks() -> PlainTopic<String, String> {
    Topic::plain("clicks")
}

fn found() -> PlainTopic<String, String> {
    Topic::plain("found")
}

fn counts() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("counts")
}

fn pipe(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    for (key, value, time) in records {
        driver.pipe_at(&clicks(), *key, *value, Timestamp(*time));
    }
}

fn read(driver: &mut TestDriver) -> Vec<String> {
    let pairs = driver.read_pairs(&found()).into_iter();
    pairs.map(|(_, value)| value).collect()
}

/// Compares the output, with a restore of the rows half-way, and with a crash at every effect.
#[track_caller]
fn check(app: impl Fn() -> App, clicks: &[(&str, &str, i64)], expected: &[&str]) {
    let start = || TestDriver::new(app());
    let mut driver = start();
    let (first, second) = clicks.split_at(clicks.len() / 2);
    pipe(&mut driver, first);
    driver.crash_and_lose_state();
    pipe(&mut driver, second);
    assert_eq!(read(&mut driver), expected);
    let places = crash_everywhere(start, |driver| {
        pipe(driver, clicks);
        driver.committed()
    });
    assert!(places > 20, "{places}");
}

/// The number of clicks of each user and of the user who invited them, with the time of the latter's row.
fn with_inviter() -> App {
    let mut app = App::new("a");
    let clicks = app.source(&clicks());
    let counts = clicks.clone().group_by_key().count(&counts()).rows();
    clicks
        .with_store(&counts)
        .process_values(move |ctx, click| {
            let rows = ctx.store(&counts);
            let own = rows.get(click.key)?.unwrap_or_default();
            let inviter = rows.get_with_time(&click.value)?;
            let inviter = inviter.map(|(count, time)| (count, time.map(|time| time.0)));
            ctx.forward(format!("{own} {inviter:?}"))
        })
        .to(&found());
    app
}

const CLICKS: [(&str, &str, i64); 4] = [
    ("a", "b", 10),
    ("b", "a", 20),
    ("b", "b", 15),
    ("a", "b", 30),
];

#[test]
fn closures_read_the_rows_of_other_keys() {
    let expected = [
        "1 None",
        "1 Some((1, Some(10)))",
        "2 Some((2, Some(20)))",
        "2 Some((2, Some(20)))",
    ];
    check(with_inviter, &CLICKS, &expected);
}

/// Writes the results of a key in all windows for each record of another key.
fn with_windows() -> App {
    let mut app = App::new("a");
    let clicks = app.source(&clicks());
    let windows = Tumbling::of(MINUTE);
    let counts = clicks
        .clone()
        .group_by_key()
        .windowed_by(windows)
        .count(&WindowStore::plain("per-minute").retention(2 * MINUTE));
    let rows = counts.rows();
    counts
        .emit_on_close()
        .to(&Topic::with("final", TimeWindowed::of(MINUTE), Plain));
    clicks
        .with_store(&rows)
        .process_values(move |ctx, click| {
            let view = ctx.store(&rows);
            let minute = |n: i64| Timestamp(n * 60_000);
            let first = view.get(&click.value, minute(0))?;
            let starts = (0..10).map(minute);
            let fetched = view.fetch(&click.value, starts)?.into_iter();
            let fetched: Vec<_> = fetched.map(|(start, n)| (start.0 / 60_000, n)).collect();
            let mut all = Vec::new();
            for entry in view.all(minute(1)..) {
                let (start, key, n) = entry?;
                all.push(format!("{key}{}={n}", start.0 / 60_000));
            }
            ctx.forward(format!("{first:?} {fetched:?} {}", all.join(" ")))
        })
        .to(&found());
    app
}

#[test]
fn closures_read_open_and_closed_windows_until_they_expire() {
    let clicks = [
        ("a", "a", 0),
        ("a", "a", 1),
        ("b", "a", 60_000),
        ("a", "a", 61_000),
        ("b", "a", 170_000),
    ];
    let expected = [
        "Some(1) [(0, 1)] ",
        "Some(2) [(0, 2)] ",
        "Some(2) [(0, 2)] b1=1",
        "Some(2) [(0, 2), (1, 1)] a1=1 b1=1",
        "None [(1, 1)] a1=1 b1=1 b2=1",
    ];
    check(with_windows, &clicks, &expected);
}

#[test]
fn a_closure_without_the_store_cannot_read_its_rows() {
    let mut app = App::new("a");
    let clicks_of = app.source(&clicks());
    let table = clicks_of.clone().group_by_key().count(&counts());
    let counts = table.rows();
    table.to(&Topic::plain("counts"));
    clicks_of
        .process_values(move |ctx, click| {
            let error = ctx.store(&counts).get(click.key).unwrap_err();
            ctx.forward(error.to_string())
        })
        .to(&found());
    let mut driver = TestDriver::new(app);
    driver.pipe(&clicks(), "a", "x");
    let text = &read(&mut driver)[0];
    assert!(
        text.contains("with_store") && text.contains("counts"),
        "{text}"
    );
}

#[test]
fn rows_of_another_app_are_refused() {
    let mut other = App::new("other");
    let rows = other
        .source(&clicks())
        .group_by_key()
        .count(&counts())
        .rows();
    let mut app = App::new("a");
    app.source(&clicks()).with_store(&rows).to(&found());
    let error = app.describe().unwrap_err().to_string();
    assert!(error.contains("with_store"), "{error}");
}

#[test]
fn a_table_needs_an_end_or_a_reader() {
    let build = |reads: bool, is_final: bool| {
        let mut app = App::new("a");
        let clicks = app.source(&clicks());
        let table = clicks
            .clone()
            .group_by_key()
            .windowed_by(Tumbling::of(MINUTE))
            .count(&WindowStore::plain("counts"));
        let rows = table.rows();
        if is_final {
            drop(table.emit_on_close());
        }
        let clicks = clicks.with_store(&rows);
        match reads {
            true => clicks.process_values(|ctx, click| ctx.forward(click.value)),
            false => clicks,
        }
        .to(&found());
        app.describe().map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(build(true, false), Ok(()));
    for (reads, is_final) in [(false, false), (true, true)] {
        let error = build(reads, is_final).unwrap_err();
        assert!(error.contains("go nowhere"), "{error}");
    }
}

#[test]
fn closures_read_rows_of_another_topic_and_do_not_change_them() {
    let names = Topic::<String, Option<String>>::plain("names");
    let mut app = App::new("a");
    let rows = app.table(&names, &KeyValueStore::plain("names")).rows();
    app.source(&clicks())
        .with_store(&rows)
        .process_values(move |ctx, click| {
            let name = ctx.store(&rows).get(click.key)?;
            ctx.forward(name.unwrap_or_default())
        })
        .to(&found());
    let graph = app.describe().unwrap();
    let guarantees = graph.guarantees().to_string();
    assert!(
        guarantees.contains("in memory; rows of the store names"),
        "{guarantees}"
    );
    assert_eq!(
        guarantees.matches("changes of names commit").count(),
        1,
        "{guarantees}"
    );
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&names, "a", Some("Ann".to_owned()), Timestamp(1));
    pipe(&mut driver, &[("a", "x", 2)]);
    driver.pipe_tombstone(&names, "a");
    pipe(&mut driver, &[("a", "x", 4)]);
    assert_eq!(read(&mut driver), ["Ann", ""]);
}
