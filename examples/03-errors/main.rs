//! Error policies for failed records: `cargo run -p eos-examples --bin 03-errors`
//!
//! Prints a name tag for each city of `cities` and for each order in `tag-orders`. The closure has a bug and
//! panics on real data. Each source has its own policy:
//!
//! - `cities` skips: a city without a tag is no great loss;
//! - `tag-orders` retries twice, in case the error was transient. Then it writes the order to `tag-orders-dlq`,
//!   in the transaction that also commits its offset. An order is either processed or in that topic.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic cities tag-orders tags tag-orders-dlq
//! cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 --topic cities --records 10000
//! eos kafka produce tag-orders < examples/03-errors/orders.txt
//! cargo run -p eos-examples --bin 03-errors -- --kafka
//! ```
//!
//! One of the five orders is good. The others can't be decoded, are refused, panic, and are too large for
//! `tags`. `eos kafka read tag-orders-dlq` shows each original record, with the reason in its headers.
//! Without `on_error`, the first one would stop the app, and everything before it would be committed.

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

    // Any program may read dead letters. Here the app itself reads them, as bytes, because they may be no orders.
    app.source(&Topic::<Bytes, Bytes>::plain("tag-orders-dlq"))
        .for_each(|_, letter| tell(&letter));

    app.run(kafka.bootstrap()).await?;
    Ok(())
}
