//! Samples of a process from `/proc`.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// The resources of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time since the first sample.
    pub at: Duration,
    /// Resident memory in MiB.
    pub resident_mib: f64,
    /// Resident anonymous memory in MiB: the heap and the stacks.
    pub heap_mib: f64,
    /// The largest resident memory since the start of the process, in MiB.
    pub peak_mib: f64,
    /// Open file descriptors.
    pub files: f64,
    /// Threads.
    pub threads: f64,
}

impl Sample {
    fn read(pid: u32, at: Duration) -> Result<Sample> {
        let status = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&status).with_context(|| format!("read {status}"))?;
        let mib = |name| Ok::<_, anyhow::Error>(field(&status, name)? / 1024.0);
        Ok(Sample {
            at,
            resident_mib: mib("VmRSS:")?,
            heap_mib: mib("RssAnon:")?,
            peak_mib: mib("VmHWM:")?,
            files: entries(&format!("/proc/{pid}/fd"))?,
            threads: entries(&format!("/proc/{pid}/task"))?,
        })
    }
}

fn field(status: &str, name: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no number {name} in {status}"))
}

fn entries(dir: &str) -> Result<f64> {
    let entries = fs::read_dir(dir).with_context(|| format!("read {dir}"))?;
    Ok(entries.count() as f64)
}

/// A thread that samples a process.
#[derive(Debug)]
pub struct Sampler {
    /// Closed to end the thread.
    stop: Sender<()>,
    thread: JoinHandle<Result<Vec<Sample>>>,
}

impl Sampler {
    /// Samples the process at once, and then once in each period.
    pub fn start(pid: u32, period: Duration) -> Sampler {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let (begun, mut samples) = (Instant::now(), Vec::new());
            loop {
                samples.push(Sample::read(pid, begun.elapsed())?);
                match stopped.recv_timeout(period) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return Ok(samples),
                }
            }
        });
        Sampler { stop, thread }
    }

    /// Ends the thread and returns its samples.
    ///
    /// # Errors
    /// When the process ended before the sampler.
    pub fn finish(self) -> Result<Vec<Sample>> {
        drop(self.stop);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(anyhow!("the sampler panicked")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_an_error() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let pid = ended.id();
        ended.wait().unwrap();
        let error = Sampler::start(pid, Duration::from_secs(60)).finish();
        assert!(error.unwrap_err().to_string().contains("/status"));
    }
}
