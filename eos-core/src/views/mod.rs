//! Views of stores from outside of the app's closures: interactive queries.
//!
//! [`Handle::view`](crate::Handle::view) takes a store and returns a [`View`] of its committed rows in this process.
//! A view reads the databases beside the workers. It sees no open transaction, and processing does not wait for it. Without
//! the feature `rocksdb`, state is in memory, and a commit copies the stores that it writes and a view still holds.
//!
//! ```
//! use eos_core::{Handle, KeyValueStore};
//! use eos_core::views::ViewError;
//!
//! fn count(handle: &Handle, user: &String) -> Result<u64, ViewError> {
//!     let counts = KeyValueStore::<String, u64>::plain("counts");
//!     let view = handle.view(&counts)?;
//!     Ok(view.get(user)?.unwrap_or(0))
//! }
//! ```
//!
//! # Which rows
//! A process has the rows of its own tasks only. For a key of another process, a read returns [`ViewError::Elsewhere`]
//! with the key's partition: ask the process that has it. Kafka Streams finds that process by `application.server`; here
//! the program knows its processes, e.g. by asking each for its [`partitions`](View::partitions).
//!
//! # Snapshots
//! A view has one snapshot for each task, taken at the first read of that task. It contains all stores of the task after
//! one transaction, with the [offsets](TaskView::offsets) of its inputs. [`View::beside`] reads another store in the same
//! snapshots. The view does not change: take a new one to see later transactions. Drop it after use, because RocksDB keeps
//! old rows as long as a snapshot exists. A view keeps no database open: once its task has moved to another worker or
//! process, reads return [`ViewError::Moved`].
//!
//! # Exactly-once
//! A view shows only the effects of committed transactions, each of them whole. It may be behind the last commit by the
//! time of a database write, some milliseconds. [`View::at_least`] waits until the effects of a certain record are there.

mod access;
mod board;
mod error;
mod key_value;
mod ordered;
mod place;
mod rows;
mod view;
mod viewer;
mod waiting;
mod window;

pub use access::{Viewable, ViewedStore};
pub use error::ViewError;
pub use rows::ViewRows;
pub use view::{TaskView, View};

pub use board::ViewBoard;
pub(crate) use board::{StopsViews, ViewTicket};
pub(crate) use place::{SourceKeys, partition_of};
pub(crate) use viewer::Viewer;
