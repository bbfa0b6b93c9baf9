//! `cargo xtask`: what cargo cannot do. Set-up, tests, bench, and short ways to `eos kafka` and `eos demo`.
#![forbid(unsafe_code)]

mod bench;
mod cargo;
mod cycles;
mod eos;
mod faults;
mod page;
mod setup;
mod sim;
mod surface;
mod test;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

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
    /// A Kafka on this machine, without Docker: `eos kafka`
    #[command(disable_help_flag = true)]
    Kafka {
        /// What `eos kafka` takes: `up`, `topic orders`, `read orders`, `down`, …
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A pipeline whose processes are killed while it works, and an audit of what is left: `eos demo`
    #[command(disable_help_flag = true)]
    Demo {
        /// What `eos demo` takes: `--calm`, `--kafka`, …
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
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
    /// The inner loop: format, lints, and every test that needs neither a real Kafka nor C code
    Check {
        /// Only tests whose name contains this
        #[arg(default_value = "")]
        filter: String,
    },
    /// Prints the features that `test` builds with, to lint the same code
    #[command(hide = true)]
    Features,
    /// Full sizes, repeats and long sweeps: hours, for each night or each release
    Soak(test::SoakOptions),
    /// Checks of the documentation of eos-core in each feature set, and of the API for breaking changes
    Surface,
    /// All tests but the longest, those on a real Kafka included
    Test {
        /// Part of a test's name, or anything that `cargo test` takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
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
        Command::Kafka { arguments } => return eos::kafka(&arguments),
        Command::Demo { arguments } => return eos::demo(&arguments),
        Command::Faults(options) => return faults::run(&options),
        Command::Check { filter } => return test::check(&filter),
        Command::Features => println!("{}", test::FEATURES),
        Command::Soak(options) => return test::soak(&options),
        Command::Test { arguments } => return test::run(&arguments),
        Command::Bench { arguments } => return bench::run(&arguments),
        Command::Surface => return surface::check(),
        Command::Sim { arguments } => return sim::run(&arguments),
    }
    Ok(ExitCode::SUCCESS)
}
