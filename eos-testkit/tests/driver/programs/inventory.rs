//! Inventory: reservations of orders, limited by the stock of each article.

use eos_core::{App, KeyValueStore, PlainTopic, Topic};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
enum OrderEvent {
    Placed { sku: String, pieces: u64 },
    Cancelled,
}

#[derive(Serialize, Deserialize)]
struct Stock {
    on_hand: u64,
}

/// Goes through a repartition topic, so it is written and read.
#[derive(Serialize, Deserialize)]
enum Command {
    Reserve { order: String, pieces: u64 },
    Release { order: String },
}

#[derive(Serialize)]
enum Outcome {
    Reserved { sku: String },
    Rejected { sku: String, left: u64 },
    Released { sku: String },
}

/// By order.
fn orders() -> Topic<String, OrderEvent> {
    Topic::json("orders")
}

/// By article.
fn stock() -> Topic<String, Option<Stock>> {
    Topic::json("stock")
}

fn outcomes() -> Topic<String, Outcome> {
    Topic::json("order-outcomes")
}

fn available() -> PlainTopic<String, u64> {
    Topic::plain("available")
}

fn app() -> App {
    let mut app = App::new("inventory-v1");
    let stock = app.table(&stock(), &KeyValueStore::json("stock"));
    let skus = app.store(&KeyValueStore::plain("sku-of-order"));
    let reserved = app.store(&KeyValueStore::plain("reserved-by-sku"));
    let reservations = app.store(&KeyValueStore::plain("reservations"));
    let to_available = app.output(&available());
    app.source(&orders())
        .with_store(&skus)
        .process(move |ctx, event| {
            let (skus, order) = (ctx.store(&skus), event.key);
            match (event.value, skus.get(&order)?) {
                (OrderEvent::Placed { sku, pieces }, None) => {
                    skus.put(&order, &sku)?;
                    ctx.forward(sku, Command::Reserve { order, pieces })
                }
                (OrderEvent::Cancelled, Some(sku)) => ctx.forward(sku, Command::Release { order }),
                // A second `Placed`, or a cancel of an unknown order.
                _ => Ok(()),
            }
        })
        .repartition(&Topic::json("commands-by-sku"))
        .left_join(&stock, |command, stock| {
            (command, stock.map_or(0, |stock| stock.on_hand))
        })
        .with_store(&reserved)
        .with_store(&reservations)
        .process(move |ctx, record| {
            let (sku, (command, on_hand)) = (record.key, record.value);
            let (reserved, reservations) = (ctx.store(&reserved), ctx.store(&reservations));
            let taken = reserved.get(&sku)?.unwrap_or(0);
            match command {
                Command::Reserve { order, pieces } => {
                    let left = on_hand.saturating_sub(taken);
                    if pieces > left {
                        return ctx.forward(order, Outcome::Rejected { sku, left });
                    }
                    reserved.put(&sku, &(taken + pieces))?;
                    reservations.put(&order, &pieces)?;
                    ctx.emit(&to_available, sku.clone(), left - pieces)?;
                    ctx.forward(order, Outcome::Reserved { sku })
                }
                Command::Release { order } => {
                    let Some(pieces) = reservations.get(&order)? else {
                        return Ok(());
                    };
                    let taken = taken - pieces;
                    reserved.put(&sku, &taken)?;
                    reservations.delete(&order)?;
                    // The stock may have shrunk below the reservations.
                    ctx.emit(&to_available, sku.clone(), on_hand.saturating_sub(taken))?;
                    ctx.forward(order, Outcome::Released { sku })
                }
            }
        })
        .to(&outcomes());
    app
}

mod tests {
    use eos_testkit::{TestDriver, crash_everywhere};
    use serde_json::{Value, json};

    use super::*;

    fn start() -> TestDriver {
        TestDriver::builder()
            .partitions("orders", 2)
            .partitions("stock", 2)
            .start_of(app)
    }

    fn fill(driver: &mut TestDriver, sku: &str, on_hand: u64) {
        driver.pipe(&stock(), sku, Some(Stock { on_hand }));
    }

