//! Queries whether inputs are idle.

use std::collections::{BTreeMap, VecDeque};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{IdleTime, Now, TaskId, TopicPartition};

use crate::client::{Client, LogEnds, Records, Source};
use crate::rules;
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::tasks::Tasks;

/// The interval between two queries. A window closes up to one interval after its idle time.
const EVERY: Duration = Duration::from_millis(500);

/// The interval between two queries for tasks without a response. Each may delay the queries for the other tasks by
/// [`IdleTime::LONGEST_QUERY`].
const SILENT: Duration = Duration::from_secs(10);

/// Queries the log ends of idle tasks' inputs, for stages with `close_when_idle`.
#[derive(Debug, Default)]
pub(super) struct IdleInputs {
    next: Now,
    /// The query in flight, with its start time.
    in_flight: Option<(Now, Query)>,
    /// The tasks of a failed query, in groups to query.
    rest: Vec<Vec<TaskId>>,
    /// The tasks whose own query failed, for example because a partition has no leader. They must not delay the others.
    silent: VecDeque<TaskId>,
    /// The time of the next query for the first silent task.
    silent_until: Now,
    /// The silent task whose query is pending.
    again: Option<TaskId>,
}

#[derive(Debug)]
struct Query {
    tasks: Vec<TaskId>,
    inputs: Vec<TopicPartition>,
}

impl IdleInputs {
    /// Returns whether the query is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(super) fn abandon(&mut self) {
        self.in_flight = None;
        self.rest.clear();
        self.again = None;
    }

    /// Continues the query, or begins one. It gives each idle task the evidence that its inputs have no more records.
    pub(super) fn look<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) {
        if self.in_flight.is_none() {
            let now = shared.env.about_now();
            let of = match self.rest.pop() {
                Some(tasks) => tasks,
                None if now < self.next => return,
                None => {
                    self.next = now.after(EVERY);
                    let mut idle = Vec::new();
                    for (id, task) in tasks.iter_mut() {
                        match task.is_idle() {
                            true if task.idle.is_some() => idle.push(id),
                            true => {}
                            false => task.idle.iter_mut().for_each(IdleTime::missed),
                        }
                    }
                    self.silent.retain(|id| tasks.contains(*id));
                    idle.retain(|id| !self.silent.contains(id));
                    if now >= self.silent_until
                        && let Some(task) = self.silent.pop_front()
                    {
                        self.silent_until = now.after(SILENT);
                        self.again = Some(task);
                        self.rest.push(vec![task]);
                    }
                    idle
                }
            };
            let of = of.into_iter().filter(|id| tasks.contains(*id)).collect();
            self.in_flight = Some((now, Query::new(of, tasks)));
        }
        let Some((_, query)) = self
            .in_flight
            .as_ref()
            .filter(|(_, it)| !it.inputs.is_empty())
        else {
            self.in_flight = None;
            return;
        };
        let ends = source.ends(&query.inputs, Duration::ZERO);
        let now = shared.env.about_now();
        // A slow response proves nothing about the time since the query.
        let is_slow = (self.in_flight.as_ref())
            .is_some_and(|(at, _)| now.since(*at) > IdleTime::LONGEST_QUERY);
        if ends.is_pending() && !is_slow {
            return;
        }
        let Some((at, mut query)) = self.in_flight.take() else {
            return;
        };
        let ends = match ends {
            Poll::Ready(Ok(ends)) => {
                shared.broker_answered();
                // After an outage of all brokers, the other silent tasks need not wait for their turns.
                if self.again.take_if(|id| query.tasks == [*id]).is_some() {
                    self.silent.clear();
                }
                if is_slow { Vec::new() } else { ends }
            }
            Poll::Pending | Poll::Ready(Err(_)) if query.tasks.len() > 1 => {
                let half = query.tasks.split_off(query.tasks.len() / 2);
                self.rest.extend([query.tasks, half]);
                return;
            }
            failed => {
                let error = match failed {
                    Poll::Ready(Err(error)) => error.to_string(),
                    _ => format!("no response within {:?}", IdleTime::LONGEST_QUERY),
                };
                tracing::debug!(
                    worker = %shared.spec.id, inputs = ?query.inputs, error,
                    "reading the ends of idle inputs failed; querying the task alone later"
                );
                self.silent.extend(query.tasks.iter().copied());
                Vec::new()
            }
        };
        let ends: BTreeMap<_, _> = ends.iter().map(|end| (&end.partition, end)).collect();
        for id in query.tasks {
            let Some(task) = tasks.get_mut(id) else {
                continue;
            };
            let Some(stream_time) = task.progress.stream_time() else {
                continue;
            };
            let seen = match rules::proves_idle_inputs() {
                true => seen(source, task, &ends),
                false => Seen::End,
            };
            match (&mut task.idle, seen) {
                (Some(idle), Seen::End) => idle.proved(at, stream_time),
                (Some(idle), Seen::More) => idle.missed(),
                _ => {}
            }
        }
    }
}

impl Query {
    fn new<R: Records>(of: Vec<TaskId>, tasks: &mut Tasks<R>) -> Self {
        let mut inputs = Vec::new();
        for id in &of {
            if let Some(task) = tasks.get_mut(*id) {
                let its = task.progress.inputs().iter();
                inputs.extend(its.map(|input| input.partition.clone()));
            }
        }
        Self { tasks: of, inputs }
    }
}

/// The state of a task's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// The task has taken all records, and no transaction is open.
    End,
    Unknown,
    More,
}

fn seen<S: Source<Records = R>, R: Records>(
    source: &mut S,
    task: &Task<R>,
    ends: &BTreeMap<&TopicPartition, &LogEnds>,
) -> Seen {
    if !task.is_idle() {
        return Seen::More;
    }
    let inputs = task.progress.inputs().iter();
    let each = inputs.map(|input| {
        let Some(end) = ends.get(&input.partition) else {
            return Seen::More;
        };
        match source.drained(&input.partition) {
            _ if end.stable < end.end => Seen::More,
            Some(drained) if drained >= end.stable => Seen::End,
            Some(_) => Seen::More,
            None => Seen::Unknown,
        }
    });
    each.max().unwrap_or(Seen::Unknown)
}
