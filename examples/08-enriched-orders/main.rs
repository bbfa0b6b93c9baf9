//! Orders with what is known of their customers: a table of a topic, and a stream that joins with it.
//! `cargo run -p eos-examples --bin 08-enriched-orders`
//!
//! ```text
//! customers ──────────────────────────────────────→ table ─┐
//! orders ─→ by customer ─(repartition: beside the table)─→ join ─→ enriched-orders
//! ```
//!
//! With Kafka up:
//!
//! ```sh
//! cargo xtask kafka topic customers orders enriched-orders
//! cargo xtask kafka produce customers < examples/08-enriched-orders/customers.txt
//! cargo xtask kafka produce orders < examples/08-enriched-orders/orders.txt
//! cargo run -p eos-examples --bin 08-enriched-orders -- --kafka
//! cargo xtask kafka read enriched-orders
//! ```
//!
//! The table is the last value of each customer; a tombstone, as alan's, deletes one. Orders have keys of
//! their own, so they go through a repartition topic first, which gets as many partitions as `customers`:
//! one task has a customer and all its orders. It reads the two in order of time, so an order finds its
//! customer as he was then. Customers that change later change no order that is written.
//!
//! The table is kept as all state is: stop it, kill it, start it elsewhere, and no customer is read twice.

use eos_core::{App, KeyValueStore, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    item: String,
}

#[derive(Serialize, Deserialize)]
struct Customer {
    name: String,
    city: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Enriched {
    item: String,
    /// Name and address of the customer, unless the customer is unknown.
    to: Option<String>,
}

fn enrich(order: Order, customer: Option<Customer>) -> Enriched {
    let Order { item, .. } = order;
    let to = customer.map(|Customer { name, city }| format!("{name}, {city}"));
    Enriched { item, to }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let customers = Input::keyed("customers", include_str!("customers.txt"));
    let orders = Input::keyed("orders", include_str!("orders.txt"));
    let kafka = Kafka::provide(&[customers, orders], &["enriched-orders"])?;

    let orders = Topic::<String, Order>::json("orders");
    let by_customer = Topic::<String, Order>::json("orders-by-customer");

    let mut app = App::new("enriched-orders-v1");
    let customers = app.table(
        &Topic::<String, Option<Customer>>::json("customers"),
        &KeyValueStore::json("customers"),
    );
    app.source(&orders)
        .key_by(|order| order.customer.clone())
        .repartition(&by_customer)
        // `join` would leave out the orders of customers that are not there.
        .left_join(&customers, enrich)
        .to(&Topic::json("enriched-orders"));

    app.run(kafka.bootstrap()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_goes_to_its_customer_if_there_is_one() {
        let order = || Order {
            customer: "ada".into(),
            item: "cards".into(),
        };
        let ada = Customer {
            name: "Ada".into(),
            city: "London".into(),
        };
        let sent = enrich(order(), Some(ada));
        assert_eq!(sent.to.as_deref(), Some("Ada, London"));
        assert_eq!(enrich(order(), None).to, None);
    }
}
