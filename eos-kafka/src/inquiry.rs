//! A separate client for a few requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_client::{ClientError, Result};
use eos_protocol::{CallSite, code};

use super::config::{KafkaConfig, Setting};
use super::ffi::{Client, Event, EventKind, Failure, Kind, Queue};

/// The pause before the retry of a transient failure.
const PAUSE: Duration = Duration::from_millis(200);

/// The client and the common time limit of its requests.
pub(super) struct Inquiry {
    /// The queue of responses.
    pub(super) answers: Queue,
    /// The queue of errors that the instance reports by itself.
    complaints: Queue,
    pub(super) client: Arc<Client>,
    bootstrap: String,
    start: Instant,
    end: Instant,
}

impl Inquiry {
    pub(super) fn open(config: &KafkaConfig, client_id: &str, within: Duration) -> Result<Self> {
        Self::with(&config.for_queries(client_id), config, within)
    }

    /// Creates a client without brokers. They are added later.
    pub(super) fn open_without_brokers(
        config: &KafkaConfig,
        client_id: &str,
        within: Duration,
    ) -> Result<Self> {
        Self::with(&config.for_deletions(client_id), config, within)
    }

    fn with(settings: &[Setting], config: &KafkaConfig, within: Duration) -> Result<Self> {
        let client =
            Client::new(Kind::Producer, config, settings).map_err(|e| e.at(CallSite::Create))?;
        let start = Instant::now();
        Ok(Self {
            answers: Queue::fresh(&client),
            complaints: Queue::main(&client),
            client,
            bootstrap: config.bootstrap.clone(),
            start,
            end: start + within,
        })
    }

    /// Returns the remaining time.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Repeats a request until it succeeds, fails permanently, or the time is over.
    pub(super) fn ask<T>(
        &self,
        question: impl Fn(Duration) -> Result<(), Failure>,
        answer: impl Fn(&Event<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        loop {
            let left = self.left();
            question(left)?;
            let Some(event) = self.answer(left + PAUSE)? else {
                return Err(Failure::of(code::LOCAL_TIMED_OUT));
            };
            let failure = match event.check().and_then(|()| answer(&event)) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let passes = passes(failure.fault.code);
            if !passes || Instant::now() + PAUSE >= self.end {
                return Err(failure);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits for a response. Fails early if a broker rejects the client: that is permanent, however long librdkafka
    /// retries.
    pub(super) fn answer(&self, at_most: Duration) -> Result<Option<Event<'_>>, Failure> {
        let end = Instant::now() + at_most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Some(event) = self.answers.poll(left.min(PAUSE)) {
                return Ok(Some(event));
            }
            while let Some(event) = self.complaints.poll(Duration::ZERO) {
                if event.kind() == EventKind::Error
                    && let Err(failure) = event.check()
                    && matches!(
                        failure.fault.code,
                        code::LOCAL_AUTHENTICATION | code::LOCAL_SSL
                    )
                {
                    return Err(failure);
                }
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Returns the cause of a missing response, if the client has logged one.
    pub(super) fn explain(&self, failure: Failure, call: CallSite) -> ClientError {
        let mut error = self.client.clean(failure).at(call);
        if error.fault.code == code::LOCAL_TIMED_OUT || passes(error.fault.code) {
            let last = self.client.last_complaint();
            error.text = last.as_deref().map(cause).unwrap_or_else(|| {
                let (bootstrap, waited) = (&self.bootstrap, self.start.elapsed().as_secs_f64());
                format!("{bootstrap} returned no usable response within {waited:.1} s")
            });
        }
        error
    }
}

/// librdkafka's text about a closed connection. Its guess follows: a reset of the connection, TLS or Kafka 0.9.
const HUNG_UP: &str = ": Disconnected";

/// Returns the cause in a line of librdkafka's log, without the thread's name and counters.
fn cause(line: &str) -> String {
    let line = match line.split_once("]: ") {
        Some((thread, rest)) if thread.starts_with("[thrd:") => rest,
        _ => line,
    };
    if let Some((broker, _guess)) = line.split_once(HUNG_UP) {
        return format!(
            "{broker} accepted the connection and closed it; check that `security.protocol` \
             matches the listener, and that the brokers accept more connections (max.connections, \
             max.connections.per.ip)"
        );
    }
    let end = line.find(" (after ").unwrap_or(line.len());
    line.get(..end).unwrap_or(line).to_owned()
}

/// Returns whether a retry may succeed.
pub(super) fn passes(code: i32) -> bool {
    matches!(
        code,
        code::LOCAL_TRANSPORT
            | code::LOCAL_RESOLVE
            | code::LOCAL_ALL_BROKERS_DOWN
            | code::LOCAL_TIMED_OUT_QUEUE
            | code::LEADER_NOT_AVAILABLE
            | code::BROKER_NOT_AVAILABLE
            | code::REQUEST_TIMED_OUT
            | code::NETWORK_EXCEPTION
            | code::NOT_CONTROLLER
            | code::THROTTLING_QUOTA_EXCEEDED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_told_without_what_only_librdkafka_cares_for() {
        assert_eq!(
            cause(
                "[thrd:localhost:1/bootstrap]: localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 \
                 failed: Connection refused (after 0ms in state CONNECT, 3 identical error(s) \
                 suppressed)"
            ),
            "localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
        );
        assert_eq!(cause("something else"), "something else");
        let told = cause(
            "[thrd:localhost:1/bootstrap]: localhost:1/bootstrap: Disconnected: requesting ApiVersion: \
             might be caused by incorrect security.protocol configuration (connecting to a SSL \
             listener?) or broker version is < 0.10 (see api.version.request) (after 1ms in state \
             APIVERSION_QUERY)",
        );
        assert!(
            told.starts_with("localhost:1/bootstrap accepted the connection and closed it; check")
                && told.ends_with("(max.connections, max.connections.per.ip)"),
            "{told}"
        );
    }
}
