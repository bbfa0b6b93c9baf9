//! Properties from the program, a file and the environment, and the description of an app:
//! `cargo run -p eos-examples --bin 05-configuration`
//!
//! Reads `cities` and writes their names to `city-names`.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic cities city-names
//! cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 --topic cities --records 100000
//! cargo run -p eos-examples --bin 05-configuration -- --kafka
//! ```
//!
//! It prints its graph and the guarantee of each edge, and then a line each second. The program sets one
//! worker and `eos.properties` beside it sets two: the file wins. `EOS_NUM_STREAM_THREADS=3` wins over the
//! file. `EOS_COMIT_INTERVAL_MS=5` is an unknown property: the app does not start, and the error suggests the
//! right name. `docs/configuration.md` lists all properties.
//!
//! With `--features prometheus`, `METRICS_PORT=9464` serves `http://127.0.0.1:9464/metrics`.

use std::time::Duration;

use eos_core::metrics::Metrics;
use eos_core::run::StopMode;
use eos_core::{App, Topic};
use eos_examples::{CITIES, City, Input, Kafka, log_to_stderr};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/05-configuration/eos.properties"
);

/// The figures to look at first; `docs/metrics.md` explains all of them.
fn tell(metrics: &Metrics) {
    let totals = &metrics.totals;
    let tasks = metrics.workers.iter().flat_map(|worker| &worker.tasks);
    let inputs = tasks.flat_map(|task| &task.inputs);
    // An unknown lag is not zero: the end of the partition is not known yet.
    let lag: Option<u64> = inputs.map(|input| input.lag).sum();
    println!(
        "workers {}, records {} in and {} out, commits {} ({} aborted), 99 % within {:?}, lag {}",
        metrics.workers.len(),
        totals.records_in,
        totals.records_out,
        totals.commits.total(),
        totals.aborts,
        totals.commit_times.latency.quantile(0.99),
        lag.map_or("unknown".to_owned(), |lag| lag.to_string()),
    );
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let kafka = Kafka::provide(&[Input::keyed("cities", CITIES)], &["city-names"])?;

    let mut app = App::new("configuration-v1");
    // A method where there is one, Kafka's name for everything else.
    app.workers(1)
        .commit_interval(Duration::from_millis(50))
        .set("linger.ms", 5)
        .config_file(FILE);
    app.source(&Topic::<String, City>::json("cities"))
        .map(|city| city.name)
        .to(&Topic::plain("city-names"));
    print!("{}{}", app.describe()?, app.describe()?.guarantees());

    if let Ok(port) = std::env::var("METRICS_PORT") {
        app.prometheus(&port);
    }
    // `run` would do for a program that has nothing else to do.
    let mut running = app.start(kafka.bootstrap()).await?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            ended = running.ended() => return Ok(ended?),
            _ = second.tick() => tell(&running.handle().metrics()),
            _ = tokio::signal::ctrl_c() => running.handle().stop(StopMode::Leave),
        }
    }
}
