//! Whole apps on a broker in memory, with a real database.

use std::time::{Duration, Instant};

use eos_core::codec::Plain;
use eos_core::identity::SeenIds;
use eos_core::{App, ErrorPolicy, PlainTopic, Timestamp, Topic};
use eos_postgres::testing::Cluster;
use eos_postgres::{Postgres, PostgresStream, Refused};
use eos_testkit::{Input, TestDriver};

use crate::support::{database, rows};

pub(crate) fn orders() -> Topic<String, i64, Plain, Plain> {
    Topic::plain("orders")
}

pub(crate) const TABLES: &str =
    "CREATE TABLE stock (sku text PRIMARY KEY, units bigint CHECK (units >= 0));
    INSERT INTO stock VALUES ('a', 1000);
    CREATE TABLE bookings (sku text, units bigint)";

pub(crate) fn app(url: &str) -> App {
    let shop = Postgres::connect(url).unwrap();
    let stock = shop
        .table::<String, i64>("stock")
        .record_key("sku", |sku| sku.clone())
        .add("units", |_, units| -*units)
        .refused(Refused::DeadLetter);
    let bookings = shop
        .table::<String, i64>("bookings")
        .column("sku", |sku, _| sku.clone())
        .column("units", |_, units| *units)
        .refused(Refused::DeadLetter);
    let mut app = App::new("shop-v1");
    app.ledger(&shop);
    let orders = app.source(&orders());
    orders.clone().to_rows(&stock);
    orders.to_rows(&bookings);
    app
}

/// The process dies at each of its first effects in turn. Each record's rows are there once.
#[test]
fn a_crash_doubles_no_row() {
    let url = database("crashes", TABLES);
    let mut driver = TestDriver::new(app(&url));
    for n in 1..=20 {
        driver.crash_at_effect(n % 7 + 1);
        driver.pipe(&orders(), "a", 2_i64);
    }
    driver.crash();
    driver.pipe(&orders(), "a", 960_i64);
    assert_eq!(rows(&url, "SELECT units FROM stock"), "0");
    assert_eq!(
        rows(&url, "SELECT count(*), sum(units) FROM bookings"),
        "21|1000"
    );
    // An order that the stock cannot serve books nothing.
    driver.pipe(&orders(), "a", 1_i64);
    driver.pipe(&orders(), "unknown", 1_i64);
    assert_eq!(rows(&url, "SELECT count(*) FROM bookings"), "21");
    assert_eq!(
        rows(
            &url,
            "SELECT sqlstate, place FROM eos.dead_letters ORDER BY \"offset\""
        ),
        "23514|table stock |table stock"
    );
}

/// R71: an inbox knows the ids of committed records only. Each record comes twice. The session of the first attempt ends
/// between the claim of the id and the commit, and the process dies after each record.
#[test]
fn a_crash_neither_loses_nor_doubles_a_message() {
    let dies = "CREATE SEQUENCE attempts;
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('public.attempts') % 2 = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
          RETURN NEW; END $$;
        CREATE TRIGGER die BEFORE UPDATE ON eos.positions FOR EACH ROW
          WHEN (NEW.next_offset IS DISTINCT FROM OLD.next_offset) EXECUTE FUNCTION die()";
    let url = database("crashes_with_inbox", &format!("{TABLES}; {dies}"));
    let shop = Postgres::connect(&url).unwrap();
    // The value is the id of the message.
    let stock = shop
        .table::<String, i64>("stock")
        .record_key("sku", |sku| sku.clone())
        .add("units", |_, units| -*units)
        .once_by(&shop.inbox("stock"), |_, id| *id);
    let bookings = shop
        .table::<String, i64>("bookings")
        .column("sku", |sku, _| sku.clone())
        .column("units", |_, units| *units)
        .once_by(&shop.inbox("bookings"), |_, id| *id);
    let mut app = App::new("shop-v1");
    app.ledger(&shop);
    let source = app.source(&orders());
    source.clone().to_rows(&stock);
    source.to_rows(&bookings);
    let mut driver = TestDriver::new(app);
    for sent in 0..20 {
        driver.pipe(&orders(), "a", sent / 2 + 1);
        wait_for(&mut driver, &url, sent + 1);
        driver.crash();
    }
    assert_eq!(
        rows(&url, "SELECT count(*), sum(units) FROM bookings"),
        "10|55"
    );
    assert_eq!(rows(&url, "SELECT units FROM stock"), "945");
    assert_eq!(rows(&url, "SELECT count(*) FROM eos.inbox"), "20");
    // An even attempt lives, so each record had an attempt whose session ended.
    let attempts = rows(&url, "SELECT last_value FROM attempts");
    assert!(attempts.parse::<u32>().unwrap() >= 40, "{attempts}");
}

/// Lets time pass until the position is there. The app waits before it repeats a transaction.
fn wait_for(driver: &mut TestDriver, url: &str, offset: i64) {
    let begin = Instant::now();
    while rows(url, "SELECT next_offset FROM eos.positions") != offset.to_string() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "never at {offset}"
        );
        driver.advance_wall_clock(Duration::from_millis(200));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// R45: a deduplication with a window of an hour, and the inbox behind it, which keeps ids for days. The deduplication
