//! Takes records through the task's nodes into the open transaction.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Admission, CommitCause, Event, Load, Offset, Partition, State, TaskId};

use super::task::{Readiness, Task};
use super::{Counters, RecordsOf, Worker, WorkerError};
use crate::client::{Client, ClientError, Message, Producer, Records, Source};
use crate::ctx::{Ctx, Origin};
use crate::topology::{Chains, Fault, Next, Raw};

/// How many records are fetched from one partition at a time.
const BATCH: usize = 512;
/// How long one step may take records before it looks around again.
const STRETCH: Duration = Duration::from_millis(5);

/// Outputs of a finished record that are not all handed to the producer yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsent {
    /// The next one in the scratch.
    at: usize,
    /// The input's partition number: where records without a key go.
    input: Partition,
}

/// How a record went.
enum Done {
    /// There was none.
    Nothing,
    Next,
    /// The producer's queue is full, or the transaction can't go on.
    Wait,
    Failed(WorkerError),
}

/// Looks at the clock often enough: after each record while records are slow, rarely otherwise.
struct Pace {
    stride: u32,
    left: u32,
}

impl Pace {
    fn due(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    fn adapt(&mut self, took: Duration) {
        let quick = took < Duration::from_micros(500);
        self.stride = if quick {
            (self.stride * 2).min(256)
        } else {
            (self.stride / 4).max(1)
        };
        self.left = self.stride;
    }
}

impl<C: Client> Worker<C> {
    /// Processes records for a while. Answers whether there may be more at once.
    pub(super) fn intake(&mut self) -> bool {
        if !self.send_rest() {
            return false;
        }
        if !self.accepts() {
            return false;
        }
        let begun = self.env.now();
        let mut pace = Pace { stride: 1, left: 1 };
        let mut looked = begun;
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        let mut any = false;
        for n in 0..ids.len() {
            let id = ids[(self.turn + n) % ids.len()];
            // A task is taken out while it is at work: its records write into the worker.
            let Some(mut task) = self.tasks.remove(&id) else {
                continue;
            };
            let mut failure = None;
            let mut more = true;
            while more && failure.is_none() {
                match self.process(&mut task) {
                    Done::Nothing => break,
                    Done::Next => {}
                    Done::Wait => more = false,
                    Done::Failed(error) => failure = Some(error),
                }
                any = true;
                if more && pace.due() {
                    let now = self.env.now();
                    pace.adapt(now.since(looked));
                    looked = now;
                    let due = self
                        .load
                        .as_ref()
                        .is_some_and(|l| self.spec.policy.due(now, l).is_some());
                    more = !due && now.since(begun) < STRETCH;
                }
            }
            self.tasks.insert(id, task);
            self.catch_up();
            if let Some(error) = failure {
                self.fail_record(error);
                return true;
            }
            if !more {
                self.turn = (self.turn + n + 1) % ids.len();
                return true;
            }
        }
        any
    }

    /// Makes what was done in this step known.
    pub(super) fn count(&mut self) {
        Counters::add(
            &self.counters.records_in,
            std::mem::take(&mut self.processed),
        );
        Counters::add(&self.counters.records_out, std::mem::take(&mut self.sent));
    }

    /// Processes the next record of a task: of its one input, in order.
    fn process(&mut self, task: &mut Task<RecordsOf<C>>) -> Done {
        const INPUT: usize = 0;
        if task.readiness != Readiness::Ready {
            return Done::Nothing;
        }
        if let Err(error) = self.fetch(task, INPUT) {
            self.give_up(WorkerError::Client(error));
            return Done::Nothing;
        }
        let Some(message) = task.fetched.get(INPUT).and_then(Records::first) else {
            return Done::Nothing;
        };
        let (offset, timestamp) = (message.offset(), message.timestamp());
        match task.progress.admit(INPUT, offset) {
            Ok(Admission::Process) => {}
            Ok(Admission::Repeated) => return self.drop_repeated(task, INPUT, offset),
            Ok(Admission::GoBack(to)) => return self.go_back(task, INPUT, to),
            Err(error) => return Done::Failed(error.into()),
        }
        if self.machine.state() == State::Idle {
            self.feed(Event::Touched);
            if self.machine.state() != State::Open {
                return Done::Wait;
            }
        }
        let env = &self.env;
        let load = self.load.get_or_insert_with(|| Load {
            since: env.now(),
            records: 0,
            bytes: 0,
        });
        load.records += 1;

        let Some(input) = task.progress.inputs().get(INPUT) else {
            return Done::Nothing;
        };
        let origin = Origin {
            task: task.progress.task,
            partition: &input.partition,
            offset,
            timestamp,
            headers: &message.headers(),
        };
        if let Err((_source, fault)) = self.run(&mut task.chains, INPUT, origin, message) {
            self.scratch.borrow_mut().clear();
            task.chains.discard();
            return Done::Failed(WorkerError::Record {
                task: task.progress.task,
                partition: input.partition.clone(),
                offset,
                reason: fault.into(),
            });
        }
        task.progress.advance(INPUT, offset, timestamp);
        if let Some(fetched) = task.fetched.get_mut(INPUT) {
            fetched.drop_first();
        }
        self.processed += 1;
        if self.scratch.get_mut().len() > 0 {
            self.unsent = Some(Unsent {
                at: 0,
                input: task.progress.task.partition,
            });
            if !self.send_some() {
                return Done::Wait;
            }
        }
        Done::Next
    }

