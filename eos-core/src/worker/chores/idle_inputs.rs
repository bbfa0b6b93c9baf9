//! Queries whether inputs are idle.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Now, TopicPartition};

use crate::client::{Client, LogEnds, Records, Source};
use crate::rules;
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::tasks::Tasks;

/// The interval between two queries.
const EVERY: Duration = Duration::from_secs(1);

/// The query of the inputs of idle tasks whose stage closes windows then.
#[derive(Debug, Default)]
pub(super) struct IdleInputs {
    next: Now,
    /// The inputs of the query in flight, with the time of its begin.
    asked: Option<(Now, Vec<TopicPartition>)>,
}

impl IdleInputs {
    /// Whether the query is in flight.
    pub(super) fn asks(&self) -> bool {
        self.asked.is_some()
    }

    pub(super) fn abandon(&mut self) {
        self.asked = None;
    }

    /// Continues the query, or begins one. It gives each idle task the evidence that its inputs have no more records.
    pub(super) fn look<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) {
        if self.asked.is_none() {
            let now = shared.env.about_now();
            if now < self.next {
                return;
            }
            self.next = now.after(EVERY);
            let idle = tasks
                .values()
                .filter(|task| task.idle.is_some() && task.is_idle());
            let inputs = idle.flat_map(|task| task.progress.inputs());
            let inputs: Vec<_> = inputs.map(|input| input.partition.clone()).collect();
            self.asked = Some((now, inputs)).filter(|(_, inputs)| !inputs.is_empty());
        }
        let Some((at, inputs)) = &self.asked else {
            return;
        };
        let Poll::Ready(ends) = source.ends(inputs, Duration::ZERO) else {
            return;
        };
        let at = *at;
        self.asked = None;
        let ends = match ends {
            Ok(ends) => {
                shared.broker_answered();
                ends
            }
            Err(error) => {
                tracing::debug!(worker = %shared.spec.id, %error, "reading the ends of idle inputs failed");
                Vec::new()
            }
        };
        for task in tasks.values_mut() {
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
    ends: &[LogEnds],
) -> Seen {
    if !task.is_idle() {
        return Seen::More;
    }
    let inputs = task.progress.inputs().iter();
    let each = inputs.map(|input| {
        let Some(end) = ends.iter().find(|end| end.partition == input.partition) else {
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
