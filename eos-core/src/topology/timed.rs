//! Steps of closures with timers and ticks.

use std::sync::Arc;

use eos_protocol::TaskId;

use super::fault::Fault;
use super::node::Next;
use super::process::{NO_HANDLER, Step, outcome};
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::process_ctx::{OwnKey, ProcessCtx};
use crate::processors::OnDiscard;
use crate::record::Record;
use crate::store::StateError;
use crate::timer::{self, Due, Tick};

/// A step of closures, with closures that handle the moments of its timers.
pub(crate) struct Timed<S, K, L, U> {
    step: S,
    handlers: Handlers<K, L, U>,
    ticks: Ticks<L, U>,
    /// Returns the encoded key of a forwarded record, if the handler must forward under its own key.
    encode: Option<EncodeKey<L>>,
}

/// The handlers of timers, by the index of the timer's store.
pub(crate) type Handlers<K, L, U> = Arc<[(usize, Handler<K, L, U>)]>;
/// The handler of a timer.
pub(crate) type Handler<K, L, U> =
    Box<dyn Fn(&ProcessCtx<'_, L, U>, Due<K>) -> Result<(), Failure> + Send + Sync>;
/// The handlers of ticks, by the index of the tick's store.
pub(crate) type Ticks<L, U> = Arc<[(usize, TickHandler<L, U>)]>;
/// The handler of a tick.
pub(crate) type TickHandler<L, U> =
    Box<dyn Fn(&ProcessCtx<'_, L, U>, Tick) -> Result<(), Failure> + Send + Sync>;
/// Encodes a key as a timer does.
type EncodeKey<L> = fn(&Ctx<'_>, usize, &L) -> Result<Vec<u8>, StateError>;

impl<S, K, L, U> Timed<S, K, L, U> {
    pub(crate) fn new(step: S, handlers: Handlers<K, L, U>, ticks: Ticks<L, U>) -> Self {
        Self {
            step,
            handlers,
            ticks,
            encode: None,
        }
    }
}

impl<S, K: 'static, U> Timed<S, K, K, U> {
    /// Makes handlers fail that forward under another key.
    pub(crate) fn keeping_keys(self) -> Self {
        Self {
            encode: Some(timer::encode_key),
            ..self
        }
    }
}

impl<S, K, V, L, U> Step<K, V> for Timed<S, K, L, U>
where
    S: Step<K, V>,
    K: 'static,
    L: 'static,
    U: 'static,
{
    fn init(&mut self, task: TaskId) -> Result<(), Failure> {
        self.step.init(task)
    }

    fn process<'r>(
        &mut self,
        ctx: Ctx<'r>,
        next: Next<'r>,
        record: Record<K, V>,
    ) -> Result<(), Fault> {
        self.step.process(ctx, next, record)
    }

    fn on_timer<'r>(&mut self, ctx: Ctx<'r>, next: Next<'r>, due: Due<K>) -> Result<(), Fault> {
        let mut handlers = self.handlers.iter();
        let Some((timer, handler)) = handlers.find(|(timer, _)| *timer == due.timer) else {
            return Err(Fault::User(NO_HANDLER.into()));
        };
        let own = self.encode.map(|encode| OwnKey {
            timer: *timer,
            encode,
            key: due.encoded.clone(),
        });
        let ctx = ProcessCtx::new(ctx, next).forwarding(own);
        let result = handler(&ctx, due);
        outcome(&ctx, result)
    }

    fn on_tick<'r>(
        &mut self,
        ctx: Ctx<'r>,
        next: Next<'r>,
        timer: usize,
        tick: Tick,
    ) -> Result<(), Fault> {
        let mut ticks = self.ticks.iter();
        let Some((_, handler)) = ticks.find(|(at, _)| *at == timer) else {
            return Err(Fault::User(NO_HANDLER.into()));
        };
        let ctx = ProcessCtx::new(ctx, next);
        let result = handler(&ctx, tick);
        outcome(&ctx, result)
    }

    fn on_discard(&mut self) -> OnDiscard {
        self.step.on_discard()
    }

    fn close(&mut self) {
        self.step.close();
    }
}
