//! Records whose rows the database refuses.

use eos_core::boundary::{Ledger as _, LedgerFailure, LedgerTotals};
use eos_postgres::testing::run;
use eos_postgres::{Numeric, Postgres, Refused, SqlTable};

use crate::support::{Register, Worker, database, rows};

type Table = SqlTable<String, i64>;

fn numbers(shop: &Postgres, refused: Refused) -> Table {
    let table: Table = shop.table("t");
    table
        .column("n", |_, n| *n)
        .column("name", |name: &String, _| name.clone())
        .refused(refused)
}

const NUMBERS: &str = "CREATE TABLE t (n int CHECK (n < 100), name varchar(8))";

/// Writes records, and returns the position after them.
fn write(
    (url, shop): (&str, &Postgres),
    table: &Table,
    records: &[(&str, i64)],
) -> Result<(), eos_core::boundary::LedgerError> {
    let mut worker = Worker::new(shop, &[table.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for (at, (name, n)) in records.iter().enumerate() {
        let at = i64::try_from(at).unwrap();
        worker.put(table, (0, at), &(*name).to_owned(), Some(n))?;
    }
    worker.finish(&taken, 9)?;
    assert_eq!(rows(url, "SELECT next_offset FROM eos.positions"), "9");
    Ok(())
}

/// Returns totals with these counts.
fn totals(rows: u64, skipped: u64, dead_letters: u64, careful_transactions: u64) -> LedgerTotals {
    LedgerTotals {
        rows,
        skipped,
        dead_letters,
        careful_transactions,
    }
}

#[test]
fn by_default_a_record_is_blamed_and_nothing_is_written() {
    let url = database("fail", NUMBERS);
    let shop = Postgres::connect(&url).unwrap();
    let table = numbers(&shop, Refused::Fail);
    let error = write((&url, &shop), &table, &[("a", 1), ("b", 100)]).unwrap_err();
    assert!(error.blames_a_record);
    assert_eq!(error.failure, LedgerFailure::Abortable);
    assert_eq!(rows(&url, "SELECT count(*) FROM t"), "0");
    assert_eq!(shop.totals(), totals(0, 0, 0, 0));
}

/// The statements of a session cast to the type that the column had. A new session writes every value that the table
/// accepts.
#[test]
fn a_column_that_became_wider_refuses_no_record() {
    for policy in [Refused::Fail, Refused::Skip, Refused::DeadLetter] {
        let url = database("wider", "CREATE TABLE t (n int, name text)");
        let shop = Postgres::connect(&url).unwrap();
        let table = numbers(&shop, policy);
        let mut worker = Worker::new(&shop, &[table.register()], "w");
        let write = |worker: &mut Worker| {
            let taken = worker.take(0);
            worker.begin(&taken);
            for (at, n) in [(0, 1), (1, 3_000_000_000)] {
                worker.put(&table, (0, at), &"a".into(), Some(&n)).unwrap();
            }
            worker.finish(&taken, 2)
        };
        run(&url, "ALTER TABLE t ALTER n TYPE bigint").unwrap();
        let error = write(&mut worker).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Abortable, "{error}");
        assert!(!error.blames_a_record, "{policy:?}: {error}");
        let expected = "has type bigint, and this session writes it as integer";
        assert!(error.text.contains(expected), "{error}");
        assert!(worker.session.is_spoiled());
        worker.renew().unwrap();
        write(&mut worker).unwrap();
        assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "1 3000000000");
        assert_eq!(rows(&url, "SELECT count(*) FROM eos.dead_letters"), "0");
        assert_eq!(shop.totals(), totals(2, 0, 0, 0));
    }
}

