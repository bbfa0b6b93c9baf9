//! A session of a worker.

use std::task::Poll;
use std::time::Duration;

use eos_core::boundary::{
    Answer, Effect, Expected, Identity, LedgerError, LedgerFailure, Move, Plan, Session,
};
use eos_protocol::CallSite;

use super::world::Of;
use super::{LedgerDefence, LedgerFault, ModelLedger, unavailable};
use crate::client::Edge;

pub(super) struct ModelSession {
    ledger: ModelLedger,
    app: String,
    places: Vec<String>,
    worker: String,
    /// The connection; `None` before `init`.
    id: Option<u64>,
    is_spoiled: bool,
    /// Whether a call of the open transaction failed.
    has_failed: bool,
    /// The response to a slow move of positions.
    slow: Option<Answer>,
}

impl ModelSession {
    pub(super) fn new(ledger: ModelLedger, plan: &Plan, identity: &Identity) -> Self {
        Self {
            ledger,
            app: plan.app.clone(),
            places: plan.places.clone(),
            worker: identity.worker.clone(),
            id: None,
            is_spoiled: false,
            has_failed: false,
            slow: None,
        }
    }

    fn of(&self, expected: &Expected) -> Of {
        (self.app.clone(), expected.partition.clone())
    }

    /// Returns the live connection.
    fn alive(&mut self) -> Answer<u64> {
        let mut world = self.ledger.world();
        if let Some(id) = self.id {
            if world.is_superseded(&self.worker, id) {
                self.is_spoiled = true;
                let text = "a newer session of this worker exists";
                return Err(LedgerError::new(LedgerFailure::Superseded, text));
            }
            if world.connection(id).is_some() {
                return Ok(id);
            }
        }
        self.is_spoiled = true;
        Err(lost())
    }

    /// Lets a planned fault occur, before the call has an effect.
    fn fault(&mut self, call: CallSite) -> Answer<Option<LedgerFault>> {
        let fault = self.ledger.world().take_fault(call);
        match fault {
            Some(LedgerFault::Lost | LedgerFault::Unavailable) => {
                self.lose();
                Err(lost())
            }
            Some(LedgerFault::Aborted) => {
                let text = "the ledger aborted the transaction: a deadlock";
                Err(LedgerError::new(LedgerFailure::Contended, text))
            }
            fault => Ok(fault),
        }
    }

    fn lose(&mut self) {
        if let Some(id) = self.id {
            self.ledger.world().end(id);
        }
        self.is_spoiled = true;
    }

    fn compare(&mut self, expected: &[&Expected]) -> Answer<u64> {
        let id = self.alive()?;
        let world = self.ledger.world();
        if !world.has(LedgerDefence::Compares) {
            return Ok(id);
        }
        let moved = expected.iter().filter(|it| {
            let of = (self.app.clone(), it.partition.clone());
            world.is_held(&of, id) || !world.is_as_expected(&of, it)
        });
        let moved: Vec<_> = moved.map(|it| it.partition.clone()).collect();
        match moved.is_empty() {
            true => Ok(id),
            false => Err(LedgerError::new(
                LedgerFailure::Moved(moved),
                "another worker moved a position",
            )),
        }
    }

    fn set_moves(&mut self, moves: &[Move], fault: Option<LedgerFault>) -> Answer {
        let expected: Vec<&Expected> = moves.iter().map(|it| &it.expected).collect();
        let id = self.compare(&expected)?;
        let moves: Vec<_> = moves
            .iter()
            .map(|it| (self.of(&it.expected), it.clone()))
            .collect();
        let mut world = self.ledger.world();
        if !world.has(LedgerDefence::OneTransaction) {
            for (of, moved) in moves {
                world.set(of, moved);
            }
        } else if let Some(open) = world.open(id) {
            open.held.extend(moves.iter().map(|(of, _)| of.clone()));
            open.moves = moves;
        }
        drop(world);
        self.answer(fault)
    }

    fn end(&mut self) -> Answer {
        let fault = match self.fault(CallSite::Commit) {
            Ok(fault) => fault,
            Err(error) => {
                self.lose();
                return Err(error);
            }
        };
        let id = self.alive()?;
        if self.has_failed {
            self.lose();
            let text = "the transaction failed before its commit";
            return Err(LedgerError::new(LedgerFailure::Abortable, text));
        }
        if fault == Some(LedgerFault::Late) {
            self.ledger.world().late(id);
            self.is_spoiled = true;
            return Err(lost());
        }
        self.ledger.world().commit(id);
        self.answer(fault)
    }

