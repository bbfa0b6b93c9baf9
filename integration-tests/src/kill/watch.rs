//! How far input and committed output are, looked at many times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kafka_wire::{Client, Isolation};

const PERIOD: Duration = Duration::from_millis(30);
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long one broker may take to answer: a frozen one must not hide what the others do.
const ANSWER: Duration = Duration::from_secs(1);

/// How long nothing may be heard of the cluster.
const SILENCE: Duration = Duration::from_secs(60);

/// The ends of the logs at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Records in the input.
    pub input: i64,
    /// The records that readers of committed data see, in each partition of the output.
    pub output: Vec<i64>,
}

impl Sample {
    /// Over all partitions.
    pub fn committed(&self) -> i64 {
        self.output.iter().sum()
    }
}

/// Looks until it is dropped.
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
    /// Starts to look.
    ///
    /// # Errors
    /// When no broker answers.
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
                    // A broker is away: callers that wait for more have a limit of their own.
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

    /// The latest sample, none before the first.
    ///
    /// # Errors
    /// When the cluster could not be asked for a minute.
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

    /// How long after `moment` until every partition had committed more than it had then.
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
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// How far a partition is counted.
#[derive(Debug, Clone, Default)]
struct Followed {
    next: i64,
    visible: u64,
}

/// The end of what is decided says little: an abort moves it, too.
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
