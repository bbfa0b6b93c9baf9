//! Steps that an app gets when its tables have rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eos_core::{App, KeyValueStore, PlainTopic, Table, Topic};
use eos_testkit::TestDriver;

use super::{Rows, rows, store, table};

fn counts() -> PlainTopic<String, u64> {
    Topic::plain("counts")
}

/// Counts the rows of each value.
fn group(table: Table<String, String>) {
    table
        .group_by(&Topic::<String, u64>::plain("by-value"), |_, value| {
            (value.clone(), 1)
        })
        .count(&KeyValueStore::plain("groups"))
        .to(&counts());
}

type Program = fn(&mut App);

/// An app that goes from one program to the next at each crash.
struct Versions {
    driver: TestDriver,
    next: Arc<AtomicUsize>,
}

impl Versions {
    fn of<const N: usize>(programs: [Program; N]) -> Self {
        let next = Arc::new(AtomicUsize::new(0));
        let version = Arc::clone(&next);
        let driver = TestDriver::of(move || {
            let mut app = App::new("a");
            app.source(&rows("unrelated")).ignore();
            // The driver creates topics for the first version.
            app.output(&counts());
            app.output(&rows("by-length"));
            app.output(&rows("out"));
            programs[version.load(Ordering::Relaxed)](&mut app);
            app
        });
        Self { driver, next }
    }

    fn pipe(&mut self, topic: &Rows, key: &str, value: &str) {
        self.driver.pipe(topic, key, Some(value.to_owned()));
    }

    fn go_on(&mut self, lose_state: bool) {
        self.next.fetch_add(1, Ordering::Relaxed);
        match lose_state {
            true => self.driver.crash_and_lose_state(),
            false => self.driver.crash(),
        }
    }

    #[track_caller]
    fn is_refused(&mut self, lose_state: bool, words: [&str; 2]) {
        let started = catch_unwind(AssertUnwindSafe(|| self.go_on(lose_state)));
        assert!(started.is_err(), "the second program started");
        let error = self.driver.error().unwrap().to_string();
        for word in words.into_iter().chain(["under another name"]) {
            assert!(error.contains(word), "{word}: {error}");
        }
        // The state is unchanged, and the first program continues.
        self.next.store(0, Ordering::Relaxed);
        self.driver.restart();
    }
}

#[test]
fn a_grouping_over_existing_rows_is_refused() {
    for lose_state in [false, true] {
        let mut app = Versions::of([
            |app| table(app, "in").to(&rows("out")),
            |app| {
                let all = table(app, "in");
                group(all.clone());
                all.to(&rows("out"));
            },
        ]);
        app.pipe(&rows("in"), "k", "eu");
        let words = [
            "`group_by` with the topic by-value is new",
            "rows in the store in",
        ];
        app.is_refused(lose_state, words);
        app.pipe(&rows("in"), "k", "us");
        assert_eq!(app.driver.count(&rows("out")), 2);
    }
}

#[test]
fn a_grouping_beside_an_older_one_is_refused() {
    let mut app = Versions::of([
        |app| group(table(app, "in")),
        |app| {
            let all = table(app, "in");
            group(all.clone());
            all.filter(|value| value.len() == 2)
                .group_by(&Topic::<String, u64>::plain("by-length"), |_, value| {
                    (value.len().to_string(), 1)
                })
                .count(&KeyValueStore::plain("lengths"))
                .to(&Topic::plain("by-length"));
        },
    ]);
    app.pipe(&rows("in"), "k", "eu");
    app.is_refused(false, ["topic by-length", "the store in,"]);
}

#[test]
fn a_grouping_that_was_away_is_refused() {
    let mut app = Versions::of([
        |app| group(table(app, "in")),
        |app| table(app, "in").to(&rows("out")),
        |app| group(table(app, "in")),
    ]);
    app.pipe(&rows("in"), "k", "eu");
    app.go_on(false);
    app.pipe(&rows("in"), "k", "us");
    let started = catch_unwind(AssertUnwindSafe(|| app.go_on(false)));
    assert!(started.is_err(), "the third program started");
    let error = app.driver.error().unwrap().to_string();
    assert!(error.contains("topic by-value"), "{error}");
}

/// Joins by a foreign key. The join keeps rows of its own for left rows that wait for a partner.
fn named(app: &mut App) -> Table<String, String> {
    let (left, right) = (table(app, "in"), table(app, "right"));
    let join = eos_core::state::ForeignJoin::<String, String, String, String>::plain("join");
    left.join_by(
        &right,
        &join,
        |left| Some(left.clone()),
        |_, right| right.clone(),
    )
}

#[test]
fn a_store_over_a_foreign_key_join_is_refused_only_once_it_has_a_result() {
    for has_result in [false, true] {
        let mut app = Versions::of([
            |app| named(app).to(&rows("out")),
            |app| named(app).stored(&store("kept")).to(&rows("out")),
        ]);
        app.pipe(&rows("in"), "k", "eu");
        if has_result {
            app.pipe(&rows("right"), "eu", "Europe");
            app.is_refused(
                false,
                ["`stored` with the store kept is new", "the store join,"],
            );
        } else {
            app.go_on(false);
            app.pipe(&rows("right"), "eu", "Europe");
            assert_eq!(app.driver.store(&store("kept")).len(), 1);
        }
    }
}

#[test]
fn a_store_over_existing_rows_is_refused() {
    let mut app = Versions::of([
        |app| table(app, "in").map(|value| value).to(&rows("out")),
        |app| {
            let mapped = table(app, "in").map(|value| value);
            mapped.stored(&store("mapped")).to(&rows("out"));
        },
    ]);
    app.pipe(&rows("in"), "k", "eu");
    app.is_refused(
        false,
        ["`stored` with the store mapped is new", "the store in,"],
    );
}

#[test]
fn a_grouping_over_an_empty_table_starts() {
    let mut app = Versions::of([
        |app| table(app, "in").to(&rows("out")),
        |app| group(table(app, "in")),
    ]);
    app.go_on(false);
    app.pipe(&rows("in"), "k", "eu");
    // And starts again with rows.
    app.driver.crash();
    app.driver.crash_and_lose_state();
    app.pipe(&rows("in"), "k", "us");
    let counts = app.driver.read_pairs(&counts());
    let expected = [("eu", 1), ("eu", 0), ("us", 1)].map(|(key, n)| (key.to_owned(), n));
    assert_eq!(counts, expected);
}

fn joined(app: &mut App) -> Table<String, String> {
    let (all, names) = (table(app, "in"), table(app, "names"));
    all.join(&names, |value, name| format!("{value} {name}"))
}

/// An inner join with an empty table has no rows that a group could have missed.
#[test]
fn a_grouping_over_a_join_starts_if_the_join_had_no_rows() {
    let second: Program = |app| {
        let joined = joined(app);
        group(joined.clone());
        joined.to(&rows("out"));
    };
    let mut app = Versions::of([|app| joined(app).to(&rows("out")), second]);
    app.pipe(&rows("names"), "k", "one");
    app.go_on(false);
    app.pipe(&rows("in"), "k", "eu");
    app.pipe(&rows("in"), "k", "us");
    let counts = app.driver.read_pairs(&counts());
    let expected =
        [("eu one", 1), ("eu one", 0), ("us one", 1)].map(|(key, n)| (key.to_owned(), n));
    assert_eq!(counts, expected);
}