    fn answer(&mut self, fault: Option<LedgerFault>) -> Answer {
        match fault {
            None => Ok(()),
            Some(_) => {
                self.lose();
                Err(lost())
            }
        }
    }
}

fn lost() -> LedgerError {
    LedgerError::new(
        LedgerFailure::Abortable,
        "the connection to the ledger is lost",
    )
}

impl Session for ModelSession {
    fn init(&mut self, _: Duration) -> Poll<Answer> {
        self.ledger.at(CallSite::Init, &self.worker, Edge::Before);
        if self.ledger.world().take_fault(CallSite::Init).is_some() {
            return Poll::Ready(Err(unavailable()));
        }
        self.id = Some(self.ledger.world().connect(&self.worker));
        self.ledger.at(CallSite::Init, &self.worker, Edge::After);
        Poll::Ready(Ok(()))
    }

    fn begin(&mut self) -> Answer {
        self.slow = None;
        self.has_failed = false;
        self.alive().map(|_| ())
    }

    fn hold(&mut self, expected: &[Expected]) -> Answer {
        let all: Vec<&Expected> = expected.iter().collect();
        let id = self.compare(&all);
        self.has_failed |= id.is_err();
        let id = id?;
        let held: Vec<Of> = expected.iter().map(|it| self.of(it)).collect();
        if let Some(open) = self.ledger.world().open(id) {
            open.held.extend(held);
        }
        Ok(())
    }

    fn write(&mut self, effect: &Effect<'_>) -> Poll<Answer> {
        self.ledger.at(CallSite::Send, &self.worker, Edge::Before);
        let written = self.fault(CallSite::Send).and_then(|fault| {
            let id = self.alive()?;
            let place = self.places.get(effect.place).cloned().unwrap_or_default();
            let key = effect.key.unwrap_or_default().to_vec();
            let row = effect.row.map(<[u8]>::to_vec);
            if let Some(open) = self.ledger.world().open(id) {
                open.rows.push((place, key, row));
            }
            self.answer(fault)
        });
        self.has_failed |= written.is_err();
        self.ledger.at(CallSite::Send, &self.worker, Edge::After);
        Poll::Ready(written)
    }

    fn set(&mut self, moves: &[Move], _: Duration) -> Poll<Answer> {
        self.ledger
            .at(CallSite::SendOffsets, &self.worker, Edge::Before);
        let set = match self.slow.take() {
            Some(answer) => Poll::Ready(answer),
            None => match self.fault(CallSite::SendOffsets) {
                Ok(Some(LedgerFault::Slow)) => {
                    self.slow = Some(self.set_moves(moves, None));
                    Poll::Pending
                }
                Ok(fault) => Poll::Ready(self.set_moves(moves, fault)),
                Err(error) => Poll::Ready(Err(error)),
            },
        };
        self.has_failed |= matches!(set, Poll::Ready(Err(_)));
        self.ledger
            .at(CallSite::SendOffsets, &self.worker, Edge::After);
        set
    }

    fn flush(&mut self, _: Duration) -> Poll<Answer> {
        if self.slow.is_some() {
            let text = "a flush before the answer to the move of positions: a session has one call at a time";
            return Poll::Ready(Err(LedgerError::new(LedgerFailure::Fatal, text)));
        }
        Poll::Ready(self.alive().map(|_| ()))
    }

    fn commit(&mut self, _: Duration) -> Poll<Answer> {
        self.ledger.at(CallSite::Commit, &self.worker, Edge::Before);
        let done = self.end();
        self.ledger.at(CallSite::Commit, &self.worker, Edge::After);
        Poll::Ready(done)
    }

    fn abort(&mut self, _: Duration) -> Poll<Answer> {
        self.ledger.at(CallSite::Abort, &self.worker, Edge::Before);
        match self.id {
            Some(id) => match self.ledger.world().open(id) {
                Some(open) => *open = super::world::Open::default(),
                None => self.is_spoiled = true,
            },
            None => self.is_spoiled = true,
        }
        self.ledger.at(CallSite::Abort, &self.worker, Edge::After);
        Poll::Ready(Ok(()))
    }

    fn is_spoiled(&self) -> bool {
        let is_gone = |id| self.ledger.world().connection(id).is_none();
        self.is_spoiled || self.id.is_some_and(is_gone)
    }
}

impl Drop for ModelSession {
    /// The connection breaks. A late commit is still on its way.
    fn drop(&mut self) {
        if let Some(id) = self.id
            && self.ledger.world().connection(id).is_some()
        {
            self.ledger.world().end(id);
        }
    }
}
