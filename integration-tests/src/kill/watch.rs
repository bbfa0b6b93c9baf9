//! Samples of the progress of input and committed output, taken many times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kafka_wire::{Client, Isolation};

const PERIOD: Duration = Duration::from_millis(30);
const TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit for a response of one broker. A frozen broker must not hide the progress on the others.
const ANSWER: Duration = Duration::from_secs(1);

/// The longest time without a sample if the cluster does not respond.
const SILENCE: Duration = Duration::from_secs(60);

/// The ends of the logs at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The time of the sample.
    pub at: Instant,
    /// Records in the input.
    pub input: i64,
    /// Records that are visible to a `read_committed` reader, by partition of the output.
    pub output: Vec<i64>,
}

impl Sample {
    /// Returns the number of committed output records in all partitions.
    pub fn committed(&self) -> i64 {
        self.output.iter().sum()
    }
}

/// A thread that takes samples. It ends when the watch is dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    begun: Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    samples: Vec<Sample>,
    failed: Option<String>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no broker responds.
    pub fn start(bootstrap: &str, input: &str, output: &str) -> Result<Self> {
        let mut client = Client::connect(bootstrap, TIMEOUT)?.impatient(ANSWER);
        let (seen, stop) = <(Arc<Mutex<Seen>>, Arc<AtomicBool>)>::default();
        let (kept, asked) = (Arc::clone(&seen), Arc::clone(&stop));
        let (input, output) = (input.to_owned(), output.to_owned());
        let thread = thread::spawn(move || {
            let mut followed = Vec::new();
            while !asked.load(Ordering::Relaxed) {
                let sample = look(&mut client, &input, &output, &mut followed);
                let mut seen = lock(&kept);
                match sample {
                    Ok(sample) => {
                        seen.failed = None;
                        seen.samples.push(sample);
                    }
                    // A broker is down. Callers that wait for progress have their own time limits.
                    Err(error) => seen.failed = Some(format!("{error:#}")),
                }
                drop(seen);
                thread::sleep(PERIOD);
            }
        });
        Ok(Watch {
            seen,
            begun: Instant::now(),
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the latest sample, or `None` before the first one.
    ///
    /// # Errors
    /// When the cluster has not responded for a minute.
    pub fn latest(&self) -> Result<Option<Sample>> {
        let seen = lock(&self.seen);
        let latest = seen.samples.last();
        let since = latest.map_or(self.begun, |sample| sample.at);
        match &seen.failed {
            Some(error) if since.elapsed() > SILENCE => {
                bail!("the ends of the topics could not be read: {error}")
            }
            _ => Ok(latest.cloned()),
        }
    }

    /// Returns the time from `moment` until every partition had more committed records than at `moment`.
    pub fn recovery(&self, moment: Instant) -> Option<Duration> {
        let seen = lock(&self.seen);
        let (before, after): (Vec<_>, Vec<_>) = seen.samples.iter().partition(|s| s.at <= moment);
        let then = &before.last()?.output;
        let grown = |sample: &&&Sample| sample.output.iter().zip(then).all(|(now, was)| now > was);
        let sample = after.iter().find(grown)?;
        Some(sample.at - moment)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

/// The progress of the count in one partition.
#[derive(Debug, Clone, Default)]
struct Followed {
    next: i64,
    visible: u64,
}

/// Takes a sample. Counts visible records, because an abort also moves the last stable offset.
fn look(
    client: &mut Client,
    input: &str,
    output: &str,
    followed: &mut Vec<Followed>,
) -> Result<Sample> {
    let input = client.end_offsets(input, Isolation::ReadUncommitted)?;
    let ends = client.end_offsets(output, Isolation::ReadCommitted)?;
    followed.resize(ends.len(), Followed::default());
    for (partition, (end, followed)) in (0..).zip(ends.iter().zip(followed.iter_mut())) {
        while followed.next < *end {
            let tally = client.tally(output, partition, followed.next)?;
            if tally.next_offset <= followed.next {
                break;
            }
            followed.visible += tally.visible;
            followed.next = tally.next_offset;
        }
    }
    Ok(Sample {
        at: Instant::now(),
        input: input.iter().sum(),
        output: followed.iter().map(|f| f.visible as i64).collect(),
    })
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