/// The statements of a session find types by name, and another type may take the name.
#[test]
fn a_type_that_takes_the_name_of_another_refuses_no_record() {
    for (type_of_name, change) in [
        (
            "CREATE DOMAIN d AS text",
            "ALTER DOMAIN d RENAME TO former; CREATE DOMAIN d AS text CHECK (value <> '3')",
        ),
        (
            "CREATE TYPE d AS ENUM ('3')",
            "ALTER TYPE d RENAME TO former; CREATE TYPE d AS ENUM ('4')",
        ),
    ] {
        let url = database(
            "renamed",
            &format!("{type_of_name}; CREATE TABLE t (name d)"),
        );
        let shop = Postgres::connect(&url).unwrap();
        let table: Table = shop
            .table("t")
            .column("name", |_, n: &i64| n.to_string())
            .refused(Refused::Skip);
        let mut worker = Worker::new(&shop, &[table.register()], "w");
        let write = |worker: &mut Worker| {
            let taken = worker.take(0);
            worker.begin(&taken);
            worker.put(&table, (0, 0), &"a".into(), Some(&3)).unwrap();
            worker.finish(&taken, 1)
        };
        // The server prepares the statement again, with the new type.
        run(&url, &format!("{change}; ANALYZE t")).unwrap();
        let error = write(&mut worker).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Abortable, "{change}: {error}");
        assert!(!error.blames_a_record, "{change}: {error}");
        worker.renew().unwrap();
        write(&mut worker).unwrap();
        assert_eq!(rows(&url, "SELECT name FROM t"), "3", "{change}");
    }
}

/// A statement that returns columns, and a value whose type no longer fits: a new session prepares both again.
#[test]
fn a_column_of_another_type_stops_no_worker() {
    let url = database(
        "other_type",
        "CREATE TYPE size AS ENUM ('3'); CREATE TABLE t (n int, name text)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table: Table = shop.table("t").column("name", |_, n: &i64| n.to_string());
    let sql = "INSERT INTO t (n) VALUES (3) RETURNING n";
    let statement = shop.statement::<String, i64>("s", sql);
    let mut worker = Worker::new(&shop, &[table.register(), statement.register()], "w");
    let mut write = |to_statement: bool| {
        let taken = worker.take(0);
        worker.begin(&taken);
        let (key, n) = ("a".to_owned(), 3);
        match to_statement {
            true => worker.put(&statement, (0, 0), &key, Some(&n)).unwrap(),
            false => worker.put(&table, (0, 0), &key, Some(&n)).unwrap(),
        }
        let written = worker.finish(&taken, 1).map(drop);
        if worker.session.is_spoiled() {
            worker.renew().unwrap();
        }
        written
    };
    write(true).unwrap();
    for (change, to_statement) in [
        ("ALTER TABLE t ALTER n TYPE bigint", true),
        ("ALTER TABLE t ALTER name TYPE size USING name::size", false),
    ] {
        run(&url, change).unwrap();
        let error = write(to_statement).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Abortable, "{change}: {error}");
        write(to_statement).unwrap();
    }
    assert_eq!(
        rows(&url, "SELECT n, name FROM t ORDER BY n, name"),
        "3|NULL 3|NULL NULL|3"
    );
}

/// The server has limits that depend on the value: no index entry is larger than a third of a page.
#[test]
fn a_key_that_is_too_large_for_its_index_is_refused() {
    let url = database("large_key", "CREATE TABLE t (k text PRIMARY KEY, n bigint)");
    let shop = Postgres::connect(&url).unwrap();
    let table: Table = shop
        .table("t")
        .key("k", |key: &String, _| key.clone())
        .column("n", |_, n| *n)
        .refused(Refused::DeadLetter);
    // It does not become smaller by compression.
    let mut seed = 88_172_645_463_325_252_u64;
    let letters = (0..9_000).map(|_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        char::from(b'!' + u8::try_from(seed % 90).unwrap())
    });
    let large: String = letters.collect();
    let records = [("a", 1), (large.as_str(), 2), ("c", 3)];
    write((&url, &shop), &table, &records).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "1 3");
    let letter = "SELECT \"offset\", sqlstate FROM eos.dead_letters";
    assert_eq!(rows(&url, letter), "1|54000");
}

/// Every kind of refusal: a check, a number out of range, a text that is too long, a NUL byte.
const POISON: &[(&str, i64)] = &[
    ("a", 1),
    ("check", 100),
    ("b", 2),
    ("range", 3_000_000_000),
    ("too long for it", 3),
    ("nul\0", 4),
    ("c", 5),
];

