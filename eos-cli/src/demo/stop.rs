//! Ctrl-C, SIGTERM and a closed terminal: a flag that every wait checks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The time between two checks, short against all measured times.
const TICK: Duration = Duration::from_millis(15);

/// Whether the user wants the demo to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// The user wants the demo to end.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Stop {
    /// Handles signals from now on. Otherwise a signal would end the demo before it stops its
    /// parts.
    pub(crate) fn listen() -> Result<Stop> {
        let stop = Stop::default();
        let asked = Arc::clone(&stop.0);
        ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
            .context("listen to Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns an error once the user wants the demo to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() {
            bail!(Interrupted);
        }
        Ok(())
    }

    /// Calls `answer` until it returns a value, the user wants the demo to end, or `limit` has
    /// passed.
    pub(crate) fn wait_for<T>(
        &self,
        limit: Duration,
        what: &str,
        mut answer: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            self.check()?;
            if let Some(answer) = answer()? {
                return Ok(answer);
            }
            if Instant::now() >= deadline {
                bail!(
                    "timed out after {} s, waiting until {what}",
                    limit.as_secs()
                );
            }
            thread::sleep(TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_wait_ends_by_answer_by_wish_or_by_time() {
        let stop = Stop::default();
        assert_eq!(stop.wait_for(SOON, "x", || Ok(Some(7))).unwrap(), 7);
        let never = || Ok(None::<()>);
        let late = stop.wait_for(Duration::ZERO, "pigs fly", never);
        assert!(late.unwrap_err().to_string().contains("pigs fly"));
        stop.0.store(true, Ordering::Relaxed);
        let asked = stop.wait_for(SOON, "x", never).unwrap_err();
        assert!(asked.is::<Interrupted>());
    }
}