    /// Fetches records of an input if there are none at hand.
    fn fetch(&mut self, task: &mut Task<RecordsOf<C>>, input: usize) -> Result<(), ClientError> {
        match (
            task.fetched.get_mut(input),
            task.progress.inputs().get(input),
        ) {
            (Some(fetched), Some(input)) if fetched.first().is_none() => {
                self.source.take(&input.partition, BATCH, fetched)
            }
            _ => Ok(()),
        }
    }

    fn drop_repeated(
        &mut self,
        task: &mut Task<RecordsOf<C>>,
        input: usize,
        offset: Offset,
    ) -> Done {
        if let Some(input) = task.progress.inputs().get(input) {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, partition = %input.partition,
                %offset, "delivered once more, dropped"
            );
        }
        if let Some(fetched) = task.fetched.get_mut(input) {
            fetched.drop_first();
        }
        Done::Next
    }

    /// The first record after a rewind was another one than before it: rewinds once more.
    fn go_back(&mut self, task: &mut Task<RecordsOf<C>>, input: usize, to: Offset) -> Done {
        if let Some(input) = task.progress.inputs().get(input) {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, partition = %input.partition,
                offset = %to, "another record than before the rewind came first, asking again"
            );
            self.rewinds.push((input.partition.clone(), to));
        }
        task.drop_fetched();
        task.readiness = Readiness::Rewinding;
        Done::Next
    }

    /// Runs the record through every chain that reads this input. Effects stay in the scratch.
    /// A fault comes with the source that it happened behind, by its place in the input's list.
    fn run(
        &self,
        chains: &mut Chains,
        input: usize,
        origin: Origin<'_>,
        message: &impl Message,
    ) -> Result<(), (usize, Fault)> {
        let raw = Raw {
            key: message.key(),
            value: message.value(),
            timestamp: origin.timestamp,
            headers: origin.headers,
        };
        let ctx = Ctx::new(
            self.topology.token(),
            self.topology.outputs(),
            &self.scratch,
            origin,
        );
        let Some(sources) = chains.inputs.get_mut(input) else {
            return Ok(());
        };
        let places = &mut chains.places[..];
        // A panic in a closure is an error of the record: processors that it could have left half
        // done are discarded, and the scratch is cleared.
        let mut at = 0;
        catch_unwind(AssertUnwindSafe(|| {
            for (n, source) in sources.iter_mut().enumerate() {
                at = n;
                let mut next = Next::all(places, source.first);
                source.entry.enter(&ctx, &raw, &mut next)?;
            }
            Ok(())
        }))
        .unwrap_or_else(|panic| Err(Fault::Panic(panic_text(&*panic))))
        .map_err(|fault| (at, fault))
    }

    /// Hands the rest of the scratch to the producer. False while its queue is full.
    pub(super) fn send_rest(&mut self) -> bool {
        let sent = self.send_some();
        self.catch_up();
        sent
    }

    /// Lets the machine hear what came up while a task was at work.
    pub(super) fn catch_up(&mut self) {
        for event in std::mem::take(&mut self.deferred) {
            self.feed(event);
        }
    }

    /// As [`send_rest`](Self::send_rest), while a task is at work: a failure is heard later.
    fn send_some(&mut self) -> bool {
        let Some(mut unsent) = self.unsent else {
            return true;
        };
        let scratch = self.scratch.get_mut();
        let counts = &self.spec.output_partitions;
        while let Some(outgoing) = scratch.get(unsent.at, counts, unsent.input) {
            // What it was to go to is gone, and the transaction with it.
            let Some(producer) = &mut self.producer else {
                return false;
            };
            match producer.send(&outgoing) {
                Poll::Ready(Ok(())) => unsent.at += 1,
                Poll::Pending => {
                    self.unsent = Some(unsent);
                    // Its own queue drains while we wait for room.
                    if let Poll::Ready(Err(error)) = producer.flush(super::SLICE) {
                        self.send_failed(error);
                    }
                    return false;
                }
                Poll::Ready(Err(error)) => {
                    self.send_failed(error);
                    return false;
                }
            }
        }
        self.sent += unsent.at as u64;
        if let Some(load) = &mut self.load {
            load.bytes += scratch.size() as u64;
        }
        scratch.clear();
        self.unsent = None;
        true
    }

    fn send_failed(&mut self, error: ClientError) {
        self.unsent = None;
        self.scratch.get_mut().clear();
        let (call, class) = (error.call, error.class());
        tracing::warn!(
            app = %self.spec.app, worker = %self.spec.id, transaction = self.machine.begun(),
            ?class, %error, "an output was refused"
        );
        self.last_error = Some(error);
        self.deferred.push(Event::Failed(call, class));
    }

    /// A record failed and left no trace: what came before it is committed, then the worker stops.
    fn fail_record(&mut self, error: WorkerError) {
        tracing::error!(app = %self.spec.app, worker = %self.spec.id, %error, "record failed");
        if self.failure.is_none() {
            self.failure = Some(error);
            if self.tasks.values().any(|task| task.progress.touched()) {
                self.commit(CommitCause::RecordFailed);
            } else {
                self.feed(Event::Lost);
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
        .to_owned()
}
