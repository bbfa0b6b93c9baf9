//! The session of a worker: transactions with rows and positions.
//!
//! ```text
//! worker's thread   write → chunk ─┐ set, flush, commit: wait for an answer
//! session's thread                 └→ rows of a chunk → statements, pipelined → set → COMMIT
//! ```

mod careful;
mod chunk;
mod columns;
mod fold;
mod headers;
mod letters;
mod open;
mod pipeline;
mod places;
mod rows;
mod work;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use eos_core::boundary::{
    Answer, Effect, Expected, Identity, Ledger, LedgerError, LedgerFailure, Move, Plan, Session,
};

use crate::actor::Actor;
use crate::postgres::Postgres;
use chunk::Chunk;
use open::Opening;
use work::{Command, Shared};

/// The most bytes between the threads.
const MAX_QUEUED: usize = 8 << 20;

/// A session of a worker.
#[derive(Debug)]
pub(crate) struct PostgresSession {
    opening: Opening,
    ledger: String,
    actor: Option<Actor<Command, Answer>>,
    shared: Arc<Shared>,
    chunk: Chunk,
}

impl PostgresSession {
    pub(crate) fn new(postgres: &Postgres, plan: &Plan, identity: &Identity) -> Self {
        Self {
            opening: Opening::new(postgres, plan, identity),
            ledger: postgres.name(),
            actor: None,
            shared: Arc::default(),
            chunk: Chunk::default(),
        }
    }

    fn tell(&mut self, command: Command) {
        if let Some(actor) = &mut self.actor {
            actor.tell(command);
        }
    }

    fn ask(
        &mut self,
        what: &'static str,
        command: impl FnOnce() -> Command,
        slice: Duration,
    ) -> Poll<Answer> {
        let Some(actor) = &mut self.actor else {
            return Poll::Ready(Err(self.lost()));
        };
        match actor.ask(what, command, slice) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(answer)) => Poll::Ready(answer),
            Poll::Ready(Err(_)) => {
                self.actor = None;
                Poll::Ready(Err(self.lost()))
            }
        }
    }

    fn lost(&self) -> LedgerError {
        self.abortable("the connection is gone")
    }

    fn abortable(&self, text: &str) -> LedgerError {
        LedgerError::new(LedgerFailure::Abortable, format!("{}: {text}", self.ledger))
    }

    fn send_chunk(&mut self) {
        if !self.chunk.is_empty() {
            let chunk = std::mem::take(&mut self.chunk);
            self.shared
                .queued
                .fetch_add(chunk.weight(), Ordering::AcqRel);
            self.tell(Command::Write(chunk));
        }
    }

    /// Returns the failure of an earlier call.
    fn earlier(&self) -> Answer {
        let failed = self
            .shared
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match failed.as_ref() {
            Some(failed) => Err(failed.clone().into_error(&self.ledger)),
            None => Ok(()),
        }
    }

    fn start(&mut self) -> Answer {
        if self.actor.is_some() {
            return Ok(());
        }
        let (opening, shared) = (self.opening.clone(), Arc::clone(&self.shared));
        let spawned = Actor::spawn("eos-pg-session", |inbound| {
            work::run(opening, shared, inbound)
        });
        match spawned {
            Ok(actor) => {
                self.actor = Some(actor);
                Ok(())
            }
            Err(error) => Err(LedgerError::new(
                LedgerFailure::Retriable,
                format!("{}: no thread for a session: {error}", self.ledger),
            )),
        }
    }
}

impl Session for PostgresSession {
    fn init(&mut self, slice: Duration) -> Poll<Answer> {
        if let Err(error) = self.start() {
            return Poll::Ready(Err(error));
        }
        self.ask("init", || Command::Init, slice)
    }

    fn begin(&mut self) -> Answer {
        if self.is_spoiled() {
            return Err(self.lost());
        }
        self.chunk = Chunk::default();
        *self
            .shared
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
        self.tell(Command::Begin);
        Ok(())
    }

    fn hold(&mut self, expected: &[Expected]) -> Answer {
        self.earlier()?;
        // In order: the rows before this call belong to positions that were held before.
        self.send_chunk();
        self.tell(Command::Hold(expected.to_vec()));
        Ok(())
    }

    fn write(&mut self, effect: &Effect<'_>) -> Poll<Answer> {
        if let Err(error) = self.earlier() {
            return Poll::Ready(Err(error));
        }
        if self.shared.is_gone() || self.actor.is_none() {
            return Poll::Ready(Err(self.lost()));
        }
        if self.shared.queued.load(Ordering::Acquire) > MAX_QUEUED {
            return Poll::Pending;
        }
        self.chunk.push(effect);
        if self.chunk.is_full() {
            self.send_chunk();
        }
        Poll::Ready(Ok(()))
    }

    fn set(&mut self, moves: &[Move], slice: Duration) -> Poll<Answer> {
        self.send_chunk();
        self.ask("set", || Command::Set(moves.to_vec()), slice)
    }

    fn flush(&mut self, slice: Duration) -> Poll<Answer> {
        self.send_chunk();
        self.ask("flush", || Command::Flush, slice)
    }

    fn commit(&mut self, slice: Duration) -> Poll<Answer> {
        let answer = self.ask("commit", || Command::Commit, slice);
        match answer {
            Poll::Ready(Ok(())) => answer,
            Poll::Ready(Err(_)) => {
                self.shared.is_spoiled.store(true, Ordering::Release);
                answer
            }
            // The slice is the whole time for the answer. It may come later, or never.
            Poll::Pending => {
                self.shared.is_spoiled.store(true, Ordering::Release);
                Poll::Ready(Err(self.abortable("no answer to COMMIT in time")))
            }
        }
    }

    fn abort(&mut self, slice: Duration) -> Poll<Answer> {
        self.chunk = Chunk::default();
        if self.actor.is_none() || self.shared.is_gone() {
            self.shared.is_spoiled.store(true, Ordering::Release);
            return Poll::Ready(Ok(()));
        }
        match self.ask("abort", || Command::Abort, slice) {
            // The connection was lost meanwhile: the server aborts.
            Poll::Ready(Err(_)) if self.actor.is_none() => Poll::Ready(Ok(())),
            answer => answer,
        }
    }

    fn is_spoiled(&self) -> bool {
        self.actor.is_none()
            || self.shared.is_spoiled.load(Ordering::Acquire)
            || self.shared.is_gone()
    }
}
