//! Several operators together, with several partitions, processes and a crash everywhere.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::{Tumbling, Windowed};
use eos_core::{App, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

/// `<customer> <cents>`, by order.
fn orders() -> PlainTopic<String, String> {
    Topic::plain("orders")
}

fn customers() -> PlainTopic<String, Option<String>> {
    Topic::plain("customers")
}

fn invoices() -> PlainTopic<String, String> {
    Topic::plain("invoices")
}

fn totals() -> PlainTopic<String, u64> {
    Topic::plain("totals")
}

fn sums() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("sums")
}

/// Two stages, three stores, a join, and results per key.
fn shop() -> App {
    let mut app = App::new("shop");
    let table = app.table(&customers(), &KeyValueStore::plain("customers"));
    let amounts = app
        .source(&orders())
        .key_by(|order| order.split(' ').next().unwrap_or_default().to_owned())
        .repartition(&Topic::<String, String>::plain("by-customer"))
        .map(|order| {
            let cents = order.split(' ').nth(1);
            cents.and_then(|it| it.parse().ok()).unwrap_or(0_u64)
        });
    amounts
        .clone()
        .join(&table, |cents, name| format!("{name} owes {cents}"))
        .to(&invoices());
    amounts
        .group_by_key()
        .reduce(&sums(), |sum, cents| sum + cents)
        .to(&totals());
    app
}

fn trade(driver: &mut TestDriver) {
    for (key, name) in [("ada", "Ada"), ("bob", "Bob"), ("eve", "Eve")] {
        driver.pipe_at(&customers(), key, Some(name.to_owned()), Timestamp(0));
    }
    let orders_of = ["ada 5", "bob 7", "ada 6", "eve 1", "bob 2"];
    for (number, order) in (1..).zip(orders_of) {
        driver.pipe_at(&orders(), format!("o-{number}"), order, Timestamp(number));
    }
}

#[test]
fn a_join_and_a_sum_behind_a_repartition() {
    let start = || {
        TestDriver::builder()
            .partitions("orders", 2)
            .partitions("customers", 2)
            .start(shop())
    };
    let mut driver = start();
    trade(&mut driver);
    let mut texts: Vec<_> = driver
        .read(&invoices())
        .into_iter()
        .map(|it| it.value)
        .collect();
    texts.sort();
    let expected = [
        "Ada owes 5",
        "Ada owes 6",
        "Bob owes 2",
        "Bob owes 7",
        "Eve owes 1",
    ];
    assert_eq!(texts, expected);
    let places = crash_everywhere(start, |driver| {
        trade(driver);
        let mut invoices = driver.read_pairs(&invoices());
        invoices.sort();
        (
            invoices,
            driver.read_map(&totals()),
            driver.store(&sums()).into_map(),
        )
    });
    assert!(places > 150, "{places}");
}

#[test]
fn the_same_while_its_tasks_move() {
    let start = || {
        TestDriver::builder()
            .partitions("orders", 2)
            .partitions("customers", 2)
            .start(shop())
    };
    crash_everywhere(start, |driver| {
        trade(driver);
        driver.rebalance();
        driver.pipe_at(&orders(), "o-6", "ada 3", Timestamp(9));
        let mut invoices = driver.read_pairs(&invoices());
        invoices.sort();
        (invoices, driver.store(&sums()).into_map())
    });
}

#[test]
fn what_is_held_dies_in_the_middle_of_a_commit() {
    crash_everywhere(
        || TestDriver::builder().hold().start(shop()),
        |driver| {
            trade(driver);
            driver.commit();
            driver.pipe_at(&orders(), "o-6", "ada 3", Timestamp(9));
            driver.abort();
            driver.release();
            driver.committed()
        },
    );
}

#[test]
fn windows_behind_a_repartition_on_two_processes() {
    const MINUTE: Duration = Duration::from_secs(60);
    let views = Topic::<Option<String>, String>::plain("views");
    let pages = Topic::<Windowed<String>, u64>::with("pages", TimeWindowed::of(MINUTE), Plain);
    let store = WindowStore::<String, u64>::plain("views");
    let start = || {
        let mut app = App::new("views");
        app.source(&views)
            .key_by(|page| page.clone())
            .repartition(&Topic::<String, String>::plain("by-page"))
            .group_by_key()
            .windowed_by(Tumbling::of(MINUTE))
            .count(&store)
            .emit_per_commit()
            .to(&pages);
        TestDriver::builder()
            .partitions("views", 2)
            .instances(2)
            .start(app)
    };
    let scenario = |driver: &mut TestDriver| {
        for (second, page) in [
            (1, "a"),
            (2, "b"),
            (3, "a"),
            (61, "a"),
            (62, "b"),
            (63, "b"),
        ] {
            driver.pipe_at(&views, None, page, Timestamp(second * 1_000));
        }
        driver.read_map(&pages)
    };
    let counts: Vec<u64> = scenario(&mut start()).into_values().collect();
    assert_eq!(counts, [2, 1, 1, 2]);
    crash_everywhere(start, scenario);
}
