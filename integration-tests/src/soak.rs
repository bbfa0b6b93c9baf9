//! Resources of one process over a long run.
//!
//! ```text
//! /proc/PID ─ Sampler ─→ samples ─ Drift ─→ flat, or what grew
//!                           └───── plot ──→ SVG
//! ```

mod drift;
mod plot;
mod sample;

pub use drift::{Allowance, Drift};
pub use plot::{Mark, plot};
pub use sample::{Sample, Sampler};

use std::fmt::Write;

use anyhow::{Context, Result, bail};

/// A quantity that a leak makes grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// Resident memory in MiB.
    Resident,
    /// Resident anonymous memory in MiB: the heap and the stacks.
    Heap,
    /// Open file descriptors.
    Files,
    /// Threads.
    Threads,
}

impl Series {
    /// Every series, in the order of the table.
    pub const ALL: [Series; 4] = [
        Series::Resident,
        Series::Heap,
        Series::Files,
        Series::Threads,
    ];

    /// The name and unit for readers.
    pub fn name(self) -> &'static str {
        match self {
            Series::Resident => "resident memory, MiB",
            Series::Heap => "heap and stacks, MiB",
            Series::Files => "file descriptors",
            Series::Threads => "threads",
        }
    }

    /// The value of a sample.
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Series::Resident => sample.resident_mib,
            Series::Heap => sample.heap_mib,
            Series::Files => sample.files,
            Series::Threads => sample.threads,
        }
    }

    /// The numbers of files and threads vary with databases and connections. A leak of one per kill exceeds these units
    /// in an hour.
    fn allowance(self) -> Allowance {
        let (share, units) = match self {
            Series::Resident | Series::Heap => (0.10, 0.0),
            Series::Files => (0.0, 6.0),
            Series::Threads => (0.0, 2.0),
        };
        Allowance { share, units }
    }

    /// The growth of this series.
    ///
    /// # Errors
    /// When there are too few samples.
    pub fn drift(self, samples: &[Sample]) -> Result<Drift> {
        let values: Vec<_> = samples.iter().map(|sample| self.of(sample)).collect();
        Drift::of(&values, self.allowance())
            .with_context(|| format!("{} samples are too few to compare sixths", values.len()))
    }
}

/// Fails if a series grew.
///
/// # Errors
/// Names each series that grew.
pub fn ensure_flat(samples: &[Sample]) -> Result<()> {
    let grown = grown(samples)?;
    if grown.is_empty() {
        return Ok(());
    }
    let grown: Vec<_> = grown.iter().map(|it| it.name()).collect();
    bail!("not flat: {}\n{}", grown.join("; "), table(samples)?)
}

/// The series that grew.
///
/// # Errors
/// When there are too few samples.
pub fn grown(samples: &[Sample]) -> Result<Vec<Series>> {
    let mut grown = Vec::new();
    for series in Series::ALL {
        if !series.drift(samples)?.is_flat() {
            grown.push(series);
        }
    }
    Ok(grown)
}

/// A row of Markdown for each series.
///
/// # Errors
/// When there are too few samples.
pub fn table(samples: &[Sample]) -> Result<String> {
    let mut text = String::from(
        "| series | median of the second sixth | median of the last sixth | allowed at most | largest |\n\
         |---|---|---|---|---|\n",
    );
    for series in Series::ALL {
        let drift = series.drift(samples)?;
        let largest = samples.iter().map(|it| series.of(it)).fold(0.0, f64::max);
        writeln!(
            text,
            "| {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            series.name(),
            drift.early,
            drift.late,
            drift.limit,
            largest
        )?;
    }
    let peak = samples.last().map_or(0.0, |last| last.peak_mib);
    writeln!(text, "\nPeak resident memory (`VmHWM`): {peak:.0} MiB.")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::process::ChildGuard;

    const PERIOD: Duration = Duration::from_millis(10);

    /// Samples a process while `step` runs, often enough for six sixths.
    fn sampled(pid: u32, mut step: impl FnMut()) -> Vec<Sample> {
        let sampler = Sampler::start(pid, PERIOD);
        for _ in 0..60 {
            step();
            thread::sleep(PERIOD);
        }
        sampler.finish().unwrap()
    }

    #[test]
    fn a_process_that_leaks_is_not_flat() {
        let (mut memory, mut files) = (Vec::new(), Vec::new());
        let samples = sampled(std::process::id(), || {
            memory.push(vec![1_u8; 4 << 20]);
            files.push(File::open("/dev/null").unwrap());
            // Stays until the process of this test ends.
            thread::spawn(|| thread::sleep(Duration::from_secs(600)));
        });
        assert_eq!(grown(&samples).unwrap(), Series::ALL);
        let error = ensure_flat(&samples).unwrap_err().to_string();
        assert!(
            error.contains("file descriptors; threads\n| series"),
            "{error}"
        );
    }

    #[test]
    fn a_process_that_only_waits_is_flat() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let sleep = ChildGuard::spawn(command).unwrap();
        let samples = sampled(sleep.id(), || {});
        ensure_flat(&samples).unwrap();
        assert!(samples.iter().all(|sample| sample.threads == 1.0));
    }
}
