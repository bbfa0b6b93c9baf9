//! The sender of the lines, at a steady rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use kafka_wire::Producer;

use super::book::Book;
use super::plan::Plan;
use super::topics::{INPUT, PARTITIONS};

/// The time between two batches of due lines.
const SLICE: Duration = Duration::from_millis(10);

/// A thread that sends all lines. It ends early when this value is dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Feed {
    pub(crate) fn start(plan: &Plan, bootstrap: &str) -> Result<Feed> {
        let (stop, plan) = (Arc::<AtomicBool>::default(), *plan);
        let (asked, producer) = (Arc::clone(&stop), Producer::new(bootstrap)?);
        Ok(Feed {
            stop,
            thread: Some(thread::spawn(move || send(&plan, producer, &asked))),
        })
    }

    /// Returns `Some` once all lines are sent, or the error of the thread.
    pub(crate) fn ended(&mut self) -> Result<Option<()>> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else {
            return Ok(None);
        };
        let sent = thread.join();
        sent.unwrap_or_else(|_| Err(anyhow!("the thread that sends the lines panicked")))
            .map(Some)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The demo has ended already, so an error of the feed does not matter.
            let _ = thread.join();
        }
    }
}

fn send(plan: &Plan, mut producer: Producer, stop: &AtomicBool) -> Result<()> {
    let (book, began) = (Book::open()?, Instant::now());
    let mut next = 0;
    while next < plan.lines && !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * plan.rate as f64) as u64 + 1;
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
        while next < due.min(plan.lines) {
            let partition = (next % PARTITIONS.unsigned_abs() as u64) as i32;
            let line = book.line(next).as_bytes();
            producer.send(INPUT, partition, None, Some(line), &[], now)?;
            next += 1;
        }
        producer.flush()?;
        thread::sleep(SLICE);
    }
    Ok(())
}
