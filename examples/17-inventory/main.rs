//! Stock that is exact although its worker is killed 20 times:
//! `cargo run -p eos-examples --features postgres --bin 17-inventory`
//!
//! ```text
//! orders ─┬─→ stock      one row per sku: units - ordered units
//!         └─→ bookings   one row per order
//! ```
//!
//! 800 orders of one pen arrive within twelve seconds, and 1,000 pens are in stock. A worker books the orders in PostgreSQL.
//! The parent kills the worker with SIGKILL at random moments, and starts it again.
//!
//! 1. **Without eos**: a plain loop writes both rows in a transaction, and commits its offsets in Kafka every half second,
//!    as a consumer with `enable.auto.commit` does. After a kill, it books the orders since then again.
//! 2. **With eos**: the position is in the transaction of the rows.
//!
//! The program prints both results, and exits with 1 if the second one is not 200 pens and 800 bookings. It needs an
//! installed PostgreSQL, or the address of a local server in `EOS_POSTGRES_URL`.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use eos_broker::{EmbeddedKafka, Keys};
use eos_core::{App, Topic};
use eos_examples::log_to_stderr;
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Postgres, PostgresStream};
use kafka_wire::{Client, Isolation, Record};
use serde::Deserialize;

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 4;
const ORDERS: u32 = 800;
const STOCK: u32 = 1_000;
const KILLS: u32 = 20;

/// So many orders arrive at once.
const LOT: u32 = 4;
/// The time between two lots.
const LOT_PERIOD: Duration = Duration::from_millis(60);
/// A worker lives for a random time between these.
const LIFE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(1_000));
/// The last worker books the rest of the orders within this time.
const PATIENCE: Duration = Duration::from_secs(30);

const TABLES: &str = "CREATE TABLE stock (sku text PRIMARY KEY, units bigint NOT NULL);
    CREATE TABLE bookings (order_id text NOT NULL, sku text NOT NULL, units bigint NOT NULL)";

#[derive(Debug, Clone, Deserialize)]
struct Order {
    sku: String,
    units: i64,
}

/// How a worker books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    PlainLoop,
    Eos,
}

fn main() -> anyhow::Result<ExitCode> {
    log_to_stderr();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let worker = match arguments[..] {
        [] => return parent(),
        [name, bootstrap, url] if name == Way::PlainLoop.name() => Worker::Plain(bootstrap, url),
        [name, bootstrap, url] if name == Way::Eos.name() => Worker::Eos(bootstrap, url),
        _ => bail!("unknown arguments {arguments:?}: start this program without arguments"),
    };
    end_with_parent()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match worker {
            Worker::Plain(bootstrap, url) => plain::run(bootstrap, url).await,
            Worker::Eos(bootstrap, url) => Ok(app(&Postgres::connect(url)?).run(bootstrap).await?),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends this process when the parent's end of the pipe is closed, also if the parent is killed.
fn end_with_parent() -> std::io::Result<()> {
    let watch = || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    };
    thread::Builder::new().spawn(watch).map(drop)
}

enum Worker<'a> {
    Plain(&'a str, &'a str),
    Eos(&'a str, &'a str),
}

/// The whole app.
fn app(shop: &Postgres) -> App {
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
    let orders = app.source(&Topic::<String, Order>::json(TOPIC));
    orders.clone().to_rows(&stock);
    orders.to_rows(&bookings);
    app
}

/// The loop that this example compares with.
mod plain {
    use super::*;

    const GROUP: &str = "plain-loop";
    /// Kafka's default is 5 seconds, after which even more orders are booked twice.
    const AUTO_COMMIT: Duration = Duration::from_millis(500);

