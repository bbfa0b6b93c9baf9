//! Forwards librdkafka's log lines to `tracing`.
//!
//! A client without a broker repeats its lines several times a second. Each facility of each client therefore gets a
//! few lines per period. Further lines are counted, and the count is logged in one line.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(10);
const LINES_PER_PERIOD: u32 = 5;

/// The syslog level from which downwards a line counts as an error.
const ERROR: i32 = 3;
const WARNING: i32 = 4;
const DEBUG: i32 = 7;

/// The facility of lines about connections that failed (`rd_kafka_broker_set_error`).
const FAIL: &str = "FAIL";

/// The log of one client.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    silent: bool,
    /// The client's name in its last line.
    client: String,
    periods: HashMap<String, Period>,
    last_complaint: Option<String>,
}

/// The recent lines of one facility.
#[derive(Debug)]
struct Period {
    since: Instant,
    lines: u32,
    suppressed: u32,
}

impl Log {
    /// Writes a line. `level` is syslog's.
    pub(super) fn write(&self, level: i32, client: &str, facility: &str, text: &str) {
        let mut lines = self.lock();
        // librdkafka logs a broker that closes the connection only at a low level.
        if level <= ERROR || facility == FAIL {
            lines.last_complaint = Some(text.to_owned());
        }
        if lines.silent {
            return;
        }
        if lines.client != client {
            client.clone_into(&mut lines.client);
        }
        let verdict = lines.admit(facility, Instant::now());
        drop(lines);
        let Some(suppressed) = verdict else { return };
        if suppressed > 0 {
            tell_suppressed(client, facility, suppressed);
        }
        emit(level, client, facility, text);
    }

    /// Returns the last line of level "error" or worse, or about a failed connection.
    pub(super) fn last_complaint(&self) -> Option<String> {
        self.lock().last_complaint.clone()
    }

    /// Stops the log: the client is being dropped.
    pub(super) fn silence(&self) {
        self.lock().silent = true;
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs the number of suppressed lines, at the end of the client.
    pub(super) fn flush(&self) {
        let (client, facilities) = self.lock().take_suppressed();
        for (facility, suppressed) in facilities {
            tell_suppressed(&client, &facility, suppressed);
        }
    }
}

impl Lines {
    /// Takes the client's name, and the facilities with suppressed lines.
    fn take_suppressed(&mut self) -> (String, Vec<(String, u32)>) {
        let periods = mem::take(&mut self.periods).into_iter();
        let counts = periods.map(|(facility, period)| (facility, period.suppressed));
        let client = mem::take(&mut self.client);
        (client, counts.filter(|(_, count)| *count > 0).collect())
    }

    /// Returns the number of suppressed lines if a line may pass now, otherwise `None`.
    fn admit(&mut self, facility: &str, now: Instant) -> Option<u32> {
        let Some(period) = self.periods.get_mut(facility) else {
            let first = Period {
                since: now,
                lines: 1,
                suppressed: 0,
            };
            self.periods.insert(facility.to_owned(), first);
            return Some(0);
        };
        if now.duration_since(period.since) >= PERIOD {
            let suppressed = period.suppressed;
            *period = Period {
                since: now,
                lines: 1,
                suppressed: 0,
            };
            return Some(suppressed);
        }
        if period.lines < LINES_PER_PERIOD {
            period.lines += 1;
            return Some(0);
        }
        period.suppressed += 1;
        None
    }
}

fn tell_suppressed(client: &str, facility: &str, suppressed: u32) {
    const WHAT: &str = "similar lines suppressed";
    if told_as(WARNING, facility) == DEBUG {
        tracing::debug!(target: "librdkafka", client, facility, suppressed, "{WHAT}");
    } else {
        tracing::warn!(target: "librdkafka", client, facility, suppressed, "{WHAT}");
    }
}

fn emit(level: i32, client: &str, facility: &str, text: &str) {
    // Even librdkafka's "error" is mostly a lost connection, from which it recovers by itself.
    match told_as(level, facility) {
        ..=2 => tracing::error!(target: "librdkafka", client, facility, "{text}"),
        3..=4 => tracing::warn!(target: "librdkafka", client, facility, "{text}"),
        5..=6 => tracing::info!(target: "librdkafka", client, facility, "{text}"),
        _ => tracing::debug!(target: "librdkafka", client, facility, "{text}"),
    }
}

/// Returns the level at which a line is logged.
fn told_as(level: i32, facility: &str) -> i32 {
    /// "Failed to acquire transactional PID from broker ..: retrying" (`rd_kafka_idemp_request_pid_failed`): logged at
    /// every start while the coordinator loads or ends an older transaction. If it lasts too long, it is
    /// `WorkerError::InitTimedOut`.
    const RETRIED: &str = "GETPID";
    if facility == RETRIED { DEBUG } else { level }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_facility_gets_a_few_lines_per_period_and_then_a_count() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        for _ in 0..LINES_PER_PERIOD {
            assert_eq!(lines.admit("FAIL", start), Some(0));
        }
        for _ in 0..100 {
            assert_eq!(lines.admit("FAIL", start), None);
        }
        assert_eq!(
            lines.admit("TXNERR", start),
            Some(0),
            "other facilities are not affected"
        );
        assert_eq!(lines.admit("FAIL", start + PERIOD), Some(100));
        assert_eq!(lines.admit("FAIL", start + PERIOD), Some(0));
    }

    #[test]
    fn suppressed_lines_are_counted_under_the_name_of_the_client() {
        let log = Log::default();
        for _ in 0..20 {
            log.write(3, "c", "FAIL", "no connection");
        }
        log.write(6, "c", "INFO", "connected");
        let expected = ("c".to_owned(), vec![("FAIL".to_owned(), 15)]);
        assert_eq!(log.lock().take_suppressed(), expected);
    }

    #[test]
    fn what_every_start_may_say_is_no_warning() {
        assert_eq!(told_as(WARNING, "GETPID"), DEBUG);
        assert_eq!(told_as(WARNING, "FAIL"), WARNING);
    }

    #[test]
    fn the_last_complaint_is_remembered_even_if_it_is_suppressed() {
        let log = Log::default();
        for n in 0..20 {
            log.write(3, "c", "FAIL", &format!("no connection {n}"));
        }
        log.write(6, "c", "INFO", "all is well");
        assert_eq!(log.last_complaint().as_deref(), Some("no connection 19"));
    }
}
