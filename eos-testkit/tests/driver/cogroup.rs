//! Streams of different types that aggregate into one table.

use eos_core::{App, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn clicks() -> PlainTopic<String, String> {
    Topic::plain("clicks")
}

fn orders() -> PlainTopic<String, u64> {
    Topic::plain("orders")
}

fn reviews() -> PlainTopic<String, i32> {
    Topic::plain("reviews")
}

fn store() -> KeyValueStore<String, String> {
    KeyValueStore::plain("customers")
}

fn results() -> PlainTopic<String, String> {
    Topic::plain("results")
}

fn updates() -> PlainTopic<String, Option<String>> {
    Topic::plain("results")
}

/// Clicks and orders of each customer, in the order in which the task processed them.
fn two() -> App {
    let mut app = App::new("a");
    let orders = app.source(&orders()).group_by_key();
    app.source(&clicks())
        .group_by_key()
        .cogroup(&store(), String::new, |_, page, so_far| so_far + &page)
        .and(orders, |_, cents, so_far| format!("{so_far}{cents}"))
        .into_table()
        .to(&results());
    app
}

/// The same with reviews.
fn three() -> App {
    let mut app = App::new("a");
    let orders = app.source(&orders()).group_by_key();
    let reviews = app.source(&reviews()).group_by_key();
    app.source(&clicks())
        .group_by_key()
        .cogroup(&store(), String::new, |key, page, so_far| {
            format!("{so_far}{key}{page}")
        })
        .and(orders, |_, cents, so_far| format!("{so_far}{cents}"))
        .and(reviews, |_, stars, so_far| format!("{so_far}({stars})"))
        .into_table()
        .to(&results());
    app
}

/// Items of each basket until it is paid.
fn deleting() -> App {
    let mut app = App::new("a");
    let orders = app.source(&orders()).group_by_key();
    app.source(&clicks())
        .group_by_key()
        .cogroup_or_delete(&store(), String::new, |_, item, basket| {
            Some(basket + &item)
        })
        .and(orders, |_, cents, basket| {
            (cents == 0).then(|| basket + "?")
        })
        .into_table()
        .to(&updates());
    app
}

fn read(driver: &mut TestDriver) -> Vec<(String, String)> {
    driver.read_pairs(&results())
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn two_types_have_one_result() {
    let mut driver = TestDriver::new(two());
    driver.pipe(&clicks(), "ada", "x");
    driver.pipe(&orders(), "ada", 7_u64);
    driver.pipe(&orders(), "bob", 8_u64);
    driver.pipe(&clicks(), "ada", "y");
    let expected = [
        pair("ada", "x"),
        pair("ada", "x7"),
        pair("bob", "8"),
        pair("ada", "x7y"),
    ];
    assert_eq!(read(&mut driver), expected);
    let rows = driver.store(&store()).into_map();
    assert_eq!(rows["ada"], "x7y");
    assert_eq!(rows["bob"], "8");
}

#[test]
fn three_types_have_one_result() {
    let mut driver = TestDriver::new(three());
    driver.pipe(&reviews(), "ada", 5);
    driver.pipe(&clicks(), "ada", "x");
    driver.pipe(&orders(), "ada", 7_u64);
    let expected = [
        pair("ada", "(5)"),
        pair("ada", "(5)adax"),
        pair("ada", "(5)adax7"),
    ];
    assert_eq!(read(&mut driver), expected);
}

/// Records that wait in several topics are taken in order of time. Each result has the highest time so far.
#[test]
fn one_task_reads_all_streams_in_order_of_time() {
    let mut driver = TestDriver::new(three());
    driver.kill();
    let at = |key: &str, value: &str, time| {
        Input::new(key.to_owned(), value.to_owned()).at(Timestamp(time))
    };
    driver.pipe_all(&clicks(), [at("ada", "x", 30), at("ada", "y", 10)]);
    let order = Input::new("ada".to_owned(), 7_u64).at(Timestamp(20));
    driver.pipe_all(&orders(), [order]);
    let review = Input::new("ada".to_owned(), 5).at(Timestamp(5));
    driver.pipe_all(&reviews(), [review]);
    driver.restart();
    let results = driver.read(&results());
    let seen: Vec<_> = results
        .iter()
        .map(|it| (&it.value[..], it.timestamp.0))
        .collect();
    let expected = [
        ("(5)", 5),
        ("(5)7", 20),
        ("(5)7adax", 30),
        ("(5)7adaxaday", 30),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn any_stream_deletes_the_result_and_any_stream_begins_it_anew() {
    let mut driver = TestDriver::new(deleting());
    driver.pipe(&orders(), "ada", 1_u64);
    driver.pipe(&clicks(), "ada", "x");
    driver.pipe(&orders(), "ada", 0_u64);
    driver.pipe(&orders(), "ada", 1_u64);
    assert!(driver.store(&store()).is_empty());
    driver.pipe(&clicks(), "ada", "y");
    let values = driver.read_pairs(&updates()).into_iter();
    let values: Vec<_> = values.map(|(_, value)| value).collect();
    let expected = [None, Some("x"), Some("x?"), None, Some("y")];
    assert_eq!(values, expected.map(|value| value.map(str::to_owned)));
}

#[test]
fn a_crash_anywhere_changes_nothing() {
    for app in [two, three, deleting] {
        let places = crash_everywhere(
            || TestDriver::new(app()),
            |driver| {
                driver.pipe(&clicks(), "ada", "x");
                driver.pipe(&orders(), "ada", 7_u64);
                driver.pipe(&clicks(), "bob", "y");
                driver.pipe_all(&orders(), [("ada".to_owned(), 8), ("bob".to_owned(), 9)]);
                driver.pipe(&clicks(), "ada", "z");
                driver.committed()
            },
        );
        assert!(places > 20, "{places}");
    }
}

/// In Kafka Streams the second aggregator replaces the first.
#[test]
fn a_stream_that_is_added_twice_adds_twice() {
    let mut app = App::new("a");
    let clicks_twice = app.source(&clicks());
    clicks_twice
        .clone()
        .group_by_key()
        .cogroup(&store(), String::new, |_, page, so_far| so_far + &page)
        .and(clicks_twice.group_by_key(), |_, page, so_far| {
            so_far + &page.to_uppercase()
        })
        .into_table()
        .to(&results());
    let mut driver = TestDriver::new(app);
    driver.pipe(&clicks(), "ada", "x");
    driver.pipe(&clicks(), "ada", "y");
    let expected = [
        pair("ada", "x"),
        pair("ada", "xX"),
        pair("ada", "xXy"),
        pair("ada", "xXyY"),
    ];
    assert_eq!(read(&mut driver), expected);
}

#[test]
fn a_stream_of_another_app_is_refused_by_both() {
    let (mut app, mut other) = (App::new("a"), App::new("b"));
    let foreign = other.source(&orders()).group_by_key();
    app.source(&clicks())
        .group_by_key()
        .cogroup(&store(), String::new, |_, page, so_far| so_far + &page)
        .and(foreign, |_, cents, so_far| format!("{so_far}{cents}"))
        .into_table()
        .to(&results());
    for app in [app, other] {
        let error = TestDriver::build(app).unwrap_err().to_string();
        assert!(
            error.contains("`and` received a stream of another app"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn groups_without_a_table_are_refused() {
    let mut app = App::new("a");
    let orders = app.source(&orders()).group_by_key();
    let _open = app
        .source(&clicks())
        .group_by_key()
        .cogroup(&store(), String::new, |_, page, so_far| so_far + &page)
        .and(orders, |_, cents, so_far| format!("{so_far}{cents}"));
    let error = TestDriver::build(app).unwrap_err().to_string();
    for part in ["clicks", "orders", "cogroup"] {
        assert!(error.contains(part), "{error}");
    }
}

/// Different numbers of partitions have no task that reads both topics.
#[test]
fn topics_with_other_partitions_are_refused() {
    let builder = TestDriver::builder()
        .partitions("clicks", 2)
        .partitions("orders", 3);
    let error = builder.build(two()).unwrap_err().to_string();
    assert!(
        error.contains("clicks") && error.contains("orders"),
        "{error}"
    );
}

#[test]
fn the_table_is_like_any_other() {
    let mut app = App::new("a");
    let cents = app.source(&orders()).group_by_key();
    let table = app
        .source(&clicks())
        .group_by_key()
        .cogroup(&store(), String::new, |_, page, so_far| so_far + &page)
        .and(cents, |_, cents, so_far| format!("{so_far}{cents}"))
        .into_table();
    let joined: PlainTopic<String, String> = Topic::plain("joined");
    app.source(&reviews())
        .join(&table, |stars, customer| format!("{stars} by {customer}"))
        .to(&joined);
    table.emit_per_commit().to(&results());
    let mut driver = TestDriver::new(app);
    driver.pipe_all(&clicks(), [pair("ada", "x"), pair("ada", "y")]);
    driver.pipe(&orders(), "ada", 7_u64);
    driver.pipe(&reviews(), "ada", 5);
    assert_eq!(driver.read_pairs(&joined), [pair("ada", "5 by xy7")]);
    assert_eq!(read(&mut driver).last(), Some(&pair("ada", "xy7")));
}

#[test]
fn a_table_that_a_stream_joins_needs_no_other_end() {
    let mut app = App::new("a");
    let cents = app.source(&orders()).group_by_key();
    let table = app
        .source(&clicks())
        .group_by_key()
        .cogroup(&store(), String::new, |_, page, so_far| so_far + &page)
        .and(cents, |_, cents, so_far| format!("{so_far}{cents}"))
        .into_table();
    app.source(&reviews())
        .join(&table, |stars, customer| format!("{stars} by {customer}"))
        .to(&results());
    drop(table);
    let mut driver = TestDriver::new(app);
    driver.pipe(&clicks(), "ada", "x");
    driver.pipe(&orders(), "ada", 7_u64);
    driver.pipe(&reviews(), "ada", 5);
    assert_eq!(read(&mut driver), [pair("ada", "5 by x7")]);
}
