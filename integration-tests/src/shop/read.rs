//! Reads the evidence from Kafka and PostgreSQL.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_wire::{Client, Isolation};
use serde::Deserialize;

use super::OPENING;
use super::psql::psql;
use super::verdict::{Booking, Evidence, Letter, Order};

/// The time limit of a request to the cluster.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two reads of the positions.
const PAUSE: Duration = Duration::from_millis(250);

/// The location of the evidence.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The Kafka cluster.
    pub bootstrap: &'a str,
    /// The topic of the orders.
    pub topic: &'a str,
    /// The URL of the database.
    pub database: &'a str,
    /// The name of the app.
    pub app: &'a str,
    /// The time to wait until the app has taken all orders.
    pub patience: Duration,
}

#[derive(Deserialize)]
struct Value {
    sku: String,
    units: i64,
}

/// Reads the evidence once the app has taken all orders, or after the patience.
///
/// # Errors
/// When Kafka or the database cannot be read, or a record is not an order.
pub fn read(question: &Question<'_>) -> Result<Evidence> {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    ensure!(
        [question.app, question.topic]
            .iter()
            .all(|name| name.chars().all(safe)),
        "{question:?}: the names have other characters than letters, digits, `-`, `_` and `.`"
    );
    let mut client = Client::connect(question.bootstrap, TIMEOUT)?;
    let ends = client.end_offsets(question.topic, Isolation::ReadCommitted)?;
    let since = Instant::now();
    while !is_through(question, &ends)? && since.elapsed() < question.patience {
        thread::sleep(PAUSE);
    }
    let mut evidence = Evidence {
        orders: orders(&mut client, question.topic)?,
        ends,
        opening: OPENING,
        ..Evidence::default()
    };
    // One statement, so that all rows are from the same snapshot.
    let rows = psql(
        question.database,
        &format!(
            "SELECT 'booking', order_id, sku, units::text FROM bookings \
             UNION ALL SELECT 'stock', sku, units::text, '' FROM stock \
             UNION ALL SELECT 'letter', partition::text, \"offset\"::text, sqlstate FROM eos.dead_letters \
               WHERE app = '{app}' AND topic = '{topic}' \
             UNION ALL SELECT 'position', partition::text, coalesce(next_offset, 0)::text, '' FROM eos.positions \
               WHERE app = '{app}' AND topic = '{topic}'",
            app = question.app,
            topic = question.topic
        ),
    )?;
    for row in &rows {
        take(&mut evidence, row).with_context(|| format!("{row:?}"))?;
    }
    Ok(evidence)
}

/// Returns the articles whose stock does not match their bookings at this moment.
///
/// # Errors
/// When the database cannot be read.
pub fn torn_now(database: &str) -> Result<Vec<String>> {
    let rows = psql(
        database,
        &format!(
            "SELECT s.sku || ': ' || s.units || ' left, ' || coalesce(b.units, 0) || ' booked' FROM stock AS s \
             LEFT JOIN (SELECT sku, sum(units) AS units FROM bookings GROUP BY sku) AS b ON b.sku = s.sku \
             WHERE s.units <> {OPENING} - coalesce(b.units, 0)"
        ),
    )?;
    Ok(rows.into_iter().flatten().collect())
}

fn is_through(question: &Question<'_>, ends: &[i64]) -> Result<bool> {
    let taken = psql(
        question.database,
        &format!(
            "SELECT coalesce(sum(next_offset), 0) FROM eos.positions WHERE app = '{}' AND topic = '{}'",
            question.app, question.topic
        ),
    )?;
    let taken = taken.first().and_then(|row| row.first());
    Ok(taken.is_some_and(|taken| *taken == ends.iter().sum::<i64>().to_string()))
}

fn orders(client: &mut Client, topic: &str) -> Result<Vec<Order>> {
    let mut orders = Vec::new();
    client.read_all(topic, Isolation::ReadCommitted, |partition, record| {
        let id = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default()).into_owned();
        let value = serde_json::from_slice::<Value>(record.value.as_deref().unwrap_or_default());
        let offset = record.offset;
        orders.push(value.map(|Value { sku, units }| Order {
            partition,
            offset,
            id,
            sku,
            units,
        }));
    })?;
    let orders: Result<Vec<_>, _> = orders.into_iter().collect();
    orders.with_context(|| format!("a record of {topic} is no order"))
}

fn take(evidence: &mut Evidence, row: &[String]) -> Result<()> {
    let [kind, a, b, c] = row else {
        bail!("not a row of four columns");
    };
    match kind.as_str() {
        "booking" => evidence.bookings.push(Booking {
            id: a.clone(),
            sku: b.clone(),
            units: c.parse()?,
        }),
        "stock" => {
            evidence.stock.insert(a.clone(), b.parse()?);
        }
        "letter" => evidence.letters.push(Letter {
            partition: a.parse()?,
            offset: b.parse()?,
            sqlstate: c.clone(),
        }),
        "position" => {
            evidence.positions.insert(a.parse()?, b.parse()?);
        }
        other => bail!("{other} is unknown"),
    }
    Ok(())
}
