//! What the shapes of tables do with records.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use eos_core::Timestamp;
use eos_core::boundary::LedgerFailure;
use eos_postgres::{AnyType, Json, Numeric, Postgres, SqlTable, prune_inbox, tokio_postgres};
use eos_testkit::rng::Rng;

use crate::support::{Register, Worker, database, rows};

type Table = SqlTable<String, i64>;

fn stock(shop: &Postgres) -> Table {
    let table: Table = shop.table("stock");
    table.record_key("sku", |sku| sku.clone())
}

const STOCK: &str = "CREATE TABLE stock (sku text PRIMARY KEY, units bigint CHECK (units >= 0) NOT NULL, note text)";

/// Writes records in one transaction each, and returns the rows of the table.
fn write(
    (url, shop): (&str, &Postgres),
    table: &Table,
    records: &[&[(&str, Option<i64>)]],
) -> String {
    let mut worker = Worker::new(shop, &[table.register()], "w");
    let mut taken = worker.take(0);
    let mut at = 0;
    for transaction in records {
        worker.begin(&taken);
        for (key, value) in *transaction {
            worker
                .put(table, (0, at), &(*key).to_owned(), value.as_ref())
                .unwrap();
            at += 1;
        }
        taken = worker.finish(&taken, at).unwrap();
    }
    rows(url, "SELECT sku, units FROM stock ORDER BY sku")
}

#[test]
fn the_last_record_of_a_key_wins_and_a_deletion_deletes() {
    let url = database("upsert", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop).column("units", |_, units| *units);
    let found = write(
        (&url, &shop),
        &table,
        &[
            &[
                ("a", Some(1)),
                ("b", Some(2)),
                ("a", Some(3)),
                ("c", Some(4)),
            ],
            &[("b", None), ("c", None), ("c", Some(5)), ("missing", None)],
        ],
    );
    assert_eq!(found, "a|3 c|5");
}

#[test]
fn an_older_version_has_no_effect() {
    let url = database("newer", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop).newer_by("units", |_, units| *units);
    let found = write(
        (&url, &shop),
        &table,
        &[
            &[("a", Some(5)), ("a", Some(3)), ("b", Some(1))],
            &[("a", Some(4)), ("b", Some(2))],
        ],
    );
    assert_eq!(found, "a|5 b|2");
}

/// R75: the highest version of each key remains, in any order of repeated versions.
#[test]
fn shuffled_versions_leave_the_highest_one() {
    let url = database("shuffled", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop).newer_by("units", |_, units| *units);
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut records = Vec::new();
        for key in ["a", "b", "c"] {
            for version in 0..=rng.below(8) {
                let version = i64::try_from(version).unwrap();
                let copies = 1 + rng.below(3);
                records.extend((0..copies).map(|_| (key, Some(version))));
            }
        }
        let highest: BTreeMap<&str, i64> = records
            .iter()
            .filter_map(|(k, v)| Some((*k, (*v)?)))
            .collect();
        for at in (1..records.len()).rev() {
            records.swap(at, rng.below(at + 1));
        }
        rows(&url, "TRUNCATE stock, eos.positions");
        let transactions: Vec<_> = records.chunks(1 + rng.below(7)).collect();
        let found = write((&url, &shop), &table, &transactions);
        let expected: Vec<String> = highest.iter().map(|(k, v)| format!("{k}|{v}")).collect();
        assert_eq!(found, expected.join(" "), "seed {seed}");
    }
}

/// R73: upserts are idempotent without positions. A replay of the whole topic changes nothing.
#[test]
fn a_replay_of_the_topic_leaves_the_same_rows() {
    let url = database("replayed", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop).column("units", |_, units| *units);
    let topic: [&[(&str, Option<i64>)]; 3] = [
        &[("a", Some(1)), ("b", Some(2)), ("c", Some(3))],
        &[("b", None), ("a", Some(4)), ("d", Some(0))],
        &[("c", Some(5)), ("d", None), ("b", Some(6))],
    ];
    let first = write((&url, &shop), &table, &topic);
    assert_eq!(first, "a|4 b|6 c|5");
    rows(&url, "UPDATE eos.positions SET next_offset = NULL");
    assert_eq!(write((&url, &shop), &table, &topic), first);
}

