//! The app of `tests/kafka/kill_time/orders.rs` and of the tests that use `tests/kafka/bookings.rs`:
//! `APP=orders DATABASE=postgres://... cargo run -p integration-tests --example orders --features failpoints`
//!
//! It reads orders from `<APP>-in`, inserts each into `bookings`, and takes its units from `stock`, in the database
//! `DATABASE`. `REFUSED=dead_letter` makes dead letters of orders that the database refuses. `INBOX=shop` books an
//! order once by its id. `WITHOUT=compared_positions` removes a defence, so that orders are lost or doubled.

use std::env::var;

use anyhow::{Result, bail};
use eos_core::{App, Topic};
use eos_postgres::{Defence, Postgres, PostgresStream, Refused};
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
    let removed = removed(&var("WITHOUT").unwrap_or_default())?;
    let shop = Postgres::connect_without(&var("DATABASE")?, &removed)?;
    let mut bookings = shop
        .table::<String, Order>("bookings")
        .column("order_id", |id, _| id.clone())
        .column("sku", |_, order| order.sku.clone())
        .column("units", |_, order| order.units)
        .refused(policy);
    let mut stock = shop
        .table::<String, Order>("stock")
        .key("sku", |_, order| order.sku.clone())
        .add("units", |_, order| -order.units)
        .refused(policy);
    if let Ok(subscriber) = var("INBOX") {
        let inbox = shop.inbox(&subscriber);
        bookings = bookings.once_by(&inbox, |id, _| id.clone());
        stock = stock.once_by(&inbox, |id, _| id.clone());
    }
    let mut app = App::new(&name);
    app.ledger(&shop);
    let orders = app.source(&Topic::<String, Order>::json(&format!("{name}-in")));
    orders.clone().to_rows(&stock);
    if removed.contains(&Defence::OneTransaction) {
        // With this statement, the rows commit before their position, and no check of eos notices it.
        let early = shop.statement::<String, Order>("early", "COMMIT");
        orders.clone().to_rows(&early.unchecked());
    }
    orders.to_rows(&bookings);
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}

/// Returns the defences that this name removes.
fn removed(name: &str) -> Result<Vec<Defence>> {
    Ok(vec![match name {
        "" => return Ok(Vec::new()),
        // The settings of the begin are gone after a COMMIT, too.
        "one_transaction" => return Ok(vec![Defence::OneTransaction, Defence::SameSettings]),
        "compared_positions" => Defence::ComparedPositions,
        "claims_with_rows" => Defence::ClaimsWithRows,
        other => {
            bail!("WITHOUT={other}: one_transaction, compared_positions or claims_with_rows")
        }
    }])
}
