//! [`Producer`] on librdkafka's transactional producer, without rdkafka's wrapper.
//!
//! The wrapper's commit takes 100 ms whenever a record is unacknowledged, and it cannot detect unanswered requests.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_client::{Change, ClientError, OffsetToCommit, Outgoing, Producer, ProducerSpec, Result};
use eos_protocol::{CallSite, Partition, code};

use super::config::KafkaConfig;
use super::coordinator_watch::CoordinatorWatch;
use super::ffi::{Client, EventKind, Failure, Kind, Member, Queue, Topic};
use super::queries::to_commit;

/// The longest time in a librdkafka call before failed deliveries are read. A flush does not end while they are unread.
const FLUSH_SLICE: Duration = Duration::from_millis(10);

/// The time after its first record in which an abort waits for the sent records. librdkafka #4849: an abort that
/// overtakes AddPartitionsToTxn, for example during its retry, ends a transaction that is unknown to the coordinator.
/// The resulting INVALID_TXN_STATE is fatal to the producer.
const FIRST_ACKNOWLEDGEMENT: Duration = Duration::from_secs(1);

/// A transactional producer; without a transactional id, an idempotent one.
#[derive(Debug)]
pub struct KafkaProducer {
    topics: Vec<Topic>,
    /// Failed deliveries.
    reports: Queue,
    /// Without a transactional id, no call waits for a coordinator.
    watch: Option<CoordinatorWatch>,
    client: Arc<Client>,
    transactional: bool,
    request_timeout: Duration,
    /// Whether a transaction is open: the producer has begun it and has not seen its end.
    open: bool,
    /// Whether an unfinished call was repeated: see [`Producer::unanswered`].
    resumed: bool,
    /// The time at which its first record was sent.
    first_sent: Option<Instant>,
    /// The first failed delivery since the transaction began.
    undelivered: Option<Failure>,
}

impl KafkaProducer {
    /// Returns the number of connections that were shut down to look up a coordinator.
    #[cfg(test)]
    pub(crate) fn reconnects(&self) -> u32 {
        self.watch.as_ref().map_or(0, CoordinatorWatch::reconnects)
    }

    pub(super) fn new(config: &KafkaConfig, spec: &ProducerSpec) -> Result<Self> {
        let failed = |failure: Failure| failure.at(CallSite::Create);
        let client =
            Client::new(Kind::Producer, config, &config.for_producer(spec)).map_err(failed)?;
        let topics = spec.topics.iter().map(|name| Topic::new(&client, name));
        Ok(Self {
            topics: topics.collect::<Result<_, _>>().map_err(failed)?,
            reports: Queue::main(&client),
            watch: (spec.transactional_id.as_ref())
                .map(|_| CoordinatorWatch::new(&client).map_err(failed))
                .transpose()?,
            client,
            transactional: spec.transactional_id.is_some(),
            request_timeout: spec.request_timeout,
            open: false,
            resumed: false,
            first_sent: None,
            undelivered: None,
        })
    }

    fn read_reports(&mut self) {
        while let Some(event) = self.reports.poll(Duration::ZERO) {
            if event.kind() == EventKind::Delivery {
                self.undelivered = self.undelivered.take().or_else(|| event.failed_delivery());
            }
        }
    }

    /// Returns whether an abort would be too early: see [`FIRST_ACKNOWLEDGEMENT`].
    fn awaits_first_acknowledgement(&mut self, slice: Duration) -> bool {
        let early = |sent: Instant| sent.elapsed() < FIRST_ACKNOWLEDGEMENT;
        if !self.first_sent.is_some_and(early)
            || self.undelivered.is_some()
            || self.client.fatal().is_some()
        {
            return false;
        }
        let acknowledged = self.client.flush(slice);
        self.read_reports();
        matches!(acknowledged, Ok(false))
    }

    /// Returns the reason why this transaction or this producer cannot continue.
    ///
    /// A failed delivery has no flags, and the rejection of a record in a failed transaction has only `_STATE`. A call
    /// of `begin` makes librdkafka return the cause. It cannot succeed, because a transaction is open.
    fn cause(&self, otherwise: Failure) -> Failure {
        if let Some(fatal) = self.client.fatal() {
            return fatal;
        }
        if self.open
            && let Err(cause) = self.client.begin_transaction()
            && cause.fault.code != code::LOCAL_STATE
        {
            return cause;
        }
        let mut failure = otherwise;
        failure.fault.abortable = true;
        failure
    }

    fn topic(&self, number: usize) -> Result<&Topic> {
        self.topics.get(number).ok_or_else(|| {
            let text = format!("this producer has no topic number {number}");
            ClientError::new(CallSite::Send, code::LOCAL_UNKNOWN_TOPIC, text)
        })
    }

    /// Returns the error of a record that the producer did not take. A batch returns codes only, without their flags.
    fn refused(&self, failure: Failure) -> ClientError {
        let failure = match failure.fault.code {
            code::LOCAL_STATE if self.open => self.cause(failure),
            _ => self.client.fatal().unwrap_or(failure),
        };
        failure.at(CallSite::Send)
    }