/// `INSERT … ON CONFLICT` alone would check `units >= 0` on the summand, and fail.
#[test]
fn a_sum_respects_the_constraints_of_the_sum() {
    let url = database("add", STOCK);
    run_insert(&url);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop).add("units", |_, units| -*units);
    let found = write(
        (&url, &shop),
        &table,
        &[
            &[("a", Some(2)), ("a", Some(3)), ("b", Some(1))],
            &[("a", Some(1))],
        ],
    );
    assert_eq!(found, "a|994 b|9");
}

fn run_insert(url: &str) {
    rows(url, "INSERT INTO stock VALUES ('a', 1000), ('b', 10)");
}

#[test]
fn a_sum_of_a_missing_row_is_refused_or_inserted() {
    let url = database("add_missing", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop).add("units", |_, units| *units);
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"a".into(), Some(&1)).unwrap();
    let error = worker.finish(&taken, 1).unwrap_err();
    assert!(error.blames_a_record, "{error}");
    assert!(error.text.contains("`.or_insert()`"), "{error}");
    drop(worker);
    let other = Postgres::connect(&url).unwrap();
    let table = stock(&other).add("units", |_, units| *units).or_insert();
    let found = write(
        (&url, &other),
        &table,
        &[
            &[("a", Some(1)), ("a", Some(2))],
            &[("a", Some(4)), ("b", Some(1))],
        ],
    );
    assert_eq!(found, "a|7 b|1");
}

#[test]
fn every_type_of_value_arrives() {
    let url = database(
        "types",
        "CREATE TYPE mood AS ENUM ('happy'); CREATE DOMAIN positive AS int CHECK (value > 0);
         CREATE TABLE t (a smallint, b int, c numeric, d real, e boolean, f bytea, g uuid, h timestamptz, i jsonb,
           j numeric(10,2), k date, l mood, m varchar(3), n positive, o timestamptz, p text)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table = shop
        .table::<String, i64>("t")
        .column("a", |_, n| *n)
        .column("b", |_, _| 2_i16)
        .column("c", |_, _| 3_i64)
        .column("d", |_, _| 4.5_f64)
        .column("e", |_, _| true)
        .column("f", |_, _| vec![1_u8, 2])
        .column("g", |_, _| uuid::Uuid::from_u128(1))
        .column("h", |_, _| Timestamp(946_684_800_123))
        .column("i", |_, _| Json(vec!["x"]))
        .column("j", |_, _| Numeric("12.50".into()))
        .column("k", |_, _| AnyType("2026-01-31".into()))
        .column("l", |_, _| "happy")
        .column("m", |key, _| key.clone())
        .column("n", |_, _| 9_i32)
        .column("o", |_, _| SystemTime::UNIX_EPOCH)
        .column("p", |_, _| None::<String>);
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"abc".into(), Some(&1)).unwrap();
    worker.finish(&taken, 1).unwrap();
    let found = rows(&url, "SET timezone = 'UTC'; SELECT * FROM t");
    assert_eq!(
        found,
        "1|2|3|4.5|t|\\x0102|00000000-0000-0000-0000-000000000001|2000-01-01 00:00:00.123+00|[\"x\"]|12.50|2026-01-31|\
         happy|abc|9|1970-01-01 00:00:00+00|NULL"
    );
}

#[test]
fn a_message_has_its_effect_once() {
    let url = database("inbox", "CREATE TABLE stock (sku text, units bigint)");
    let shop = Postgres::connect(&url).unwrap();
    // The value is the id of the message.
    let table: Table = shop
        .table("stock")
        .column("sku", |sku: &String, _| sku.clone())
        .column("units", |_, id| *id)
        .once_by(&shop.inbox("billing"), |_, id| *id);
    let found = write(
        (&url, &shop),
        &table,
        &[
            // The first one of an id wins, also inside of a chunk.
            &[("first", Some(1)), ("second", Some(1)), ("other", Some(2))],
            &[("third", Some(1)), ("new", Some(3))],
        ],
    );
    assert_eq!(found, "first|1 new|3 other|2");
}

