//! The places of planned crashes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_protocol::CallSite;

use crate::client::{Edge, Effect, Reaction, Watcher};
use crate::crash_backend::CrashHome;
use crate::disk::Disk;

/// A place where an app can crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrashPoint {
    /// At a call of the Kafka client, such as [`CallSite::Commit`].
    Call(CallSite),
    /// At a write of committed data to the database of a task.
    StoreWrite,
}

impl From<CallSite> for CrashPoint {
    fn from(call: CallSite) -> CrashPoint {
        CrashPoint::Call(call)
    }
}

/// One effect of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    point: CrashPoint,
    edge: Edge,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edge = match self.edge {
            Edge::Before => "before",
            Edge::After => "after",
        };
        match self.point {
            CrashPoint::Call(call) => write!(f, "{edge} {call:?}"),
            CrashPoint::StoreWrite => write!(f, "{edge} a write to the database"),
        }
    }
}

/// The value that a dying process throws.
#[derive(Debug)]
pub(super) struct Died;

#[derive(Debug, Clone, Copy)]
enum Armed {
    At(Place),
    /// At the effect with this number.
    Effect(u64),
    MidRecord,
}

impl Armed {
    fn meets(self, place: Place, number: u64) -> bool {
        match self {
            Armed::At(at) => at == place,
            Armed::Effect(at) => at == number,
            // The record's first effect is at the producer, and its other effects have not happened yet. A record
            // without effects has at least a commit.
            Armed::MidRecord => matches!(
                (place.point, place.edge),
                (CrashPoint::Call(CallSite::Send), Edge::After)
                    | (CrashPoint::Call(CallSite::Commit), Edge::Before)
            ),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    effects: u64,
    armed: Option<Armed>,
    last: Option<Place>,
}

/// Counts effects, and decides where the process dies. A copy shares the count.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults(Arc<Mutex<State>>);

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn effects(&self) -> u64 {
        self.state().effects
    }

    /// The place of the last crash.
    pub(super) fn last(&self) -> Option<Place> {
        self.state().last
    }

    pub(super) fn arm_at(&self, point: CrashPoint, edge: Edge) {
        self.state().armed = Some(Armed::At(Place { point, edge }));
    }

    pub(super) fn arm_effect(&self, from_now: u64) {
        let mut state = self.state();
        state.armed = Some(Armed::Effect(state.effects + from_now));
    }

    pub(super) fn arm_mid_record(&self) {
        self.state().armed = Some(Armed::MidRecord);
    }

    /// The databases on a disk, whose process dies at the planned writes.
    pub(super) fn watch(&self, disk: &Disk) -> CrashHome {
        let faults = self.clone();
        CrashHome::new(Arc::new(disk.clone()), move |edge, _| {
            if faults.dies(CrashPoint::StoreWrite, edge) {
                std::panic::resume_unwind(Box::new(Died));
            }
        })
    }

    /// Whether the process dies here.
    fn dies(&self, point: CrashPoint, edge: Edge) -> bool {
        let place = Place { point, edge };
        let mut state = self.state();
        state.effects += 1;
        let number = state.effects;
        let dies = state.armed.is_some_and(|armed| armed.meets(place, number));
        if dies {
            state.armed = None;
            state.last = Some(place);
        }
        dies
    }
}

impl Watcher for Faults {
    fn effect(&mut self, effect: &Effect<'_>) -> Reaction {
        if self.dies(CrashPoint::Call(effect.call), effect.edge) {
            Reaction::Dies(Box::new(Died))
        } else {
            Reaction::Nothing
        }
    }
}
