//! Dead letters in sequence, and their replay: `cargo run -p eos-examples --bin 13-dead-letters`
//!
//! ```text
//! tea-orders ─→ price ─┬─→ paid
//!    ↑                 └─ no price ─→ tea-orders-dlq ─┐
//!    └───────────── tea-orders-dlq-replay ←───────────┘
//! ```
//!
//! - **Park.** The price list has no tea, so Emmy's order of tea fails. Her later orders go to `tea-orders-dlq` as
//!   well, because the error policy keeps the dead letters of a key in sequence. Ada's orders are paid.
//! - **Look.** The log contains the reason. The headers of each letter contain its reason and its place in the
//!   sequence.
//! - **Fix.** Three seconds after the failure, the price list gets a price for tea.
//! - **Replay.** A second app writes the letters back to `tea-orders`. Emmy's orders are paid, each once and in order,
//!   even if you kill this program.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic tea-orders paid tea-orders-dlq
//! eos kafka produce tea-orders < examples/13-dead-letters/orders.txt
//! cargo run -p eos-examples --bin 13-dead-letters -- --kafka
//! eos kafka read tea-orders-dlq
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use eos_core::{App, ErrorPolicy, Failure, PlainTopic, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};
use tokio::sync::Notify;

const THREE_SECONDS: Duration = Duration::from_secs(3);
const TEN_SECONDS: Duration = Duration::from_secs(10);

/// The prices in cents.
#[derive(Debug, Clone, Default)]
struct Prices {
    has_tea: Arc<AtomicBool>,
    failed: Arc<Notify>,
}

impl Prices {
    fn of(&self, item: &str) -> Result<u64, Failure> {
        match item {
            "coffee" => Ok(320),
            "cake" => Ok(450),
            "tea" if self.has_tea.load(Ordering::Relaxed) => Ok(280),
            _ => {
                self.failed.notify_one();
                Err(format!("{item} has no price").into())
            }
        }
    }

    fn fix(&self) {
        self.has_tea.store(true, Ordering::Relaxed);
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let orders = Input::keyed("tea-orders", include_str!("orders.txt"));
    let kafka = Kafka::provide(&[orders], &["paid", "tea-orders-dlq"])?;
    let prices = Prices::default();
    let shop = shop(&prices);
    let replay = async {
        // In a second run, the order of tea has already failed.
        let _ = tokio::time::timeout(TEN_SECONDS, prices.failed.notified()).await;
        tokio::time::sleep(THREE_SECONDS).await;
        println!("tea has a price now; the replay begins");
        prices.fix();
        replay().run(kafka.bootstrap()).await
    };
    tokio::try_join!(shop.run(kafka.bootstrap()), replay)?;
    Ok(())
}

/// Orders and payments by customer.
fn orders() -> PlainTopic<String, String> {
    Topic::plain("tea-orders")
}

fn shop(prices: &Prices) -> App {
    let mut app = App::new("dead-letters-v1");
    let prices = prices.clone();
    app.source(&orders())
        .on_error(ErrorPolicy::dead_letter("tea-orders-dlq").in_sequence("parked-orders"))
        .try_map(move |item: String| Ok(format!("{item} {}", prices.of(&item)?)))
        .to(&PlainTopic::<String, String>::named("paid"));
    app
}

fn replay() -> App {
    App::replay("tea-orders-dlq").to("tea-orders").app()
}

#[cfg(test)]
mod tests {
    use eos_core::Timestamp;
    use eos_testkit::{Input, TestDriver};

    use super::*;

    type Bytes = PlainTopic<Option<Vec<u8>>, Option<Vec<u8>>>;

    /// Copies the records of a topic into another test, with their headers, by which both apps classify the records.
    fn carry(topic: &str, from: &mut TestDriver, to: &mut TestDriver) -> usize {
        let records = from.read(&Bytes::named(topic));
        for it in &records {
            let mut record = Input::raw(it.key.as_deref(), it.value.as_deref());
            record = record.at(it.timestamp);
            for header in it.headers.iter() {
                record = record.header(header.name(), header.value().unwrap_or_default());
            }
            to.pipe_input(&Bytes::named(topic), record);
        }
        records.len()
    }

    #[test]
    fn each_order_is_paid_once_and_in_order() {
        let prices = Prices::default();
        let mut shop = TestDriver::new(shop(&prices));
        let replay = App::replay("tea-orders-dlq").to("tea-orders");
        let mut replay = TestDriver::new(replay.until(Timestamp(i64::MAX)).app());
        let paid = |shop: &mut TestDriver| -> Vec<String> {
            let paid = shop.read(&PlainTopic::<String, String>::named("paid"));
            paid.into_iter()
                .map(|it| it.key + " " + &it.value)
                .collect()
        };
        for line in include_str!("orders.txt").lines() {
            let (customer, item) = line.split_once(':').unwrap();
            shop.pipe(&orders(), customer, item);
        }
        assert_eq!(
            paid(&mut shop),
            ["ada coffee 320", "ada cake 450", "ada coffee 320"]
        );

        assert_eq!(carry("tea-orders-dlq", &mut shop, &mut replay), 3);
        replay.crash_during_next_record();
        replay.advance_wall_clock(Duration::from_secs(1));
        prices.fix();
        shop.crash_and_lose_state();
        assert_eq!(carry("tea-orders", &mut replay, &mut shop), 3);
        shop.pipe(&orders(), "emmy", "tea");
        assert_eq!(
            paid(&mut shop),
            [
                "emmy tea 280",
                "emmy coffee 320",
                "emmy cake 450",
                "emmy tea 280"
            ]
        );
    }
}