#[test]
fn skipped_records_have_no_effect_and_others_stay() {
    let url = database("skip", NUMBERS);
    let shop = Postgres::connect(&url).unwrap();
    write((&url, &shop), &numbers(&shop, Refused::Skip), POISON).unwrap();
    assert_eq!(
        rows(&url, "SELECT name, n FROM t ORDER BY n"),
        "a|1 b|2 c|5"
    );
    assert_eq!(rows(&url, "SELECT count(*) FROM eos.dead_letters"), "0");
    assert_eq!(shop.totals(), totals(7, 4, 0, 1));
}

#[test]
fn dead_letters_hold_the_rows() {
    let url = database("letters", NUMBERS);
    let shop = Postgres::connect(&url).unwrap();
    write((&url, &shop), &numbers(&shop, Refused::DeadLetter), POISON).unwrap();
    assert_eq!(
        rows(&url, "SELECT name, n FROM t ORDER BY n"),
        "a|1 b|2 c|5"
    );
    assert_eq!(
        rows(
            &url,
            "SELECT \"offset\", place, sqlstate FROM eos.dead_letters ORDER BY 1"
        ),
        "1|table t|23514 3|table t|22003 4|table t|22001 5|table t|22021"
    );
    assert_eq!(
        rows(
            &url,
            "SELECT convert_from(rows, 'UTF8') FROM eos.dead_letters WHERE \"offset\" = 5"
        ),
        r#"[{"columns":{"n":4,"name":"nul\u0000"},"deleted":false,"place":"table t"}]"#
    );
    // The header has a NUL byte as well.
    assert_eq!(
        rows(&url, "SELECT DISTINCT headers FROM eos.dead_letters"),
        "\\x000000036e756c00000003610062"
    );
    // The same record again, after a reset of the position, replaces its letter.
    rows(&url, "UPDATE eos.positions SET next_offset = NULL");
    write(
        (&url, &shop),
        &numbers(&shop, Refused::DeadLetter),
        &POISON[..2],
    )
    .unwrap();
    assert_eq!(rows(&url, "SELECT count(*) FROM eos.dead_letters"), "4");
    assert_eq!(shop.totals(), totals(9, 0, 5, 2));
}

