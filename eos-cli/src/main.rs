//! `eos`: a local Kafka, topics and records by hand, and the demo.
//!
//! ```text
//! kafka   up | down | status | topic | produce | read
//! demo    a pipeline whose processes are killed while it works, and an audit
//! ```
#![forbid(unsafe_code)]

mod demo;
mod kafka;
mod program;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use kafka_wire::Isolation;
use kafka_wire::lines::Keys;

use crate::kafka::NewTopic;

/// A local Kafka, topics and records by hand, and a demo of exactly-once processing.
#[derive(Debug, Parser)]
#[command(name = "eos", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a local Kafka, without Docker by default
    #[command(subcommand)]
    Kafka(Kafka),
    /// Runs a pipeline on its own Kafka, kills its processes meanwhile, and audits the result
    Demo(demo::Options),
}

#[derive(Debug, Subcommand)]
enum Kafka {
    /// Starts a cluster unless it runs, and prints its address
    Up {
        /// Number of nodes: 1, or 3 with replication
        #[arg(long, value_parser = ["1", "3"])]
        nodes: Option<String>,
        /// Port of the first node; further nodes take the next ones
        /// [default: 9092 if it is free, otherwise any free port]
        #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
        port: Option<u16>,
        /// Runs the nodes in containers (docker-compose.yml)
        #[arg(long, conflicts_with = "port")]
        docker: bool,
        /// Runs the embedded broker: without Java, in memory, for development and tests
        #[arg(long, conflicts_with = "docker")]
        embedded: bool,
        /// Removes the topics and records of an earlier cluster first
        #[arg(long)]
        fresh: bool,
    },
    /// Runs the embedded broker in the foreground; `up --embedded` calls it
    #[command(hide = true)]
    ServeEmbedded {
        /// Port to listen on
        #[arg(long)]
        port: u16,
    },
    /// Stops the cluster and removes its data
    Down,
    /// Prints the nodes, their addresses, and whether they are ready
    Status,
    /// Creates topics unless they exist
    Topic {
        /// Name of the topic, optionally with its number of partitions
        /// [default: 6 partitions]
        #[arg(required = true, value_name = "NAME[:PARTITIONS]")]
        topics: Vec<NewTopic>,
    },
    /// Sends each line of standard input as a record `key:value`. An empty part is Kafka's null
    Produce {
        /// The topic
        topic: String,
        /// Takes each line as a value without a key, spread over the partitions
        #[arg(long)]
        no_keys: bool,
        /// A header of each record, as name=value. It may be given several times
        #[arg(long = "header", value_name = "NAME=VALUE")]
        headers: Vec<kafka::Header>,
        /// The timestamp of each record, in milliseconds since 1970, for example
        /// `$(date -d '2 hours ago' +%s%3N)` [default: the current time]
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
        timestamp: Option<i64>,
    },
    /// Prints the records of a topic as `partition@offset key:value` with headers. null is Kafka's null,
    /// "null" is text
    Read {
        /// The topic
        topic: String,
        /// Prints records of open and aborted transactions too, as with
        /// isolation.level=read_uncommitted
        #[arg(long)]
        uncommitted: bool,
        /// Prints the timestamp of each record behind its offset, in milliseconds since 1970
        #[arg(long)]
        timestamps: bool,
    },
}

fn main() -> ExitCode {
    let matches = Cli::command().bin_name(program::program()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Kafka(kafka) => run_kafka(kafka).map(|()| ExitCode::SUCCESS),
        Command::Demo(options) => demo::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
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
        Kafka::Produce {
            topic,
            no_keys,
            headers,
            timestamp,
        } => {
            let keys = if no_keys {
                Keys::None
            } else {
                Keys::BeforeColon
            };
            let sent = kafka::produce(&topic, std::io::stdin().lock(), keys, &headers, timestamp)?;
            let records = if sent == 1 { "record" } else { "records" };
            println!("sent {sent} {records} to {topic}");
        }
        Kafka::Read {
            topic,
            uncommitted,
            timestamps,
        } => {
            let isolation = if uncommitted {
                Isolation::ReadUncommitted
            } else {
                Isolation::ReadCommitted
            };
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            kafka::read(&topic, isolation, timestamps, &mut out)?;
        }
    }
    Ok(())
}
