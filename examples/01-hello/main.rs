//! The simplest complete pipeline: `cargo run -p eos-examples --bin 01-hello`
//!
//! Reads `cities` and writes a greeting for each one to `greetings`. It brings an embedded broker and some
//! cities. With `-- --kafka` it uses the Kafka at localhost:9092. Start it twice there, and the two processes
//! share the work. Kill either at any moment: every city is still greeted exactly once.

use eos_core::{App, Topic};
use eos_examples::{CITIES, City, Input, Kafka, log_to_stderr};

fn greet(city: City) -> String {
    format!("Hello, {}!", city.name)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let kafka = Kafka::provide(&[Input::keyed("cities", CITIES)], &["greetings"])?;

    let cities = Topic::<String, City>::json("cities");
    let greetings = Topic::<String, String>::plain("greetings");

    let mut app = App::new("hello-v1");
    app.source(&cities).map(greet).to(&greetings);
    app.run(kafka.bootstrap()).await?;
    Ok(())
}