    /// Converts the result of a resumable call: its own timeout means "not yet".
    fn resumable(&self, call: CallSite, outcome: Result<(), Failure>) -> Poll<Result<()>> {
        match outcome {
            Ok(()) => Poll::Ready(Ok(())),
            Err(f) if f.fault.retriable && f.fault.code == code::LOCAL_TIMED_OUT => Poll::Pending,
            Err(failure) => Poll::Ready(Err(failure.at(call))),
        }
    }
}

impl Producer for KafkaProducer {
    type Member = Member;

    fn init(&mut self, slice: Duration) -> Poll<Result<()>> {
        if !self.transactional {
            return Poll::Ready(Ok(()));
        }
        let outcome = self.client.init_transactions(slice);
        self.read_reports();
        self.resumable(CallSite::Init, outcome)
    }

    fn begin(&mut self) -> Result<()> {
        self.undelivered = None;
        self.first_sent = None;
        if !self.transactional {
            return Ok(());
        }
        self.client
            .begin_transaction()
            .map_err(|e| e.at(CallSite::Begin))?;
        self.open = true;
        Ok(())
    }

    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>> {
        match self.topic(record.topic)?.produce(record) {
            Ok(()) => {
                self.first_sent.get_or_insert_with(Instant::now);
                Poll::Ready(Ok(()))
            }
            Err(failure) if failure.fault.code == code::LOCAL_QUEUE_FULL => Poll::Pending,
            Err(failure) => Poll::Ready(Err(self.refused(failure))),
        }
    }

    fn send_changes(
        &mut self,
        topic: usize,
        partition: Partition,
        changes: &[Change<'_>],
    ) -> Result<usize> {
        let sent = self.topic(topic)?.produce_changes(partition.get(), changes);
        if !matches!(sent, Ok(0)) {
            self.first_sent.get_or_insert_with(Instant::now);
        }
        sent.map_err(|failure| self.refused(failure))
    }

    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &Member,
        slice: Duration,
    ) -> Poll<Result<()>> {
        let Some(watch) = &self.watch else {
            return Poll::Ready(Ok(()));
        };
        let call = CallSite::SendOffsets;
        let list = to_commit(offsets).map_err(|e| e.at(call))?;
        // Not resumable: with less time than a request may take, it would give up on requests in flight.
        let at_most = slice.max(self.request_timeout);
        let outcome = watch.during(|| self.client.send_offsets(&list, member, at_most));
        Poll::Ready(outcome.map_err(|e| e.at(call)))
    }

    fn flush(&mut self, slice: Duration) -> Poll<Result<()>> {
        let call = CallSite::Flush;
        let end = Instant::now() + slice;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let done = self
                .client
                .flush(left.min(FLUSH_SLICE))
                .map_err(|e| e.at(call))?;
            self.read_reports();
            if let Some(failure) = &self.undelivered {
                let failure = self.cause(failure.clone());
                if !self.transactional {
                    self.undelivered = None;
                }
                return Poll::Ready(Err(failure.at(call)));
            }
            if done {
                return Poll::Ready(Ok(()));
            }
            if left.is_zero() {
                return Poll::Pending;
            }
        }
    }

    fn commit(&mut self, slice: Duration) -> Poll<Result<()>> {
        if !self.transactional {
            return Poll::Ready(Ok(()));
        }
        let outcome = self.client.commit_transaction(slice);
        self.read_reports();
        if outcome.is_ok() {
            self.open = false;
        }
        let outcome = self.resumable(CallSite::Commit, outcome);
        self.resumed |= outcome.is_pending();
        outcome
    }

    fn abort(&mut self, slice: Duration) -> Poll<Result<()>> {
        if !self.transactional {
            self.undelivered = None;
            return Poll::Ready(Ok(()));
        }
        let end = Instant::now() + slice;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.awaits_first_acknowledgement(left.min(FLUSH_SLICE)) {
                if left.is_zero() {
                    return Poll::Pending;
                }
                continue;
            }
            let outcome = self.client.abort_transaction(left.min(FLUSH_SLICE));
            // The abort flushes the purged records, and the flush ends only when the reports are read.
            self.read_reports();
            if outcome.is_ok() {
                self.open = false;
                self.undelivered = None;
            }
            let outcome = self.resumable(CallSite::Abort, outcome);
            self.resumed |= outcome.is_pending();
            if outcome.is_ready() || left.is_zero() {
                return outcome;
            }
        }
    }

    /// Also true after a commit or an abort that was repeated after its timeout. librdkafka 2.12.1 may keep the result
    /// of one of its steps for the next call of any kind (docs/design/0018).
    fn unanswered(&self) -> bool {
        self.resumed || self.client.unanswered()
    }
}

impl Drop for KafkaProducer {
    /// Sends nothing, above all no abort: the transaction stays open, and the next owner of the id ends it.
    ///
    /// The drop waits for the purge. librdkafka 2.12.1 frees the text of the transaction's error when its main thread
    /// ends (`rd_kafka_txns_term`), while the brokers' threads still run. The response INVALID_PRODUCER_EPOCH to a
    /// record in flight frees it again (`rd_kafka_txn_set_fatal_error`).
    fn drop(&mut self) {
        self.client.purge();
        self.read_reports();
    }
}