/// R71: eight workers write eight messages each at the same time. All 64 messages have the same id.
#[test]
fn concurrent_messages_with_equal_ids_have_one_effect() {
    const WORKERS: i32 = 8;
    let url = database("senders", "CREATE TABLE stock (sku text, units bigint)");
    let begin = Barrier::new(WORKERS as usize);
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let (url, begin) = (&url, &begin);
            scope.spawn(move || {
                begin.wait();
                let shop = Postgres::connect(url).unwrap();
                let table: Table = shop
                    .table("stock")
                    .column("sku", |sku: &String, _| sku.clone())
                    .column("units", |_, id| *id)
                    .once_by(&shop.inbox("billing"), |_, id| *id);
                let mut worker = Worker::new(&shop, &[table.register()], &format!("w{number}"));
                let taken = worker.take(number);
                worker.begin(&taken);
                for at in 0..8 {
                    worker
                        .put(&table, (number, at), &"pen".to_owned(), Some(&1))
                        .unwrap();
                }
                worker.finish(&taken, 8).unwrap();
            });
        }
    });
    assert_eq!(rows(&url, "SELECT sku, units FROM stock"), "pen|1");
    let positions = "SELECT count(*), sum(next_offset) FROM eos.positions";
    assert_eq!(rows(&url, positions), "8|64");
}

#[test]
fn old_ids_of_the_inbox_are_deleted_in_batches() {
    let url = database(
        "prune",
        "INSERT INTO eos.inbox SELECT 's', int4send(n), now() - interval '31 days' FROM generate_series(1, 25000) n;
         INSERT INTO eos.inbox SELECT 's', int4send(-n), now() - interval '29 days' FROM generate_series(1, 7) n;
         CREATE TABLE deletes (n int);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO deletes VALUES (1); RETURN NULL; END';
         CREATE TRIGGER note AFTER DELETE ON eos.inbox FOR EACH STATEMENT EXECUTE FUNCTION note()",
    );
    let prune = |older_than| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            prune_inbox(&client, older_than).await
        })
    };
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    assert_eq!(prune(days(30)).unwrap(), 25_000);
    assert_eq!(rows(&url, "SELECT count(*) FROM deletes"), "3");
    assert_eq!(rows(&url, "SELECT count(*) FROM eos.inbox"), "7");
    assert_eq!(prune(days(30)).unwrap(), 0);
}

#[test]
fn a_statement_runs_for_each_record_in_order() {
    let url = database("statement", STOCK);
    run_insert(&url);
    let shop = Postgres::connect(&url).unwrap();
    let book = shop
        .statement::<String, i64>(
            "book",
            "UPDATE stock SET units = units - $2, note = coalesce(note, '') || $2::text WHERE sku = $1",
        )
        .param(|sku, _| sku.clone())
        .param(|_, units| *units)
        .affects(1);
    let mut worker = Worker::new(&shop, &[book.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for (at, units) in [(0, 2), (1, 3), (2, 1)] {
        worker
            .put(&book, (0, at), &"a".into(), Some(&units))
            .unwrap();
    }
    let taken = worker.finish(&taken, 3).unwrap();
    assert_eq!(
        rows(&url, "SELECT units, note FROM stock WHERE sku = 'a'"),
        "994|231"
    );
    worker.begin(&taken);
    worker
        .put(&book, (0, 3), &"missing".into(), Some(&1))
        .unwrap();
    let error = worker.finish(&taken, 4).unwrap_err();
    assert!(
        error.text.contains("affected 0 rows instead of 1"),
        "{error}"
    );
    assert_eq!(error.failure, LedgerFailure::Abortable);
}

#[test]
fn many_chunks_and_a_row_of_100_mb() {
    let url = database("large", "CREATE TABLE t (n bigint, data text)");
    let shop = Postgres::connect(&url).unwrap();
    let table: Table = shop
        .table("t")
        .column("n", |_, n| *n)
        .column("data", |data: &String, _| data.clone());
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for n in 0..20_000 {
        worker
            .put(&table, (0, n), &"small".into(), Some(&n))
            .unwrap();
    }
    let large = "x".repeat(100 << 20);
    worker
        .put(&table, (0, 20_000), &large, Some(&20_000))
        .unwrap();
    worker.finish(&taken, 20_001).unwrap();
    assert_eq!(
        rows(&url, "SELECT count(*), sum(n), max(length(data)) FROM t"),
        "20001|200010000|104857600"
    );
}
