//! The failpoints of a thread or of the process, and their actions.

use std::cell::RefCell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::point::{Defence, Point};
use super::spec::{self, Act, Armed, Unreadable, When};
use crate::client::ClientError;

/// Armed failpoints, disabled defences, and the faults that have fired. A clone shares all of them.
///
/// ```
/// use eos_core::spi::failpoints::Failpoints;
/// let faults = Failpoints::parse("pre_commit=error@hit:2", "quarantine").unwrap();
/// let entered = faults.enter();
/// // They apply to an app that this thread starts, and not to the apps of other threads.
/// assert!(faults.fired().is_empty());
/// ```
#[derive(Clone)]
pub struct Failpoints(Arc<Inner>);

struct Inner {
    undefended: Vec<Defence>,
    armed: bool,
    log: Option<File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// The number of taken records. A record that comes again after an abort counts once.
    records: u64,
    fired: Vec<String>,
}

struct Waiting {
    armed: Armed,
    hits: u64,
}

impl Waiting {
    fn is_due(&self, hits: u64, records: u64) -> bool {
        match self.armed.when {
            When::Hit(n) => hits >= n,
            When::Record(n) => records >= n,
        }
    }
}

/// The duration of a hang: longer than the short deadlines that a test sets for its app.
const HANG: Duration = Duration::from_secs(20);
/// The duration of a stall: longer than a heartbeat and its response.
const STALL: Duration = Duration::from_secs(2);

thread_local! {
    static HERE: RefCell<Option<Failpoints>> = const { RefCell::new(None) };
}

impl Failpoints {
    /// Reads faults (`point=action@hit:n;…`), and the defences to disable (`name,…`).
    ///
    /// # Errors
    /// [`Unreadable`] names the part that can't be read, and the alternatives.
    pub fn parse(points: &str, undefended: &str) -> Result<Self, Unreadable> {
        let points = spec::points(points)?;
        let waiting = points.into_iter().map(|armed| Waiting { armed, hits: 0 });
        Ok(Self::new(
            waiting.collect(),
            spec::defences(undefended)?,
            None,
        ))
    }

    fn new(waiting: Vec<Waiting>, undefended: Vec<Defence>, log: Option<File>) -> Self {
        Self(Arc::new(Inner {
            undefended,
            armed: !waiting.is_empty(),
            log,
            state: Mutex::new(State {
                waiting,
                ..State::default()
            }),
        }))
    }

    /// Activates the failpoints for this thread and the apps that it starts, instead of those of the environment, until
    /// the guard is dropped.
    #[must_use = "the failpoints are active until this guard is dropped"]
    pub fn enter(&self) -> Entered {
        let before = HERE.with_borrow_mut(|here| here.replace(self.clone()));
        Entered {
            before,
            _of_this_thread: PhantomData,
        }
    }

    /// Returns a line for each fault that has fired, as in the log.
    #[must_use]
    pub fn fired(&self) -> Vec<String> {
        self.state().fired.clone()
    }

    /// Returns the failpoints that are active on this thread.
    pub(crate) fn here() -> Self {
        HERE.with_borrow(|here| here.clone())
            .unwrap_or_else(|| of_environment().clone())
    }

