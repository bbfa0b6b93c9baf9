//! The guide's chapter "Write to PostgreSQL" works, and the runbooks quote real errors.
//!
//! `eos-core` compiles the guide's other code blocks as doc tests, and does not know this crate. The blocks are here once
//! more, and a test compares them with the guide.

use std::time::Duration;

use eos_core::boundary::Ledger;
use eos_core::codec::Plain;
use eos_core::{App, Topic};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Postgres, PostgresStream, Refused};
use eos_testkit::TestDriver;
use serde::Deserialize;

use crate::support::{Register, database, plan, rows};
use program::{Order, inventory};

const GUIDE: &str = include_str!("../../../docs/guide.md");
const BEYOND_KAFKA: &str = include_str!("../../../docs/beyond-kafka.md");
const THIS: &str = include_str!("guide.rs");

#[allow(dead_code, reason = "`main` only has to compile")]
#[rustfmt::skip]
mod program {
use eos_core::{App, Report, Topic};
use eos_postgres::{Postgres, PostgresStream};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) sku: String,
    pub(super) units: i64,
}

pub(super) fn inventory(shop: &Postgres) -> App {
    let stock = shop
        .table::<String, Order>("stock")
        .key("sku", |_, order| order.sku.clone())
        .add("units", |_, order| -order.units);
    let bookings = shop
        .table::<String, Order>("bookings")
        .column("order_id", |id, _| id.clone())
        .column("sku", |_, order| order.sku.clone())
        .column("units", |_, order| order.units);

    let mut app = App::new("inventory-v1");
    app.ledger(shop);
    let orders = app.source(&Topic::<String, Order>::json("orders"));
    orders.clone().to_rows(&stock);
    orders.to_rows(&bookings);
    app
}

#[tokio::main]
async fn main() -> Result<(), Report> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL")?;
    let shop = Postgres::connect(&url)?;
    inventory(&shop).run("localhost:9092").await?;
    Ok(())
}
}

#[derive(Deserialize)]
struct Price {
    cents: i64,
    version: i64,
}

#[rustfmt::skip]
fn shapes(shop: &Postgres) -> App {
    let mut app = App::new("shapes-v1");
    app.ledger(shop);
    // The current price of each sku. A tombstone deletes it.
    let prices = shop
        .table::<String, Price>("prices")
        .record_key("sku", |sku| sku.clone())
        .column("cents", |_, price| price.cents);
    app.source(&Topic::<String, Option<Price>>::json("prices"))
        .to_rows(&prices);

    // Records may arrive out of order: the highest version wins.
    let newest = shop
        .table::<String, Price>("newest_prices")
        .key("sku", |sku, _| sku.clone())
        .newer_by("version", |_, price| price.version)
        .column("cents", |_, price| price.cents);
    app.source(&Topic::<String, Price>::json("price-changes"))
        .to_rows(&newest);

    // Any other statement. An unknown sku is refused, because no row is affected. A delivery counts once, also if its
    // sender repeats it.
    let restock = shop
        .statement::<String, Order>("restock", "UPDATE stock SET units = units + $2 WHERE sku = $1")
        .param(|_, delivery| delivery.sku.clone())
        .param(|_, delivery| delivery.units)
        .affects(1)
        .once_by(&shop.inbox("restock"), |id, _| id.clone());
    app.source(&Topic::<String, Order>::json("deliveries"))
        .to_rows(&restock);
    app
}

#[rustfmt::skip]
fn booking(shop: &Postgres) -> App {
    let shop = shop.clone();
    let mut app = App::new("booking-v1");
    app.ledger(&shop);
    app.source(&Topic::<String, Order>::json("orders"))
        .apply(&shop, "book", async |tx, order| {
            let taken = tx
                .execute(
                    "UPDATE stock SET units = units - $2 WHERE sku = $1 AND units >= $2",
                    &[&order.value.sku, &order.value.units],
                )
                .await?;
            let table = if taken == 1 { "bookings" } else { "backorders" };
            let sql = format!("INSERT INTO {table} VALUES ($1, $2, $3)");
            tx.execute(&sql, &[&order.key, &order.value.sku, &order.value.units])
                .await?;
            Ok(())
        });
    app
}

