//! The time of the next work of a part.

use std::time::Duration;

/// The shortest wait that a part requested in this step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wake(Option<Duration>);

impl Wake {
    /// Requests a wake-up after this wait.
    pub(super) fn after(&mut self, wait: Duration) {
        self.0 = Some(self.0.map_or(wait, |least| least.min(wait)));
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    pub(super) fn wait(self) -> Option<Duration> {
        self.0
    }
}
