//! The log of one partition: record batches kept as bytes.
//!
//! ```text
//! batch       one batch: checks, offset assignment, markers
//! producers   state of each producer: epoch, last batches, open transaction
//! partition   append, read, high watermark, last stable offset, aborted list
//! cleaner     retention, DeleteRecords and compaction
//! ```

mod batch;
mod cleaner;
mod partition;
mod producers;

#[cfg(test)]
pub(crate) use batch::produced;
pub(crate) use batch::{Batch, BatchError, TimestampType};
pub(crate) use partition::{AppendError, Appended, Isolation, PartitionLog, Place};
