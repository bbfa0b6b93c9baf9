//! Reads changelogs into databases.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::identity::SeenKind;
use eos_protocol::state::{
    ChangelogOffsets, Family, Position, RestartError, Restore, RestoreKind, Restored, StoreId,
};
use eos_protocol::{Clock, Now, Offset, TaskId, TopicPartition};
use eos_state::changelog::{ATTEMPT, Changelog, Entry};
use eos_state::{Load, StoreError, TaskStore};

use super::other_store::with_name;
use super::{Phase, Restoring, Turn, store_failed};
use crate::client::{Client, Message, Records, Source};
use crate::failpoints::{self, Point};
use crate::rules;
use crate::worker::shared::Shared;
use crate::worker::task_state::TaskState;
use crate::worker::tasks::Tasks;
use crate::worker::trimming::Trimming;
use crate::worker::windows::{Refused, RowStores, Windows};
use crate::worker::{RecordsOf, WorkerError};

/// The maximum number of changelog records per fetch.
const BATCH: usize = 4096;
/// The interval between two log lines about progress.
const TELL: Duration = Duration::from_secs(10);

/// Reads changelogs into a database.
pub(super) struct Reader<C: Client> {
    pub(super) store: TaskStore,
    pub(super) restore: Restore,
    /// Records that are read, but not written yet.
    pub(super) pending: Load,
    pub(super) records: RecordsOf<C>,
    pub(super) began: Now,
}

impl<C: Client> Restoring<C> {
    /// Reads for a limited time, and continues the writes.
    pub(super) fn read_changelogs(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        turn: Turn,
    ) -> Result<(), WorkerError> {
        let task = self.task;
        if let Phase::Writing(reader) = &mut self.phase {
            if reader.ends_write(task)? || !rules::restores_before_first_record() {
                self.end_writing(shared);
            }
            return Ok(());
        }
        let Phase::Reading(reader) = &mut self.phase else {
            return Ok(());
        };
        for family in Family::ALL {
            if let Some((_, partition)) = self.logs.get(family) {
                let ids = self.stores.iter().map(|(id, _)| *id);
                let ids = ids.filter(|id| id.family() == family).collect();
                let log = Changelog::new(partition.clone(), family, ids);
                let trimming = self.trimming.as_mut();
                let trimming = trimming.filter(|_| family == Family::Windowed);
                let counts = &mut self.counts;
                reader
                    .read(
                        shared,
                        task,
                        source,
                        (family, partition, &log),
                        turn,
                        (counts, trimming),
                    )
                    .map_err(|error| with_name(task, &self.names, error))?;
            }
        }
        if reader.is_writing() {
            reader.restore.waits_for_database(shared.broker_time());
        }
        let now = shared.now();
        let whole = match reader.restore.finish(now) {
            Poll::Pending => None,
            Poll::Ready(Err(RestartError::OffsetsBehind { .. }))
                if !rules::refuses_state_ahead() =>
            {
                reader.restore.whole().map(Box::new).map(Restored::At)
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Restart(Box::new(error))),
            Poll::Ready(Ok(restored)) => Some(restored),
        };
        match whole {
            Some(Restored::At(position)) => {
                if !reader.writes(task, *position)? {
                    return Ok(());
                }
            }
            Some(Restored::First) => {}
            None => {
                if let Some(stalled) = reader.restore.stalled(shared.broker_time()) {
                    return Err(WorkerError::Stalled(Box::new(stalled)));
                }
                if now.since(self.logged) >= TELL {
                    self.logged = now;
                    let progress = reader.restore.progress(now);
                    tracing::info!(
                        app = %shared.spec.app, worker = %shared.spec.id, %task,
                        records = progress.records, bytes = progress.bytes,
                        remaining = progress.remaining,
                        eta_s = progress.eta.map(|eta| eta.as_secs()), "restoring state"
                    );
                }
                return Ok(());
            }
        }
        self.end_reading();
        self.read_changelogs(shared, source, turn)
    }

    /// Begins to wait for the last write. The restore has read its changelogs.
    fn end_reading(&mut self) {
        let read: Vec<_> = self.partitions().collect();
        match std::mem::replace(&mut self.phase, Phase::Opening) {
            Phase::Reading(reader) => {
                self.phase = Phase::Writing(reader);
                self.read = read;
            }
            other => self.phase = other,
        }
    }

