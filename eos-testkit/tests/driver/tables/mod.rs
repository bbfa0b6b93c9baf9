//! Tables that are derived from other tables: steps, joins and groups.

use eos_core::{App, KeyValueStore, PlainTopic, Table, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

mod added;
mod foreign;
mod foreign_faults;
mod foreign_golden;
mod foreign_known;
mod grouped;
mod joins;
mod related;
mod steps;

type Rows = PlainTopic<String, Option<String>>;

fn rows(name: &str) -> Rows {
    Topic::plain(name)
}

fn store(name: &str) -> KeyValueStore<String, String> {
    KeyValueStore::plain(name)
}

/// The table of a topic, in a store of the same name.
fn table(app: &mut App, name: &str) -> Table<String, String> {
    app.table(&rows(name), &store(name))
}

/// An update of a row: topic, key, value.
type Update<'a> = (&'a str, &'a str, Option<&'a str>);

fn pipe(driver: &mut TestDriver, (topic, key, value): Update<'_>) {
    driver.pipe(&rows(topic), key, value.map(str::to_owned));
}

/// Runs an app without crashes and with a crash everywhere. Checks the records of the topic `out`.
#[track_caller]
fn check(build: impl Fn(&mut App), updates: &[Update<'_>], expected: &[(&str, Option<&str>)]) {
    let start = || {
        let mut app = App::new("a");
        build(&mut app);
        TestDriver::new(app)
    };
    let mut driver = start();
    for update in updates {
        pipe(&mut driver, *update);
    }
    let expected: Vec<_> = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
        .collect();
    assert_eq!(driver.read_pairs(&rows("out")), expected);

    let places = crash_everywhere(start, |driver| {
        for update in updates {
            pipe(driver, *update);
        }
        driver.committed()
    });
    assert!(places > 10, "{places}");
}

/// The mistakes of an app.
#[track_caller]
fn mistakes(build: impl Fn(&mut App)) -> String {
    let mut app = App::new("a");
    build(&mut app);
    app.describe().unwrap_err().to_string()
}
