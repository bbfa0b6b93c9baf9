//! Orders enriched by a slow service, many calls at once.
//! `cargo run -p eos-examples --bin 12-enrich-async`
//!
//! ```text
//! orders ─→ call the service, at most 16 at once ─┬─ result ──→ orders-in-euros, in order
//!                                                 └─ no rate ─→ orders-dlq
//! ```
//!
//! The service takes up to 300 ms for each response. While the first calls run, those of later orders start. The
//! results still leave in the sequence of the orders, and each result is written once, even if you kill this program.
//! After a kill, a call may be repeated, with the same id.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic orders orders-in-euros orders-dlq
//! eos kafka produce orders < examples/12-enrich-async/orders.txt
//! cargo run -p eos-examples --bin 12-enrich-async -- --kafka
//! eos kafka read orders-in-euros
//! ```

use std::time::Duration;

use eos_core::calls::Call;
use eos_core::codec::{Json, Plain};
use eos_core::{App, Backoff, Calls, ErrorPolicy, Failure, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    cents: u64,
    currency: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Converted {
    id: String,
    euro_cents: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let orders = Input::keyed("orders", include_str!("orders.txt"));
    let kafka = Kafka::provide(&[orders], &["orders-in-euros", "orders-dlq"])?;
    app(call_service).run(kafka.bootstrap()).await?;
    Ok(())
}

/// Orders and results by customer.
fn topic<V>(name: &str) -> Topic<String, V, Plain, Json> {
    Topic::json(name)
}

/// Returns the app with its conversion service. The test passes another service.
fn app<F, Response>(service: F) -> App
where
    F: Fn(Call<String, Order>) -> Response + Send + Sync + 'static,
    Response: Future<Output = Result<Converted, Failure>> + Send + 'static,
{
    let mut app = App::new("enrich-async-v1");
    let calls = Calls::at_once(16)
        .time_out(Duration::from_secs(5))
        .retry(3, Backoff::fixed(Duration::from_millis(200)));
    app.source(&topic("orders"))
        .on_error(ErrorPolicy::dead_letter("orders-dlq"))
        .map_async_record("convert", calls, service)
        .to(&topic("orders-in-euros"));
    app
}

/// Simulates a service. A request over HTTP would have `call.id` as its idempotency key.
async fn call_service(call: Call<String, Order>) -> Result<Converted, Failure> {
    tokio::time::sleep(Duration::from_millis(call.value.cents % 300)).await;
    convert(&call.value)
}

fn convert(order: &Order) -> Result<Converted, Failure> {
    let percent = match &order.currency[..] {
        "USD" => 92,
        "CHF" => 105,
        "GBP" => 118,
        // No retry helps.
        other => return Err(Failure::permanent(format!("no rate for {other}"))),
    };
    Ok(Converted {
        id: order.id.clone(),
        euro_cents: order.cents * percent / 100,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use eos_testkit::{Input, TestDriver};

    use super::*;

    #[test]
    fn results_are_in_order_and_each_order_has_one_id_despite_crashes() {
        let ids = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = Arc::clone(&ids);
        let mut driver = TestDriver::of(move || {
            let seen = Arc::clone(&seen);
            app(move |call| {
                seen.lock().unwrap().insert(call.id);
                async move { convert(&call.value) }
            })
        });
        let order = |n: u64, currency: &str| {
            let order = Order {
                id: format!("o-{n}"),
                cents: 100 * n,
                currency: currency.to_owned(),
            };
            Input::<String, Order>::new("ada", order)
        };
        driver.crash_during_next_record();
        let orders = [order(1, "USD"), order(2, "???"), order(3, "CHF")];
        driver.pipe_all(&topic("orders"), orders);
        let results = driver.read_pairs(&topic::<Converted>("orders-in-euros"));
        let results: Vec<_> = results
            .iter()
            .map(|(_, it)| (&it.id[..], it.euro_cents))
            .collect();
        assert_eq!(results, [("o-1", 92), ("o-3", 315)]);
        let letters = driver.read_pairs(&topic::<Order>("orders-dlq"));
        assert_eq!(letters[0].1.id, "o-2");
        assert_eq!(
            ids.lock().unwrap().len(),
            3,
            "a repeated call has the same id"
        );
    }
}
