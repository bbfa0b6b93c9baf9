//! Streams in order of time or number.

mod error;
mod operator;
mod rows;
mod settings;
mod store;

pub use error::{OrderError, ReorderError};
pub use operator::Reordered;
pub(crate) use rows::{WaitingRows, number_key, scope_and_number};
pub use settings::{MaxGap, MaxWait, OnGap, Reorder};
pub use store::ReorderStore;
