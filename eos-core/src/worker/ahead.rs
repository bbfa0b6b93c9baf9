//! The records of a task that are admitted ahead of their turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::calls::{CallEnd, CallId, CallPlace, CallQueue, Counted, Ticket};
use eos_protocol::{AppId, Now, Offset, Timestamp, TopicPartition};

use crate::async_calls::{CallError, CallFuture, CallResult};
use crate::client::{Headers, Message};
use crate::metrics::CallMetrics;
use crate::rules;
use crate::topology::{CallSpec, Fault, PreparedCall, Raw};

/// The bits of an incarnation that count the rewinds of a task.
const REWINDS: u32 = 32;

/// The admitted records of a task, in order, with the states and the results of their calls.
pub(super) struct Ahead {
    name: Arc<str>,
    time_out: Duration,
    queue: CallQueue,
    records: BTreeMap<u64, AdmittedRecord>,
    /// The record that is processed now.
    current: Option<u64>,
    /// By input: the offset behind the last admitted record. `None` before the first one since a start or a rewind.
    next: Vec<Option<Offset>>,
    /// By input: the offset behind the last record that was ever admitted. The calls of earlier records may have run.
    called_to: Vec<Offset>,
    /// The tries that nothing waits for.
    aborted: Vec<Ticket>,
}

/// A record at its admission.
pub(super) struct AdmittedRecord {
    pub(super) input: usize,
    pub(super) message: Kept,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) origin: CallOrigin,
    pub(super) prepared: Prepared,
    /// Whether its calls may have run before.
    is_repeated: bool,
    /// Whether its results are taken. If it is processed again, its calls are repeated.
    is_spent: bool,
}

/// The result of the nodes in front of the calls, for a record.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) calls: Vec<AdmittedCall>,
    /// The fault of these nodes, with the index of the source.
    pub(super) fault: Option<(usize, Fault)>,
}

/// A call of an admitted record.
pub(super) struct AdmittedCall {
    /// The source of the record, as an index into the input's sources.
    pub(super) source: usize,
    pub(super) prepared: PreparedCall,
    pub(super) result: Option<Result<CallResult, Fault>>,
    has_begun: bool,
}

impl AdmittedCall {
    pub(super) fn new(source: usize, prepared: PreparedCall) -> Self {
        Self {
            source,
            prepared,
            result: None,
            has_begun: false,
        }
    }
}

/// The parts of a call's id that its record determines.
pub(super) struct CallOrigin {
    pub(super) partition: TopicPartition,
    pub(super) offset: Offset,
    pub(super) generation: u64,
}

/// A copy of a fetched record.
pub(super) struct Kept {
    offset: Offset,
    timestamp: Option<Timestamp>,
    key: Option<Box<[u8]>>,
    value: Option<Box<[u8]>>,
    headers: Headers,
}

impl Kept {
    pub(super) fn of(message: &impl Message) -> Self {
        Self {
            offset: message.offset(),
            timestamp: message.timestamp(),
            key: message.key().map(Into::into),
            value: message.value().map(Into::into),
            headers: message.headers(),
        }
    }
}

impl Kept {
    /// Returns the size of key, value and headers, in bytes.
    fn size(&self) -> usize {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let headers = self.headers.iter();
        let headers = headers.map(|it| it.name().len() + length(it.value()));
        length(self.key.as_deref()) + length(self.value.as_deref()) + headers.sum::<usize>()
    }

    /// Returns the record as bytes.
    pub(super) fn raw<'a>(&'a self, timestamp: Option<Timestamp>, headers: &'a Headers) -> Raw<'a> {
        Raw {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            timestamp,
            headers,
        }
    }
}

impl Message for Kept {
    fn offset(&self) -> Offset {
        self.offset
    }
    fn timestamp(&self) -> Option<Timestamp> {
        self.timestamp
    }
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }
    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }
    fn headers(&self) -> Headers {
        self.headers.clone()
    }
}

/// A try to start.
pub(super) struct Begun {
    pub(super) ticket: Ticket,
    pub(super) call: CallFuture,
    pub(super) is_repeated: bool,
}

