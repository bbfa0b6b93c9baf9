//! Orders joined with their customers: a table, and a stream that joins it.
//! `cargo run -p eos-examples --bin 08-enriched-orders`
//!
//! ```text
//! customers ──────────────────────────────────────→ table ─┐
//! orders ─→ by customer ─(repartition: beside the table)─→ join ─→ enriched-orders
//! ```
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic customers orders enriched-orders
//! eos kafka produce customers < examples/08-enriched-orders/customers.txt
//! eos kafka produce orders < examples/08-enriched-orders/orders.txt
//! cargo run -p eos-examples --bin 08-enriched-orders -- --kafka
//! eos kafka read enriched-orders
//! ```
//!
//! The table holds the last value of each customer. A tombstone, such as alan's, deletes a customer. Orders have
//! other keys, so they go through a repartition topic with as many partitions as `customers`. One task then has
//! a customer and all its orders. It reads both in time order, so an order meets the customer data of its time.
//! Later changes of a customer change no written order.
//!
//! The table is state like any other: stop the program, kill it, start it elsewhere, and it reads no customer
//! twice.

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
    /// The customer's name and address; `None` for an unknown customer.
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
