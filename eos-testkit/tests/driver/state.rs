//! Operators and closures with stores, each with a crash at every effect.

use std::collections::BTreeMap;

use eos_core::state::OrderedStore;
use eos_core::{App, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

fn input() -> PlainTopic<String, u64> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, u64> {
    Topic::plain("out")
}

fn store() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("store")
}

fn pair(key: &str, value: u64) -> (String, u64) {
    (key.to_owned(), value)
}

const RECORDS: [(&str, u64); 4] = [("a", 1), ("b", 2), ("a", 3), ("a", 4)];

/// One after the other, and once more in one transaction.
fn scenario(driver: &mut TestDriver) -> Vec<(String, u64)> {
    for (key, value) in RECORDS {
        driver.pipe(&input(), key, value);
    }
    let out = driver.read_pairs(&output());
    driver.pipe_all(&input(), RECORDS.map(|(key, value)| pair(key, value)));
    out
}

/// Checks the records of the topic `out`, and the final rows of the store. Runs without crashes and with a crash
/// everywhere.
#[track_caller]
fn check(build: impl Fn(&mut App), out: &[(&str, u64)], rows: &[(&str, u64)]) {
    let start = || {
        let mut app = App::new("a");
        build(&mut app);
        TestDriver::new(app)
    };
    let mut driver = start();
    let found = scenario(&mut driver);
    assert_eq!(
        found,
        out.iter().map(|(k, v)| pair(k, *v)).collect::<Vec<_>>()
    );
    let expected: Vec<_> = rows.iter().map(|(k, v)| pair(k, *v)).collect();
    assert_eq!(driver.store(&store()).entries(), expected);
    let places = crash_everywhere(start, |driver| {
        scenario(driver);
        driver.committed()
    });
    assert!(places > 20, "{places}");
}

#[test]
fn count() {
    check(
        |app| {
            app.source(&input())
                .group_by_key()
                .count(&store())
                .to(&output());
        },
        &[("a", 1), ("b", 1), ("a", 2), ("a", 3)],
        &[("a", 6), ("b", 2)],
    );
}

#[test]
fn reduce() {
    check(
        |app| {
            let grouped = app.source(&input()).group_by_key();
            grouped
                .reduce(&store(), |one, other| one.max(other))
                .to(&output());
        },
        &[("a", 1), ("b", 2), ("a", 3), ("a", 4)],
        &[("a", 4), ("b", 2)],
    );
}

#[test]
fn aggregate() {
    check(
        |app| {
            let grouped = app.source(&input()).group_by_key();
            let sums = grouped.aggregate(&store(), || 100, |_, value, sum| sum + value);
            sums.to(&output());
        },
        &[("a", 101), ("b", 102), ("a", 104), ("a", 108)],
        &[("a", 116), ("b", 104)],
    );
}

#[test]
fn a_closure_with_a_store() {
    check(
        |app| {
            let (sums, out) = (app.store(&store()), app.output(&output()));
            app.source(&input())
                .with_store(&sums)
                .for_each(move |ctx, record| {
                    let add = |sum: Option<u64>| sum.unwrap_or(0) + record.value;
                    let sum = ctx.store(&sums).update(&record.key, add)?;
                    ctx.emit(&out, record.key, sum)
                });
        },
        &[("a", 1), ("b", 2), ("a", 4), ("a", 8)],
        &[("a", 16), ("b", 4)],
    );
}

#[test]
fn a_count_behind_a_repartition() {
    let words = Topic::<Option<String>, String>::plain("lines");
    let start = || {
        let mut app = App::new("a");
        app.source(&words)
            .flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .key_by(|word| word.clone())
            .repartition(&Topic::<String, String>::plain("words"))
            .group_by_key()
            .count(&store())
            .to(&output());
        TestDriver::builder().partitions("lines", 2).start(app)
    };
    let scenario = |driver: &mut TestDriver| {
        driver.pipe(&words, None, "to be or not to be");
        driver.pipe(&words, "b".to_owned(), "to be");
        driver.read_map(&output())
    };
    let counts = scenario(&mut start());
    let expected = [("be", 3), ("not", 1), ("or", 1), ("to", 3)].map(|(k, v)| pair(k, v));
    assert_eq!(counts, BTreeMap::from(expected));
    crash_everywhere(start, |driver| {
        let counts = scenario(driver);
        assert_eq!(driver.store(&store()).into_map(), counts);
        counts
    });
}

