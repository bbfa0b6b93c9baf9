//! Benchmarks of eos and comparable programs: `cargo xtask bench`. `docs/benchmarks.md` explains the results.
//!
//! ```text
//! main ─► throughput | count | dedup | windows | joins | postgres | pruning | partitions | restart | pending | restore | latency | memory | siblings
//!           └── bench    broker, topics, directories
//!                 └── running   a process of one side, watched through /proc
//!                       └── bare | eos | postgres/bare | kafka-streams/ | kafka-connect/   what runs in it
//! records   every record is a function of its number
//! check, counted, windowed_check, joined_check, postgres/table_check    check the output after every run
//! page      results into docs/benchmarks.md
//! ```

mod bare;
mod bench;
mod check;
mod counted;
mod dedup;
mod eos;
mod joined;
mod joined_check;
mod joined_records;
mod keyed;
mod latency;
mod lifecycle;
mod maven;
mod memory;
mod numbers;
mod options;
mod page;
mod partitions;
mod pending;
mod postgres;
mod proc;
mod records;
mod restart;
mod restore;
mod restore_latency;
mod restoring;
mod running;
mod siblings;
mod side;
mod state_memory;
mod stats;
mod streams;
mod tables;
mod throughput;
mod windowed;
mod windowed_check;
mod windows_memory;
mod work;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use options::{Options, What};
use side::{Side, Task};
use work::{JOINS, ROWS, WINDOWS, Work};

/// The allocator of all sides except Kafka Streams. It also replaces that of the C library: `docs/benchmarks.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One side, in a process of its own.
#[derive(Debug, Parser)]
struct Worker {
    #[command(flatten)]
    task: Task,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let outcome = if words.next().as_deref() == Some("side") {
        work(words)
    } else {
        measure(&Options::parse())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(mut words: impl Iterator<Item = String>) -> Result<()> {
    let name = words.next().context("which side?")?;
    let side = Side::named(&name).with_context(|| format!("{name} is no side"))?;
    let task = Worker::parse_from(std::iter::once(name).chain(words)).task;
    match side {
        Side::Streams | Side::Connect => {
            bail!("{} runs in its own JVM, not in this program", side.name())
        }
        Side::Bare => {
            match task.work.writes_rows() {
                true => postgres::bare::run(&task)?,
                false => bare::run(&task)?,
            }
            // Runs until it is stopped. The CPU time of an ended process cannot be read.
            loop {
                std::thread::park();
            }
        }
        Side::Eos | Side::EosAtLeastOnce | Side::EosDefault | Side::EosUnguarded => {
            eos::run(side, &task)
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    let all = options.what == What::All;
    let wanted = |what| all || options.what == what;
    if wanted(What::Throughput) {
        let usual = [Side::Bare, Side::Eos, Side::EosAtLeastOnce, Side::Streams];
        throughput(What::Throughput, Work::Map, &usual, options)?;
    }
    if wanted(What::PassThrough) {
        throughput(
            What::PassThrough,
            Work::Pass,
            &[Side::Bare, Side::Eos],
            options,
        )?;
    }
    // Not part of `all`, because it needs a build of its own.
    if options.what == What::Quarantine {
        let usual = [Side::Eos, Side::EosUnguarded];
        throughput(What::Quarantine, Work::Pass, &usual, options)?;
    }
    let stateful: [(What, &[Work]); 4] = [
        (What::Count, &[Work::Count, Work::CountPerCommit]),
        (What::Dedup, &[Work::Dedup]),
        (What::Windows, &WINDOWS),
        (What::Joins, &JOINS),
    ];
    for (what, works) in stateful.into_iter().filter(|(what, _)| wanted(*what)) {
        let usual = [Side::Eos, Side::Streams];
        let sides = options.sides(&usual, &usual)?;
        let works = options.works(works).into_iter();
        let works: Vec<_> = works.map(|work| (work, sides.clone())).collect();
        let results = throughput::run_all(what, &works, options)?;
        page::show(what, &tables::stateful(&results, options), options)?;
    }
    if wanted(What::Postgres) {
        let works = options.works(&ROWS).into_iter();
        let works = works.map(|work| {
            let usual = postgres::sides(work);
            // `--sides` may name sides that only other works have. This work skips them.
            let mut sides = options.sides(usual, &[Side::Bare, Side::Eos, Side::Connect])?;
            sides.retain(|side| usual.contains(side));
            Ok((work, sides))
        });
        let mut works = works.collect::<Result<Vec<(Work, Vec<Side>)>>>()?;
        works.retain(|(_, sides)| !sides.is_empty());
        let results = throughput::run_all(What::Postgres, &works, options)?;
        page::show(What::Postgres, &tables::rows(&results, options), options)?;
    }
    if wanted(What::Pruning) {
        let outcomes = postgres::pruning::rounds(options)?;
        page::show(What::Pruning, &tables::pruning(&outcomes), options)?;
    }
    if wanted(What::WindowsMemory) {
        let outcomes = windows_memory::run(options)?;
        let table = tables::windows_memory(&outcomes);
        page::show(What::WindowsMemory, &table, options)?;
    }
    if wanted(What::Latency) {
        let sides = options.sides(&latency::SIDES, &latency::SIDES)?;
        let outcomes = latency::run(&sides, options)?;
        page::show(What::Latency, &tables::latency(&outcomes, options), options)?;
    }
    if wanted(What::Restart) {
        let sides = options.sides(&restart::SIDES, &restart::SIDES)?;
        let outcomes = restart::run(&sides, options)?;
        page::show(What::Restart, &tables::restart(&outcomes), options)?;
    }
    if wanted(What::Pending) {
        let outcomes = restart::pending(options)?;
        page::show(What::Pending, &tables::pending(&outcomes), options)?;
    }
    if wanted(What::Restore) {
        let outcomes = restore::run(options)?;
        page::show(What::Restore, &tables::restore(&outcomes), options)?;
    }
    if wanted(What::RestoreLatency) {
        let outcomes = restore_latency::run(options)?;
        let table = tables::restore_latency(&outcomes, options);
        page::show(What::RestoreLatency, &table, options)?;
    }
    if wanted(What::StateMemory) {
        let outcomes = state_memory::run(options)?;
        page::show(What::StateMemory, &tables::state_memory(&outcomes), options)?;
    }
    if wanted(What::Partitions) {
        let sides = options.sides(&partitions::SIDES, &partitions::SIDES)?;
        let results = partitions::run(&sides, options)?;
        page::show(
            What::Partitions,
            &tables::partitions(&results, options),
            options,
        )?;
    }
    if wanted(What::Memory) {
        let outcome = memory::run(options)?;
        page::show(What::Memory, &tables::memory(&outcome), options)?;
    }
    if wanted(What::Siblings) {
        let outcome = siblings::run(options)?;
        page::show(What::Siblings, &tables::siblings(&outcome), options)?;
    }
    Ok(())
}

fn throughput(what: What, work: Work, usual: &[Side], options: &Options) -> Result<()> {
    let possible = [
        Side::Bare,
        Side::Eos,
        Side::EosAtLeastOnce,
        Side::EosDefault,
        Side::EosUnguarded,
        Side::Streams,
    ];
    let sides = options.sides(usual, &possible)?;
    let results = throughput::run(what, work, &sides, options)?;
    page::show(what, &tables::throughput(&results, options), options)
}
