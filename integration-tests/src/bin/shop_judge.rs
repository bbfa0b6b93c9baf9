//! Checks whether an app booked each order exactly once, from the topic of the orders and the rows in PostgreSQL.
//!
//! `shop_judge --bootstrap 127.0.0.1:9092 --topic orders --database postgres://localhost/shop --app shop --wait 60`
//!
//! Prints a line of JSON. Exit code 0: clean. 1: violated, with ids. 2: could not be judged.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use integration_tests::shop::{Question, judge, read};

/// Judge an app by its rows.
#[derive(Debug, Parser)]
struct Options {
    /// The Kafka cluster, as host:port.
    #[arg(long)]
    bootstrap: String,
    /// The topic of the orders.
    #[arg(long)]
    topic: String,
    /// The URL of the database.
    #[arg(long)]
    database: String,
    /// The name of the app.
    #[arg(long)]
    app: String,
    /// Wait this many seconds until the app has taken all orders.
    #[arg(long, default_value_t = 0)]
    wait: u64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("shop_judge: could not read what the run left: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let verdict = judge(&read(&Question {
        bootstrap: &options.bootstrap,
        topic: &options.topic,
        database: &options.database,
        app: &options.app,
        patience: Duration::from_secs(options.wait),
    })?);
    println!("{}", serde_json::to_string(&verdict)?);
    Ok(verdict.is_clean())
}