/// A record's rows in two tables are kept or refused together.
#[test]
fn the_rows_of_a_record_stay_together() {
    let url = database(
        "together",
        "CREATE TABLE t (n int CHECK (n < 100), name text); CREATE TABLE u (n bigint)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let t = numbers(&shop, Refused::DeadLetter);
    let u: Table = shop.table("u").column("n", |_: &String, n: &i64| *n);
    let mut worker = Worker::new(&shop, &[t.register(), u.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for (at, n) in [(0, 1), (1, 100), (2, 2)] {
        worker.put(&u, (0, at), &"k".into(), Some(&n)).unwrap();
        worker.put(&t, (0, at), &"k".into(), Some(&n)).unwrap();
    }
    worker.finish(&taken, 3).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "1 2");
    assert_eq!(rows(&url, "SELECT n FROM u ORDER BY n"), "1 2");
}

/// −5 on a stock of 0 is refused although +5 follows it: the culprit depends on the order of records only, and not on
/// another record's fault. Without a fault, the sum counts.
#[test]
fn a_sum_is_judged_in_the_order_of_records() {
    let url = database(
        "order",
        "CREATE TABLE stock (sku text PRIMARY KEY, units int CHECK (units BETWEEN 0 AND 99))",
    );
    rows(&url, "INSERT INTO stock VALUES ('a', 10), ('b', 10)");
    let shop = Postgres::connect(&url).unwrap();
    let stock: Table = shop
        .table("stock")
        .record_key("sku", |sku: &String| sku.clone())
        .add("units", |_, n| *n)
        .refused(Refused::DeadLetter);
    write(
        (&url, &shop),
        &stock,
        &[("a", 5), ("a", -20), ("b", 95), ("a", -3)],
    )
    .unwrap();
    assert_eq!(
        rows(&url, "SELECT sku, units FROM stock ORDER BY sku"),
        "a|12 b|10"
    );
    assert_eq!(
        rows(&url, "SELECT \"offset\" FROM eos.dead_letters ORDER BY 1"),
        "1 2"
    );
}

#[test]
fn a_trigger_refuses_a_record() {
    let url = database("trigger", NUMBERS);
    run(
        &url,
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN IF NEW.n = 7 THEN RAISE EXCEPTION 'seven'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()",
    )
    .unwrap();
    let shop = Postgres::connect(&url).unwrap();
    write(
        (&url, &shop),
        &numbers(&shop, Refused::DeadLetter),
        &[("a", 6), ("b", 7), ("c", 8)],
    )
    .unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "6 8");
    assert_eq!(rows(&url, "SELECT sqlstate FROM eos.dead_letters"), "P0001");
}

const DEFERRED: &str =
    "CREATE TABLE t (n int CHECK (n < 100), name text, UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)";

/// A constraint that is checked at COMMIT is checked before it, while the record is known.
#[test]
fn a_deferred_constraint_finds_its_record() {
    let url = database("deferred", DEFERRED);
    let shop = Postgres::connect(&url).unwrap();
    let records = [("a", 1), ("b", 2), ("again", 1), ("c", 3)];
    let error = write((&url, &shop), &numbers(&shop, Refused::Fail), &records).unwrap_err();
    assert!(error.blames_a_record, "{error}");
    let shop = Postgres::connect(&url).unwrap();
    write(
        (&url, &shop),
        &numbers(&shop, Refused::DeadLetter),
        &records,
    )
    .unwrap();
    assert_eq!(
        rows(&url, "SELECT n, name FROM t ORDER BY n"),
        "1|a 2|b 3|c"
    );
    assert_eq!(
        rows(&url, "SELECT \"offset\", sqlstate FROM eos.dead_letters"),
        "2|23505"
    );
    assert_eq!(shop.totals(), totals(4, 0, 1, 1));
}

/// The first refusal is found in the pass with batches, and the second one in the pass for each record. It refuses the first
/// one again.
#[test]
fn a_record_that_is_refused_twice_counts_once() {
    let url = database("twice", DEFERRED);
    let shop = Postgres::connect(&url).unwrap();
    let records = [("a", 1), ("check", 100), ("again", 1), ("c", 3)];
    let table = numbers(&shop, Refused::Skip);
    write((&url, &shop), &table, &records).unwrap();
    assert_eq!(rows(&url, "SELECT name FROM t ORDER BY n"), "a c");
    assert_eq!(shop.totals(), totals(4, 2, 0, 1));
}

/// A refused message is not "seen": its inbox row goes with it, so that a corrected one has its effect.
#[test]
fn a_refused_message_is_not_seen() {
    let url = database("unseen", NUMBERS);
    let shop = Postgres::connect(&url).unwrap();
    let table = numbers(&shop, Refused::Skip).once_by(&shop.inbox("x"), |name, _| name.clone());
    write(
        (&url, &shop),
        &table,
        &[("m1", 100), ("m2", 2), ("m2", 3), ("m1", 1)],
    )
    .unwrap();
    assert_eq!(rows(&url, "SELECT name, n FROM t ORDER BY n"), "m1|1 m2|2");
}

/// A policy of row-level security has the SQLSTATE of a missing grant.
#[test]
fn a_policy_of_the_table_refuses_a_record() {
    let url = database("policy", NUMBERS);
    run(
        &url,
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t WITH CHECK (n < 10);
         DROP ROLE IF EXISTS eos_policy; CREATE ROLE eos_policy LOGIN;
         GRANT ALL ON t TO eos_policy; GRANT USAGE ON SCHEMA eos TO eos_policy;
         GRANT ALL ON ALL TABLES IN SCHEMA eos TO eos_policy",
    )
    .unwrap();
    let limited = url.replace("postgres@", "eos_policy@");
    let shop = Postgres::connect(&limited).unwrap();
    write(
        (&url, &shop),
        &numbers(&shop, Refused::Skip),
        &[("a", 1), ("b", 10)],
    )
    .unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t"), "1");
}

#[test]
fn a_value_of_a_row_is_in_no_message() {
    let url = database("hidden", "CREATE TABLE t (n numeric)");
    let shop = Postgres::connect(&url).unwrap();
    let table: Table = shop
        .table("t")
        .column("n", |text: &String, _: &i64| Numeric(text.clone()));
    let error = write((&url, &shop), &table, &[("secret", 1)]).unwrap_err();
    assert!(error.text.contains("22P02"), "{error}");
    assert!(!error.text.contains("secret"), "{error}");
}

/// Batches end at refused records, which may be the first one, the last one, or several in a row.
#[test]
fn any_number_of_records_is_refused() {
    let bad = [0, 1, 2, 127, 128, 129, 255, 256, 400, 511, 512, 599];
    let url = database("many", NUMBERS);
    let shop = Postgres::connect(&url).unwrap();
    let n = |at: i64| if bad.contains(&at) { 100 } else { at % 100 };
    let names: Vec<String> = (0..600).map(|at| format!("r{at}")).collect();
    let records: Vec<(&str, i64)> = names.iter().map(String::as_str).zip((0..).map(n)).collect();
    write(
        (&url, &shop),
        &numbers(&shop, Refused::DeadLetter),
        &records,
    )
    .unwrap();
    let letters = rows(
        &url,
        "SELECT \"offset\" FROM eos.dead_letters ORDER BY \"offset\"",
    );
    assert_eq!(letters, bad.map(|at| at.to_string()).join(" "));
    // Each other record has one row, in the order of records.
    let good: Vec<String> = (0..600)
        .filter(|at| !bad.contains(at))
        .map(|at| format!("r{at}"))
        .collect();
    let names = rows(&url, "SELECT name FROM t ORDER BY ctid");
    assert_eq!(names, good.join(" "));
}

/// Another worker locks shared rows in the order of keys. Records that run one by one come in another order.
#[test]
fn rows_are_locked_in_the_order_of_keys() {
    let url = database(
        "keys",
        &format!("{NUMBERS}; CREATE TABLE stock (sku text PRIMARY KEY, units int)"),
    );
    rows(&url, "INSERT INTO stock VALUES ('a', 10), ('b', 10)");
    let other = {
        let url = url.clone();
        std::thread::spawn(move || {
            run(
                &url,
                "BEGIN; UPDATE stock SET units = units - 1 WHERE sku = 'a'; SELECT pg_sleep(1);
                 UPDATE stock SET units = units - 1 WHERE sku = 'b'; COMMIT",
            )
        })
    };
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep%' \
                  AND pid <> pg_backend_pid() AND wait_event = 'PgSleep'";
    let since = std::time::Instant::now();
    while rows(&url, sleeps) != "1" {
        assert!(
            since.elapsed().as_secs() < 10,
            "the other worker has not begun"
        );
    }
    let shop = Postgres::connect(&url).unwrap();
    let stock: Table = shop
        .table("stock")
        .record_key("sku", |sku: &String| sku.clone())
        .add("units", |_, n| *n)
        .refused(Refused::Skip);
    let numbers = numbers(&shop, Refused::Skip);
    let mut worker = Worker::new(&shop, &[numbers.register(), stock.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker
        .put(&numbers, (0, 0), &"refused".into(), Some(&100))
        .unwrap();
    for (at, sku) in [(1, "b"), (2, "a")] {
        worker
            .put(&stock, (0, at), &sku.to_owned(), Some(&-2))
            .unwrap();
    }
    worker.finish(&taken, 3).unwrap();
    other.join().unwrap().unwrap();
    assert_eq!(
        rows(&url, "SELECT sku, units FROM stock ORDER BY sku"),
        "a|7 b|7"
    );
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(rows(&url, deadlocks), "0");
}

/// The rollback before the second run has dropped the lock of the position, which is taken again: by it, a successor
/// finds a session that freezes here.
#[test]
fn the_position_is_held_while_records_run_one_by_one() {
    let url = database("held", NUMBERS);
    run(
        &url,
        "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           PERFORM 1 FROM eos.positions WHERE xmax::text = pg_current_xact_id()::text;
           IF NOT FOUND THEN RAISE EXCEPTION 'no lock'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER held BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION held()",
    )
    .unwrap();
    let shop = Postgres::connect(&url).unwrap();
    let records = [("a", 1), ("refused", 100), ("b", 2)];
    write((&url, &shop), &numbers(&shop, Refused::Skip), &records).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "1 2");
}