    pub(super) async fn run(bootstrap: &str, url: &str) -> anyhow::Result<()> {
        let (mut shop, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let mut kafka = Client::connect(bootstrap, Duration::from_secs(10))?;
        let mut next = committed(&mut kafka)?;
        let mut last_commit = Instant::now();
        loop {
            for (partition, next) in (0..).zip(&mut next) {
                let fetched = kafka.fetch(TOPIC, partition, *next, Isolation::ReadCommitted)?;
                for record in &fetched.records {
                    book(&mut shop, record).await?;
                }
                *next = fetched.next_offset;
            }
            if last_commit.elapsed() >= AUTO_COMMIT {
                for (partition, next) in (0..).zip(&next) {
                    kafka.commit_offset(GROUP, TOPIC, partition, *next, "")?;
                }
                last_commit = Instant::now();
            }
        }
    }

    /// Both rows in one transaction, without the offset.
    async fn book(shop: &mut tokio_postgres::Client, record: &Record) -> anyhow::Result<()> {
        let id = record.key.as_deref().context("an order without an id")?;
        let id = std::str::from_utf8(id)?;
        let order: Order = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        let (sku, units) = (&order.sku, &order.units);
        let rows = shop.transaction().await?;
        rows.execute(
            "UPDATE stock SET units = units - $2 WHERE sku = $1",
            &[sku, units],
        )
        .await?;
        rows.execute(
            "INSERT INTO bookings VALUES ($1, $2, $3)",
            &[&id, sku, units],
        )
        .await?;
        Ok(rows.commit().await?)
    }

    pub(super) fn committed(kafka: &mut Client) -> anyhow::Result<Vec<i64>> {
        let committed = kafka.committed(GROUP, TOPIC)?.into_iter();
        Ok(committed
            .map(|committed| committed.map_or(0, |(offset, _)| offset))
            .collect())
    }
}

/// Runs both ways, and compares.
fn parent() -> anyhow::Result<ExitCode> {
    let cluster = Cluster::start()?;
    println!(
        "{ORDERS} orders of one pen, {STOCK} pens in stock, {KILLS} times kill -9 of the worker"
    );
    for way in [Way::PlainLoop, Way::Eos] {
        let result = Round::start(&cluster, way)?.run()?;
        println!("{:<11} {result}", format!("{}:", way.name()));
        if way == Way::Eos && !result.is_exact() {
            eprintln!("eos was wrong");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Way {
    /// In arguments and results.
    fn name(self) -> &'static str {
        match self {
            Way::PlainLoop => "plain-loop",
            Way::Eos => "eos",
        }
    }
}

/// A broker, a database, and a way to book.
struct Round {
    way: Way,
    broker: EmbeddedKafka,
    url: String,
    state: tempfile::TempDir,
}

impl Round {
    fn start(cluster: &Cluster, way: Way) -> anyhow::Result<Round> {
        let url = cluster.database("inventory")?;
        run(&url, TABLES)?;
        run(&url, &format!("INSERT INTO stock VALUES ('pen', {STOCK})"))?;
        let broker = EmbeddedKafka::builder().topic(TOPIC, PARTITIONS).start()?;
        Ok(Round {
            way,
            broker,
            url,
            state: tempfile::tempdir()?,
        })
    }

    fn run(&self) -> anyhow::Result<Books> {
        thread::scope(|scope| {
            let customers = scope.spawn(|| self.send_orders());
            for _ in 0..KILLS {
                let worker = self.worker()?;
                thread::sleep(random(LIFE));
                worker.kill()?;
            }
            let _last = self.worker()?;
            match customers.join() {
                Ok(sent) => sent?,
                Err(_) => bail!("the orders could not be sent"),
            }
            self.wait_until_booked()
        })?;
        // The worker is gone, so that nothing changes any more.
        Books::read(&self.url)
    }

    fn send_orders(&self) -> anyhow::Result<()> {
        let ids: Vec<u32> = (1..=ORDERS).collect();
        for lot in ids.chunks(LOT as usize) {
            let order = |id: &u32| format!("o-{id}:{{\"sku\":\"pen\",\"units\":1}}\n");
            let lines: String = lot.iter().map(order).collect();
            self.broker
                .produce_lines(TOPIC, &lines, Keys::BeforeColon)?;
            thread::sleep(LOT_PERIOD);
        }
        Ok(())
    }

    fn worker(&self) -> anyhow::Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        let bootstrap = self.broker.bootstrap();
        command
            .args([self.way.name(), &bootstrap, &self.url])
            // An address in the environment would win.
            .env("EOS_BOOTSTRAP_SERVERS", &bootstrap)
            .env("EOS_STATE_DIR", self.state.path())
            .stdin(Stdio::piped());
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "error");
        }
        Ok(Running(command.spawn().context("start a worker")?))
    }

