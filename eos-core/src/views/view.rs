//! A view of a store, and of one of its tasks.

use std::fmt;
use std::sync::Arc;

use eos_protocol::state::Standing;
use eos_protocol::{Partition, Timestamp, TopicPartition};
use eos_state::{StateSnapshot, StoreError, StoreKind};

use super::access::sealed::Kind;
use super::access::{Viewable, ViewedStore, names};
use super::error::ViewError;
use super::place::{key_bytes, partition_of};
use super::viewer::{Snapshots, ViewStore, Viewer};
use crate::codec::{Encode, Plain, PlainType};
use crate::store::{TERMS, windows_over_before};

/// A read-only view of the committed rows of a store in this process. Returned by
/// [`Handle::view`](crate::Handle::view).
///
/// `D` is the kind of the store. The [module](crate::views) describes snapshots and partitions. A read blocks for the
/// duration of a database read. In an async program, use `tokio::task::spawn_blocking` for large ranges.
pub struct View<D: ViewedStore> {
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) store: Arc<ViewStore<D>>,
}

impl<D: ViewedStore> View<D> {
    pub(super) fn new(snapshots: Arc<Snapshots>, store: Arc<ViewStore<D>>) -> Self {
        Self { snapshots, store }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.store.name
    }

    /// Returns the partitions of the store that this process has and can read now, in order. A partition that is being
    /// restored is missing.
    #[must_use]
    pub fn partitions(&self) -> Vec<i32> {
        let ready = self.viewer().board.ready(self.store.stage.id).into_iter();
        ready.map(|partition| partition.get()).collect()
    }

    /// Returns the view of the task with this partition.
    ///
    /// # Errors
    /// If the task is in another process, is starting, is being restored, or has moved in the meantime.
    pub fn task(&self, partition: i32) -> Result<TaskView<D>, ViewError> {
        let number = Partition::new(partition).map_err(|_| ViewError::NoSuchPartition {
            store: Arc::clone(&self.store.name),
            partition,
            partitions: self.width(),
        })?;
        let snapshots = &self.snapshots;
        let snapshot = snapshots.of(&self.store.name, &self.store.stage, number)?;
        TaskView::new(self, number, snapshot)
    }

    /// Returns views of all tasks that this process can read now: see [`partitions`](Self::partitions).
    ///
    /// # Errors
    /// If a task moves in the meantime.
    pub fn tasks(&self) -> Result<Vec<TaskView<D>>, ViewError> {
        let partitions = self.partitions().into_iter();
        partitions.map(|partition| self.task(partition)).collect()
    }

    /// Returns the view of the task that processes records with this key, for a store whose keys differ from those of its
    /// topics.
    ///
    /// ```
    /// # use eos_core::state::OrderedStore;
    /// # use eos_core::views::ViewError;
    /// # use eos_core::Handle;
    /// // The visits of a user. The records of the topic have the user as key.
    /// fn visits(handle: &Handle, user: String) -> Result<Vec<String>, ViewError> {
    ///     let visits = OrderedStore::<(String, i64), String>::plain("visits");
    ///     let task = handle.view(&visits)?.task_of(&user)?;
    ///     task.prefix(&user).map(|row| Ok(row?.1)).collect()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoPlace`] if the topics of the stage have keys of another type or codec. Otherwise as for
    /// [`task`](Self::task).
    pub fn task_of<Q: PlainType>(&self, record_key: &Q) -> Result<TaskView<D>, ViewError> {
        let bytes = key_bytes::<Q>(&Plain, record_key, &self.store.name);
        let bytes = bytes.ok().flatten().ok_or_else(|| self.no_place())?;
        self.task_at(&Plain, record_key, &bytes)
    }

    /// Returns a view of another store in the same snapshots. If a task has both stores, both views show it after the
    /// same transaction.
    ///
    /// # Errors
    /// As for [`Handle::view`](crate::Handle::view).
    pub fn beside<H: Viewable>(&self, store: &H) -> Result<View<H::Store>, ViewError> {
        Arc::clone(&self.snapshots).view(store)
    }

    /// Returns the view of the task that has a key with these bytes.
    pub(super) fn task_at<Q: 'static>(
        &self,
        codec: &dyn Encode<Q>,
        key: &Q,
        bytes: &[u8],
    ) -> Result<TaskView<D>, ViewError> {
        let sources = self.viewer().topology.keys_of(&self.store.stage);
        let partition = partition_of(sources, codec, key, bytes, self.width());
        let partition = partition.ok_or_else(|| self.no_place())?;
        self.task(i32::try_from(partition).unwrap_or(i32::MAX))
    }

    pub(super) fn viewer(&self) -> &Viewer {
        &self.snapshots.viewer
    }

    pub(super) fn width(&self) -> u32 {
        let driving = self.store.stage.driving_topic();
        self.viewer().board.width(driving)
    }

    fn no_place(&self) -> ViewError {
        ViewError::NoPlace {
            store: Arc::clone(&self.store.name),
        }
    }
}

