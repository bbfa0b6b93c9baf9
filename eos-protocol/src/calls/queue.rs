//! The queue of admitted records and their calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::CallPlan;
use crate::time::Now;

/// One try of one call. A result counts only with the ticket of the try that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The incarnation of the queue. Each start and each rewind of a task begins another one.
    pub incarnation: u64,
    /// The number of the record within the incarnation.
    pub record: u64,
    /// The number of the call within its record.
    pub call: u32,
    /// The number of the try within the calls of its record.
    pub attempt: u32,
}

/// The end of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// It has a result.
    Done,
    /// It failed, panicked or took too long.
    Failed {
        /// Whether another try would fail as well.
        is_permanent: bool,
    },
}

/// The effect of the end of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Nothing: the try belongs to another incarnation, has timed out, or has ended before. Drop the result.
    Late,
    /// The call is tried again. Drop the result.
    Again,
    /// The call has ended after this number of tries. Keep the result.
    Ended {
        /// The number of tries.
        tries: u32,
    },
}

/// The size of the admitted records at which no more records are admitted, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// The numbers of a record and of a call of it.
type Place = (u64, u32);

/// The calls that have a key in common, in the order in which they run. The first one may run.
type Lane = VecDeque<Place>;

/// The admitted records of one task, and the states of their calls.
///
/// Records are admitted in the order in which the task takes them, and leave in that order. The calls of one key run
/// one after another. A call that failed for good holds back later calls of its key until its record leaves. The other
/// calls of its record no longer start.
#[derive(Debug)]
pub struct CallQueue {
    plan: CallPlan,
    incarnation: u64,
    /// The number of the next admitted record.
    next: u64,
    records: BTreeMap<u64, Admitted>,
    lanes: BTreeMap<Arc<[u8]>, Lane>,
    /// The calls that may start.
    ready: BTreeSet<Place>,
    /// The running calls with a deadline.
    deadlines: BTreeSet<(Now, Place)>,
    /// The failed calls that wait for their next try.
    paused: BTreeSet<(Now, Place)>,
    running: usize,
    /// The size of the admitted records, in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct Admitted {
    lane: Option<Arc<[u8]>>,
    calls: Vec<Call>,
    /// The calls that have not ended.
    open: usize,
    /// The tries of all calls so far.
    attempts: u32,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    /// The tries since the record was admitted.
    tries: u32,
    state: CallState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// Another call of the key comes first.
    Waiting,
    Ready,
    Running {
        attempt: u32,
        deadline: Option<Now>,
    },
    Paused {
        until: Now,
    },
    Done,
    Failed,
}

impl Call {
    const NEW: Self = Self {
        tries: 0,
        state: CallState::Waiting,
    };
}

