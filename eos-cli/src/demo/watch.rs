//! The numbers of input and output records, read from Kafka's log many times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use kafka_wire::{Client, Isolation};

use super::aborts::Aborts;
use super::topics::{INPUT, OUTPUTS, PARTITIONS, TIMEOUT};

/// The time between two samples. Measured times are no more exact than this.
const PERIOD: Duration = Duration::from_millis(20);

/// The numbers of records in the log at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// The time before the first read.
    pub(crate) began: Instant,
    /// The time after the last read.
    pub(crate) ended: Instant,
    /// Records in the input.
    pub(crate) input: u64,
    /// Committed records in each partition of each output.
    pub(crate) committed: Vec<u64>,
}

impl Sample {
    /// Returns the number of records that every output has committed.
    pub(crate) fn out(&self) -> u64 {
        let outputs = self.committed.chunks(PARTITIONS as usize);
        outputs.map(|output| output.iter().sum()).min().unwrap_or(0)
    }
}

/// A thread that takes samples until this value is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Reader>>,
}

#[derive(Debug, Default)]
struct Seen {
    samples: Vec<Sample>,
    failed: Option<String>,
}

/// The content of the output topics that does not count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Discarded {
    /// The aborted transactions.
    pub(crate) aborts: Aborts,
    /// Their records, which no reader sees.
    pub(crate) records: u64,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start(bootstrap: &str) -> Result<Watch> {
        let mut reader = Reader::new(bootstrap)?;
        let (seen, stop) = <(Arc<Mutex<Seen>>, Arc<AtomicBool>)>::default();
        let (kept, asked) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                match reader.look() {
                    Ok(sample) => lock(&kept).samples.push(sample),
                    Err(error) => {
                        lock(&kept).failed = Some(format!("{error:#}"));
                        break;
                    }
                }
                thread::sleep(PERIOD);
            }
            reader
        });
        Ok(Watch {
            seen,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the latest sample, `None` before the first one.
    pub(crate) fn latest(&self) -> Result<Option<Sample>> {
        let seen = lock(&self.seen);
        match &seen.failed {
            Some(error) => bail!("Kafka's log could not be read: {error}"),
            None => Ok(seen.samples.last().cloned()),
        }
    }

    /// Returns the time from `moment` until every partition had committed more records than at
    /// `moment`.
    pub(crate) fn recovery(&self, moment: Instant) -> Option<Duration> {
        recovery(&lock(&self.seen).samples, moment)
    }

    /// Reads to the end of the log. Returns the aborted transactions of the whole run.
    pub(crate) fn finish(mut self) -> Result<Discarded> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().map(JoinHandle::join);
        let Some(Ok(mut reader)) = thread else {
            return Err(anyhow!("the thread that reads Kafka's log panicked"));
        };
        self.latest()?;
        reader.look()?;
        Ok(reader.discarded)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares with the first sample that began after `moment`, so that a commit just before `moment`
/// does not count as a recovery.
fn recovery(samples: &[Sample], moment: Instant) -> Option<Duration> {
    let mut after = samples.iter().skip_while(|sample| sample.began < moment);
    let then = &after.next()?.committed;
    let grown = |sample: &&Sample| {
        sample
            .committed
            .iter()
            .zip(then)
            .all(|(now, was)| now > was)
    };
    Some(after.find(grown)?.ended - moment)
}

/// A reader of the outputs, from their beginning.
#[derive(Debug)]
struct Reader {
    client: Client,
    /// The next offset in each partition of each output.
    at: Vec<i64>,
    committed: Vec<u64>,
    discarded: Discarded,
}

impl Reader {
    fn new(bootstrap: &str) -> Result<Reader> {
        let partitions = OUTPUTS.len() * PARTITIONS as usize;
        Ok(Reader {
            client: Client::connect(bootstrap, TIMEOUT)?,
            at: vec![0; partitions],
            committed: vec![0; partitions],
            discarded: Discarded::default(),
        })
    }

    fn look(&mut self) -> Result<Sample> {
        let began = Instant::now();
        for (nth, topic) in OUTPUTS.into_iter().enumerate() {
            let ends = self.client.end_offsets(topic, Isolation::ReadCommitted)?;
            for (partition, end) in (0..).zip(ends) {
                let place = nth * PARTITIONS as usize + partition as usize;
                self.follow(topic, partition, place, end)?;
            }
        }
        // Read after the outputs. Otherwise more records could seem to be out than in.
        let input = self.client.end_offsets(INPUT, Isolation::ReadUncommitted)?;
        Ok(Sample {
            began,
            ended: Instant::now(),
            input: input.iter().sum::<i64>().unsigned_abs(),
            committed: self.committed.clone(),
        })
    }

    fn follow(&mut self, topic: &str, partition: i32, place: usize, end: i64) -> Result<()> {
        while self.at[place] < end {
            let tally = self.client.tally(topic, partition, self.at[place])?;
            if tally.next_offset == self.at[place] {
                return Ok(());
            }
            self.at[place] = tally.next_offset;
            self.committed[place] += tally.visible;
            self.discarded.records += tally.hidden;
            for by in tally.aborts {
                self.discarded.aborts.add(place, by);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(start: Instant, committed: &[[u64; 2]]) -> Vec<Sample> {
        let sample = |(nth, committed): (u64, &[u64; 2])| Sample {
            began: start + Duration::from_millis(nth * 100),
            ended: start + Duration::from_millis(nth * 100 + 10),
            input: 0,
            committed: committed.to_vec(),
        };
        (0..).zip(committed).map(sample).collect()
    }

    #[test]
    fn recovered_is_when_every_partition_has_grown() {
        let start = Instant::now();
        let samples = samples(start, &[[1, 1], [5, 5], [6, 5], [7, 5], [8, 6]]);
        let moment = start + Duration::from_millis(50);
        assert_eq!(recovery(&samples, moment), Some(Duration::from_millis(360)));
        assert_eq!(recovery(&samples[..4], moment), None);
        assert_eq!(recovery(&samples, start + Duration::from_secs(9)), None);
    }

    #[test]
    fn a_record_is_out_when_it_is_in_all_outputs() {
        let mut sample = samples(Instant::now(), &[[0, 0]]).remove(0);
        sample.committed = [[2; PARTITIONS as usize], [1; PARTITIONS as usize]].concat();
        assert_eq!(sample.out(), PARTITIONS as u64);
    }
}
