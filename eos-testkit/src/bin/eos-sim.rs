//! Simulates seeds: `cargo xtask sim`.
//!
//! ```text
//! eos-sim --seeds 1000 [--from 0]     runs them, prints what was hit and how often
//! eos-sim --seed 42 [--trace]         runs one, and shrinks it if it goes wrong
//! eos-sim … --without NAME            takes a defence away, until a seed finds it (feature `failpoints`)
//! ```

use std::process::ExitCode;
use std::time::Instant;

use eos_testkit::sim::{Outcome, Run, shrink};

fn main() -> ExitCode {
    let (mut seeds, mut from, mut seed, mut trace) = (1_000, 0, None, false);
    let mut without: Option<&'static str> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|it| it.parse::<u64>().ok());
        match argument.as_str() {
            "--seeds" => seeds = number().unwrap_or(seeds),
            "--from" => from = number().unwrap_or(from),
            "--seed" => seed = number(),
            "--trace" => trace = true,
            // The program ends soon: there is nothing to free it for.
            "--without" => without = arguments.next().map(|it| &*it.leak()),
            other => {
                eprintln!("error: {other} is no option: --seeds N, --from N, --seed N, --trace");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Some(seed) = seed {
        let mut run = Run::of_seed(seed);
        run.traced = trace;
        run.without = without;
        let outcome = run.run();
        tell(&outcome);
        return if outcome.violations.is_empty() {
            ExitCode::SUCCESS
        } else {
            let mut least = shrink(&outcome);
            least.trace.clear();
            println!("\nshrunk to");
            tell(&least);
            ExitCode::FAILURE
        };
    }
    let start = Instant::now();
    let (mut failed, mut faults, mut virtual_ms, mut records) = (0, 0, 0, 0);
    for seed in from..from + seeds {
        let mut run = Run::of_seed(seed);
        run.without = without;
        let outcome = run.run();
        faults += outcome.fired.len();
        virtual_ms += outcome.took_ms;
        records += outcome.records;
        if !outcome.violations.is_empty() {
            failed += 1;
            println!("seed {seed}: {}", outcome.violations[0]);
            if without.is_some() {
                println!("found after {} seeds", seed - from + 1);
                return ExitCode::SUCCESS;
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {failed} violated, {faults} faults, {records} records, {} virtual s, {took:.1} s, \
         {:.2} s per 1,000 seeds",
        virtual_ms / 1_000,
        took * 1_000.0 / seeds as f64
    );
    if (failed == 0) == without.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn tell(outcome: &Outcome) {
    for line in &outcome.trace {
        println!("{line}");
    }
    println!(
        "seed {}, {:?}, {} records, {} virtual ms, errors {:?}",
        outcome.run.seed, outcome.run.shape, outcome.records, outcome.took_ms, outcome.errors
    );
    for fault in &outcome.fired {
        println!("  {fault}");
    }
    for violation in &outcome.violations {
        println!("VIOLATED {violation}");
    }
}