impl CallQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(plan: CallPlan, incarnation: u64) -> Self {
        Self {
            plan,
            incarnation,
            next: 0,
            records: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            paused: BTreeSet::new(),
            running: 0,
            bytes: 0,
        }
    }

    /// The current incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns whether a further record may be admitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.records.len() < self.plan.max_admitted() && self.bytes < MOST_BYTES
    }

    /// Counts the size of an admitted record, in bytes.
    pub fn weigh(&mut self, number: u64, bytes: usize) {
        if let Some(record) = self.records.get_mut(&number) {
            self.bytes = self.bytes - record.bytes + bytes;
            record.bytes = bytes;
        }
    }

    /// The number of admitted records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether no record is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of running calls.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running
    }

    /// Admits a record with this key and this number of calls. Returns its number. Calls without a key have no order.
    pub fn admit(&mut self, key: Option<&[u8]>, calls: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        let lane = key.map(|key| match self.lanes.get_key_value(key) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(key),
        });
        let record = Admitted {
            lane: lane.clone(),
            calls: Vec::new(),
            open: 0,
            attempts: 0,
            bytes: 0,
        };
        self.records.insert(number, record);
        self.add_calls(number, lane, calls, None);
        number
    }

    /// Returns the next try that may begin now, if the limit allows one more.
    pub fn start(&mut self, now: Now) -> Option<Ticket> {
        if self.running >= self.plan.at_once {
            return None;
        }
        while let Some(&(until, place)) = self.paused.first()
            && until <= now
        {
            self.paused.pop_first();
            self.set(place, CallState::Ready);
        }
        let place = self.ready.pop_first()?;
        let deadline = self.plan.time_out.map(|time_out| now.after(time_out));
        let record = self.records.get_mut(&place.0)?;
        record.attempts += 1;
        let attempt = record.attempts;
        record.calls.get_mut(place.1 as usize)?.tries += 1;
        self.set(place, CallState::Running { attempt, deadline });
        Some(self.ticket(place, attempt))
    }

    /// Returns a try whose time is over. It runs until it is [ended](Self::ended) as a failure.
    #[must_use]
    pub fn expired(&self, now: Now) -> Option<Ticket> {
        let &(_, place) = self.deadlines.first().filter(|(at, _)| *at <= now)?;
        match self.call(place)?.state {
            CallState::Running { attempt, .. } => Some(self.ticket(place, attempt)),
            _ => None,
        }
    }

    /// Returns the time of the next deadline, or of the next try if calls may start (`starts`). A try that the limit holds
    /// back begins when another call ends.
    #[must_use]
    pub fn next_event(&self, starts: bool) -> Option<Now> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let may_start = starts && self.running < self.plan.at_once;
        let until = self.paused.first().filter(|_| may_start);
        let until = until.map(|(at, _)| *at);
        deadline.into_iter().chain(until).min()
    }

    /// Records the end of a try. `entropy` is any random number, which spreads the wait for the next try.
    pub fn ended(&mut self, ticket: Ticket, end: CallEnd, now: Now, entropy: u64) -> Counted {
        let place = (ticket.record, ticket.call);
        let Some(Call { tries, state }) = self.call(place).copied() else {
            return Counted::Late;
        };
        match state {
            CallState::Running { attempt, .. }
                if attempt == ticket.attempt && ticket.incarnation == self.incarnation => {}
            _ => return Counted::Late,
        }
        match (end, self.plan.retry) {
            (CallEnd::Done, _) => {
                self.set(place, CallState::Done);
                self.leave_lane(place);
            }
            (
                CallEnd::Failed {
                    is_permanent: false,
                },
                Some(retry),
            ) if tries <= retry.times && !self.has_failed(place.0) => {
                let until = now.after(retry.wait(tries, entropy));
                self.set(place, CallState::Paused { until });
                return Counted::Again;
            }
            (CallEnd::Failed { .. }, _) => {
                self.set(place, CallState::Failed);
                self.give_up(place.0);
                self.let_earlier_pass(place);
            }
        }
        if let Some(record) = self.records.get_mut(&place.0) {
            record.open -= 1;
        }
        Counted::Ended { tries }
    }

    /// Returns whether a call of a record has failed for good.
    fn has_failed(&self, number: u64) -> bool {
        let mut calls = self
            .records
            .get(&number)
            .into_iter()
            .flat_map(|it| &it.calls);
        calls.any(|call| call.state == CallState::Failed)
    }

    /// Gives up the calls of a failed record that do not run.
    fn give_up(&mut self, number: u64) {
        let count = self.records.get(&number).map_or(0, |it| it.calls.len());
        for call in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let state = self.call((number, call)).map(|call| call.state);
            if let Some(CallState::Waiting | CallState::Ready | CallState::Paused { .. }) = state {
                self.set((number, call), CallState::Failed);
                if let Some(record) = self.records.get_mut(&number) {
                    record.open -= 1;
                }
            }
        }
    }

    /// Returns the record with the current turn: the first one, once its calls have ended.
    #[must_use]
    pub fn turn(&self) -> Option<u64> {
        let (number, record) = self.records.first_key_value()?;
        (record.open == 0).then_some(*number)
    }

    /// Returns the first record whose calls have ended, although it may not be its turn. Only tests of the order use it.
    #[must_use]
    pub fn any_ended(&self) -> Option<u64> {
        let mut records = self.records.iter();
        let (number, _) = records.find(|(_, record)| record.open == 0)?;
        Some(*number)
    }

    /// Replaces the calls of a record. Its calls come before those of later records with its key, unless one of these runs.
    /// Returns the tries to abort.
    pub fn repeat(&mut self, number: u64, calls: u32) -> Vec<Ticket> {
        let Some(record) = self.records.get(&number) else {
            return Vec::new();
        };
        let lane = record.lane.clone();
        let aborted = self.drop_calls(number);
        let begun = lane.as_ref().and_then(|lane| {
            let first = *self.lanes.get(lane)?.front()?;
            Some((first, self.call(first)?.state))
        });
        let at = match begun {
            // The call that was ready waits again.
            Some((first, CallState::Ready)) => {
                self.set(first, CallState::Waiting);
                0
            }
            // The failed call waits for the turn of a later record.
            Some((first, CallState::Failed)) if first.0 > number => 0,
            Some(_) => 1,
            None => 0,
        };
        self.add_calls(number, lane.clone(), calls, Some(at));
        if let Some(lane) = lane {
            self.ready_lane(&lane);
        }
        aborted
    }

    /// Keeps the place of a record that failed before its calls and may be tried again. The calls of later records with
    /// its key wait until the record is [repeated](Self::repeat) or [removed](Self::remove).
    pub fn hold(&mut self, number: u64) {
        let record = self.records.get_mut(&number);
        let Some(record) = record.filter(|it| it.calls.is_empty()) else {
            return;
        };
        let Some(lane) = record.lane.clone() else {
            return;
        };
        record.calls.push(Call {
            tries: 0,
            state: CallState::Failed,
        });
        let queue = self.lanes.entry(lane).or_default();
        let later = queue.iter().position(|(record, _)| *record > number);
        let mut at = later.unwrap_or(queue.len());
        if at == 0
            && let Some(&first) = queue.front()
        {
            match self.call(first).map(|call| call.state) {
                // The call in front has not begun, so it waits again.
                Some(CallState::Ready) => self.set(first, CallState::Waiting),
                Some(CallState::Waiting | CallState::Failed) | None => {}
                // The call in front has begun, so it keeps its place.
                Some(_) => at = 1,
            }
        }
        let lane = self.records.get(&number).and_then(|it| it.lane.clone());
        if let Some(queue) = lane.and_then(|lane| self.lanes.get_mut(&lane)) {
            queue.insert(at, (number, 0));
        }
    }

    /// Removes a record. Returns the tries to abort.
    pub fn remove(&mut self, number: u64) -> Vec<Ticket> {
        let aborted = self.drop_calls(number);
        self.weigh(number, 0);
        self.records.remove(&number);
        aborted
    }

    /// Removes all records, and begins another incarnation. The numbers of the removed records are used again. Returns the
    /// tries to abort.
    pub fn clear(&mut self, incarnation: u64) -> Vec<Ticket> {
        let numbers = self.records.keys().copied().collect::<Vec<_>>();
        let aborted = numbers
            .into_iter()
            .flat_map(|number| self.drop_calls(number));
        let aborted = aborted.collect();
        let next = self.records.keys().next().copied();
        let next = next.unwrap_or(self.next);
        *self = Self {
            next,
            ..Self::new(self.plan, incarnation)
        };
        aborted
    }

    fn ticket(&self, (record, call): Place, attempt: u32) -> Ticket {
        Ticket {
            incarnation: self.incarnation,
            record,
            call,
            attempt,
        }
    }

    fn call(&self, (record, call): Place) -> Option<&Call> {
        self.records.get(&record)?.calls.get(call as usize)
    }

    /// Adds calls to a record, at this place of its lane.
    fn add_calls(&mut self, number: u64, lane: Option<Arc<[u8]>>, calls: u32, at: Option<usize>) {
        if let Some(record) = self.records.get_mut(&number) {
            record.calls = vec![Call::NEW; calls as usize];
            record.open = record.calls.len();
        }
        let places = (0..calls).map(|call| (number, call));
        let Some(lane) = lane.filter(|_| calls > 0) else {
            places.for_each(|place| self.set(place, CallState::Ready));
            return;
        };
        let queue = self.lanes.entry(Arc::clone(&lane)).or_default();
        let at = at.unwrap_or(queue.len()).min(queue.len());
        for (n, place) in places.enumerate() {
            queue.insert(at + n, place);
        }
        self.ready_lane(&lane);
    }

    /// Lets the first call of a lane start, if it waits.
    fn ready_lane(&mut self, lane: &Arc<[u8]>) {
        let Some(queue) = self.lanes.get(lane) else {
            return;
        };
        let Some(&first) = queue.front() else {
            self.lanes.remove(lane);
            return;
        };
        if self
            .call(first)
            .is_some_and(|call| call.state == CallState::Waiting)
        {
            self.set(first, CallState::Ready);
        }
    }

    /// Takes a call out of its lane.
    fn leave_lane(&mut self, place: Place) {
        let lane = self.records.get(&place.0).and_then(|it| it.lane.clone());
        let Some(lane) = lane else {
            return;
        };
        if let Some(queue) = self.lanes.get_mut(&lane) {
            match queue.front() == Some(&place) {
                true => drop(queue.pop_front()),
                false => queue.retain(|known| *known != place),
            }
        }
        self.ready_lane(&lane);
    }

    /// Moves a failed call after the calls of earlier records, which were queued after it because they were repeated
    /// while it ran. A failed call waits for the turn of its record, so they would wait forever.
    fn let_earlier_pass(&mut self, place: Place) {
        let lane = self.records.get(&place.0).and_then(|it| it.lane.clone());
        let Some((lane, queue)) = lane.and_then(|lane| {
            let queue = self.lanes.get_mut(&lane)?;
            Some((lane, queue))
        }) else {
            return;
        };
        let earlier = queue.iter().rposition(|(record, _)| *record < place.0);
        let own = queue.iter().position(|it| *it == place);
        if let (Some(own), Some(earlier)) = (own, earlier)
            && own < earlier
        {
            queue.remove(own);
            queue.insert(earlier, place);
            self.ready_lane(&lane);
        }
    }

    /// Removes all calls of a record. Returns the tries that run.
    fn drop_calls(&mut self, number: u64) -> Vec<Ticket> {
        let count = self.records.get(&number).map_or(0, |it| it.calls.len());
        let mut running = Vec::new();
        for call in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let place = (number, call);
            let Some(Call { state, .. }) = self.call(place).copied() else {
                continue;
            };
            if let CallState::Running { attempt, .. } = state {
                running.push(self.ticket(place, attempt));
            }
            self.set(place, CallState::Done);
            if state != CallState::Done {
                self.leave_lane(place);
            }
        }
        if let Some(record) = self.records.get_mut(&number) {
            record.calls.clear();
            record.open = 0;
        }
        running
    }

    /// Moves a call to another state.
    fn set(&mut self, place: Place, state: CallState) {
        let record = self.records.get_mut(&place.0);
        let Some(call) = record.and_then(|it| it.calls.get_mut(place.1 as usize)) else {
            return;
        };
        match std::mem::replace(&mut call.state, state) {
            CallState::Ready => {
                self.ready.remove(&place);
            }
            CallState::Running { deadline, .. } => {
                self.running -= 1;
                if let Some(at) = deadline {
                    self.deadlines.remove(&(at, place));
                }
            }
            CallState::Paused { until } => {
                self.paused.remove(&(until, place));
            }
            CallState::Waiting | CallState::Done | CallState::Failed => {}
        }
        match state {
            CallState::Ready => {
                self.ready.insert(place);
            }
            CallState::Running { deadline, .. } => {
                self.running += 1;
                if let Some(at) = deadline {
                    self.deadlines.insert((at, place));
                }
            }
            CallState::Paused { until } => {
                self.paused.insert((until, place));
            }
            CallState::Waiting | CallState::Done | CallState::Failed => {}
        }
    }
}
