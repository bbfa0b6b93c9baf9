//! A request that is made until it is answered.

use kafka_protocol::messages::{RequestKind, ResponseKind};

use super::fabric::Wire;
use super::network::{Heard, Line};
use eos_broker::broker::Ticket;

/// How long a client rests before it connects again (`reconnect.backoff.ms`).
const RECONNECT: i64 = 5;
/// How long it rests before it asks again (`retry.backoff.ms`).
const RETRY: i64 = 20;

/// A request, and how far it is.
#[derive(Debug)]
pub(super) struct Call {
    line: Line,
    body: RequestKind,
    under_way: Option<Ticket>,
    rests_until: i64,
    /// A try of it left and was not answered.
    broke: bool,
}

impl Call {
    /// One that is sent with the first [`Call::poll`].
    pub(super) fn new(line: Line, body: impl Into<RequestKind>) -> Call {
        Call {
            line,
            body: body.into(),
            under_way: None,
            rests_until: i64::MIN,
            broke: false,
        }
    }

    /// Sends it if it is not under way, and answers what came of it.
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

    /// The answer says to ask again later.
    pub(super) fn again(&mut self, wire: &Wire<'_>) {
        self.rests_until = wire.now() + RETRY;
    }

    /// Whether a try of it was never answered.
    pub(super) fn broke(&self) -> bool {
        self.broke
    }

    /// When to poll it at the latest, if nothing is heard before.
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
