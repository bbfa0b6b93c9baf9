//! Views of stores from outside the app's closures (interactive queries).
//!
//! [`Handle::view`](crate::Handle::view) takes a store and returns a [`View`] of its committed rows in this process. A
//! view reads the databases without the workers. It does not read open transactions, and processing does not wait for
//! it. Without the feature `rocksdb`, state is in memory. A commit then copies each store that it writes while a view
//! still holds the store.
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
//! with the key's partition. Send the query to the process that has this partition. Kafka Streams finds that process by
//! `application.server`. With eos, the program must find it, for example by querying the
//! [`partitions`](View::partitions) of each process.
//!
//! # Snapshots
//! A view has one snapshot for each task, taken at the first read of that task. It contains all stores of the task
//! after one transaction, with the [offsets](TaskView::offsets) of its inputs. [`View::beside`] reads another store in
//! the same snapshots. The view does not change. To read later transactions, create a new view. Drop a view after use,
//! because RocksDB keeps old rows as long as a snapshot exists. A view does not keep a database open. Once its task has
//! closed, because it moved or started again, reads return [`ViewError::Moved`].
//!
//! # Exactly-once
//! A view contains only the effects of whole committed transactions. It may lag behind the last commit by the duration
//! of a database write, a few milliseconds. [`View::at_least`] waits for the effects of a given record.

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