#[rustfmt::skip]
fn refusing(shop: &Postgres) -> App {
    let stock = shop
        .table::<String, Order>("stock")
        .key("sku", |_, order| order.sku.clone())
        .add("units", |_, order| -order.units)
        .refused(Refused::DeadLetter);
    let mut app = App::new("refusing-v1");
    app.ledger(shop);
    app.source(&Topic::<String, Order>::json("orders")).to_rows(&stock);
    app
}

#[rustfmt::skip]
fn tested(orders: &Lines) -> Result<(), Box<dyn std::error::Error>> {
    let tables = tables();
    let orders = orders.clone();
    #[allow(non_snake_case, reason = "the guide's code names a constant")]
    let TABLES = tables.as_str();
    let cluster = Cluster::start()?;
    let url = cluster.database("inventory")?;
    run(&url, TABLES)?;
    let shop = Postgres::connect(&url)?;
    let mut driver = TestDriver::new(inventory(&shop));
    driver.hold();
    driver.pipe(&orders, "o-1", r#"{"sku":"pen","units":3}"#);
    driver.crash();
    driver.release();
    assert_eq!(driver.crashes(), 1);
    assert_eq!(value(&url, "SELECT units FROM stock")?, "997");
    Ok(())
}

type Lines = Topic<String, String, Plain, Plain>;

fn lines(topic: &str) -> Lines {
    Topic::plain(topic)
}

/// The chapter, up to the next one.
fn chapter() -> &'static str {
    let (_, chapter) = GUIDE.split_once("\n## Write to PostgreSQL\n").unwrap();
    chapter.split_once("\n## ").unwrap().0
}

/// The statements of the chapter that create tables.
fn tables() -> String {
    let (_, tables) = chapter().split_once("<<'SQL'\n").unwrap();
    tables.split_once("\nSQL\n").unwrap().0.to_owned()
}

/// Code without white space and visibilities, which the guide does not need.
fn bare(code: &str) -> String {
    let code: String = code.split_whitespace().collect();
    code.replace("pub(super)", "")
}

#[test]
fn the_code_of_the_chapter_is_the_code_of_this_file() {
    let this = bare(THIS);
    let blocks: Vec<&str> = chapter().split("```rust,ignore\n").skip(1).collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        let code = block.split_once("\n```").unwrap().0;
        assert!(this.contains(&bare(code)), "not in this file:\n{code}");
    }
}

/// The tables of the guide, its program, its orders and its result.
#[test]
fn the_first_program_of_the_chapter_works() {
    let url = database("guide", &tables());
    let shop = Postgres::connect(&url).unwrap();
    let mut driver = TestDriver::new(inventory(&shop));
    let (_, orders) = chapter().split_once("printf '%s\\n' '").unwrap();
    let (orders, _) = orders.split_once("' | eos").unwrap();
    for order in orders.split("' '") {
        let (id, value) = order.split_once(':').unwrap();
        driver.pipe(&lines("orders"), id, value);
    }
    assert_eq!(rows(&url, "SELECT * FROM stock"), "pen|995");
    let bookings = rows(&url, "SELECT * FROM bookings ORDER BY order_id");
    assert_eq!(bookings, "o-1|pen|3 o-2|pen|2");
}