/// drops copies of the same hour, and the inbox a copy that comes three days later.
#[test]
fn the_inbox_finds_copies_that_are_older_than_the_window() {
    const HOUR: i64 = 3_600_000;
    let url = database("two_tiers", "CREATE TABLE payments (id text, cents bigint)");
    let [sent, first] = ["sent", "first"].map(PlainTopic::<String, i64>::named);
    let mut app = App::new("hot-v1");
    let hour = SeenIds::fixed("hot", Duration::from_secs(3_600)).trust_times();
    app.source(&sent).dedup(&hour).by_key().to(&first);
    let mut hot = TestDriver::new(app);
    let shop = Postgres::connect(&url).unwrap();
    let payments = shop
        .table::<String, i64>("payments")
        .column("id", |id, _| id.clone())
        .column("cents", |_, cents| *cents)
        .once_by(&shop.inbox("payments"), |id, _| id.clone());
    let mut app = App::new("durable-v1");
    app.ledger(&shop);
    app.source(&first).to_rows(&payments);
    let mut durable = TestDriver::new(app);

    let begin = 1_704_067_200_000;
    for (id, cents, hours) in [
        ("a", 1, 0),
        ("a", 2, 0),
        ("b", 3, 1),
        ("a", 4, 72),
        ("a", 5, 72),
    ] {
        hot.pipe_at(&sent, id, cents, Timestamp(begin + hours * HOUR));
    }
    let passed = hot.read_pairs(&first);
    let pairs: Vec<_> = passed.iter().map(|(id, cents)| (&**id, *cents)).collect();
    assert_eq!(pairs, [("a", 1), ("b", 3), ("a", 4)]);
    for (id, cents) in passed {
        durable.pipe(&first, id, cents);
    }
    assert_eq!(
        rows(&url, "SELECT id, cents FROM payments ORDER BY id"),
        "a|1 b|3"
    );
}

/// Records that the app gives up become rows of `eos.dead_letters`, too.
#[test]
fn a_record_that_the_app_gives_up_is_a_dead_letter() {
    let url = database("given_up", TABLES);
    let shop = Postgres::connect(&url).unwrap();
    let bookings = shop
        .table::<String, i64>("bookings")
        .column("sku", |sku, _| sku.clone())
        .column("units", |_, units| *units);
    let mut app = App::new("shop-v1");
    app.ledger(&shop);
    app.source(&orders())
        .on_error(ErrorPolicy::dead_letter("letters"))
        .to_rows(&bookings);
    let mut driver = TestDriver::new(app);
    let raw: Topic<String, String, Plain, Plain> = Topic::plain("orders");
    driver.pipe(&raw, "a", "no number".to_owned());
    driver.pipe(&orders(), "b", 7_i64);
    assert_eq!(rows(&url, "SELECT * FROM bookings"), "b|7");
    assert_eq!(
        rows(
            &url,
            "SELECT convert_from(key, 'UTF8'), place, message <> '' FROM eos.dead_letters"
        ),
        "a|letters|t"
    );
}

/// By default, the database's refusal is a failure of the record, and the error policy of its source decides.
#[test]
fn a_refused_row_is_a_failure_of_its_record() {
    let policies = [
        ErrorPolicy::fail(),
        ErrorPolicy::skip(),
        ErrorPolicy::dead_letter("letters"),
    ];
    for policy in policies {
        let name = policy.to_string();
        let url = database("refused_in_app", TABLES);
        let shop = Postgres::connect(&url).unwrap();
        let stock = shop
            .table::<String, i64>("stock")
            .record_key("sku", |sku| sku.clone())
            .column("units", |_, units| *units);
        let mut app = App::new("shop-v1");
        app.ledger(&shop);
        app.source(&orders()).on_error(policy).to_rows(&stock);
        let mut driver = TestDriver::new(app);
        driver.pipe(&orders(), "b", 7_i64);
        let refused = driver.try_pipe(&orders(), Input::new("c", -1_i64));
        let letters = rows(
            &url,
            "SELECT convert_from(key, 'UTF8') FROM eos.dead_letters",
        );
        let position = rows(&url, "SELECT next_offset FROM eos.positions");
        if name == "fail()" {
            let error = refused.unwrap_err().to_string();
            for part in ["record 1 of orders-0", "stock"] {
                assert!(error.contains(part), "{error}");
            }
            assert_eq!((&*letters, &*position), ("", "1"), "{name}");
        } else {
            refused.unwrap();
            let letter = if name == "skip()" { "" } else { "c" };
            assert_eq!((&*letters, &*position), (letter, "2"), "{name}");
            driver.pipe(&orders(), "d", 8_i64);
            let stock = "SELECT * FROM stock ORDER BY sku";
            assert_eq!(rows(&url, stock), "a|1000 b|7 d|8", "{name}");
        }
        assert_eq!(rows(&url, "SELECT units FROM stock WHERE sku = 'b'"), "7");
    }
}

#[test]
fn a_missing_installation_is_a_typed_error() {
    let error = eos_postgres::testing::ClusterError::NotInstalled {
        searched: "/nowhere".into(),
    };
    assert!(error.to_string().contains("apt-get install postgresql"));
    let _: fn() -> Result<Cluster, _> = Cluster::start;
}
