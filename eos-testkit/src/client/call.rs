//! A request that is repeated until its response.

use kafka_protocol::messages::{RequestKind, ResponseKind};

use super::fabric::Wire;
use super::network::{Heard, Line};
use eos_broker::broker::Ticket;

/// The wait before a client reconnects (`reconnect.backoff.ms`).
const RECONNECT: i64 = 5;
/// The wait before a client repeats a request (`retry.backoff.ms`).
const RETRY: i64 = 20;

/// A request and its progress.
#[derive(Debug)]
pub(super) struct Call {
    line: Line,
    body: RequestKind,
    under_way: Option<Ticket>,
    rests_until: i64,
    /// Whether a try left and got no response.
    broke: bool,
}

impl Call {
    /// A call whose request leaves with the first [`Call::poll`].
    pub(super) fn new(line: Line, body: impl Into<RequestKind>) -> Call {
        Call {
            line,
            body: body.into(),
            under_way: None,
            rests_until: i64::MIN,
            broke: false,
        }
    }

    /// Sends the request if it is not under way, and returns the result.
    pub(super) fn poll(&mut self, wire: &mut Wire<'_>) -> Option<ResponseKind> {
        if let Some(ticket) = self.under_way {
            match wire.hear(ticket)? {
                Heard::Answer(response) => {
                    self.under_way = None;
                    return Some(*response);
                }
                Heard::Broken => {
                    self.under_way = None;
                    self.broke = true;
                    self.rests_until = wire.now() + RECONNECT;
                }
            }
        }
        if wire.now() >= self.rests_until {
            self.under_way = Some(wire.send(self.line, self.body.clone()));
        }
        None
    }

    /// Handles a response that requires a retry later.
    pub(super) fn again(&mut self, wire: &Wire<'_>) {
        self.rests_until = wire.now() + RETRY;
    }

    /// Whether a try never got a response.
    pub(super) fn broke(&self) -> bool {
        self.broke
    }

    /// The time to poll it at the latest, if nothing arrives before.
    pub(super) fn wake(&self) -> Option<i64> {
        self.under_way.is_none().then_some(self.rests_until)
    }

    /// Drops the call, and discards its response.
    pub(super) fn abandon(self, wire: &mut Wire<'_>) {
        if let Some(ticket) = self.under_way {
            wire.forget(ticket);
        }
    }
}
