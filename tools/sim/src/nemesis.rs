//! The injection of faults, from a seed or a list.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use eos_core::spi::stepped::Home;

use super::fault::{Api, Fault, Kind, Place, passing};
use super::topics::APP;
use eos_testkit::client::{Effect, Fate, Reaction, Sent, Watcher};
use eos_testkit::crash_backend::CrashHome;
use eos_testkit::rng::Rng;

/// The fault that killed a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Died(pub(crate) Kind);

/// The maximum number of passes of a place between the draw of a fault and its occurrence.
const SOON: i64 = 4;
/// The number of writes that count as those right after the opening.
const FIRST: u64 = 4;
/// The maximum number of faults that wait at a time.
const AT_ONCE: usize = 4;
/// The maximum number of waiting faults at rare places.
const SELDOM: usize = 3;
/// The time after which a fault that has not occurred is dropped, in milliseconds.
const PATIENCE: i64 = 4_000;
/// The maximum number of processes that join during a run.
const JOINS: usize = 3;

/// The pairs to draw from: every possible pair, repeated by its weight.
static PAIRS: LazyLock<Vec<(Place, Kind)>> = LazyLock::new(|| {
    let pairs = Place::all().into_iter().flat_map(|place| {
        let kinds = Kind::ALL.into_iter().filter(move |kind| kind.fits(place));
        let pairs = kinds.map(move |kind| (place, kind));
        pairs.flat_map(move |pair| std::iter::repeat_n(pair, place.weight()))
    });
    pairs.collect()
});

/// An instruction to the stepper of the processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    Freeze(String),
    /// The process is not stepped for this number of milliseconds. Its clients' threads go on.
    Stall(String, i64),
    Join,
    Leave(String),
    Clock,
}

#[derive(Debug)]
struct State {
    seed: u64,
    rng: Rng,
    passed: BTreeMap<Place, u64>,
    /// Faults that wait, and their expiry times.
    armed: Vec<(Fault, i64)>,
    /// The number of drawn faults that are still to occur.
    to_draw: usize,
    fired: Vec<Fault>,
    orders: VecDeque<Order>,
    /// The end of the cut of each process.
    cut_off: BTreeMap<String, i64>,
    now: i64,
    trace: Option<Vec<String>>,
    quiet: bool,
}

/// Injects faults. A clone shares the same state.
#[derive(Debug, Clone)]
pub(crate) struct Nemesis(Arc<Mutex<State>>);

impl Nemesis {
    /// Returns a nemesis that draws this number of faults, one after the other.
    pub(crate) fn drawing(seed: u64, faults: usize) -> Nemesis {
        Nemesis::new(seed, Vec::new(), faults)
    }

    /// Returns a nemesis with these faults.
    pub(crate) fn of(seed: u64, faults: Vec<Fault>) -> Nemesis {
        Nemesis::new(seed, faults, 0)
    }

