//! Idempotence of each shape, with and without stored positions (R10).

use eos_core::boundary::Place;
use eos_postgres::{Postgres, SqlTable};
use eos_testkit::assert_idempotent;
use eos_testkit::rng::Rng;

use crate::support::{Register, Worker, database, rows};

/// `stock` has a key, `log` has none.
const TABLES: &str = "CREATE TABLE stock (sku text PRIMARY KEY, units bigint NOT NULL);
    CREATE TABLE log (sku text, units bigint)";
const STATE: &str = "SELECT 'stock', sku, units FROM stock UNION ALL SELECT 'log', sku, units FROM log ORDER BY 1, 2, 3";

const SEEDS: u64 = 4;
/// The records of a transaction.
const TRANSACTION: usize = 5;

type Record = (&'static str, Option<i64>);

/// A shape under test.
struct Subject {
    name: &'static str,
    /// Whether a replay of the topic changes nothing.
    idempotent_without_positions: bool,
    /// Whether the topic has deletions.
    deletes: bool,
    /// Delivers the records behind the stored position.
    deliver: fn(&Postgres, &Delivery),
}

const SUBJECTS: [Subject; 9] = [
    Subject {
        name: "insert",
        idempotent_without_positions: false,
        deletes: false,
        deliver: |shop, topic| deliver(shop, &log(shop), topic),
    },
    Subject {
        name: "insert with an inbox",
        idempotent_without_positions: true,
        deletes: false,
        deliver: |shop, topic| {
            let inbox = shop.inbox("log");
            deliver(shop, &log(shop).once_by(&inbox, |_, id| *id), topic);
        },
    },
    Subject {
        name: "upsert and delete",
        idempotent_without_positions: true,
        deletes: true,
        deliver: |shop, topic| deliver(shop, &stock(shop).column("units", |_, n| *n), topic),
    },
    Subject {
        name: "newer_by",
        idempotent_without_positions: true,
        deletes: false,
        deliver: |shop, topic| deliver(shop, &stock(shop).newer_by("units", |_, n| *n), topic),
    },
    Subject {
        name: "add",
        idempotent_without_positions: false,
        deletes: false,
        deliver: |shop, topic| deliver(shop, &sum(shop), topic),
    },
    Subject {
        name: "add with an inbox",
        idempotent_without_positions: true,
        deletes: false,
        deliver: |shop, topic| {
            let inbox = shop.inbox("sum");
            deliver(shop, &sum(shop).once_by(&inbox, |_, id| *id), topic);
        },
    },
    Subject {
        name: "a statement that sets",
        idempotent_without_positions: true,
        deletes: false,
        deliver: |shop, topic| statement(shop, "excluded.units", topic),
    },
    Subject {
        name: "a statement that adds",
        idempotent_without_positions: false,
        deletes: false,
        deliver: |shop, topic| statement(shop, "stock.units + excluded.units", topic),
    },
    Subject {
        name: "a closure that inserts",
        idempotent_without_positions: false,
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

fn statement(shop: &Postgres, units: &str, topic: &Delivery) {
    let sql = format!(
        "INSERT INTO stock VALUES ($1, $2) ON CONFLICT (sku) DO UPDATE SET units = {units}"
    );
    let statement = (shop.statement::<String, i64>("book", &sql))
        .param(|sku, _| sku.clone())
        .param(|_, n| *n);
    deliver(shop, &statement, topic);
}

/// A delivery of a topic.
struct Delivery {
    topic: Vec<Record>,
    /// The worker is lost in this transaction, before its commit.
    lost_in: Option<usize>,
}

fn deliver(
    shop: &Postgres,
    place: &(impl Register + Place<String, Option<i64>>),
    delivery: &Delivery,
) {
    let mut worker = Worker::new(shop, &[place.register()], "w");
    let mut taken = worker.take(0);
    let first = taken.offset.map_or(0, |offset| offset.get());
    let left = &delivery.topic[usize::try_from(first).unwrap()..];
    let mut at = first;
    for (nth, records) in left.chunks(TRANSACTION).enumerate() {
        worker.begin(&taken);
        for (key, value) in records {
            worker
                .put(place, (0, at), &(*key).to_owned(), value.as_ref())
                .unwrap();
            at += 1;
        }
        if delivery.lost_in == Some(nth) {
            worker.set(&taken, at, "lost").unwrap();
            return;
        }
        taken = worker.finish(&taken, at).unwrap();
    }
}

/// Returns records in random order. Each value is unique, and serves as id and version.
fn topic(rng: &mut Rng, deletes: bool) -> Vec<Record> {
    let mut records = Vec::new();
    for value in 1..=6 + i64::try_from(rng.below(20)).unwrap() {
        let key = ["a", "b", "c", "d"][rng.below(4)];
        let is_deletion = deletes && rng.below(4) == 0;
        records.push((key, (!is_deletion).then_some(value)));
    }
    for at in (1..records.len()).rev() {
        records.swap(at, rng.below(at + 1));
    }
    records
}

#[test]
fn every_shape_is_idempotent_with_positions_and_some_without() {
    let url = database("idempotence", TABLES);
    let clear = || rows(&url, "TRUNCATE stock, log, eos.positions, eos.inbox");
    let run = |subject: &Subject, delivery: &Delivery| {
        (subject.deliver)(&Postgres::connect(&url).unwrap(), delivery);
        rows(&url, STATE)
    };
    for (subject, seed) in SUBJECTS
        .iter()
        .flat_map(|it| (0..SEEDS).map(move |n| (it, n)))
    {
        let name = format!("{}, seed {seed}", subject.name);
        let mut rng = Rng::new(seed);
        let topic = topic(&mut rng, subject.deletes);
        let transactions = topic.len().div_ceil(TRANSACTION);
        let mut delivery = Delivery {
            topic,
            lost_in: None,
        };
        clear();
        let once = run(subject, &delivery);
        assert_ne!(once, "", "{name}: nothing was written");
        // A worker is lost before the commit of a transaction, and another one goes on.
        clear();
        delivery.lost_in = Some(rng.below(transactions));
        let before = run(subject, &delivery);
        delivery.lost_in = None;
        assert_eq!(run(subject, &delivery), once, "{name}, after {before:?}");
        // The positions are lost, so all records come again.
        let replay = || {
            rows(&url, "UPDATE eos.positions SET next_offset = NULL");
            run(subject, &delivery);
        };
        match subject.idempotent_without_positions {
            true => assert_idempotent(replay, || rows(&url, STATE)),
            false => {
                replay();
                assert_ne!(rows(&url, STATE), once, "{name}: a replay changed nothing");
            }
        }
    }
}
