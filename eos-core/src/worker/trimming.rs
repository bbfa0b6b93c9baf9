//! The unneeded part of a windowed changelog.

use std::time::Duration;

use eos_protocol::state::{StoreId, Trim};
use eos_protocol::windows::Expiry;
use eos_protocol::{Offset, Timestamp};
use eos_state::{Direction, KeyRange, StoreError, TaskStore};

use super::future_timestamps::between;
use crate::rules;
use crate::store::window_of;

/// The [`Trim`] of a task's stores. It assumes that no window starts after the stream time at which it was written. A
/// closure may write to any window, so the latest window counts as a stream time, too.
#[derive(Debug)]
pub(super) struct Trimming {
    trim: Trim,
    /// The longest retention of the stores.
    retention: Duration,
    latest: Option<Timestamp>,
    /// Records before this offset may be deleted.
    needless: Option<Offset>,
}

impl Trimming {
    /// Returns `None` without windowed stores.
    pub(super) fn of(store: &TaskStore, windows: &[(StoreId, Expiry)]) -> Option<Self> {
        let retention = windows.iter().map(|(_, expiry)| expiry.retention()).max()?;
        let retention = match rules::trims_behind_retention() {
            true => retention,
            false => Duration::ZERO,
        };
        let latest = windows.iter().map(|(id, _)| latest_window(store, *id));
        Some(Self {
            trim: Trim::new(retention),
            retention,
            latest: latest.max().flatten(),
            needless: None,
        })
    }

    /// Records a key of a windowed store that goes into the changelog.
    pub(super) fn wrote(&mut self, key: &[u8]) {
        self.latest = self.latest.max(window_of(key));
    }

    pub(super) fn observe(&mut self, lso: Offset, stream_time: Option<Timestamp>) {
        self.trim.observe(lso, stream_time.max(self.latest));
    }

    pub(super) fn sealed(&mut self, wrote: bool) {
        self.trim.sealed(wrote);
    }

    pub(super) fn committed(&mut self, stream_time: Option<Timestamp>) {
        self.needless = self.trim.committed(stream_time).or(self.needless);
    }

    pub(super) fn discarded(&mut self) {
        self.trim.discarded();
    }

    /// Returns the lead of the latest window over this stream time. Nothing behind the window is trimmed for this long.
    pub(super) fn ahead_of(&self, stream_time: Option<Timestamp>) -> Option<Duration> {
        let ahead = between(stream_time?, self.latest?);
        Some(ahead).filter(|ahead| !ahead.is_zero())
    }

    pub(super) fn retention(&self) -> Duration {
        self.retention
    }

    pub(super) fn needless(&self) -> Option<Offset> {
        self.needless
    }
}

/// Returns the start of the last row, which is the latest window, because windows are ordered by their starts. A failed
/// read counts as the latest possible window, because the store is poisoned then.
fn latest_window(store: &TaskStore, id: StoreId) -> Option<Timestamp> {
    let last = || {
        let mut windows = store.scan(id, &KeyRange::all(), Direction::Reverse)?;
        let last = windows.next()?;
        Ok::<_, StoreError>(last.and_then(|(key, _)| window_of(key)))
    };
    last().unwrap_or(Some(Timestamp(i64::MAX)))
}
