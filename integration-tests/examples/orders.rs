//! The app of `tests/kafka/kill_time/orders.rs` and `tests/kafka/ledger_sweep.rs`:
//! `APP=orders DATABASE=postgres://... cargo run -p integration-tests --example orders --features failpoints`
//!
//! It reads orders from `<APP>-in`, inserts each into `bookings`, and takes its units from `stock`, in the database
//! `DATABASE`. `REFUSED=dead_letter` makes dead letters of orders that the database refuses.

use std::env::var;

use anyhow::{Result, bail};
use eos_core::{App, Topic};
use eos_postgres::{Postgres, PostgresStream, Refused};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    sku: String,
    units: i64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let (name, refused) = (var("APP")?, var("REFUSED").unwrap_or_default());
    let policy = match refused.as_str() {
        "" => Refused::Fail,
        "dead_letter" => Refused::DeadLetter,
        other => bail!("REFUSED={other}: dead_letter, or not set"),
    };
    let shop = Postgres::connect(&var("DATABASE")?)?;
    let bookings = shop
        .table::<String, Order>("bookings")
        .column("order_id", |id, _| id.clone())
        .column("sku", |_, order| order.sku.clone())
        .column("units", |_, order| order.units)
        .refused(policy);
    let stock = shop
        .table::<String, Order>("stock")
        .key("sku", |_, order| order.sku.clone())
        .add("units", |_, order| -order.units)
        .refused(policy);
    let mut app = App::new(&name);
    app.ledger(&shop);
    let orders = app.source(&Topic::<String, Order>::json(&format!("{name}-in")));
    orders.clone().to_rows(&stock);
    orders.to_rows(&bookings);
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}
