//! The hook through which a test or a simulation injects faults.

use std::any::Any;

use eos_protocol::CallSite;

use super::network::{Fate, Sent};

/// A client's call that has an effect, and the side of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The call.
    pub call: CallSite,
    /// The `client.id` of the caller.
    pub client_id: &'a str,
    /// Before or after the call.
    pub edge: Edge,
}

/// A side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// The call has done nothing yet.
    Before,
    /// The call is done, and has not returned yet.
    After,
}

/// A fault at a call.
#[derive(Debug, Default)]
pub enum Reaction {
    /// No fault.
    #[default]
    Nothing,
    /// The process dies here. The value is thrown as a panic.
    Dies(Box<dyn Any + Send>),
    /// The call takes this many milliseconds. A call that can be repeated returns `Poll::Pending` until then, so all
    /// clients continue. In any other call, only the clients' own threads continue.
    Stalls(i64),
}

/// Decides which faults occur.
pub trait Watcher: Send {
    /// The fate of a request. By default it arrives at once.
    fn fate(&mut self, sent: &Sent<'_>) -> Fate {
        let _ = sent;
        Fate::Arrives { there: 0, back: 0 }
    }

    /// The reaction to one side of a client's call. By default there is none.
    fn effect(&mut self, effect: &Effect<'_>) -> Reaction {
        let _ = effect;
        Reaction::Nothing
    }
}
