//! The state that the threads of one embedded broker share.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::limits::Limits;
use crate::broker::{Broker, Output, Request, Ticket};

/// The counts of connections and requests so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Open connections.
    pub open: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Connections that were closed at once, because `max.connections` was reached.
    pub turned_away: u64,
    /// Connections that were closed because of an invalid request.
    pub malformed: u64,
    /// Requests with a response.
    pub requests: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) requests: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when the clock thread must wake up earlier than planned.
    sooner: Condvar,
    pub(super) stopping: AtomicBool,
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    pub(super) sockets: Mutex<HashMap<u64, TcpStream>>,
    started: Instant,
    /// The wall-clock time of `started`, corrected for sleeps of the machine since then.
    started_at: AtomicI64,
}

#[derive(Debug)]
struct State {
    broker: Broker,
    held: HashMap<Ticket, SyncSender<Output>>,
    next_ticket: u64,
    /// The planned wake-up time of the clock thread.
    planned: Option<i64>,
}

/// The result of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and none is kept"
)]
pub(super) enum Stepped {
    Now(Output),
    Later(Ticket, Receiver<Output>),
    /// The broker stops, so there is no response.
    Never,
}

fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_millis() as i64)
}

/// Locks a mutex even if it is poisoned. A panic elsewhere is a bug, but must not block all other connections.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(broker: Broker, limits: Limits) -> Shared {
        Shared {
            state: Mutex::new(State {
                broker,
                held: HashMap::new(),
                next_ticket: 0,
                planned: None,
            }),
            sooner: Condvar::new(),
            stopping: AtomicBool::new(false),
            limits,
            counters: Counters::default(),
            sockets: Mutex::new(HashMap::new()),
            started: Instant::now(),
            started_at: AtomicI64::new(wall_clock()),
        }
    }

    /// Returns the time in milliseconds since the epoch, which never decreases.
    ///
    /// A monotonic clock stands still while a machine sleeps, but the time of the clients continues. So this function
    /// adds the missed time.
    pub(super) fn now(&self) -> i64 {
        let elapsed = self.started.elapsed().as_millis() as i64;
        let started_at = wall_clock() - elapsed;
        started_at.max(self.started_at.fetch_max(started_at, Ordering::Relaxed)) + elapsed
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Passes a request to the model.
    pub(super) fn step(&self, make: impl FnOnce(Ticket) -> Request) -> Stepped {
        let mut state = locked(&self.state);
        if self.is_stopping() {
            // It would never get a response.
            return Stepped::Never;
        }
        state.next_ticket += 1;
        let ticket = Ticket(state.next_ticket);
        let now = self.now();
        let outputs = state.broker.step(make(ticket), now);
        let mut own = None;
        for output in outputs {
            if output.ticket() == ticket {
                own = Some(output);
            } else {
                state.deliver(output);
            }
        }
        self.wake_if_sooner(&state);
        match own {
            Some(output) => Stepped::Now(output),
            None => {
                let (sender, receiver) = sync_channel(1);
                state.held.insert(ticket, sender);
                Stepped::Later(ticket, receiver)
            }
        }
    }

    /// Discards the response to this ticket.
    pub(super) fn forget(&self, ticket: Ticket) {
        locked(&self.state).held.remove(&ticket);
    }

    /// Calls `act` of a test on the model.
    pub(super) fn with_broker<T>(
        &self,
        act: impl FnOnce(&mut Broker, i64) -> (T, Vec<Output>),
    ) -> T {
        let mut state = locked(&self.state);
        let now = self.now();
        let (done, outputs) = act(&mut state.broker, now);
        for output in outputs {
            state.deliver(output);
        }
        self.wake_if_sooner(&state);
        done
    }

    fn wake_if_sooner(&self, state: &State) {
        let sooner = match (state.broker.next_wake(), state.planned) {
            (Some(wake), Some(planned)) => wake < planned,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Lets time pass until the broker is stopped.
    pub(super) fn run_clock(&self) {
        let mut state = locked(&self.state);
        while !self.is_stopping() {
            let now = self.now();
            for output in state.broker.advance(now) {
                state.deliver(output);
            }
            state.planned = state.broker.next_wake();
            state = match state.planned {
                None => self
                    .sooner
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(wake) => {
                    let wait =
                        std::time::Duration::from_millis((wake - now).clamp(0, 60_000) as u64);
                    let waited = self.sooner.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Ends every waiting thread.
    pub(super) fn stop(&self) {
        let mut state = locked(&self.state);
        // Set while the state is locked, so that every later holder of the lock reads it.
        self.stopping.store(true, Ordering::Relaxed);
        state.held.clear();
        drop(state);
        self.sooner.notify_all();
        for socket in locked(&self.sockets).values() {
            // If the socket is already closed, there is nothing to end.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Registers a connection. Returns the number of connections, or `None` if the broker stops.
    pub(super) fn opened(&self, id: u64, socket: TcpStream) -> Option<usize> {
        let mut sockets = locked(&self.sockets);
        if self.is_stopping() {
            return None;
        }
        sockets.insert(id, socket);
        Some(sockets.len())
    }

    pub(super) fn closed(&self, id: u64) {
        locked(&self.sockets).remove(&id);
    }

    pub(super) fn traffic(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            open: locked(&self.sockets).len() as u64,
            accepted: read(&self.counters.accepted),
            turned_away: read(&self.counters.turned_away),
            malformed: read(&self.counters.malformed),
            requests: read(&self.counters.requests),
        }
    }
}

impl State {
    /// Gives a response to the connection that waits for it, or drops it if that connection is closed.
    fn deliver(&mut self, output: Output) {
        if let Some(sender) = self.held.remove(&output.ticket()) {
            let _ = sender.try_send(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use kafka_protocol::messages::MetadataRequest;

    use super::*;
    use crate::broker::BrokerOptions;

    #[test]
    fn time_advances_while_the_machine_sleeps_and_never_goes_back() {
        const HOUR: i64 = 3_600_000;
        let shared = Shared::new(Broker::new(BrokerOptions::default()), Limits::default());
        let before = shared.now();
        // This is like an hour of sleep, during which only the wall clock continued.
        shared.started_at.fetch_sub(HOUR, Ordering::Relaxed);
        assert!(shared.now() >= before);
        // This is like a wall clock that was set back by an hour.
        shared.started_at.fetch_add(2 * HOUR, Ordering::Relaxed);
        assert!(shared.now() >= before + HOUR);
    }

    /// A request or a connection during the stop would wait for a response that never comes, and so would its thread.
    #[test]
    fn nothing_begins_once_it_stops() {
        let broker = Broker::new(BrokerOptions::default());
        let shared = Shared::new(broker, Limits::default());
        let ask = |ticket| Request::new(ticket, 9, MetadataRequest::default().into());
        assert!(matches!(shared.step(ask), Stepped::Now(_)));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let socket = || TcpStream::connect(address).expect("connected");
        assert_eq!(shared.opened(1, socket()), Some(1));
        shared.stop();
        assert!(matches!(shared.step(ask), Stepped::Never));
        assert_eq!(shared.opened(2, socket()), None);
    }
}
