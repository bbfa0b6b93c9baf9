//! Joins of tables that are derived from the same table.

use eos_core::{App, KeyValueStore, Table, Topic};

use super::{check, mistakes, rows, store, table};

/// Returns a join of two tables that change with the same row. So only a store contains the previous result.
fn related(app: &mut App) -> Table<String, String> {
    let all = table(app, "in");
    let short = all.clone().filter(|value| value.len() < 3);
    all.join(&short, |one, other| format!("{one}/{other}"))
}

#[test]
fn they_need_a_store() {
    let expected = "`join` joins two tables that are derived from the same table";
    let text = mistakes(|app| related(app).to(&rows("out")));
    assert!(text.contains(expected), "{text}");
    let text = mistakes(|app| related(app).filter(|_| true).to(&rows("out")));
    assert!(text.contains(expected), "{text}");
    let text = mistakes(|app| {
        let grouped =
            related(app).group_by(&Topic::<String, u64>::plain("g"), |_, row| (row.clone(), 1));
        grouped
            .count(&KeyValueStore::plain("counts"))
            .to(&Topic::plain("out"));
    });
    assert!(text.contains(expected), "{text}");
}

/// H12: a table is related to the stream, the group and the merged stream that it came from.
#[test]
fn tables_behind_streams_of_the_same_table_are_related() {
    let expected = "derived from the same table";
    let joined = |all: Table<String, String>, counts: Table<String, u64, u64>| {
        all.join(&counts, |row, count| format!("{row}{count}"))
            .to(&rows("out"));
    };
    let text = mistakes(|app| {
        let all = table(app, "in");
        let counts = all.clone().to_stream().group_by_key();
        let counts = counts.count(&KeyValueStore::plain("counts"));
        joined(all, counts);
    });
    assert!(text.contains(expected), "{text}");
    let text = mistakes(|app| {
        let all = table(app, "in");
        let others = table(app, "others").to_stream();
        let merged = all.clone().to_stream().merge(others).group_by_key();
        let counts = merged.count(&KeyValueStore::plain("counts"));
        joined(all, counts);
    });
    assert!(text.contains(expected), "{text}");
    let text = mistakes(|app| {
        let all = table(app, "in");
        let others = table(app, "others").to_stream().group_by_key();
        let updates = all.clone().to_stream().group_by_key();
        let counts = updates
            .cogroup(
                &KeyValueStore::plain("counts"),
                || 0,
                |_, _, count: u64| count + 1,
            )
            .and(others, |_, _, count| count + 1)
            .into_table();
        joined(all, counts);
    });
    assert!(text.contains(expected), "{text}");
}

/// A table that is built from the updates of another one is related to it.
#[test]
fn the_updates_of_a_table_are_related_to_it() {
    let build = |app: &mut App| {
        let all = table(app, "in");
        let short = all
            .clone()
            .filter(|value| value.len() < 3)
            .to_stream()
            .to_table(&store("short"));
        all.join(&short, |one, other| format!("{one}/{other}"))
    };
    let text = mistakes(|app| build(app).to(&rows("out")));
    assert!(text.contains("Add `.stored(&store)` after"), "{text}");
    check(
        |app| {
            build(app)
                .stored(&store("pairs"))
                .filter(|pair| !pair.is_empty())
                .to(&rows("out"));
        },
        &[("in", "k", Some("ab")), ("in", "k", Some("long"))],
        // The second table changes first.
        &[("k", Some("ab/ab")), ("k", Some("ab/ab")), ("k", None)],
    );
}

#[test]
fn a_group_behind_a_store_subtracts_what_it_added() {
    check(
        |app| {
            related(app)
                .stored(&store("pairs"))
                .group_by(&Topic::<String, u64>::plain("by-pair"), |_, pair| {
                    (pair.clone(), 1)
                })
                .count(&KeyValueStore::plain("counts"))
                .to_stream()
                .map(|count| Some(count.to_string()))
                .to(&rows("out"));
        },
        &[
            ("in", "k", Some("ab")),
            ("in", "k", Some("cd")),
            ("in", "k", Some("long")),
            ("in", "k", Some("ef")),
            ("in", "k", None),
        ],
        // Both sides of the join emit each update.
        &[
            ("ab/ab", Some("1")),
            ("ab/ab", Some("1")),
            ("ab/ab", Some("0")),
            ("cd/cd", Some("1")),
            ("cd/cd", Some("1")),
            ("cd/cd", Some("0")),
            ("ef/ef", Some("1")),
            ("ef/ef", Some("1")),
            ("ef/ef", Some("0")),
        ],
    );
}

#[test]
fn results_of_one_topic_that_are_no_parents_of_each_other_join_exactly() {
    check(
        |app| {
            let orders = app.source(&Topic::<String, Option<String>>::plain("in"));
            let orders = orders.map(Option::unwrap_or_default);
            let counts = orders
                .clone()
                .group_by_key()
                .count(&KeyValueStore::plain("counts"));
            let last = orders
                .group_by_key()
                .reduce(&store("last"), |_, value| value);
            counts
                .join(&last, |count, last| format!("{count}{last}"))
                .group_by(&Topic::<String, u64>::plain("by-pair"), |_, pair| {
                    (pair.clone(), 1)
                })
                .count(&KeyValueStore::plain("pairs"))
                .to_stream()
                .map(|count| Some(count.to_string()))
                .to(&rows("out"));
        },
        &[("in", "k", Some("a")), ("in", "k", Some("b"))],
        &[
            ("1a", Some("1")),
            ("1a", Some("0")),
            ("2a", Some("1")),
            ("2a", Some("0")),
            ("2b", Some("1")),
        ],
    );
}