    fn placed(sku: &str, pieces: u64) -> Value {
        json!({"Placed": {"sku": sku, "pieces": pieces}})
    }

    fn send(driver: &mut TestDriver, order: &str, event: Value) {
        driver.pipe(&orders().values::<Value>(), order, event);
    }

    fn cancel(driver: &mut TestDriver, order: &str) {
        send(driver, order, json!("Cancelled"));
    }

    /// The outcomes that were not read yet, as JSON text.
    fn read_outcomes(driver: &mut TestDriver) -> Vec<String> {
        let outcomes = driver.read_pairs(&outcomes().values::<Value>()).into_iter();
        outcomes
            .map(|(order, outcome)| format!("{order} {outcome}"))
            .collect()
    }

    fn read_available(driver: &mut TestDriver) -> Vec<u64> {
        let pairs = driver.read_pairs(&available()).into_iter();
        pairs.map(|(_, pieces)| pieces).collect()
    }

    #[test]
    fn orders_take_what_is_there() {
        let mut driver = start();
        fill(&mut driver, "pen", 5);
        send(&mut driver, "o-1", placed("pen", 3));
        send(&mut driver, "o-2", placed("pen", 3));
        send(&mut driver, "o-3", placed("pen", 2));
        send(&mut driver, "o-4", placed("ink", 1));
        let due = [
            r#"o-1 {"Reserved":{"sku":"pen"}}"#,
            r#"o-2 {"Rejected":{"left":2,"sku":"pen"}}"#,
            r#"o-3 {"Reserved":{"sku":"pen"}}"#,
            r#"o-4 {"Rejected":{"left":0,"sku":"ink"}}"#,
        ];
        assert_eq!(read_outcomes(&mut driver), due);
        assert_eq!(read_available(&mut driver), [2, 0]);
    }

    #[test]
    fn a_cancel_releases_once_by_the_order_alone() {
        let mut driver = start();
        fill(&mut driver, "pen", 5);
        send(&mut driver, "o-1", placed("pen", 4));
        send(&mut driver, "o-1", placed("pen", 4));
        send(&mut driver, "o-2", placed("pen", 4));
        cancel(&mut driver, "o-2");
        cancel(&mut driver, "o-9");
        cancel(&mut driver, "o-1");
        cancel(&mut driver, "o-1");
        send(&mut driver, "o-3", placed("pen", 5));
        let due = [
            r#"o-1 {"Reserved":{"sku":"pen"}}"#,
            r#"o-2 {"Rejected":{"left":1,"sku":"pen"}}"#,
            r#"o-1 {"Released":{"sku":"pen"}}"#,
            r#"o-3 {"Reserved":{"sku":"pen"}}"#,
        ];
        assert_eq!(read_outcomes(&mut driver), due);
        assert_eq!(read_available(&mut driver), [1, 5, 0]);
    }

    #[test]
    fn the_stock_never_falls_below_zero() {
        let mut driver = start();
        fill(&mut driver, "pen", 10);
        let placed = (1..=8).map(|n| (format!("o-{n}"), placed("pen", 3)));
        driver.pipe_all(&orders().values::<Value>(), placed);
        assert_eq!(read_available(&mut driver), [7, 4, 1]);
        let reserved = read_outcomes(&mut driver)
            .iter()
            .filter_map(|it| Some(it.split_once(" {\"Reserved\"")?.0.to_owned()))
            .collect::<Vec<_>>();
        assert_eq!(reserved.len(), 3);
        // The stock is smaller than the reservations of the orders.
        fill(&mut driver, "pen", 4);
        for order in &reserved {
            cancel(&mut driver, order);
        }
        assert_eq!(read_available(&mut driver), [0, 1, 4]);
    }

    #[test]
    fn a_crash_anywhere_changes_nothing() {
        let places = crash_everywhere(start, |driver| {
            fill(driver, "pen", 5);
            send(driver, "o-1", placed("pen", 3));
            send(driver, "o-2", placed("pen", 3));
            cancel(driver, "o-1");
            send(driver, "o-3", placed("pen", 4));
            driver.committed()
        });
        assert!(places > 100, "{places}");
    }
}