#[test]
fn the_closure_of_the_chapter_works() {
    let more = "CREATE TABLE backorders (LIKE bookings)";
    let url = database("guide_closure", &format!("{}\n{more}", tables()));
    let shop = Postgres::connect(&url).unwrap();
    let mut driver = TestDriver::new(booking(&shop));
    driver.hold();
    driver.pipe(&lines("orders"), "o-1", r#"{"sku":"pen","units":3}"#);
    driver.crash();
    driver.release();
    assert_eq!(driver.crashes(), 1);
    driver.pipe(&lines("orders"), "o-2", r#"{"sku":"pen","units":998}"#);
    assert_eq!(rows(&url, "SELECT * FROM stock"), "pen|997");
    assert_eq!(rows(&url, "SELECT * FROM bookings"), "o-1|pen|3");
    assert_eq!(rows(&url, "SELECT * FROM backorders"), "o-2|pen|998");
}

#[test]
fn the_shapes_of_the_chapter_work() {
    let more = "CREATE TABLE prices (sku text PRIMARY KEY, cents bigint NOT NULL);
        CREATE TABLE newest_prices (sku text PRIMARY KEY, version bigint NOT NULL, cents bigint NOT NULL)";
    let url = database("guide_shapes", &format!("{}\n{more}", tables()));
    let shop = Postgres::connect(&url).unwrap();
    let mut driver = TestDriver::new(shapes(&shop));
    let price = |cents, version| format!(r#"{{"cents":{cents},"version":{version}}}"#);
    driver.pipe(&lines("prices"), "pen", price(120, 1));
    driver.pipe(&lines("prices"), "ink", price(300, 1));
    let tombstones: Topic<String, Option<String>, Plain, Plain> = Topic::plain("prices");
    driver.pipe_tombstone(&tombstones, "pen");
    driver.pipe(&lines("price-changes"), "pen", price(130, 2));
    driver.pipe(&lines("price-changes"), "pen", price(120, 1));
    for id in ["d-1", "d-1", "d-2"] {
        driver.pipe(&lines("deliveries"), id, r#"{"sku":"pen","units":50}"#);
    }
    assert_eq!(rows(&url, "SELECT * FROM prices"), "ink|300");
    assert_eq!(rows(&url, "SELECT * FROM newest_prices"), "pen|2|130");
    assert_eq!(rows(&url, "SELECT units FROM stock"), "1100");
}

#[test]
fn refused_orders_are_dead_letters() {
    let url = database("guide_refused", &tables());
    let shop = Postgres::connect(&url).unwrap();
    let mut driver = TestDriver::new(refusing(&shop));
    driver.pipe(&lines("orders"), "o-1", r#"{"sku":"unknown","units":1}"#);
    driver.pipe(&lines("orders"), "o-2", r#"{"sku":"pen","units":1001}"#);
    driver.pipe(&lines("orders"), "o-3", r#"{"sku":"pen","units":1}"#);
    assert_eq!(rows(&url, "SELECT units FROM stock"), "999");
    let letters = "SELECT sqlstate FROM eos.dead_letters ORDER BY \"offset\"";
    assert_eq!(rows(&url, letters), " 23514");
}

#[test]
fn the_test_of_the_chapter_passes() {
    tested(&lines("orders")).unwrap();
}

/// The runbooks of `docs/beyond-kafka.md` on one line.
fn runbooks() -> String {
    let (_, runbooks) = BEYOND_KAFKA.split_once("\n## Runbooks\n").unwrap();
    let words = runbooks.split_whitespace().filter(|word| *word != ">");
    words.collect::<Vec<_>>().join(" ")
}

/// An operator searches for the text of an error.
#[test]
fn the_runbooks_quote_the_errors_of_a_start() {
    let runbooks = runbooks();
    let cases = [
        "CREATE TABLE stock (amount bigint, sku text PRIMARY KEY)",
        "CREATE TABLE stock (sku text PRIMARY KEY, units text)",
        "CREATE TABLE stock (sku text, units bigint)",
        "CREATE UNLOGGED TABLE stock (sku text PRIMARY KEY, units bigint)",
        "CREATE TABLE stock (sku text PRIMARY KEY, units bigint, region text NOT NULL)",
        "CREATE TABLE stock (sku text PRIMARY KEY, units bigint GENERATED ALWAYS AS (1) STORED)",
        "CREATE TABLE stock (sku text PRIMARY KEY, units bigint); DROP SCHEMA eos CASCADE",
    ];
    for tables in cases {
        let shop = Postgres::connect(&database("runbook", tables)).unwrap();
        let stock = shop
            .table::<String, i64>("stock")
            .key("sku", |sku, _| sku.clone())
            .column("units", |_, units| *units);
        let checked = shop.check(&plan(&[stock.register()]), Duration::from_secs(10));
        let text = checked.unwrap_err().text;
        let mistakes: Vec<&str> = text
            .lines()
            .filter_map(|it| it.strip_prefix("- "))
            .collect();
        assert_eq!(mistakes.len(), 1, "{tables}: {text}");
        for mistake in mistakes {
            assert!(runbooks.contains(mistake), "no runbook has: {mistake}");
        }
    }
}