/// A read-only view of the rows of one task. Returned by [`View::task`].
pub struct TaskView<D: ViewedStore> {
    pub(super) store: Arc<ViewStore<D>>,
    pub(super) snapshot: Arc<StateSnapshot>,
    partition: Partition,
    viewer: Viewer,
    /// Windows that start before this time have expired.
    pub(super) expired_before: Timestamp,
}

impl<D: ViewedStore> TaskView<D> {
    fn new(
        view: &View<D>,
        partition: Partition,
        snapshot: Arc<StateSnapshot>,
    ) -> Result<Self, ViewError> {
        let mut task = Self {
            store: Arc::clone(&view.store),
            snapshot,
            partition,
            viewer: view.viewer().clone(),
            expired_before: Timestamp(i64::MIN),
        };
        if task.store.id.is_windowed() {
            let terms = task.get_raw(TERMS)?;
            task.expired_before = windows_over_before(terms.as_deref(), task.stream_time());
        }
        Ok(task)
    }

    /// The partition of the task.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.partition.get()
    }

    /// Returns the input offsets of the snapshot: for each input partition, the offset of the first record whose
    /// effects are not included. Empty before the first transaction of the task.
    #[must_use]
    pub fn offsets(&self) -> Vec<(TopicPartition, i64)> {
        let position = self.snapshot.position();
        let Some(Standing::At { inputs, .. }) = position.map(|it| &it.standing) else {
            return Vec::new();
        };
        let inputs = inputs.iter();
        let offsets = inputs.map(|(partition, next)| (partition.clone(), next.get()));
        offsets.collect()
    }

    /// Returns the stream time of the snapshot: the highest timestamp of the records whose effects are included.
    #[must_use]
    pub fn stream_time(&self) -> Option<Timestamp> {
        match self.snapshot.position().map(|it| &it.standing) {
            Some(Standing::At { stream_time, .. }) => *stream_time,
            _ => None,
        }
    }

    /// Reads a row by the bytes of its key.
    pub(super) fn get_raw(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ViewError> {
        let mut value = Vec::new();
        let there = self.snapshot.get(self.store.id, key, &mut value);
        let there = there.map_err(|error| self.failed(error))?;
        Ok(there.then_some(value))
    }

    pub(super) fn failed(&self, error: StoreError) -> ViewError {
        let partition = self.partition.get();
        self.viewer.failed(&self.store.name, partition, error)
    }

    pub(super) fn unreadable(&self, source: crate::codec::CodecError) -> ViewError {
        ViewError::Unreadable {
            store: Arc::clone(&self.store.name),
            source: Arc::new(source),
        }
    }
}

impl<D: ViewedStore> Clone for View<D> {
    fn clone(&self) -> Self {
        Self {
            snapshots: Arc::clone(&self.snapshots),
            store: Arc::clone(&self.store),
        }
    }
}

impl<D: ViewedStore> Clone for TaskView<D> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            snapshot: Arc::clone(&self.snapshot),
            partition: self.partition,
            viewer: self.viewer.clone(),
            expired_before: self.expired_before,
        }
    }
}

impl<D: ViewedStore> fmt::Debug for View<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("View").field(&self.store.name).finish()
    }
}

impl<D: ViewedStore> fmt::Debug for TaskView<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskView")
            .field("store", &self.store.name)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}

impl Viewer {
    /// Returns a view of a store with new snapshots.
    pub(crate) fn view<H: Viewable>(&self, store: &H) -> Result<View<H::Store>, ViewError> {
        Snapshots::new(self.clone()).view(store)
    }
}

impl Snapshots {
    pub(super) fn view<H: Viewable>(
        self: Arc<Self>,
        store: &H,
    ) -> Result<View<H::Store>, ViewError> {
        let topology = &self.viewer.topology;
        let index = store.wanted().index_in(topology)?;
        let spec = topology.stores().get(index).ok_or(ViewError::OtherApp)?;
        let store = Arc::clone(&spec.name);
        let is_ordered = spec.kind != StoreKind::Point;
        let access = H::Store::access(&*spec.definition, is_ordered);
        let access = access.ok_or_else(|| ViewError::OtherTypes {
            store: Arc::clone(&store),
        })?;
        let mut stages = topology.stages().iter();
        let stage = stages.find(|it| topology.stores_of(it).any(|its| its.id == spec.id));
        // A store that no stream uses has no rows and no task.
        let stage = stage.ok_or_else(|| ViewError::UnknownStore {
            store: store.to_string(),
            stores: names(topology),
        })?;
        let found = ViewStore {
            name: store,
            id: spec.id,
            stage: stage.clone(),
            access,
        };
        Ok(View::new(self, Arc::new(found)))
    }
}