    fn end_writing(&mut self, shared: &Shared<C>) {
        if let Phase::Writing(reader) = std::mem::replace(&mut self.phase, Phase::Opening) {
            let now = shared.now();
            let (late, ahead) = (reader.restore.late(), reader.restore.is_ahead());
            if late > 0 || ahead {
                tracing::warn!(
                    app = %shared.spec.app, worker = %shared.spec.id, task = %self.task, late, ahead,
                    "at least once: records of a former owner were left out (late), or records count \
                     twice (ahead)"
                );
            }
            tracing::debug!(
                app = %shared.spec.app, worker = %shared.spec.id, task = %self.task,
                records = reader.restore.progress(now).records,
                took_ms = now.since(reader.began).as_millis(), "changelog read"
            );
            self.phase = Phase::Whole(Box::new(reader.store));
        }
    }

    /// Gives the complete state to its task. The task may then take records.
    ///
    /// The state includes expired windows if they are in the changelog. They may be expired for this program only, and
    /// only after a commit has stored the terms: the first commit removes them.
    pub(super) fn finish(
        self,
        shared: &Shared<C>,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) -> Result<(), WorkerError> {
        let Phase::Whole(store) = &self.phase else {
            return Ok(());
        };
        self.check_followers(shared, store)?;
        let Phase::Whole(store) = self.phase else {
            return Ok(());
        };
        // Windows stay for the items that are due but not handled yet.
        let handled = self
            .stream_time
            .map(|time| store.handled_to(Clock::Stream, time))
            .transpose();
        let handled = handled.map_err(|source| no_mark(shared, self.task, source))?;
        let (time, refused) = (self.stream_time, |(id, refused)| {
            no_windows(shared, self.task, id, refused)
        });
        let row_stores = RowStores::of(&store, &self.row_stores, time, handled).map_err(refused)?;
        for clock in Clock::ALL {
            let mark = store.mark(clock);
            mark.map_err(|source| no_mark(shared, self.task, source))?;
        }
        let windows = Windows::of(&store, self.windows, time, handled).map_err(refused)?;
        tracing::debug!(
            app = %shared.spec.app, worker = %shared.spec.id, task = %self.task,
            exact = self.kind == RestoreKind::Exact, kind = self.kind.name(), "task restored"
        );
        shared.meter.restored(self.kind);
        let stored = store.position().map(|position| position.changelogs);
        let Some(task) = tasks.get_mut(self.task) else {
            return Ok(());
        };
        let outputs = self.logs.map(|log| log.map(|(output, _)| output));
        let offsets = ChangelogOffsets::opened(stored.unwrap_or_default());
        task.restored(TaskState::new(
            *store,
            self.identity,
            outputs,
            offsets,
            (windows, row_stores),
            self.trimming,
        ));
        Ok(())
    }

    /// Starts to read if the offsets are decided. Returns each changelog with its start offset.
    pub(super) fn take_offsets(&mut self) -> Vec<(TopicPartition, Offset)> {
        let reader = match std::mem::replace(&mut self.phase, Phase::Opening) {
            Phase::Decided(reader) => reader,
            other => {
                self.phase = other;
                return Vec::new();
            }
        };
        let wanted = reader.restore.wanted().filter_map(|(family, offset)| {
            let (_, partition) = self.logs.get(family).as_ref()?;
            Some((partition.clone(), offset))
        });
        let wanted = wanted.collect();
        self.phase = Phase::Reading(reader);
        wanted
    }

    /// Without a mark for each task: treats the read records as the whole changelog.
    pub(super) fn cut_short(&mut self) -> Result<(), WorkerError> {
        let Phase::Reading(reader) = &mut self.phase else {
            return Ok(());
        };
        let Some(position) = reader.restore.whole() else {
            return Ok(());
        };
        if reader.writes(self.task, position)? {
            self.end_reading();
        }
        Ok(())
    }
}

