//! `eos demo`: a pipeline whose processes are killed while it works, and an audit of its output. It runs on the
//! embedded broker, which is in this process and needs neither Java nor Docker, or with `--kafka` on a real Kafka.
//!
//! ```text
//! build ──► Kafka ──► topics ──► fleet (3 × 06-word-count) ◄── feed ──► audit ──► report
//!                       watch ────────┤ the number of committed records, read from the log
//!                       script ───────┘ the kill schedule
//! ```
//!
//! The records and transactions are counted in Kafka's log, by code that the demo does not share with the framework.
//! However the demo ends, it leaves nothing behind that it started: each part is a value that stops and removes its own
//! resources on drop, and Ctrl-C is an error like others.

mod aborts;
mod audit;
mod book;
mod broker;
mod build;
mod child;
mod feed;
mod fleet;
mod kills;
mod plan;
mod rebalances;
mod report;
mod script;
mod show;
mod stage;
mod stop;
mod text;
mod topics;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;

use book::Book;
use broker::Broker;
use plan::Plan;
use show::Show;
use stage::Stage;
use stop::Stop;
use topics::Topics;

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// What the user may choose.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Number of input lines [default: 40,000; with --calm 3,000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    lines: Option<u64>,
    /// Lines per second [default: 2,200; with --calm 30,000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Counts the book without killing any process
    #[arg(long)]
    calm: bool,
    /// Starts a real Kafka (with Java) instead of the embedded broker. EOS_BOOTSTRAP_SERVERS selects a
    /// running one
    #[arg(long)]
    kafka: bool,
    /// Keeps the counts in RocksDB, so that a killed process finds them on its disk. Without it they are
    /// in memory and read from the changelog topic again
    #[arg(long)]
    rocksdb: bool,
    /// Seed of the kill schedule [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// The built program of the pipeline; the demo builds nothing
    #[arg(long, hide = true)]
    pipeline: Option<PathBuf>,
}

impl Options {
    fn lines(&self) -> u64 {
        self.lines.unwrap_or(if self.calm { 3_000 } else { 40_000 })
    }

    fn rate(&self) -> u64 {
        self.rate.unwrap_or(if self.calm { 30_000 } else { 2_200 })
    }
}

/// Runs the demo and reports on standard output.
///
/// # Errors
/// When something cannot be built, started or reached, or a process of the pipeline gives up. Findings of the audit,
/// and Ctrl-C, are no errors: they set the exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let stop = Stop::listen()?;
    let outcome = perform(options, &stop);
    // Other errors then come from the signal too. Cargo, for example, receives it as well.
    if outcome.is_err() && stop.is_asked() {
        println!("Stopped. All processes of the demo have ended.");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    outcome
}

fn perform(options: &Options, stop: &Stop) -> Result<ExitCode> {
    let program = match &options.pipeline {
        Some(program) => program.clone(),
        None => build::pipeline(options.rocksdb, stop)?,
    };
    let begun = Instant::now();
    let words = Book::open()?.words(options.lines());
    let show = Show::on_stdout(words);
    let (kafka, took) = timed(|| match options.kafka {
        true => Broker::kafka(),
        false => Broker::embedded(),
    })?;
    stop.check()?;
    let topics = Topics::create(&kafka, stop)?;
    let plan = Plan {
        lines: options.lines(),
        words,
        rate: options.rate(),
        calm: options.calm,
        seed: options.seed.unwrap_or_else(script::fresh_seed),
        own_kafka: !kafka.is_external(),
    };
    show.line(&kafka.opening(took));
    show.line(&plan.to_string());
    let told = Stage::set(&plan, &program, kafka.bootstrap(), stop, &show)
        .and_then(Stage::play)
        .map_err(|error| anyhow!("{error:#}{}", kafka.log_tail()))?;
    drop((topics, kafka));
    print!("{}", report::render(&told, begun.elapsed(), show.paint()));
    Ok(told.exit_code())
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let begun = Instant::now();
    Ok((work()?, begun.elapsed()))
}
