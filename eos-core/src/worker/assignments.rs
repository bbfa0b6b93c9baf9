//! Events of the group: assignments, revocations, starts and restores of tasks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::StoreNames;
use eos_protocol::{
    Backoff, CommitCause, Event, Guarantee, ItemName, Revocation, SeenTopic, Settle, TaskId,
    TaskProgress, TopicName,
};

use crate::client::{Client, Source, SourceEvent};
use crate::failpoints::{self, Point};
use crate::rules;

use super::group::{GroupStep, NewTask, Sought};
use super::key_places::KeyPlaces;
use super::restore::RestoreStep;
use super::task::Task;
use super::{Worker, WorkerError};

/// The pause before the tasks of moved positions start again. The rightful owner may be another worker.
const MOVED_PAUSE: Duration = Duration::from_millis(200);

impl<C: Client> Worker<C> {
    /// Reads the client's events. Rebalances are handled later, in order.
    pub(super) fn poll(&mut self) -> Result<(), WorkerError> {
        while let Some(event) = self.source.poll() {
            match event {
                SourceEvent::Assigned(partitions) => self.group.assigned(partitions),
                SourceEvent::Revoked { partitions, lost } => self.group.revoked(partitions, lost),
                SourceEvent::OutOfRange { partition, asked } => {
                    let brokers = self.shared.broker_time();
                    self.restorer.out_of_range(&partition, brokers);
                    if self.tasks.any_reads(&partition) {
                        self.group.out_of_range(&self.shared, partition, asked);
                    }
                }
                SourceEvent::Moved(partitions) => self.group.moved(partitions),
                SourceEvent::Topics(report) => self.compare_topics(&report),
                SourceEvent::Failed(error) => {
                    if let Some(error) = self.shared.consumer_failed(error) {
                        self.give_up(error);
                    }
                }
            }
        }
        let (shared, source) = (&self.shared, &mut self.source);
        if let Some(error) = self.group.explain_gaps(shared, source, &mut self.tasks)? {
            self.give_up(error);
        }
        Ok(())
    }

    /// Stops the worker if a topic has changed.
    fn compare_topics(&mut self, report: &[(TopicName, Option<SeenTopic>)]) {
        self.shared.broker_answered();
        match self.group.compare_topics(self.shared.now(), report) {
            Err(error) => self.give_up(error),
            Ok(grown) => {
                for it in grown {
                    tracing::info!(
                        worker = %self.shared.spec.id, topic = %it.topic, before = it.before, now = it.now,
                        "an input topic has more partitions; adding tasks"
                    );
                    let spec = &mut self.shared.spec;
                    spec.views.grew(it.topic.clone(), it.now);
                    spec.input_partitions.insert(it.topic, it.now);
                }
            }
        }
    }

