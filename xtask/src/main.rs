//! `cargo xtask`: what cargo cannot do. Set-up, a local Kafka, demo, test, bench.
//!
//! Other crates share no code with it: brokers come from `kafka-launcher`, the client from `kafka-wire`.

mod bench;
mod demo;
mod faults;
mod kafka;
mod setup;
mod sim;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use kafka_wire::Isolation;
use kafka_wire::lines::Keys;

use crate::kafka::NewTopic;

/// What cargo cannot do: set-up, a local Kafka, and the whole test run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Finds or installs what the build and the local Kafka need
    Setup,
    /// A Kafka on this machine, without Docker
    #[command(subcommand)]
    Kafka(Kafka),
    /// A pipeline on a Kafka of its own, its processes killed while it works, and an audit of what is left
    Demo(demo::Options),
    /// Throughput, latency and memory beside a bare librdkafka loop and Kafka Streams
    #[command(disable_help_flag = true)]
    Bench {
        /// What the benchmark takes: `cargo xtask bench --help` lists it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The whole runtime under seeds, in simulated time, with a fault at every action
    #[command(disable_help_flag = true)]
    Sim {
        /// What the simulation takes: `--seeds 1000`, `--seed 42 --trace`, …
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The fault-injection tests, and the table of what they found
    Faults(faults::Options),
    /// The inner loop: format, lints, and every test that needs no broker and no C code
    Check {
        /// Only tests whose name holds this
        #[arg(default_value = "")]
        filter: String,
    },
    /// Prints the features that `test` compiles everything with, for lints of the same code
    #[command(hide = true)]
    Features,
    /// Full sizes, repeats and long sweeps: hours, for each night or each release
    Soak(test::SoakOptions),
    /// All tests, those on a real Kafka included
    Test {
        /// Part of a test's name, or anything that `cargo test` takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum Kafka {
    /// Starts it, or finds it running, and prints where it is
    Up {
        /// 1 node, or 3 with replication
        #[arg(long, value_parser = ["1", "3"])]
        nodes: Option<String>,
        /// Port of the first node; further nodes take the next ones
        /// [default: 9092 if it is free, otherwise any free port]
        #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
        port: Option<u16>,
        /// In containers, by docker-compose.yml
        #[arg(long, conflicts_with = "port")]
        docker: bool,
        /// The embedded broker: without Java, in memory, for development and tests
        #[arg(long, conflicts_with = "docker")]
        embedded: bool,
        /// Without the topics and records of an earlier one, which are removed
        #[arg(long)]
        fresh: bool,
    },
    /// Is the embedded broker until it is stopped; `up --embedded` calls it
    #[command(hide = true)]
    ServeEmbedded {
        /// Where to listen
        #[arg(long)]
        port: u16,
    },
    /// Stops it and removes its data
    Down,
    /// Says what runs where, and whether it is ready
    Status,
    /// Creates topics unless they exist
    Topic {
        /// A name, or name:partitions
        /// [default: 6 partitions]
        #[arg(required = true, value_name = "NAME[:PARTITIONS]")]
        topics: Vec<NewTopic>,
    },
    /// Sends each line of standard input as a record: `key:value`; nothing is Kafka's null
    Produce {
        /// The topic
        topic: String,
        /// Lines are values only, spread over the partitions
        #[arg(long)]
        no_keys: bool,
    },
    /// Prints what a topic holds: `partition@offset key:value`, and its headers; null is Kafka's null,
    /// "null" the text
    Read {
        /// The topic
        topic: String,
        /// Also what is in open and aborted transactions, as readers without
        /// isolation.level=read_committed see it
        #[arg(long)]
        uncommitted: bool,
    },
}

fn main() -> ExitCode {
    let outcome = run(Cli::parse().command);
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup => setup::everything()?,
        Command::Kafka(kafka) => run_kafka(kafka)?,
        Command::Demo(options) => return demo::run(&options),
        Command::Faults(options) => return faults::run(&options),
        Command::Check { filter } => return test::check(&filter),
        Command::Features => println!("{}", test::FEATURES),
        Command::Soak(options) => return test::soak(&options),
        Command::Test { arguments } => return test::run(&arguments),
        Command::Bench { arguments } => return bench::run(&arguments),
        Command::Sim { arguments } => return sim::run(&arguments),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_kafka(command: Kafka) -> Result<()> {
    match command {
        Kafka::Up {
            nodes,
            port,
            docker,
            embedded,
            fresh,
        } => {
            let nodes = nodes.map(|nodes| if nodes == "3" { 3 } else { 1 });
            if !docker && !embedded && kafka_launcher::external().is_none() {
                setup::ensure(setup::Need::KAFKA)?;
            }
            let bootstrap = kafka::up(&kafka::Up {
                nodes,
                port,
                docker,
                embedded,
                fresh,
            })?;
            println!("{}", kafka::environment(&bootstrap));
        }
        Kafka::ServeEmbedded { port } => kafka::serve_embedded(port)?,
        Kafka::Down => println!("{}", kafka::down()?),
        Kafka::Status => println!("{}", kafka::status()?),
        Kafka::Topic { topics } => println!("{}", kafka::create_topics(&topics)?),
        Kafka::Produce { topic, no_keys } => {
            let keys = if no_keys {
                Keys::None
            } else {
                Keys::BeforeColon
            };
            let sent = kafka::produce(&topic, std::io::stdin().lock(), keys)?;
            let records = if sent == 1 { "record" } else { "records" };
            println!("sent {sent} {records} to {topic}");
        }
        Kafka::Read { topic, uncommitted } => {
            let isolation = if uncommitted {
                Isolation::ReadUncommitted
            } else {
                Isolation::ReadCommitted
            };
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            kafka::read(&topic, isolation, &mut out)?;
        }
    }
    Ok(())
}
