//! `filter`, `map`, `stored` and `to_table`.

use std::time::Duration;

use eos_core::state::JoinStore;
use eos_core::windows::Within;
use eos_core::{App, Guarantee, KeyValueStore, Timestamp, Topic};
use eos_testkit::TestDriver;

use super::{check, mistakes, rows, store, table};

#[test]
fn a_filter_emits_a_tombstone_only_for_a_row_that_passed() {
    check(
        |app| {
            table(app, "in")
                .filter(|value| value.len() < 3)
                .to(&rows("out"));
        },
        &[
            ("in", "k", Some("long")),
            ("in", "k", Some("ab")),
            ("in", "k", Some("cd")),
            ("in", "k", Some("longer")),
            ("in", "k", Some("longest")),
            ("in", "k", None),
            ("in", "l", None),
            ("in", "k", Some("x")),
            ("in", "k", None),
        ],
        &[
            ("k", Some("ab")),
            ("k", Some("cd")),
            ("k", None),
            ("k", Some("x")),
            ("k", None),
        ],
    );
}

#[test]
fn maps_and_filters_follow_each_other_with_keys() {
    check(
        |app| {
            table(app, "in")
                .map_row(|key, value| format!("{key}:{value}"))
                .filter_row(|key, value| key != "no" && value.len() < 6)
                .map(|value| value.len().to_string())
                .to(&rows("out"));
        },
        &[
            ("in", "no", Some("a")),
            ("in", "k", Some("abc")),
            ("in", "k", Some("abcdef")),
        ],
        &[("k", Some("5")), ("k", None)],
    );
}

#[test]
fn streams_join_with_the_rows_of_a_filter_without_a_store() {
    check(
        |app| {
            let short = table(app, "in")
                .filter(|value| value.len() < 3)
                .map(|value| value + "!");
            app.source(&rows("reads"))
                .left_join(&short, |_, row| row)
                .to(&rows("out"));
        },
        &[
            ("in", "k", Some("ab")),
            ("reads", "k", None),
            ("in", "k", Some("abcd")),
            ("reads", "k", None),
        ],
        &[("k", Some("ab!")), ("k", None)],
    );
}

#[test]
fn a_stored_table_has_rows_and_emits_once_per_commit() {
    let start = || {
        let mut app = App::new("a");
        table(&mut app, "in")
            .filter(|value| value.len() < 3)
            .stored(&store("short"))
            .emit_per_commit()
            .to(&rows("out"));
        TestDriver::builder().hold().start(app)
    };
    let mut driver = start();
    for value in ["a", "long", "b", "c"] {
        driver.pipe(&rows("in"), "k", Some(value.to_owned()));
    }
    driver.commit();
    assert_eq!(
        driver.read_pairs(&rows("out")),
        [("k".to_owned(), Some("c".to_owned()))]
    );
    assert_eq!(driver.store(&store("short")).len(), 1);
    driver.pipe(&rows("in"), "k", Some("longer".to_owned()));
    driver.commit();
    assert_eq!(driver.read_pairs(&rows("out")), [("k".to_owned(), None)]);
    assert_eq!(driver.store(&store("short")).len(), 0);
}

#[test]
fn a_stream_becomes_a_table() {
    check(
        |app| {
            let states = app
                .source(&Topic::<String, Option<String>>::plain("events"))
                .map(|event| event.filter(|event| event != "removed"))
                .to_table(&store("states"));
            app.source(&rows("reads"))
                .left_join(&states, |_, row| row)
                .to(&rows("out"));
        },
        &[
            ("events", "k", Some("new")),
            ("reads", "k", None),
            ("events", "k", Some("removed")),
            ("reads", "k", None),
        ],
        &[("k", Some("new")), ("k", None)],
    );
}

#[test]
fn counts_and_clones_have_steps_too() {
    let mut app = App::new("a");
    let counts = app
        .source(&Topic::<String, String>::plain("clicks"))
        .group_by_key()
        .count(&KeyValueStore::plain("counts"));
    let out = |name: &str| Topic::<String, Option<u64>>::plain(name);
    counts.clone().filter(|n| n % 2 == 0).to(&out("even"));
    counts.clone().filter(|n| *n > 2).to(&out("many"));
    counts.to(&Topic::plain("all"));
    let mut driver = TestDriver::new(app);
    for n in 0..4 {
        driver.pipe_at(
            &Topic::<String, String>::plain("clicks"),
            "k",
            "v",
            Timestamp(1_000 + n),
        );
    }
    let values = |pairs: Vec<(String, Option<u64>)>| -> Vec<Option<u64>> {
        pairs.into_iter().map(|(_, value)| value).collect()
    };
    assert_eq!(
        values(driver.read_pairs(&out("even"))),
        [Some(2), None, Some(4)]
    );
    assert_eq!(values(driver.read_pairs(&out("many"))), [Some(3), Some(4)]);
    let all = driver.read(&Topic::<String, u64>::plain("all"));
    assert_eq!(all.len(), 4);
}

#[test]
fn a_table_without_a_store_refuses_what_needs_one() {
    let text = mistakes(|app| {
        table(app, "in")
            .filter(|_| true)
            .emit_per_commit()
            .to(&rows("out"));
    });
    assert!(
        text.contains("Add `.stored(&store)` before `.emit_per_commit(..)`"),
        "{text}"
    );
    let text = mistakes(|app| {
        let short = table(app, "in").filter(|_| true);
        let handle = short.rows();
        app.source(&rows("reads"))
            .with_store(&handle)
            .for_each(move |ctx, record| ctx.store(&handle).get(&record.key).map(drop));
    });
    assert!(
        text.contains("Add `.stored(&store)` before `.rows(..)`"),
        "{text}"
    );
    let text = mistakes(|app| drop(table(app, "in").filter(|_| true)));
    assert!(text.contains("ends in `filter`"), "{text}");
}

#[test]
fn at_least_once_refuses_steps_that_compare_rows() {
    let text = |build: &dyn Fn(&mut App)| {
        let mut app = App::new("a");
        build(&mut app);
        app.guarantee(Guarantee::AtLeastOnce);
        TestDriver::build(app).unwrap_err().to_string()
    };
    type Build<'a> = (&'a str, &'a dyn Fn(&mut App));
    let builds: [Build; 6] = [
        ("filter", &|app| {
            table(app, "in").filter(|_| true).to(&rows("out"));
        }),
        ("map", &|app| {
            table(app, "in").map(|row| row).to(&rows("out"))
        }),
        ("stored", &|app| {
            table(app, "in").stored(&store("again")).to(&rows("out"));
        }),
        ("outer_join", &|app| {
            let (left, right) = (table(app, "left"), table(app, "right"));
            left.outer_join(&right, |_| String::new()).to(&rows("out"));
        }),
        ("join_within", &|app| {
            let left = app.source(&Topic::<String, String>::plain("left"));
            let right = app.source(&Topic::<String, String>::plain("right"));
            let within = Within::of(Duration::from_secs(1));
            let store = JoinStore::plain("pairs");
            left.join_within(right, within, &store, |_, _| String::new())
                .to(&Topic::plain("out"));
        }),
        ("group_by", &|app| {
            table(app, "in")
                .group_by(&Topic::<String, u64>::plain("g"), |key, _| (key.clone(), 1))
                .count(&KeyValueStore::plain("counts"))
                .to(&Topic::plain("out"));
        }),
    ];
    for (step, build) in builds {
        let found = text(build);
        let expected = format!("the step `{step}` compares each record with the rows before it");
        assert!(found.contains(&expected), "{found}");
    }
}
