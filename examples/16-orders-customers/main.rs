//! Orders with the current address of their customer: two tables joined by a foreign key.
//! `cargo run -p eos-examples --bin 16-orders-customers`
//!
//! ```text
//! orders ────→ table ─(which customer?)─→ customers
//!                └──── the customer ←────────┘ ─→ addresses
//! ```
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic customers orders addresses
//! eos kafka produce customers < examples/16-orders-customers/customers.txt
//! eos kafka produce orders < examples/16-orders-customers/orders.txt
//! cargo run -p eos-examples --bin 16-orders-customers -- --kafka
//! eos kafka read addresses
//! ```
//!
//! The order o3 refers to a customer that does not exist. `join_by` is an inner join, so it writes no result for o3 to
//! `addresses`. `left_join_by` writes a result for such an order.
//!
//! Then change emmy's address, and read again:
//!
//! ```sh
//! echo 'emmy:{"name":"Emmy Noether","city":"Göttingen"}' | eos kafka produce customers
//! ```
//!
//! 08-enriched-orders joins a stream, so an order keeps the address that was valid at its time. Here, both sides are
//! tables. When a customer moves, each order of that customer has a new result. When an order changes its customer, its
//! result changes, too. The topics may have different numbers of partitions: the app requests the customer through one
//! internal topic, and receives the answer through another.

use eos_core::state::ForeignJoin;
use eos_core::{App, KeyValueStore, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    customer: String,
    item: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Customer {
    name: String,
    city: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let customers = Input::keyed("customers", include_str!("customers.txt"));
    let orders = Input::keyed("orders", include_str!("orders.txt"));
    let kafka = Kafka::provide(&[customers, orders], &["addresses"])?;
    app().run(kafka.bootstrap()).await?;
    Ok(())
}

fn orders() -> Topic<String, Option<Order>> {
    Topic::json("orders")
}

fn customers() -> Topic<String, Option<Customer>> {
    Topic::json("customers")
}

/// By order.
fn addresses() -> Topic<String, Option<String>> {
    Topic::json("addresses")
}

fn app() -> App {
    let mut app = App::new("orders-customers-v1");
    let orders = app.table(&orders(), &KeyValueStore::json("orders"));
    let customers = app.table(&customers(), &KeyValueStore::json("customers"));
    orders
        .join_by(
            &customers,
            &ForeignJoin::json("orders-customers"),
            |order| Some(order.customer.clone()),
            |order, customer| format!("{} to {}, {}", order.item, customer.name, customer.city),
        )
        .to(&addresses());
    app
}

#[cfg(test)]
mod tests {
    use eos_testkit::TestDriver;

    use super::*;

    fn customer(name: &str, city: &str) -> Option<Customer> {
        let (name, city) = (name.to_owned(), city.to_owned());
        Some(Customer { name, city })
    }

    fn order(customer: &str, item: &str) -> Option<Order> {
        let (customer, item) = (customer.to_owned(), item.to_owned());
        Some(Order { customer, item })
    }

    /// Returns the new results, in the order of their keys.
    fn read(driver: &mut TestDriver) -> Vec<String> {
        let rows = driver.read_map(&addresses()).into_iter();
        rows.map(|(order, row)| format!("{order} {}", row.unwrap_or_else(|| "-".to_owned())))
            .collect()
    }

    #[test]
    fn orders_follow_their_customers() {
        let mut driver = TestDriver::of(app);
        driver.pipe(&orders(), "o1", order("ada", "cards"));
        driver.pipe(&orders(), "o2", order("ada", "a loom"));
        assert_eq!(read(&mut driver), [""; 0]);
        driver.crash_during_next_record();
        driver.pipe(&customers(), "ada", customer("Ada", "London"));
        assert_eq!(
            read(&mut driver),
            ["o1 cards to Ada, London", "o2 a loom to Ada, London"]
        );

        driver.crash_and_lose_state();
        driver.pipe(&customers(), "emmy", customer("Emmy", "Göttingen"));
        driver.pipe(&orders(), "o2", order("emmy", "a loom"));
        assert_eq!(read(&mut driver), ["o2 a loom to Emmy, Göttingen"]);
        driver.pipe(&customers(), "ada", customer("Ada", "Ockham"));
        assert_eq!(read(&mut driver), ["o1 cards to Ada, Ockham"]);

        driver.pipe_tombstone(&orders(), "o1");
        driver.pipe_tombstone(&customers(), "emmy");
        assert_eq!(read(&mut driver), ["o1 -", "o2 -"]);
    }
}
