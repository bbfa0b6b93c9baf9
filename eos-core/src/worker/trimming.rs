//! The unneeded part of a windowed changelog.

use std::time::Duration;

use eos_protocol::state::{StoreId, Trim};
use eos_protocol::windows::Expiry;
use eos_protocol::{Offset, TaskId, Timestamp};
use eos_state::changelog::Entry;
use eos_state::{Direction, KeyRange, StoreError, TaskStore};

use super::future_timestamps::between;
use crate::rules;
use crate::store::window_of;

/// The note of the [`Trim`] in the local state.
const NOTE: &str = "trim";

/// The [`Trim`] of a task's stores. It assumes that no window starts after the stream time at which it was written. A
/// closure may write to any window, so the latest window counts as a stream time, too.
#[derive(Debug)]
pub(super) struct Trimming {
    trim: Trim,
    /// The longest retention of the stores.
    retention: Duration,
    latest: Option<Timestamp>,
    /// The stream time of the last commit before the restore.
    opened_at: Option<Timestamp>,
    /// Records before this offset may be deleted.
    needless: Option<Offset>,
}

impl Trimming {
    /// Reads the note of a database that was just opened. Call this before the restore reads changelogs. Returns `None`
    /// without windowed stores.
    pub(super) fn open(
        task: TaskId,
        store: &TaskStore,
        windows: &[(StoreId, Expiry)],
        stream_time: Option<Timestamp>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(retention) = longest(windows) else {
            return Ok(None);
        };
        let latest = windows.iter().map(|(id, _)| latest_window(store, *id));
        let mut trim = Trim::new(retention);
        if let Some(note) = store.note(NOTE)?
            && !trim.resume(&note)
        {
            tracing::debug!(%task, "ignoring the note of the trim: it is damaged or has another version");
        }
        Ok(Some(Self {
            trim,
            retention,
            latest: latest.max().flatten(),
            opened_at: stream_time,
            needless: None,
        }))
    }

    /// Sets the retention of the restored stores. It is longer than the program's if an earlier program kept its windows for
    /// longer.
    pub(super) fn with_retention_of(mut self, windows: &[(StoreId, Expiry)]) -> Self {
        self.retention = longest(windows).unwrap_or_default();
        self.trim.keep_for(self.retention);
        self
    }

    /// Records a key of a windowed store that goes into the changelog.
    pub(super) fn wrote(&mut self, key: &[u8]) {
        self.latest = self.latest.max(window_of(key));
    }

    /// Observes a record of the windowed changelog that a restore reads.
    pub(super) fn observe_read(&mut self, offset: Offset, entry: &Entry<'_>) {
        // Not only at commit records, because compaction removes all but the last one.
        if self.latest.is_some() {
            self.trim.observe(offset, self.latest);
            self.trim.forget_expired(self.opened_at);
        }
        if let Entry::Put { key, .. } = entry {
            self.wrote(key);
        }
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

    /// Begins the seal of a transaction that has sent nothing to the changelog yet. Adds a note of new observations to it, for
    /// the next owner of the local state.
    pub(super) fn seal(&mut self, store: &mut TaskStore) {
        self.trim.begin_seal();
        if let Some(note) = self.trim.take_note() {
            store.put_note(NOTE, &note);
        }
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

fn longest(windows: &[(StoreId, Expiry)]) -> Option<Duration> {
    let longest = windows.iter().map(|(_, expiry)| expiry.retention()).max()?;
    Some(match rules::trims_behind_retention() {
        true => longest,
        false => Duration::ZERO,
    })
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
