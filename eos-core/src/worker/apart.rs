//! A record that aborts its transactions.

use eos_protocol::{Offset, TopicPartition};

/// A record that aborts its transactions. The moments in its unit are handled as units of their own, so that the search
/// finds the one to blame: a moment, or the record without them.
#[derive(Debug)]
pub(super) struct Apart {
    pub(super) partition: TopicPartition,
    pub(super) offset: Offset,
    /// Whether the record had no moment in its unit when it was last suspected.
    pub(super) is_alone: bool,
}
