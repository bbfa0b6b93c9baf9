//! Views that wait for the effects of a record.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::views::covers;
use eos_protocol::{Partition, TopicPartition};

use super::access::ViewedStore;
use super::error::ViewError;
use super::view::View;
use super::viewer::{Snapshots, offset};

impl<D: ViewedStore> View<D> {
    /// Waits until the state of this process includes the effects of the record at an offset. Returns a new view that
    /// includes them.
    ///
    /// With this method, a caller that wrote a record to the app's input topic can read its own write. The producer
    /// returns the partition and the offset. Pass the offset of a committed record. `patience` limits the wait.
    ///
    /// The call also waits while the task is starting or being restored. It needs no async runtime, because the workers
    /// wake it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use eos_core::views::ViewError;
    /// use eos_core::{Handle, KeyValueStore};
    ///
    /// async fn clicks(handle: &Handle, user: String, partition: i32, offset: i64) -> Result<Option<u64>, ViewError> {
    ///     let counts = KeyValueStore::<String, u64>::plain("counts");
    ///     let view = handle.view(&counts)?;
    ///     let view = view.at_least("clicks", partition, offset, Duration::from_secs(2)).await?;
    ///     view.get(&user)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Behind`] if the state does not reach the offset in time, [`ViewError::NotAnInput`] if the stage of
    /// the store does not read the topic. Otherwise as for [`task`](Self::task).
    ///
    /// # Cancel safety
    /// Safe: dropping the future ends the wait.
    pub async fn at_least(
        &self,
        topic: &str,
        partition: i32,
        record: i64,
        patience: Duration,
    ) -> Result<Self, ViewError> {
        let (input, begun) = (self.input(topic, partition)?, self.viewer().env.now());
        let deadline = begun.after(patience);
        let board = Arc::clone(&self.viewer().board);
        let mut ticket = None;
        poll_fn(|context| {
            // Registered before the check, so that no change is missed.
            let waits = board.wait(deadline, context.waker());
            let now = self.viewer().env.now();
            let looked = self.look(&input, record);
            match looked {
                Ok(view) => return Poll::Ready(Ok(view)),
                Err(error) if !error.may_pass() || now >= deadline => {
                    return Poll::Ready(Err(error.after(now.since(begun))));
                }
                Err(_) => {}
            }
            ticket = Some(waits);
            Poll::Pending
        })
        .await
    }

    /// Returns a new view, if its task has the effects of a record.
    fn look(&self, input: &TopicPartition, record: i64) -> Result<Self, ViewError> {
        let store = &self.store;
        let snapshots = Snapshots::new(self.viewer().clone());
        let snapshot = snapshots.of(&store.name, &store.stage, input.partition)?;
        match covers(snapshot.position(), input, offset(record)) {
            Ok(()) => Ok(View::new(snapshots, Arc::clone(store))),
            Err(next) => Err(ViewError::Behind {
                store: Arc::clone(&store.name),
                topic: input.topic.to_string(),
                partition: input.partition.get(),
                offset: record,
                next: next.map(|next| next.get()),
                waited: Duration::ZERO,
            }),
        }
    }

    /// Returns an input partition of the store's stage.
    fn input(&self, topic: &str, partition: i32) -> Result<TopicPartition, ViewError> {
        let store = &self.store;
        let mut topics = store.stage.topics.iter();
        let found = topics.find(|it| it.as_str() == topic);
        let found = found.ok_or_else(|| ViewError::NotAnInput {
            store: Arc::clone(&store.name),
            topic: topic.to_owned(),
            topics: store.stage.topics.iter().map(ToString::to_string).collect(),
        })?;
        let number = Partition::new(partition).map_err(|_| ViewError::NoSuchPartition {
            store: Arc::clone(&store.name),
            partition,
            partitions: self.width(),
        })?;
        Ok(TopicPartition::new(found.clone(), number))
    }
}

impl ViewError {
    /// Whether a wait may help.
    fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Behind { .. }
                | Self::Starting { .. }
                | Self::Restoring { .. }
                | Self::Moved { .. }
        )
    }

    /// Adds the time of the wait.
    fn after(self, time: Duration) -> Self {
        match self {
            Self::Behind {
                store,
                topic,
                partition,
                offset,
                next,
                ..
            } => Self::Behind {
                store,
                topic,
                partition,
                offset,
                next,
                waited: time,
            },
            other => other,
        }
    }
}
