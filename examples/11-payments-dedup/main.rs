//! Payments that their sender repeats, each accepted once: deduplication by id.
//! `cargo run -p eos-examples --bin 11-payments-dedup`
//!
//! ```text
//! payments ─→ id seen in the last five minutes? ─┬─ no ──→ accepted
//!                                                └─ yes ─→ repeated
//! ```
//!
//! A sender that receives no response repeats its payment with the same id. Kafka stores both records. The store of
//! this app has the ids of each customer. An id is stored in the transaction that accepts its payment. You can kill
//! this program at any time: no payment is lost, and none is accepted twice.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic payments accepted repeated
//! eos kafka produce payments < examples/11-payments-dedup/payments.txt
//! cargo run -p eos-examples --bin 11-payments-dedup -- --kafka
//! eos kafka read accepted
//! ```
//!
//! Write the payments again within five minutes: all of them go to `repeated`.

use std::time::Duration;

use eos_core::codec::{Json, Plain};
use eos_core::identity::SeenIds;
use eos_core::{App, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

const FIVE_MINUTES: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Payment {
    id: String,
    cents: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let payments = Input::keyed("payments", include_str!("payments.txt"));
    let kafka = Kafka::provide(&[payments], &["accepted", "repeated"])?;
    app().run(kafka.bootstrap()).await?;
    Ok(())
}

/// Payments by customer.
fn topic(name: &str) -> Topic<String, Payment, Plain, Json> {
    Topic::json(name)
}

fn app() -> App {
    let mut app = App::new("payments-dedup-v1");
    app.source(&topic("payments"))
        .dedup(&SeenIds::fixed("seen-payments", FIVE_MINUTES))
        .duplicates_to(&topic("repeated"))
        .by(|payment| payment.id.clone())
        .to(&topic("accepted"));
    app
}

#[cfg(test)]
mod tests {
    use eos_core::Timestamp;
    use eos_testkit::TestDriver;

    use super::*;

    #[test]
    fn each_payment_is_accepted_once_despite_crashes() {
        let payment = |id: &str| Payment {
            id: id.to_owned(),
            cents: 1250,
        };
        let accepted = |driver: &mut TestDriver| -> Vec<(String, String)> {
            let pairs = driver.read_pairs(&topic("accepted")).into_iter();
            pairs.map(|(customer, it)| (customer, it.id)).collect()
        };
        let own = |customer: &str, id: &str| (customer.to_owned(), id.to_owned());
        let mut driver = TestDriver::of(app);
        let begin = driver.now();
        let pipe = |driver: &mut TestDriver, customer: &str, id: &str, seconds: i64| {
            let time = Timestamp(begin.0 + 1_000 * seconds);
            driver.pipe_at(&topic("payments"), customer, payment(id), time);
        };
        pipe(&mut driver, "ada", "p-1", 0);
        driver.crash_and_lose_state();
        pipe(&mut driver, "ada", "p-1", 299);
        // Another customer may use the same id.
        pipe(&mut driver, "emmy", "p-1", 299);
        assert_eq!(
            accepted(&mut driver),
            [own("ada", "p-1"), own("emmy", "p-1")]
        );

        driver.crash_during_next_record();
        pipe(&mut driver, "ada", "p-1", 300);
        assert_eq!(accepted(&mut driver), [own("ada", "p-1")]);
        assert_eq!(driver.read(&topic("repeated")).len(), 1);
    }
}
