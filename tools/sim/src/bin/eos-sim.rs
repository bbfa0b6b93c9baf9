//! A program that simulates seeds. `cargo xtask sim` runs it.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use std::time::{Duration, Instant};

use eos_sim::{
    Outcome, Run, Scale, Seeds, Shape, Summary, check_defence, check_runtime_defence, shrink,
};

const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--from SEED] [--threads N] [--coverage] [--shape SHAPE] [--without DEFENCE]
       cargo xtask sim --seed SEED [--trace] [--shape SHAPE] [--without DEFENCE]
       cargo xtask sim --scale [--processes N] [--partitions N] [--dynamic] [--interval MS] [--period MS]
                       [--seed SEED] [--without DEFENCE]

  --seeds N          how many seeds [default: 1000]
  --from SEED        the first of them [default: 0]
  --threads N        how many at the same time [default: as many as there are cores]
  --coverage         prints how often each kind of fault hit each place
  --seed SEED        one seed; if it goes wrong, with as few faults as it still goes wrong with
  --trace            prints what happens in it, with the virtual time in ms
  --shape SHAPE      what the app does, instead of what follows from the seed
  --scale            many processes and partitions, a few large events, and their cost: docs/scale.md
  --processes N      how many processes with one worker each [default: 200]
  --partitions N     how many partitions of each topic [default: 2000]
  --dynamic          dynamic members of the group instead of static ones
  --interval MS      `commit.interval.ms` with `commit.pace=fixed` [default: the default pace]
  --period MS        the time between two records of a partition [default: 2000]
  --without DEFENCE  takes a defence of the runtime away; a seed has to find it
";

#[derive(Debug, Default)]
struct Options {
    seeds: Option<u64>,
    from: u64,
    threads: Option<usize>,
    coverage: bool,
    seed: Option<u64>,
    trace: bool,
    shape: Option<Shape>,
    without: Option<&'static str>,
    scale: bool,
    processes: Option<usize>,
    partitions: Option<usize>,
    dynamic: bool,
    interval: Option<u64>,
    period: Option<u64>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("error: {wrong}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::stdout().lock();
    let (well, told) = match options.seed {
        _ if options.scale => scale(&options, &mut out),
        Some(seed) => one(seed, &options, &mut out),
        None => many(&options, &mut out),
    };
    match told.and_then(|()| out.flush()) {
        // The reader closed the pipe because it had read enough. The result is valid all the same.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: what came of it can't be written: {error}");
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    if well == options.without.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--seeds" => options.seeds = Some(number(&name, &value()?)?),
            "--from" => options.from = number(&name, &value()?)?,
            "--threads" => options.threads = usize::try_from(number(&name, &value()?)?).ok(),
            "--seed" => options.seed = Some(number(&name, &value()?)?),
            "--coverage" => options.coverage = true,
            "--trace" => options.trace = true,
            "--shape" => options.shape = Some(shape(&value()?)?),
            "--scale" => options.scale = true,
            "--processes" => options.processes = usize::try_from(number(&name, &value()?)?).ok(),
            "--partitions" => options.partitions = usize::try_from(number(&name, &value()?)?).ok(),
            "--dynamic" => options.dynamic = true,
            "--interval" => options.interval = Some(number(&name, &value()?)?),
            "--period" => options.period = Some(number(&name, &value()?)?),
            "--help" | "-h" => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            // The program ends soon, so it need not free the string.
            "--without" => options.without = Some(value()?.leak()),
            _ => return Err(format!("{name} is no option")),
        }
    }
    let check = match options.scale {
        true => check_runtime_defence,
        false => check_defence,
    };
    if let Some(Err(why)) = options.without.map(check) {
        return Err(format!("--without: {why}"));
    }
    Ok(options)
}

fn shape(name: &str) -> Result<Shape, String> {
    Shape::of_name(name).ok_or_else(|| {
        let names = Shape::ALL.map(Shape::name).join(", ");
        format!("--shape: {name:?} is no shape; there are {names}")
    })
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{name} needs a number that is not negative, not {text:?}"))
}

