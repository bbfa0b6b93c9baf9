//! Records that can't be processed, and what becomes of them: `cargo run -p eos-examples --bin 03-errors`
//!
//! Prints name tags: for each city of `cities` one, and what is ordered in `tag-orders`. The closure
//! has a bug, so that real data makes it panic. Each source has a policy of its own:
//!
//! - `cities` skips: a city without a tag is no great loss;
//! - `tag-orders` tries twice more, in case it was a passing trouble, and then gives the order to
//!   `tag-orders-dlq`, in the transaction that also commits its offset: an order is done or is
//!   there, never both, never neither.
//!
//! To see more of it, with Kafka up:
//!
//! ```sh
//! cargo xtask kafka topic cities tag-orders tags tag-orders-dlq
//! cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 --topic cities --records 10000
//! cargo xtask kafka produce tag-orders < examples/03-errors/orders.txt
//! cargo run -p eos-examples --bin 03-errors -- --kafka
//! ```
//!
//! Of the five orders one is good; the others can't be decoded, are refused, panic, and come out
//! larger than `tags` takes. `cargo xtask kafka read tag-orders-dlq` shows all that Kafka keeps of
//! them: each as it was, the reason in its headers. Without `on_error` the first one would have
//! stopped the app, with what came before it committed.

use std::time::Duration;

use eos_core::{App, Backoff, ErrorPolicy, Failure, Record, Topic};
use eos_examples::{CITIES, City, Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    name: String,
    copies: usize,
}

/// The first three letters, as often as ordered.
fn tag(order: Order) -> Result<String, Failure> {
    if order.copies == 0 {
        return Err(format!("{} ordered no copies", order.name).into());
    }
    // The bug: three bytes are not three letters in Zürich, and Å has not as many.
    Ok(order.name[..3].repeat(order.copies))
}

type Bytes = Option<Vec<u8>>;

/// What went wrong, by the headers that dead letters have in Kafka Streams, too.
fn tell(letter: &Record<Bytes, Bytes>) {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or(b"?")).into_owned();
    let header = |name: &str| text(letter.headers.get(&format!("__streams.errors.{name}")));
    println!(
        "dead letter: {}, because: {} ({} {}@{})",
        text(letter.value.as_deref()),
        header("message"),
        header("topic"),
        header("partition"),
        header("offset"),
    );
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let orders = Input::keyed("tag-orders", include_str!("orders.txt"));
    let inputs = [Input::keyed("cities", CITIES), orders];
    let kafka = Kafka::provide(&inputs, &["tags", "tag-orders-dlq"])?;

    let mut app = App::new("errors-v1");
    let tags = Topic::<String, String>::plain("tags");

    app.source(&Topic::<String, City>::json("cities"))
        .on_error(ErrorPolicy::skip())
        .map(|city| Order {
            name: city.name,
            copies: 1,
        })
        .try_map(tag)
        .to(&tags);

    let twice = ErrorPolicy::retry(2, Backoff::fixed(Duration::from_millis(200)));
    app.source(&Topic::<String, Order>::json("tag-orders"))
        .on_error(twice.then(ErrorPolicy::dead_letter("tag-orders-dlq")))
        .try_map(tag)
        .to(&tags);

    // Any consumer may read dead letters. Here the app itself does, as bytes: they may be no orders.
    app.source(&Topic::<Bytes, Bytes>::plain("tag-orders-dlq"))
        .for_each(|_, letter| tell(&letter));

    app.run(kafka.bootstrap()).await?;
    Ok(())
}
