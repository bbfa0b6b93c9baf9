//! Errors of views.

use std::sync::Arc;
use std::time::Duration;

use eos_state::StoreError;

use crate::codec::CodecError;

/// The reason why a view has no result. Returned by [`Handle::view`](crate::Handle::view) and the methods of
/// [`View`](crate::views::View).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The app has no such store.
    #[error(
        "the app has no store {store}. It has {}",
        match &stores[..] { [] => "none".to_owned(), all => all.join(", ") }
    )]
    UnknownStore {
        /// The requested store.
        store: String,
        /// The stores of the app.
        stores: Vec<String>,
    },
    /// The app keeps the store with other types.
    #[error(
        "the app declares the store {store} with other types, or as another kind of store. Pass the app's own \
         definition of the store"
    )]
    OtherTypes {
        /// The store.
        store: Arc<str>,
    },
    /// The store handle belongs to another app.
    #[error(
        "the handle of the store belongs to another app. Pass a handle of this app, or the definition of the store"
    )]
    OtherApp,
    /// No worker of this process owns the partition of the rows.
    #[error(
        "the rows are in partition {partition} of the store {store}, and this process has {}. Query the process \
         that owns the partition. During a rebalance, try again",
        match &here[..] {
            [] => "none of its partitions".to_owned(),
            [one] => format!("only partition {one}"),
            all => format!("the partitions {}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        }
    )]
    Elsewhere {
        /// The store.
        store: Arc<str>,
        /// The partition of the key.
        partition: i32,
        /// The partitions of the store in this process.
        here: Vec<i32>,
    },
    /// The task of the partition is starting, or this process has not joined the group yet.
    #[error(
        "partition {partition} of the store {store} can't be read yet, because its task or this process is starting. Try \
         again in a moment"
    )]
    Starting {
        /// The store.
        store: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// The state of the partition is being restored.
    #[error(
        "partition {partition} of the store {store} can't be read yet, because its state is being restored. Try again when \
         the state of the app is `Running`"
    )]
    Restoring {
        /// The store.
        store: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// The task closed after the view took its snapshot.
    #[error(
        "the view of partition {partition} of the store {store} has ended, because its task moved to another \
         worker or process, or restarted. Take a new view"
    )]
    Moved {
        /// The store.
        store: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// The app in this process is stopping or has ended.
    #[error(
        "the store {store} can't be read any more, because the app in this process stops or has ended"
    )]
    Stopped {
        /// The store.
        store: Arc<str>,
    },
    /// The topics have no such partition.
    #[error("the store {store} has no partition {partition}, because its topics have {partitions}")]
    NoSuchPartition {
        /// The store.
        store: Arc<str>,
        /// The requested partition.
        partition: i32,
        /// The number of partitions.
        partitions: u32,
    },
    /// The partition of a key is unknown.
    #[error(
        "the partition of a key of the store {store} is unknown, because the topics of its stage have keys of \
         another type or codec. Select the task with `task(partition)`, or with `task_of(&key)` and the record's key"
    )]
    NoPlace {
        /// The store.
        store: Arc<str>,
    },
    /// A key can't be encoded.
    #[error("the key for the store {store} can't be encoded: {source}")]
    Key {
        /// The store.
        store: Arc<str>,
        /// The cause.
        source: Arc<CodecError>,
    },
    /// A row can't be decoded.
    #[error(
        "a row of the store {store} can't be decoded: {source}. If the codec or the value type changed, make it accept old \
         values"
    )]
    Unreadable {
        /// The store.
        store: Arc<str>,
        /// The cause.
        source: Arc<CodecError>,
    },
    /// The database failed.
    #[error("the store {store}: {source}")]
    Store {
        /// The store.
        store: Arc<str>,
        /// The cause.
        source: StoreError,
    },
    /// The engine of the store has no snapshots.
    #[error(
        "the store {store} can't be viewed, because its engine has no snapshots. Implement `StoreBackend::reader` for \
         the engine"
    )]
    NoSnapshots {
        /// The store.
        store: Arc<str>,
    },
    /// The topic is not an input of the store's stage.
    #[error(
        "the stage of the store {store} does not read the topic {topic}, so a view can't wait for its offsets. The stage \
         reads {}",
        topics.join(", ")
    )]
    NotAnInput {
        /// The store.
        store: Arc<str>,
        /// The requested topic.
        topic: String,
        /// The input topics of the stage.
        topics: Vec<String>,
    },
    /// The database did not reach the offset in time.
    #[error(
        "partition {partition} of the store {store} did not reach offset {offset} of {topic} within {} ms: {}. Wait longer, or \
         check the lag of the app",
        waited.as_millis(),
        match next { Some(next) => format!("its next offset is {next}"), None => "it has no position yet".to_owned() }
    )]
    Behind {
        /// The store.
        store: Arc<str>,
        /// The input topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The awaited offset.
        offset: i64,
        /// The next offset to process, if it is known.
        next: Option<i64>,
        /// The time since the start of the wait.
        waited: Duration,
    },
}
