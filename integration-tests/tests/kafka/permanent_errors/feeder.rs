//! Input for an app.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use kafka_wire::Producer;

use crate::common::{Case, PATIENCE};

/// A thread that sends a few hundred numbered records per second, until it is stopped or its topic is deleted.
pub(crate) struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<i32>>,
}

impl Feeder {
    pub(crate) fn start(case: &Case) -> Feeder {
        Self::from(case, 0)
    }

    /// Starts a feeder whose first record has this number.
    pub(crate) fn from(case: &Case, first: i32) -> Feeder {
        let stop = Arc::new(AtomicBool::new(false));
        let (bootstrap, topic) = (case.bootstrap.clone(), case.input.clone());
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut producer = Producer::with_patience(&bootstrap, PATIENCE)?;
            let mut seq = first;
            while !asked.load(Ordering::Relaxed) {
                for _ in 0..5 {
                    let value = format!(r#"{{"seq":{seq}}}"#);
                    let key = format!("key {}", seq % 2);
                    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
                    producer.send(&topic, seq % 2, key, value, &[], now_ms()?)?;
                    seq += 1;
                }
                producer.flush()?;
                thread::sleep(Duration::from_millis(10));
            }
            Ok(seq)
        });
        Feeder { stop, thread }
    }

    /// Stops the feeder. Returns the number after the last record.
    ///
    /// # Errors
    /// When a record could not be delivered, as when the test has deleted its topic.
    pub(crate) fn stop(self) -> Result<i32> {
        self.stop.store(true, Ordering::Relaxed);
        let end = self.thread.join();
        end.map_err(|_| anyhow!("the feeder panicked"))?
    }
}

fn now_ms() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}