impl<C: Client> Reader<C> {
    /// Reads one changelog for a limited time. Counts records and bytes.
    fn read(
        &mut self,
        shared: &Shared<C>,
        task: TaskId,
        source: &mut C::Source,
        (family, partition, log): (Family, &TopicPartition, &Changelog),
        turn: Turn,
        (counts, mut trimming): (&mut (u64, u64), Option<&mut Trimming>),
    ) -> Result<(), WorkerError> {
        let restart = |e| WorkerError::Restart(Box::new(e));
        while self.restore.wanted().any(|(wanted, _)| wanted == family) {
            if self.pending.memory() >= turn.load
                && !self.writes(task, on_the_way(&self.restore))?
            {
                return Ok(());
            }
            let taken = source.take(partition, BATCH, &mut self.records);
            taken.map_err(WorkerError::Client)?;
            let (now, brokers) = (shared.now(), shared.broker_time());
            if self.records.first().is_none() {
                if let Some(stable) = source.drained(partition) {
                    self.restore.ended(family, stable, brokers);
                }
                return Ok(());
            }
            while let Some(record) = self.records.first() {
                let (key, value) = (record.key(), record.value());
                let entry = log.read(record.offset(), key, value);
                let entry = entry.map_err(|e| WorkerError::Changelog(Box::new(e)))?;
                let commit = match entry {
                    Entry::Commit(commit) => Some(commit),
                    _ => None,
                };
                let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
                let headers = record.headers();
                let has_attempt =
                    !headers.is_empty() && headers.iter().any(|it| it.name() == ATTEMPT);
                let attempt = match has_attempt && rules::leaves_out_late_attempts() {
                    false => None,
                    true => {
                        let attempt = log.attempt(record.offset(), headers.get(ATTEMPT));
                        Some(attempt.map_err(|e| WorkerError::Changelog(Box::new(e)))?)
                    }
                };
                let wanted = self
                    .restore
                    .took(family, record.offset(), bytes, commit, attempt, brokers)
                    .map_err(restart)?;
                if wanted && let Some(trimming) = &mut trimming {
                    trimming.observe_read(record.offset(), &entry);
                }
                match entry {
                    Entry::Put { store, key, value } if wanted => {
                        self.pending.write(store, key, Some(value));
                    }
                    Entry::Delete { store, key } if wanted => self.pending.write(store, key, None),
                    _ => {}
                }
                self.records.drop_first();
                if wanted {
                    counts.0 += 1;
                    counts.1 += u64::try_from(bytes).unwrap_or(u64::MAX);
                }
            }
            if now >= turn.ends {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Begins to write the records that were read. Returns false while the previous write is under way.
    fn writes(&mut self, task: TaskId, position: Position) -> Result<bool, WorkerError> {
        if !self.ends_write(task)? {
            return Ok(false);
        }
        failpoints::hit(Point::RestoreK).map_err(WorkerError::Client)?;
        let next = Load::like(&self.pending);
        let load = std::mem::replace(&mut self.pending, next);
        let begun = self.store.begin_load(load, position);
        begun.map_err(|source| store_failed(task, source))?;
        Ok(true)
    }

    /// Completes the write under way if the database has finished it. Returns whether no write is under way.
    fn ends_write(&mut self, task: TaskId) -> Result<bool, WorkerError> {
        match self.store.end_apply(false) {
            Poll::Pending => Ok(false),
            Poll::Ready(ended) => ended
                .map(|()| true)
                .map_err(|source| store_failed(task, source)),
        }
    }

    /// Returns whether a write is under way.
    pub(super) fn is_writing(&self) -> bool {
        self.store.is_applying()
    }
}

/// Returns the error of a store's mark. A mark of another clock has the store's name.
fn no_mark<C>(shared: &Shared<C>, task: TaskId, error: StoreError) -> WorkerError {
    let StoreError::OtherClock { store: id } = error else {
        return store_failed(task, error);
    };
    let store = name_of(shared, id);
    WorkerError::Restart(Box::new(RestartError::OtherClock { task, store }))
}

fn name_of<C>(shared: &Shared<C>, id: StoreId) -> String {
    let mut stores = shared.topology.stores().iter();
    let named = stores.find(|store| store.id == id);
    named.map_or_else(|| id.to_string(), |store| store.name.to_string())
}

fn no_windows<C>(shared: &Shared<C>, task: TaskId, id: StoreId, refused: Refused) -> WorkerError {
    let store = name_of(shared, id);
    let buckets = id.seen_kind(&store).and_then(SeenKind::buckets);
    let error = match (refused, buckets) {
        (Refused::Other(source), Some(buckets)) => RestartError::OtherSeenWindow {
            task,
            store,
            found: source.found.saturating_mul(buckets),
            now: source.now.saturating_mul(buckets),
        },
        (Refused::Other(source), None) => RestartError::OtherWindows {
            task,
            store,
            source,
        },
        (Refused::Join(source), _) => RestartError::OtherJoin {
            task,
            store,
            source: Box::new(source),
        },
        (Refused::Results { was_final }, _) => RestartError::OtherResults {
            task,
            store,
            was_final,
        },
        (Refused::Unreadable(source), _) => RestartError::Terms {
            task,
            store,
            source,
        },
        (Refused::Failed(source), _) => return store_failed(task, source),
    };
    WorkerError::Restart(Box::new(error))
}

/// Returns the position of an intermediate batch.
fn on_the_way(restore: &Restore) -> Position {
    if !rules::marks_partial_restores()
        && let Some(whole) = restore.whole()
    {
        return whole;
    }
    restore.checkpoint()
}
