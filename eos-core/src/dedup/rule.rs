//! The id of a record, and the rule that judges it.

use std::sync::Arc;

use eos_protocol::identity::{SeenWindow, TimedIdFormat, TimedIds};

use crate::record::Record;
use crate::topology::Fault;

/// Appends a part of a record, such as its id. Returns false if it is null.
pub(crate) type IdOf<K, V> =
    Arc<dyn Fn(&Record<K, V>, &mut Vec<u8>) -> Result<bool, Fault> + Send + Sync>;

/// The kinds of records that fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strictness {
    pub(crate) too_old: bool,
    pub(crate) no_id: bool,
}

impl Default for Strictness {
    fn default() -> Self {
        Self {
            too_old: true,
            no_id: true,
        }
    }
}

/// The rule by which a node judges ids.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    Window(SeenWindow),
    Timed(TimedIds, TimedIdFormat),
    Ever,
}