impl Ahead {
    /// Creates the queue of a task. `start` is the number of its start within the worker.
    pub(super) fn new(calls: &CallSpec, inputs: usize, start: u32) -> Self {
        Self {
            name: Arc::clone(&calls.name),
            time_out: calls.plan.time_out.unwrap_or_default(),
            queue: CallQueue::new(calls.plan, u64::from(start) << REWINDS),
            records: BTreeMap::new(),
            current: None,
            next: vec![None; inputs],
            called_to: vec![Offset::ZERO; inputs],
            aborted: Vec::new(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn metrics(&self) -> CallMetrics {
        CallMetrics {
            running: self.queue.running() as u64,
            waiting: self.queue.len() as u64,
        }
    }

    /// Returns the offset behind the last admitted record of an input, if there is one.
    pub(super) fn next(&self, input: usize) -> Option<Offset> {
        self.next.get(input).copied().flatten()
    }

    /// Admits a record.
    pub(super) fn admit(
        &mut self,
        (input, message, timestamp): (usize, Kept, Option<Timestamp>),
        origin: CallOrigin,
        prepared: Prepared,
    ) {
        let behind = message.offset.next();
        if let Some(next) = self.next.get_mut(input) {
            *next = (*next).max(Some(behind));
        }
        let mut is_repeated = false;
        if let Some(called_to) = self.called_to.get_mut(input) {
            is_repeated = message.offset < *called_to;
            *called_to = (*called_to).max(behind);
        }
        let calls = prepared.count();
        let number = self.queue.admit(message.key(), calls);
        self.queue.weigh(number, message.size());
        if prepared.may_call_later() {
            self.queue.hold(number);
        }
        let record = AdmittedRecord {
            input,
            message,
            timestamp,
            origin,
            prepared,
            is_repeated,
            is_spent: false,
        };
        self.records.insert(number, record);
    }

    /// Returns the next try to start.
    pub(super) fn start(&mut self, app: &AppId, now: Now) -> Option<Begun> {
        let ticket = self.queue.start(now)?;
        let record = self.records.get_mut(&ticket.record)?;
        let call = record.prepared.calls.get_mut(ticket.call as usize)?;
        let id = CallId::of(&CallPlace {
            app,
            partition: &record.origin.partition,
            offset: record.origin.offset,
            generation: record.origin.generation,
            name: &self.name,
            ordinal: ticket.call,
        });
        Some(Begun {
            ticket,
            call: call.prepared.begin.begin(id),
            is_repeated: std::mem::replace(&mut call.has_begun, true) || record.is_repeated,
        })
    }

    /// Records the result of a try.
    pub(super) fn ended(
        &mut self,
        mut ticket: Ticket,
        result: Result<CallResult, CallError>,
        now: Now,
        entropy: u64,
    ) {
        if !rules::drops_late_results() {
            ticket.incarnation = self.queue.incarnation();
        }
        let result = result.map_err(|error| match error {
            CallError::Failed(failure) => Fault::user(failure),
            CallError::Panicked(text) => Fault::Panic(text),
        });
        self.count(ticket, result, now, entropy);
    }

    /// Ends the tries whose time is over. Returns their number.
    pub(super) fn expire(&mut self, now: Now, entropy: impl Fn() -> u64) -> u64 {
        let mut expired = 0;
        while let Some(ticket) = self.queue.expired(now) {
            expired += 1;
            self.aborted.push(ticket);
            self.count(ticket, Err(Fault::TimeOut(self.time_out)), now, entropy());
        }
        expired
    }

    fn count(&mut self, ticket: Ticket, result: Result<CallResult, Fault>, now: Now, entropy: u64) {
        let end = match &result {
            Ok(_) => CallEnd::Done,
            Err(fault) => CallEnd::Failed {
                is_permanent: fault.is_permanent(),
            },
        };
        let Counted::Ended { tries } = self.queue.ended(ticket, end, now, entropy) else {
            return;
        };
        let record = self.records.get_mut(&ticket.record);
        let call = record.and_then(|it| it.prepared.calls.get_mut(ticket.call as usize));
        if let Some(call) = call {
            call.result = Some(result.map_err(|source| Fault::Call {
                name: Arc::clone(&self.name),
                tries,
                source: Box::new(source),
            }));
        }
    }

    /// Returns the time of the next deadline, or of the next try if calls may start.
    pub(super) fn next_event(&self, starts: bool) -> Option<Now> {
        self.queue.next_event(starts)
    }

    /// Takes the tries that nothing waits for.
    pub(super) fn take_aborted(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.aborted)
    }

    /// Begins the turn of the next record, if its calls have ended.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.current = match rules::merges_in_order() {
            true => self.queue.turn(),
            false => self.queue.any_ended(),
        };
        self.current.is_some()
    }

