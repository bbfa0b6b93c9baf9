//! Handlers of timers that set moments into the past without end.

use eos_protocol::Timestamp;
use eos_protocol::state::StoreId;
use eos_state::DueItem;

/// The number of times that handlers may set moments into the past between two records of a task.
pub(super) const ROUNDS: u32 = 1_000;

/// The due items of a task since its last record: how often one came whose own moment is not after that of the item
/// before it. Handlers that set moments into the past without end show by this.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    last: Option<(Timestamp, StoreId, Vec<u8>)>,
    back: u32,
}

impl Rounds {
    /// Counts an item. Returns whether there are too many.
    pub(super) fn exceed(&mut self, item: &DueItem) -> bool {
        let this = (item.due, item.place.store, item.place.key.clone());
        self.back += u32::from(self.last.as_ref().is_some_and(|last| this <= *last));
        self.last = Some(this);
        self.back > ROUNDS
    }
}
