//! Input for an app.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use xtask::wire::Producer;

use crate::common::Case;

/// Numbered records, a few hundred a second, until it is stopped or its topic is gone.
pub(crate) struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Feeder {
    pub(crate) fn start(case: &Case) -> Feeder {
        let stop = Arc::new(AtomicBool::new(false));
        let (bootstrap, topic) = (case.bootstrap.clone(), case.input.clone());
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut producer = Producer::with_patience(&bootstrap, Duration::from_secs(5))?;
            let mut seq = 0_i32;
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
            Ok(())
        });
        Feeder { stop, thread }
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // It fails when its topic is deleted, which is the test's own doing.
        let _ = self.thread.join();
    }
}

fn now_ms() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}