/// Returns whether the run had no violations, and whether its report could be written.
fn one(seed: u64, options: &Options, out: &mut impl Write) -> (bool, io::Result<()>) {
    let run = Run::of_seed(seed);
    let run = Run {
        traced: options.trace,
        shape: options.shape.unwrap_or(run.shape),
        without: options.without,
        ..run
    };
    let outcome = run.run();
    let well = outcome.violations.is_empty();
    let mut told = tell(&outcome, out);
    if !well {
        told = told.and_then(|()| {
            writeln!(out, "\nWith as few faults as it still goes wrong with:")?;
            let mut least = shrink(&outcome);
            least.trace.clear();
            tell(&least, out)
        });
    }
    (well, told)
}

/// Returns whether the run had no violations, and whether its report could be written.
fn scale(options: &Options, out: &mut impl Write) -> (bool, io::Result<()>) {
    let default = Scale::default();
    let scale = Scale {
        processes: options.processes.unwrap_or(default.processes),
        partitions: options.partitions.unwrap_or(default.partitions),
        static_members: !options.dynamic,
        commit_interval: options.interval.map(Duration::from_millis),
        period: options.period.map_or(default.period, Duration::from_millis),
        seed: options.seed.unwrap_or(default.seed),
        without: options.without,
    };
    let begun = (Instant::now(), cpu());
    let report = scale.run();
    let took = match (begun.1, cpu()) {
        (Some(before), Some(now)) => format!("{:.2} CPU-minutes", minutes(now - before)),
        _ => format!("{:.2} minutes", minutes(begun.0.elapsed())),
    };
    let told = writeln!(out, "{report}{took}");
    (report.violations.is_empty(), told)
}

/// Returns the CPU time of this thread, where the system reports it.
fn cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

fn many(options: &Options, out: &mut impl Write) -> (bool, io::Result<()>) {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = Seeds {
        from: options.from,
        count: options.seeds.unwrap_or(1_000),
        threads: options.threads.unwrap_or_else(cores),
        shape: options.shape,
        without: options.without,
    };
    let summary = seeds.run();
    let told = tell_of_all(&summary, options.coverage, out);
    (summary.violated.is_empty(), told)
}

fn tell_of_all(summary: &Summary, coverage: bool, out: &mut impl Write) -> io::Result<()> {
    for outcome in &summary.violated {
        writeln!(out, "seed {}: {}", outcome.run.seed, outcome.violations[0])?;
    }
    let took = summary.took.as_secs_f64();
    writeln!(
        out,
        "{} seeds, {} violated; {} faults, {} at least; {} records; {} s simulated in {took:.1} s, {:.1} s \
         per 1,000 seeds",
        summary.seeds,
        summary.violated.len(),
        summary.faults,
        summary.least_faults,
        summary.records,
        summary.simulated.as_secs(),
        took * 1_000.0 / summary.seeds.max(1) as f64
    )?;
    for (error, times) in &summary.errors {
        writeln!(out, "{times:>8} times a worker ended with {error}")?;
    }
    if coverage {
        for (shape, runs) in &summary.shapes {
            writeln!(out, "{runs:>8} seeds were {}", shape.name())?;
        }
        for (what, times) in &summary.seen {
            writeln!(out, "{times:>8} times {what}")?;
        }
        let least = summary.coverage.pairs().map(|(.., hits)| hits).min();
        let least = least.unwrap_or(0);
        writeln!(out, "each possible pair at least {least} times\n")?;
        writeln!(out, "{}", summary.coverage)?;
    }
    Ok(())
}

fn tell(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    for line in &outcome.trace {
        writeln!(out, "{line}")?;
    }
    let shape = outcome.run.shape.name();
    writeln!(
        out,
        "seed {}, {shape}: {} records, {} ms simulated, workers ended with {:?}",
        outcome.run.seed, outcome.records, outcome.took_ms, outcome.errors
    )?;
    for fault in &outcome.fired {
        writeln!(out, "  {fault}")?;
    }
    for violation in &outcome.violations {
        writeln!(out, "VIOLATED {violation}")?;
    }
    Ok(())
}
