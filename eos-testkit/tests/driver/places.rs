//! Keys of joined topics in other partitions than their partitioner chooses.

use eos_core::{App, Calls, KeyValueStore, PlainTopic, Topic};
use eos_testkit::{Input, TestDriver};

type Texts = PlainTopic<String, String>;

fn topic(name: &str) -> Texts {
    Topic::plain(name)
}

fn driver(app: App) -> TestDriver {
    let builder = TestDriver::builder().partitions("customers", 4);
    builder.partitions("orders", 4).start(app)
}

fn misplaced(driver: &TestDriver) -> u64 {
    driver.metrics().unwrap().totals.misplaced_keys
}

/// Pipes each key into each of the four partitions.
fn pipe_everywhere(driver: &mut TestDriver, topic: &Texts, keys: &[&str]) {
    for key in keys {
        for partition in 0..4 {
            driver.pipe_input(topic, Input::new(*key, "x").to_partition(partition));
        }
    }
}

fn customers() -> PlainTopic<String, Option<String>> {
    Topic::plain("customers")
}

fn joining(orders: &Texts, customers: &PlainTopic<String, Option<String>>) -> App {
    let mut app = App::new("a");
    let customers = app.table(customers, &KeyValueStore::plain("rows"));
    let orders = app.source(orders);
    let joined = orders.join(&customers, |order, customer| format!("{order} {customer}"));
    joined.to(&topic("out"));
    app
}

#[test]
fn a_key_in_the_partition_of_another_partitioner_is_counted() {
    let mut driver = driver(joining(&topic("orders"), &customers()));
    for key in ["ada", "bob", "eve"] {
        driver.pipe(&topic("customers"), key, "x");
        driver.pipe(&topic("orders"), key, "y");
    }
    assert_eq!(misplaced(&driver), 0);
    pipe_everywhere(&mut driver, &topic("orders"), &["ada", "bob"]);
    assert_eq!(misplaced(&driver), 6);
    pipe_everywhere(&mut driver, &topic("customers"), &["eve"]);
    assert_eq!(misplaced(&driver), 9);
}

/// A stage with calls processes its records on another path.
#[test]
fn a_misplaced_key_in_front_of_a_call_is_counted() {
    let mut app = App::new("a");
    let customers = app.table(&customers(), &KeyValueStore::plain("rows"));
    let called = app.source(&topic("orders")).map_async(
        "call",
        Calls::at_once(1),
        |order: String| async move { Ok(order) },
    );
    let joined = called.join(&customers, |order, customer| format!("{order} {customer}"));
    joined.to(&topic("out"));
    let mut driver = driver(app);
    pipe_everywhere(&mut driver, &topic("orders"), &["ada", "bob"]);
    assert_eq!(misplaced(&driver), 6);
}

#[test]
fn the_topic_s_own_partitioner_decides() {
    let orders = topic("orders").partition_by("last", |_, _| 3);
    let customers = customers().partition_by("last", |_, _| 3);
    let mut driver = driver(joining(&orders, &customers));
    pipe_everywhere(&mut driver, &topic("orders"), &["ada", "bob"]);
    assert_eq!(misplaced(&driver), 6);
}

/// Without a join, a record is processed where it is.
#[test]
fn keys_are_not_checked_without_a_join() {
    let mut app = App::new("a");
    app.source(&topic("orders")).to(&topic("out"));
    let builder = TestDriver::builder().partitions("orders", 4);
    let mut driver = builder.start(app);
    pipe_everywhere(&mut driver, &topic("orders"), &["ada"]);
    assert_eq!(misplaced(&driver), 0);
}