#[test]
fn emission_per_commit_gives_the_same_table() {
    let start = || {
        let mut app = App::new("a");
        let counts = app.source(&input()).group_by_key().count(&store());
        counts.emit_per_commit().to(&output());
        TestDriver::new(app)
    };
    let mut driver = start();
    driver.pipe_all(&input(), RECORDS.map(|(key, value)| pair(key, value)));
    let mut out = driver.read_pairs(&output());
    out.sort();
    assert_eq!(out, [pair("a", 3), pair("b", 1)]);
    driver.hold();
    driver.pipe(&input(), "a", 1_u64);
    driver.pipe(&input(), "a", 1_u64);
    driver.commit();
    assert_eq!(driver.read_pairs(&output()), [pair("a", 5)]);
    // The number of results depends on the commits, but the last result does not.
    crash_everywhere(start, |driver| {
        driver.pipe_all(&input(), RECORDS.map(|(key, value)| pair(key, value)));
        driver.pipe(&input(), "a", 1_u64);
        (driver.read_map(&output()), driver.store(&store()))
    });
}

#[test]
fn an_ordered_store() {
    let waiting = OrderedStore::<(i64, String), u64>::plain("waiting");
    let start = || {
        let mut app = App::new("a");
        let (store, out) = (app.store(&waiting), app.output(&output()));
        app.source(&input())
            .with_store(&store)
            .for_each(move |ctx, record| {
                let store = ctx.store(&store);
                let now = ctx.stream_time().map_or(0, |time| time.0);
                for entry in store.range(..(now, String::new())) {
                    let ((time, name), value) = entry?;
                    ctx.emit(&out, name.clone(), value)?;
                    store.delete(&(time, name))?;
                }
                store.put(&(now + 10, record.key), &record.value)
            });
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        for (key, value, time) in [
            ("b", 1_u64, 3),
            ("a", 2, 3),
            ("c", 3, 5),
            ("d", 4, 14),
            ("e", 5, 20),
        ] {
            driver.pipe_at(&input(), key, value, Timestamp(time));
        }
        (driver.read_pairs(&output()), driver.store(&waiting))
    };
    let (due, rest) = scenario(&mut start());
    assert_eq!(due, [pair("a", 2), pair("b", 1), pair("c", 3)]);
    let rest: Vec<_> = rest
        .entries()
        .iter()
        .map(|((time, name), _)| (*time, name.as_str()))
        .collect();
    assert_eq!(rest, [(24, "d"), (30, "e")]);
    crash_everywhere(start, |driver| (scenario(driver), driver.committed()));
}

#[test]
fn a_table_and_a_join() {
    let names = Topic::<String, Option<String>>::plain("names");
    let rows = KeyValueStore::<String, String>::plain("names");
    let invoices = Topic::<String, String>::plain("invoices");
    let all = Topic::<String, String>::plain("all");
    let start = || {
        let mut app = App::new("a");
        let table = app.table(&names, &rows);
        let amounts = app.source(&input());
        amounts
            .clone()
            .join(&table, |cents, name| format!("{name} owes {cents}"))
            .to(&invoices);
        amounts
            .left_join(&table, |cents, name| format!("{name:?} {cents}"))
            .to(&all);
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        driver.pipe_at(&names, "a", Some("Ada".to_owned()), Timestamp(1));
        driver.pipe_at(&input(), "a", 5_u64, Timestamp(2));
        driver.pipe_at(&input(), "b", 6_u64, Timestamp(3));
        driver.pipe_at(&names, "a", Some("Ada L.".to_owned()), Timestamp(4));
        driver.pipe_at(&names, "b", Some("Bob".to_owned()), Timestamp(4));
        driver.pipe_at(&input(), "a", 7_u64, Timestamp(5));
        driver.pipe_tombstone(&names, "b");
        driver.pipe(&input(), "b", 8_u64);
        let texts = |pairs: Vec<(String, String)>| pairs.into_iter().map(|(_, text)| text);
        let invoices: Vec<_> = texts(driver.read_pairs(&invoices)).collect();
        let all: Vec<_> = texts(driver.read_pairs(&all)).collect();
        (invoices, all, driver.store(&rows))
    };
    let (invoices_found, all_found, rows_found) = scenario(&mut start());
    assert_eq!(invoices_found, ["Ada owes 5", "Ada L. owes 7"]);
    assert_eq!(
        all_found,
        ["Some(\"Ada\") 5", "None 6", "Some(\"Ada L.\") 7", "None 8"]
    );
    assert_eq!(
        rows_found.entries(),
        [("a".to_owned(), "Ada L.".to_owned())]
    );
    crash_everywhere(start, |driver| (scenario(driver), driver.committed()));
}