    /// Returns the record whose turn it is.
    pub(super) fn current(&self) -> Option<&AdmittedRecord> {
        self.records.get(&self.current?)
    }

    /// Returns whether the results of the current record are taken. It needs [`repeat`](Self::repeat).
    pub(super) fn is_spent(&self) -> bool {
        self.current().is_some_and(|record| record.is_spent)
    }

    /// Takes the results of the current record, or its fault.
    pub(super) fn spend(&mut self) -> Prepared {
        let record = self.current.and_then(|it| self.records.get_mut(&it));
        record.map_or_else(Prepared::default, |record| {
            record.is_spent = true;
            std::mem::take(&mut record.prepared)
        })
    }

    /// Begins the calls of the current record again.
    pub(super) fn repeat(&mut self, prepared: Prepared, timestamp: Option<Timestamp>) {
        let Some((number, record)) = self
            .current
            .and_then(|it| Some((it, self.records.get_mut(&it)?)))
        else {
            return;
        };
        let aborted = self.queue.repeat(number, prepared.count());
        if prepared.may_call_later() {
            self.queue.hold(number);
        }
        self.aborted.extend(aborted);
        record.prepared = prepared;
        record.timestamp = timestamp;
        record.is_repeated = true;
        record.is_spent = false;
    }

    /// Removes the current record.
    pub(super) fn drop_current(&mut self) {
        if let Some(number) = self.current.take() {
            self.records.remove(&number);
            let aborted = self.queue.remove(number);
            self.aborted.extend(aborted);
        }
    }

    /// Drops all records, because the inputs rewind. Results of their calls are late.
    pub(super) fn clear(&mut self) {
        let incarnation = self.queue.incarnation() + 1;
        let aborted = self.queue.clear(incarnation);
        self.aborted.extend(aborted);
        self.records.clear();
        self.current = None;
        self.next.fill(None);
    }
}

impl Prepared {
    /// Returns whether the record failed before its calls, and a retry may call.
    fn may_call_later(&self) -> bool {
        let fault = self.fault.as_ref();
        fault.is_some_and(|(_, fault)| !fault.is_permanent())
    }

    /// Returns the number of calls to start.
    fn count(&self) -> u32 {
        match self.fault {
            Some(_) => 0,
            None => u32::try_from(self.calls.len()).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::Partition;
    use eos_protocol::calls::CallPlan;

    use super::*;

    fn admit(ahead: &mut Ahead, offset: i64, bytes: usize) {
        let offset = Offset::new(offset).unwrap();
        let message = Kept {
            offset,
            timestamp: None,
            key: None,
            value: Some(vec![0; bytes].into()),
            headers: Headers::new(),
        };
        let origin = CallOrigin {
            partition: TopicPartition::new("t", Partition::ZERO),
            offset,
            generation: 0,
        };
        ahead.admit((0, message, None), origin, Prepared::default());
    }

    fn ahead(start: u32) -> Ahead {
        let calls = CallSpec {
            name: "serve".into(),
            plan: CallPlan {
                at_once: 10,
                time_out: None,
                retry: None,
            },
        };
        Ahead::new(&calls, 1, start)
    }

    /// A task that moves away and back would otherwise take the results of its earlier calls.
    #[test]
    fn rewinds_and_starts_with_other_numbers_have_other_incarnations() {
        let (mut first, mut second) = (ahead(1), ahead(2));
        let mut seen = Vec::new();
        for _ in 0..3 {
            for ahead in [&mut first, &mut second] {
                let incarnation = ahead.queue.incarnation();
                assert!(!seen.contains(&incarnation), "{incarnation} in {seen:?}");
                seen.push(incarnation);
                ahead.clear();
            }
        }
    }

    #[test]
    fn records_are_admitted_until_they_have_64_mib() {
        let mut ahead = ahead(0);
        admit(&mut ahead, 0, 40 << 20);
        assert!(ahead.has_room());
        admit(&mut ahead, 1, 40 << 20);
        assert!(!ahead.has_room());
        assert!(ahead.begin_turn());
        let prepared = ahead.spend();
        ahead.repeat(prepared, None);
        assert!(!ahead.has_room(), "a repeated record is still admitted");
        ahead.drop_current();
        assert!(ahead.has_room());
        // A record that is larger than the limit passes as well.
        admit(&mut ahead, 2, 100 << 20);
        assert!(!ahead.has_room());
        ahead.clear();
        assert!(ahead.has_room());
    }
}