    /// Continues a rebalance.
    pub(super) fn rebalance(&mut self) -> Result<bool, WorkerError> {
        let standing = self.standing();
        let (shared, source) = (&self.shared, &mut self.source);
        match self.group.step(shared, standing, source, &self.tasks)? {
            GroupStep::Idle => return Ok(false),
            GroupStep::Moved => {}
            GroupStep::Lost => self.advance(Event::Lost),
            GroupStep::Settle(settle) => self.settle(settle),
            GroupStep::Overdue => {
                tracing::warn!(
                    app = %self.shared.spec.app, worker = %self.shared.spec.id, state = ?self.txn.state(),
                    "the transaction did not end in time; returning the partitions anyway"
                );
                self.advance(Event::Lost);
                return self.rebalance();
            }
            GroupStep::Close(plan) => self.close(plan)?,
            GroupStep::Start(tasks) => {
                self.start(tasks)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lists the tasks whose start offsets are being read, for the views.
    pub(super) fn list_starting_tasks(&mut self) {
        if !self.group.has_joined() {
            return;
        }
        let is_same = |known: &BTreeSet<TaskId>| known.is_empty() && !self.group.is_resolving();
        if self.starting.as_ref().is_some_and(is_same) {
            return;
        }
        let starting = self.group.starting(self.shared.topology.stages());
        if self.starting.as_ref() != Some(&starting) {
            let spec = &self.shared.spec;
            spec.views.starting(spec.id, starting.clone());
            self.starting = Some(starting);
        }
    }

    /// Settles the open transaction before its partitions are given back.
    pub(super) fn settle(&mut self, settle: Settle) {
        match settle {
            Settle::Nothing => {}
            Settle::Commit => self.commit(CommitCause::Revoke),
            Settle::Abort => self.advance(Event::Lost),
        }
        if let Err(error) = failpoints::hit(Point::InRevoke)
            && !self.txn.is_settled()
        {
            let event = self.txn.failed(&self.shared, error);
            self.advance(event);
        }
    }

    /// Closes revoked tasks, and gives their partitions back.
    fn close(&mut self, mut plan: Revocation) -> Result<(), WorkerError> {
        // Their changelogs are unassigned with them. Their databases close before other workers may open them.
        plan.unassign.extend(self.restorer.forget(&plan.close));
        // The close of a database would wait for its last write, and hide an error.
        if let Err(error) = self.end_apply(true) {
            self.give_up(error);
        }
        if rules::closes_revoked_tasks() {
            self.tasks.close(&plan.close);
        }
        self.pipeline.forget(|task| plan.close.contains(&task));
        self.pipeline.abort_calls(&plan.close);
        self.tasks.disown(&plan.unassign);
        self.group.forget(&plan.unassign);
        for partition in &plan.unassign {
            self.txn.blame.revoked(partition);
        }
        for task in &plan.close {
            (self.txn.blame).revoked_all(|it| ItemName::is_item_of(it, *task));
        }
        let unassigned = self.source.unassign(&plan.unassign);
        unassigned.map_err(WorkerError::Client)
    }

    /// Closes the tasks whose committed offsets another writer moved, and starts them again from these offsets. It waits
    /// for the end of the open transaction.
    pub(super) fn restart_moved(&mut self) -> Result<bool, WorkerError> {
        let settled = self.txn.is_settled() && !self.lifecycle.has_failed();
        let Some(moved) = self.group.take_moved(settled) else {
            return Ok(false);
        };
        let mut plan = Revocation {
            settle: Settle::Nothing,
            close: Vec::new(),
            unassign: Vec::new(),
        };
        let mut driving = Vec::new();
        for (partition, id) in self.tasks.owned() {
            let Some(task) = self.tasks.get(*id) else {
                continue;
            };
            let inputs = task.progress.inputs().iter().map(|input| &input.partition);
            if inputs.clone().any(|input| moved.contains(input)) {
                plan.close.push(*id);
                plan.unassign.extend(inputs.cloned());
                driving.push(partition.clone());
            }
        }
        tracing::warn!(
            app = %self.shared.spec.app, worker = %self.shared.spec.id, partitions = ?moved,
            "the positions of these partitions are not as this worker left them: another worker took them over, or the \
             ledger lost commits; starting their tasks again"
        );
        self.close(plan)?;
        let wait = Backoff::jitter(MOVED_PAUSE, self.shared.env.entropy());
        let not_before = self.shared.now().after(wait);
        for partition in driving {
            (self.group).resolve_again(&self.shared, partition, not_before);
        }
        Ok(true)
    }

    /// Adds tasks, and assigns the inputs of those without stores.
    fn start(&mut self, tasks: Vec<NewTask>) -> Result<(), WorkerError> {
        let spec = &self.shared.spec;
        let topology = Arc::clone(&self.shared.topology);
        let (mut at, mut started, mut unclaimed) = (Vec::new(), Vec::new(), Vec::new());
        for new in tasks {
            let Some(stage) = topology.stage(new.id.stage) else {
                continue;
            };
            started.push(new.id.to_string());
            if !new.claimed {
                unclaimed.push(new.id.to_string());
            }
            let known = self.shared.width(stage.driving_topic());
            let width = known.max(new.id.partition.get().unsigned_abs() + 1);
            let stateful = topology.stores_of(stage).next().is_some();
            if stateful {
                self.restorer.begin(&self.shared, stage, &new);
            } else {
                at.extend(new.at.iter().cloned());
            }
            let changelogs = self.shared.changelog_digests(stage);
            let claimed = new.claimed && !new.names_other_changelogs(&changelogs);
            let layout = stage.layout();
            let progress = TaskProgress::resume(new.id, layout, width, new.at, new.name);
            let stores = topology.names_of(stage);
            let stores = StoreNames::of(stores.iter().map(String::as_str));
            let mut progress = progress.with_changelogs(changelogs).with_stores(stores);
            // At least once, the task commits its start under a new number: see `with_own_numbers`.
            let numbers = stateful && spec.guarantee == Guarantee::AtLeastOnce;
            if numbers && rules::numbers_each_attempt() {
                progress = progress.with_own_numbers();
            }
            let progress = progress.with_guarantee(spec.guarantee);
            let chains = topology.instantiate(stage);
            let now = self.shared.now();
            let claimed = claimed && !numbers;
            let mut task = Task::new(progress, chains, claimed, spec.max_idle, now);
            task.closes_when_idle(topology.idle_of(stage));
            let keys = topology.joined_keys(stage).into_iter().zip(&stage.topics);
            let keys = keys.map(|(keys, topic)| Some((keys?, self.shared.width(topic))));
            task.places = KeyPlaces::of(keys.collect());
            self.starts += 1;
            task.makes_calls(topology.calls_of(stage), self.starts);
            if stateful {
                let views = &self.shared.spec.views;
                task.restores(views.begin(self.shared.spec.id, new.id));
            }
            self.tasks.insert(new.driving, task);
        }
        tracing::info!(
            app = %spec.app, worker = %spec.id, tasks = started.join(" "),
            unclaimed = unclaimed.join(" "), offsets = ?at, "tasks start"
        );
        self.source.assign(&at).map_err(WorkerError::Client)
    }

    /// Rule 8: rewinds to the last commit.
    pub(super) fn go_back(&mut self) -> Result<Sought, WorkerError> {
        let settled = self.txn.is_settled();
        let sought = self
            .group
            .go_back(&self.shared, settled, &mut self.source)?;
        match sought {
            Sought::Done | Sought::Reassigned => self.tasks.rewound(),
            Sought::NeedsCommit => self.commit(CommitCause::Restore),
            Sought::Nothing | Sought::Moved => {}
        }
        Ok(sought)
    }

    /// Continues the restores.
    pub(super) fn restore(&mut self) -> Result<RestoreStep, WorkerError> {
        // A failed worker restores nothing more, because a changelog may have been replaced.
        let may =
            !self.lifecycle.has_failed() && self.group.is_quiet() && self.group.membership.holds();
        if self.lifecycle.is_stopping() {
            self.restorer.clear();
        }
        if !may {
            self.restorer.skip_step();
            return Ok(RestoreStep::Nothing);
        }
        let (shared, settled) = (&self.shared, self.txn.is_settled());
        let (source, tasks) = (&mut self.source, &mut self.tasks);
        let step = self.restorer.step(shared, settled, source, tasks);
        for driving in self.restorer.take_released() {
            let not_before = self.shared.now().after(super::restore::RETRY);
            self.group.resolve_again(&self.shared, driving, not_before);
        }
        if self.restorer.needs_commit() {
            self.commit(CommitCause::Restore);
        }
        step
    }

    /// Leaves the group and joins it again, after the group removed the worker.
    pub(super) fn rejoin(&mut self) -> Result<(), WorkerError> {
        if self.lifecycle.is_stopping() {
            return Ok(());
        }
        let (standing, owns_nothing) = (self.standing(), self.tasks.owns_nothing());
        let (shared, source) = (&self.shared, &mut self.source);
        self.group.rejoin(shared, standing, source, owns_nothing)
    }
}
