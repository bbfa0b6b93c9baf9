//! R10: which shapes are idempotent without positions, and that all of them are with positions.

use eos_core::boundary::Place;
use eos_postgres::testing::run;
use eos_postgres::{Postgres, SqlTable};
use eos_testkit::assert_idempotent;
use eos_testkit::rng::Rng;

use crate::support::{Register, Worker, database, rows};

/// `stock` has a key, `log` has none.
const TABLES: &str = "CREATE TABLE stock (sku text PRIMARY KEY, units bigint NOT NULL);
    CREATE TABLE log (sku text, units bigint)";
const STATE: &str = "SELECT 'stock', sku, units FROM stock UNION ALL SELECT 'log', sku, units FROM log ORDER BY 1, 2, 3";

const SEEDS: u64 = 4;

type Record = (&'static str, Option<i64>);

/// Whether the second delivery continues at the stored positions, or begins at the first record.
#[derive(Clone, Copy, PartialEq)]
enum Positions {
    Kept,
    Lost,
}

/// A shape under test. `deliver` delivers the topic once.
struct Subject {
    name: &'static str,
    /// Whether the shape is idempotent without positions.
    alone: bool,
    /// Whether the topic has deletions.
    deletes: bool,
    deliver: fn(&Postgres, &[Record]),
}

const SUBJECTS: [Subject; 9] = [
    Subject {
        name: "insert",
        alone: false,
        deletes: false,
        deliver: |shop, topic| deliver(shop, &log(shop), topic),
    },
    Subject {
        name: "insert with an inbox",
        alone: true,
        deletes: false,
        deliver: |shop, topic| {
            let inbox = shop.inbox("log");
            deliver(shop, &log(shop).once_by(&inbox, |_, id| *id), topic);
        },
    },
    Subject {
        name: "upsert and delete",
        alone: true,
        deletes: true,
        deliver: |shop, topic| deliver(shop, &stock(shop).column("units", |_, n| *n), topic),
    },
    Subject {
        name: "newer_by",
        alone: true,
        deletes: false,
        deliver: |shop, topic| deliver(shop, &stock(shop).newer_by("units", |_, n| *n), topic),
    },
    Subject {
        name: "add",
        alone: false,
        deletes: false,
        deliver: |shop, topic| deliver(shop, &sum(shop), topic),
    },
    Subject {
        name: "add with an inbox",
        alone: true,
        deletes: false,
        deliver: |shop, topic| {
            let inbox = shop.inbox("sum");
            deliver(shop, &sum(shop).once_by(&inbox, |_, id| *id), topic);
        },
    },
    Subject {
        name: "a statement that sets",
        alone: true,
        deletes: false,
        deliver: |shop, topic| statement(shop, "excluded.units", topic),
    },
    Subject {
        name: "a statement that adds",
        alone: false,
        deletes: false,
        deliver: |shop, topic| statement(shop, "stock.units + excluded.units", topic),
    },
    Subject {
        name: "a closure that adds",
        alone: false,
        deletes: false,
        deliver: |shop, topic| {
            let closure = shop.apply(
                "log",
                async |tx, record: eos_core::Record<String, Option<i64>>| {
                    let sql = "INSERT INTO log VALUES ($1, $2)";
                    tx.execute(sql, &[&record.key, &record.value]).await?;
                    Ok(())
                },
            );
            deliver(shop, &closure, topic);
        },
    },
];

fn log(shop: &Postgres) -> SqlTable<String, i64> {
    let table = shop.table("log");
    (table.column("sku", |sku: &String, _| sku.clone())).column("units", |_, n| *n)
}

fn stock(shop: &Postgres) -> SqlTable<String, i64> {
    shop.table("stock")
        .record_key("sku", |sku: &String| sku.clone())
}

fn sum(shop: &Postgres) -> SqlTable<String, i64> {
    stock(shop).add("units", |_, n| *n).or_insert()
}

fn statement(shop: &Postgres, units: &str, topic: &[Record]) {
    let sql = format!(
        "INSERT INTO stock VALUES ($1, $2) ON CONFLICT (sku) DO UPDATE SET units = {units}"
    );
    let statement = (shop.statement::<String, i64>("book", &sql))
        .param(|sku, _| sku.clone())
        .param(|_, n| *n);
    deliver(shop, &statement, topic);
}

/// Delivers the records from the stored position on, in several transactions.
fn deliver(
    shop: &Postgres,
    place: &(impl Register + Place<String, Option<i64>>),
    topic: &[Record],
) {
    let mut worker = Worker::new(shop, &[place.register()], "w");
    let mut taken = worker.take(0);
    let first = taken
        .offset
        .map_or(0, |offset| usize::try_from(offset.get()).unwrap());
    for (nth, records) in topic[first..].chunks(5).enumerate() {
        worker.begin(&taken);
        let mut at = i64::try_from(first + nth * 5).unwrap();
        for (key, value) in records {
            worker
                .put(place, (0, at), &(*key).to_owned(), value.as_ref())
                .unwrap();
            at += 1;
        }
        taken = worker.finish(&taken, at).unwrap();
    }
}

/// Values are unique, so that they are ids and versions as well.
fn topic(seed: u64, deletes: bool) -> Vec<Record> {
    let mut rng = Rng::new(seed);
    let mut records = Vec::new();
    for value in 1..=5 + i64::try_from(rng.below(20)).unwrap() {
        let key = ["a", "b", "c", "d"][rng.below(4)];
        let is_deletion = deletes && rng.below(4) == 0;
        records.push((key, (!is_deletion).then_some(value)));
    }
    for at in (1..records.len()).rev() {
        records.swap(at, rng.below(at + 1));
    }
    records
}

/// Delivers a topic twice. Panics if the second delivery changes a row.
fn twice(url: &str, subject: &Subject, positions: Positions, seed: u64) {
    rows(url, "TRUNCATE stock, log, eos.positions, eos.inbox");
    let records = topic(seed, subject.deletes);
    assert_idempotent(
        || {
            if positions == Positions::Lost {
                rows(url, "UPDATE eos.positions SET next_offset = NULL");
            }
            let shop = Postgres::connect(url).unwrap();
            (subject.deliver)(&shop, &records);
        },
        || rows(url, STATE),
    );
    assert_ne!(
        rows(url, STATE),
        "",
        "{}: nothing was written",
        subject.name
    );
}

#[test]
fn every_shape_is_idempotent_with_positions_and_some_without() {
    let url = database("idempotence", "");
    run(&url, TABLES).unwrap();
    for subject in &SUBJECTS {
        for seed in 0..SEEDS {
            twice(&url, subject, Positions::Kept, seed);
            let alone = std::panic::catch_unwind(|| twice(&url, subject, Positions::Lost, seed));
            assert_eq!(
                alone.is_ok(),
                subject.alone,
                "{}, seed {seed}",
                subject.name
            );
        }
    }
}