    /// Checks the value of an environment variable, so that an unreadable value is an error of the app's start.
    pub(crate) fn check_environment(variable: &str, value: &str) -> Result<(), Unreadable> {
        match variable {
            "EOS_FAILPOINTS" => spec::points(value).map(|_| ()),
            "EOS_UNDEFENDED" => spec::defences(value).map(|_| ()),
            "EOS_FAILPOINTS_LOG" => open(Path::new(value)).map(|_| ()).map_err(|e| Unreadable {
                part: value.to_owned(),
                reason: format!("lines can't be appended to it ({e})"),
            }),
            _ => Ok(()),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, point: Point) -> Result<(), ClientError> {
        if !self.0.armed {
            return Ok(());
        }
        let due = self.due(point);
        for (act, line) in due {
            tracing::warn!(fault = line, "failpoint");
            self.write(&line);
            match act {
                Act::Crash => crash(),
                Act::Freeze => freeze(),
                Act::Stall => std::thread::sleep(STALL),
                Act::Hang => std::thread::sleep(HANG),
                Act::Error => return Err(point.error()),
            }
        }
        Ok(())
    }

    /// Returns the faults that fire at this step, in order: the action, and the line of the log.
    fn due(&self, point: Point) -> Vec<(Act, String)> {
        let mut state = self.state();
        let records = state.records;
        let mut due = Vec::new();
        state.waiting.retain_mut(|waiting| {
            if waiting.armed.point != point {
                return true;
            }
            waiting.hits += 1;
            let (act, hits) = (waiting.armed.act, waiting.hits);
            let fires = waiting.is_due(hits, records);
            if fires {
                let (id, name) = (std::process::id(), point.name());
                due.push((
                    act,
                    format!("{id} {name} {act} hit {hits} record {records}"),
                ));
            }
            !fires
        });
        state.fired.extend(due.iter().map(|(_, line)| line.clone()));
        due
    }

    /// Appends a line to the log, in one write. Written data outlives the process.
    fn write(&self, line: &str) {
        if let Some(mut log) = self.0.log.as_ref() {
            // The log was opened successfully. If the write fails, the test that expects the line fails.
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let armed = state.waiting.iter().map(|w| w.armed.point.name());
        f.debug_struct("Failpoints")
            .field("armed", &armed.collect::<Vec<_>>())
            .field("fired", &state.fired)
            .finish_non_exhaustive()
    }
}

/// A guard. Its failpoints are active for the thread that entered them until it is dropped.
#[derive(Debug)]
pub struct Entered {
    before: Option<Failpoints>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.with_borrow_mut(|here| *here = self.before.take());
    }
}

/// Returns the failpoints of the environment. An unreadable value arms nothing here, because the app's start fails with
/// it before there is a worker.
fn of_environment() -> &'static Failpoints {
    static ALL: OnceLock<Failpoints> = OnceLock::new();
    ALL.get_or_init(|| {
        let text = |variable| std::env::var(variable).unwrap_or_default();
        let points = spec::points(&text("EOS_FAILPOINTS")).unwrap_or_default();
        let waiting = points.into_iter().map(|armed| Waiting { armed, hits: 0 });
        let undefended = spec::defences(&text("EOS_UNDEFENDED")).unwrap_or_default();
        let log = std::env::var_os("EOS_FAILPOINTS_LOG");
        let log = log.and_then(|path| open(Path::new(&path)).ok());
        Failpoints::new(waiting.collect(), undefended, log)
    })
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Counts a record that was taken from its partition.
pub(crate) fn taken() {
    let here = Failpoints::here();
    if here.0.armed {
        here.state().records += 1;
    }
}

/// Subtracts the records of a discarded transaction.
pub(crate) fn given_back(records: u64) {
    let here = Failpoints::here();
    if here.0.armed {
        let mut state = here.state();
        state.records = state.records.saturating_sub(records);
    }
}

/// Passes this point: performs the actions that are due.
///
/// # Errors
/// The error of the step, if the action `error` is due.
pub(crate) fn hit(point: Point) -> Result<(), ClientError> {
    Failpoints::here().pass(point)
}

/// Whether a fault is due at the next pass of this point.
pub(crate) fn is_due(point: Point) -> bool {
    let here = Failpoints::here();
    let state = here.state();
    let mut waiting = state.waiting.iter();
    waiting.any(|w| w.armed.point == point && w.is_due(w.hits + 1, state.records))
}

/// Whether this defence is disabled.
pub(crate) fn undefended(defence: Defence) -> bool {
    Failpoints::here().0.undefended.contains(&defence)
}

#[cfg(target_os = "linux")]
fn to_itself(signal: rustix::process::Signal) {
    let itself = rustix::process::getpid();
    // This can't fail: the process exists, and may send signals to itself.
    let _ = rustix::process::kill_process(itself, signal);
}

/// Kills this process. The SIGKILL may reach another thread first, so this thread does nothing more.
fn crash() -> ! {
    #[cfg(target_os = "linux")]
    loop {
        to_itself(rustix::process::Signal::KILL);
        std::thread::sleep(Duration::from_secs(1));
    }
    #[cfg(not(target_os = "linux"))]
    std::process::abort()
}

/// Stops this process until a SIGCONT. The signal may arrive a little later, so this thread sleeps meanwhile.
fn freeze() {
    #[cfg(target_os = "linux")]
    to_itself(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_millis(50));
}