    fn new(seed: u64, armed: Vec<Fault>, to_draw: usize) -> Nemesis {
        Nemesis(Arc::new(Mutex::new(State {
            seed,
            rng: Rng::new(seed ^ 0x6e65_6d65_7369_7300),
            passed: BTreeMap::new(),
            armed: armed.into_iter().map(|it| (it, i64::MAX)).collect(),
            to_draw,
            fired: Vec::new(),
            orders: VecDeque::new(),
            cut_off: BTreeMap::new(),
            now: 0,
            trace: None,
            quiet: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn trace(&self) {
        self.state().trace = Some(Vec::new());
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        let mut state = self.state();
        let now = state.now;
        if let Some(trace) = &mut state.trace {
            trace.push(format!("{now:>8}  {}", text()));
        }
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.state().trace.take().unwrap_or_default()
    }

    pub(crate) fn at(&self, now: i64) {
        let mut state = self.state();
        state.now = now;
        state.draw();
    }

    pub(crate) fn orders(&self) -> VecDeque<Order> {
        std::mem::take(&mut self.state().orders)
    }

    pub(crate) fn fired(&self) -> Vec<Fault> {
        self.state().fired.clone()
    }

    /// Returns how often each place was passed.
    pub(crate) fn passed(&self) -> BTreeMap<Place, u64> {
        self.state().passed.clone()
    }

    /// Returns whether all faults have occurred.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.to_draw == 0 && (state.armed.is_empty() || state.quiet)
    }

    /// Stops all faults.
    pub(crate) fn rest(&self) {
        let mut state = self.state();
        state.quiet = true;
        state.to_draw = 0;
        state.armed.clear();
    }

    /// Returns the databases of a process, at whose writes this nemesis can kill the process.
    pub(crate) fn watch(&self, home: Arc<dyn Home>, instance: &str) -> CrashHome {
        let (nemesis, process) = (self.clone(), format!("{APP}-{instance}-"));
        CrashHome::new(home, move |edge, nth| {
            let place = if nth <= FIRST {
                Place::Opened(edge)
            } else {
                Place::Disk(edge)
            };
            if let Some(died) = nemesis.at_write(place, &process) {
                std::panic::resume_unwind(Box::new(died));
            }
        })
    }

    /// Returns the fault that kills the process at a write to a disk, if any.
    fn at_write(&self, place: Place, process: &str) -> Option<Died> {
        let mut state = self.state();
        let kind = state.pass(place)?;
        state.order_or_die(kind, process)
    }
}

impl State {
    /// Draws faults, also as replacements for those that expired.
    fn draw(&mut self) {
        if self.to_draw == 0 {
            return;
        }
        let now = self.now;
        self.armed.retain(|(_, until)| *until > now);
        while self.armed.len() < AT_ONCE {
            let Some(fault) = self.next_fault() else {
                return;
            };
            self.armed.push((fault, now + PATIENCE));
        }
    }

    fn next_fault(&mut self) -> Option<Fault> {
        let (place, kind) = loop {
            let pair = *self.rng.of(&PAIRS)?;
            let armed = || self.armed.iter().map(|(fault, _)| fault);
            let seldom = armed().filter(|it| it.place.weight() > 1).count();
            if pair.0.weight() > 1 && seldom >= SELDOM {
                continue;
            }
            // One more process would change nothing.
            let all = self.fired.iter().chain(armed());
            if pair.1 != Kind::Join || all.filter(|it| it.kind == Kind::Join).count() < JOINS {
                break pair;
            }
        };
        let passed = self.passed.get(&place).copied().unwrap_or(0);
        // A rare place may be passed only once.
        let most = if place.weight() > 1 { 1 } else { SOON };
        let ahead = self.rng.between(1, most).unsigned_abs();
        Some(Fault {
            place,
            nth: passed + ahead,
            kind,
        })
    }

    /// Returns the chance at a place. It depends on the seed and is independent of the other places that were passed.
    /// So a run with fewer faults is the same up to the first missing fault.
    fn chance(&self, place: Place) -> Rng {
        let places = Place::all().into_iter();
        let which = places.zip(1_u64..).find(|(it, _)| *it == place);
        let which = which.map_or(0, |(_, which)| which);
        let passed = self.passed.get(&place).copied().unwrap_or(0);
        let mut chance = Rng::new(self.seed ^ which.rotate_left(48) ^ passed.rotate_left(16));
        Rng::new(chance.draw())
    }

    /// Counts a pass of a place, and returns the fault that occurs, if any.
    fn pass(&mut self, place: Place) -> Option<Kind> {
        let passed = self.passed.entry(place).or_default();
        *passed += 1;
        let nth = *passed;
        let due = |(fault, _): &(Fault, i64)| fault.place == place && fault.nth == nth;
        let at = self.armed.iter().position(due)?;
        let (fault, _) = self.armed.remove(at);
        self.to_draw = self.to_draw.saturating_sub(1);
        self.fired.push(fault);
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>8}  FAULT {fault}"));
        }
        if self.to_draw == 0 {
            self.armed.retain(|(_, until)| *until == i64::MAX);
        }
        self.draw();
        Some(fault.kind)
    }

    /// Cuts off a process for a while.
    fn cut(&mut self, client_id: &str, chance: &mut Rng) {
        let until = self.now + chance.between(300, 9_000);
        self.cut_off.insert(process(client_id).to_owned(), until);
    }

    fn is_cut(&self, client_id: &str) -> bool {
        let until = self.cut_off.get(process(client_id));
        !self.quiet && until.is_some_and(|until| *until > self.now)
    }

    fn order_or_die(&mut self, kind: Kind, client_id: &str) -> Option<Died> {
        match kind {
            Kind::Crash | Kind::CrashAndLoseDisk | Kind::CrashAndOlderDisk => Some(Died(kind)),
            Kind::Freeze => {
                self.orders.push_back(Order::Freeze(client_id.to_owned()));
                None
            }
            Kind::Join => {
                self.orders.push_back(Order::Join);
                None
            }
            Kind::Leave => {
                self.orders.push_back(Order::Leave(client_id.to_owned()));
                None
            }
            Kind::Clock => {
                self.orders.push_back(Order::Clock);
                None
            }
            Kind::Cut => {
                let mut chance = Rng::new(self.seed ^ self.now.unsigned_abs());
                self.cut(client_id, &mut chance);
                None
            }
            Kind::Stall
            | Kind::Lost
            | Kind::AnswerLost
            | Kind::Late
            | Kind::Slow
            | Kind::Refused => None,
        }
    }
}

/// Returns the prefix of the names of a process's clients: `<app>-<instance>-`.
fn process(client_id: &str) -> &str {
    let mut dashes = client_id.match_indices('-');
    let end = dashes.nth(1).map_or(client_id.len(), |(at, _)| at + 1);
    &client_id[..end]
}

impl Watcher for Nemesis {
    fn fate(&mut self, sent: &Sent<'_>) -> Fate {
        let mut state = self.state();
        state.now = sent.now;
        let place = Place::Request(Api(sent.key));
        let kind = state.pass(place);
        let mut chance = state.chance(place);
        let there = chance.between(0, 2);
        let back = chance.between(0, 2);
        if let Some(trace) = &mut state.trace {
            trace.push(format!(
                "{:>8}  {} sends {:?}",
                sent.now, sent.client_id, sent.key
            ));
        }
        match kind {
            Some(Kind::Lost) => Fate::Lost {
                after: chance.between(1, 400),
            },
            Some(Kind::AnswerLost) => Fate::AnswerLost {
                there,
                after: chance.between(1, 400),
            },
            Some(Kind::Late) => Fate::Late {
                after: chance.between(1, 20),
                there: chance.between(20, 2_000),
            },
            Some(Kind::Slow) => Fate::Arrives {
                there,
                back: chance.between(200, 8_000),
            },
            Some(Kind::Refused) => match chance.of(passing(sent.key)) {
                Some(error) => Fate::Refused {
                    there,
                    back,
                    error: *error,
                },
                None => Fate::Arrives { there, back },
            },
            Some(Kind::Cut) => {
                state.cut(sent.client_id, &mut chance);
                Fate::Lost {
                    after: chance.between(1, 400),
                }
            }
            _ if state.is_cut(sent.client_id) => Fate::Lost {
                after: chance.between(1, 400),
            },
            _ => Fate::Arrives { there, back },
        }
    }

    fn effect(&mut self, effect: &Effect<'_>) -> Reaction {
        let mut state = self.state();
        let place = Place::Call(effect.call, effect.edge);
        let Some(kind) = state.pass(place) else {
            return Reaction::Nothing;
        };
        if kind == Kind::Stall {
            let mut chance = state.chance(place);
            let time = chance.between(100, 9_000);
            // A call that cannot wait blocks its worker. The rest of this step is done before or after the fault.
            if place.can_wait() || chance.one_in(2) {
                return Reaction::Stalls(time);
            }
            let order = Order::Stall(effect.client_id.to_owned(), time);
            state.orders.push_back(order);
            return Reaction::Nothing;
        }
        match state.order_or_die(kind, effect.client_id) {
            Some(died) => Reaction::Dies(Box::new(died) as Box<dyn Any + Send>),
            // A frozen process stops in the middle of a call that can wait.
            None if kind == Kind::Freeze && place.can_wait() => Reaction::Stalls(1),
            None => Reaction::Nothing,
        }
    }
}