    /// Waits until the position of the worker is behind the last order.
    fn wait_until_booked(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.position()? >= i64::from(ORDERS) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!(
            "{} has not booked all orders within {PATIENCE:?}",
            self.way.name()
        )
    }

    fn position(&self) -> anyhow::Result<i64> {
        match self.way {
            Way::PlainLoop => {
                let mut kafka = Client::connect(&self.broker.bootstrap(), PATIENCE)?;
                Ok(plain::committed(&mut kafka)?.iter().sum())
            }
            Way::Eos => {
                let query = "SELECT coalesce(sum(next_offset), 0) FROM eos.positions";
                Ok(value(&self.url, query)?.parse()?)
            }
        }
    }
}

/// A worker, killed when it is dropped.
struct Running(Child);

impl Running {
    fn kill(mut self) -> anyhow::Result<()> {
        let ended = self.0.try_wait()?;
        ensure!(ended.is_none(), "a worker ended by itself: {ended:?}");
        // Dropping it kills it.
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL. Killing one that has ended fails, and then there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows in the end.
#[derive(Debug, PartialEq, Eq)]
struct Books {
    pens: i64,
    bookings: u32,
    orders: u32,
}

impl Books {
    fn read(url: &str) -> anyhow::Result<Books> {
        let number = |query: &str| value(url, query);
        Ok(Books {
            pens: number("SELECT units FROM stock")?.parse()?,
            bookings: number("SELECT count(*) FROM bookings")?.parse()?,
            orders: number("SELECT count(DISTINCT order_id) FROM bookings")?.parse()?,
        })
    }

    fn is_exact(&self) -> bool {
        let (bookings, orders) = (ORDERS, ORDERS);
        let pens = i64::from(STOCK) - i64::from(ORDERS);
        *self
            == Books {
                pens,
                bookings,
                orders,
            }
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Books {
            pens,
            bookings,
            orders,
        } = self;
        let lost = ORDERS.saturating_sub(*orders);
        let doubled = bookings.saturating_sub(*orders);
        write!(
            f,
            "{pens} pens left, {bookings} bookings (lost {lost}, doubled {doubled})"
        )
    }
}

/// A random time between two.
fn random((from, to): (Duration, Duration)) -> Duration {
    // Each state has other keys.
    let random = RandomState::new().hash_one(()) % 1_000;
    from + (to - from) * u32::try_from(random).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use eos_core::PlainTopic;
    use eos_testkit::TestDriver;

    use super::*;

    /// The process dies at one of its next effects before each order.
    #[test]
    fn each_order_is_booked_once() {
        let cluster = Cluster::start().unwrap();
        let url = cluster.database("inventory").unwrap();
        run(&url, TABLES).unwrap();
        run(&url, "INSERT INTO stock VALUES ('pen', 1000)").unwrap();
        let mut driver = TestDriver::new(app(&Postgres::connect(&url).unwrap()));
        let orders: PlainTopic<String, String> = Topic::plain(TOPIC);
        for n in 1..=10 {
            driver.crash_at_effect(n % 5 + 1);
            driver.pipe(&orders, format!("o-{n}"), r#"{"sku":"pen","units":20}"#);
        }
        driver.crash();
        let books = Books::read(&url).unwrap();
        assert_eq!((books.pens, books.bookings, books.orders), (800, 10, 10));
    }
}
