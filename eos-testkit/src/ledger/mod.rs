//! A ledger in memory.

mod positions;
mod session;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eos_core::Failure;
use eos_core::boundary::{
    Answer, Identity, Ledger, LedgerError, LedgerFailure, Place, Plan, Positions, Row, Session,
};
use eos_protocol::{CallSite, Offset, TopicPartition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Edge;
use crate::rng::Rng;
use positions::ModelPositions;
use session::ModelSession;
use world::World;

/// A ledger in memory, for tests of apps and of eos itself.
///
/// It keeps positions with epochs and locks, as a database does, and appends the rows of each place. A clone is the
/// same ledger, so rows and positions outlive a crash of the app. [`TestDriver::ledger`](crate::TestDriver::ledger)
/// makes its calls places of crashes.
///
/// ```
/// use eos_core::{App, Topic};
/// use eos_testkit::{TestDriver, ledger::ModelLedger};
///
/// let ledger = ModelLedger::new("shop");
/// let orders = Topic::<String, u64>::plain("orders");
/// let mut app = App::new("stock-v1");
/// app.ledger(&ledger);
/// app.source(&orders).to_place(ledger.place("bookings"));
///
/// let mut driver = TestDriver::new(app);
/// driver.ledger(&ledger);
/// driver.pipe(&orders, "a", 7_u64);
/// assert_eq!(ledger.rows::<String, u64>("bookings"), [("a".to_owned(), Some(7))]);
/// ```
#[derive(Clone)]
pub struct ModelLedger {
    name: Arc<str>,
    world: Arc<Mutex<World>>,
    hook: Arc<Mutex<Hook>>,
}

/// Called at both sides of each call. It may throw the death of the process.
type Hook = Box<dyn FnMut(CallSite, &str, Edge) + Send>;

/// A fault of the next call of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerFault {
    /// The ledger is not available.
    Unavailable,
    /// The connection breaks before the call has an effect.
    Lost,
    /// The connection breaks after the call had its effect.
    AnswerLost,
    /// The connection breaks, and the call has its effect later: when another session needs a lock of this one, or
    /// commits.
    Late,
    /// The ledger aborts the transaction, as in a deadlock.
    Aborted,
    /// The ledger takes longer than a slice to move positions. It responds when the call is repeated.
    Slow,
}

/// A defence of a ledger. The model can leave it out, so that tests show its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LedgerDefence {
    /// A take-over raises the epoch.
    Epoch,
    /// A take-over, and a new session of the same worker, waits for transactions whose commit is on its way.
    WaitsForLocks,
    /// A transaction compares the position before it moves it.
    Compares,
    /// A position moves in the transaction of its effects.
    OneTransaction,
}

impl ModelLedger {
    /// Creates an empty ledger.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            world: Arc::default(),
            hook: Arc::new(Mutex::new(Box::new(|_, _, _| {}))),
        }
    }

    /// Leaves out a defence.
    #[must_use]
    pub fn without(self, defence: LedgerDefence) -> Self {
        self.world().missing.insert(defence);
        self
    }

    /// Returns a place that appends rows in JSON.
    #[must_use]
    pub fn place<K, V>(&self, name: &str) -> ModelPlace<K, V> {
        ModelPlace {
            ledger: self.clone(),
            name: name.to_owned(),
            types: PhantomData,
        }
    }

    /// Returns the committed rows of a place, in the order of their transactions and of their records.
    ///
    /// # Panics
    /// If a row is no JSON of these types.
    #[must_use]
    pub fn rows<K: DeserializeOwned, V: DeserializeOwned>(
        &self,
        place: &str,
    ) -> Vec<(K, Option<V>)> {
        let world = self.world();
        let rows = world.committed.rows.get(place).into_iter().flatten();
        rows.map(|(key, row)| (read(key), row.as_deref().map(read)))
            .collect()
    }

    /// Returns the keys and values of the records in a place of dead letters, as bytes.
    #[must_use]
    pub fn dead_letters(&self, place: &str) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let world = self.world();
        world.committed.rows.get(place).cloned().unwrap_or_default()
    }

    /// Returns the committed positions.
    #[must_use]
    pub fn offsets(&self) -> BTreeMap<TopicPartition, Option<Offset>> {
        let world = self.world();
        let positions = world.committed.positions.iter();
        positions
            .map(|((_, partition), it)| (partition.clone(), it.offset))
            .collect()
    }

    /// The number of committed transactions.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.world().commits
    }

    /// Makes the next call of this kind fail.
    pub fn fail(&self, call: CallSite, fault: LedgerFault) {
        self.world().faults.push((call, fault));
    }

    /// Whether all planned faults have occurred.
    #[must_use]
    pub fn faults_are_over(&self) -> bool {
        self.world().faults.is_empty()
    }

    /// Draws a fault at every `n`-th call or so, from a seed.
    pub fn fail_at_random(&self, seed: u64, n: usize) {
        self.world().chaos = Some((Rng::new(seed), n));
    }

    /// Ends the faults that are drawn.
    pub fn calm(&self) {
        self.world().chaos = None;
    }

    /// The number of faults that occurred.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.world().occurred
    }

    /// Ends all sessions, as a restart of a database does. Nothing that is committed is lost.
    pub fn restart(&self) {
        self.world().restart();
    }

    /// Loses the last commits, as a failover to a standby may.
    pub fn fail_over(&self, commits: usize) {
        self.world().fail_over(commits);
    }

    /// Takes over a partition as another worker. A worker that the group has removed may still do this.
    pub fn steal(&self, partition: &TopicPartition) {
        self.world().steal(partition);
    }

    /// Announces each side of each call, with the name of the worker. The hook may throw the death of the process.
    pub fn watch(&self, hook: impl FnMut(CallSite, &str, Edge) + Send + 'static) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(hook);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a side of a call. It must not be called under the lock.
    fn at(&self, call: CallSite, worker: &str, edge: Edge) {
        (self.hook.lock().unwrap_or_else(PoisonError::into_inner))(call, worker, edge);
    }
}

impl Ledger for ModelLedger {
    fn name(&self) -> String {
        format!("ledger {}", self.name)
    }

    fn check(&self, _: &Plan, _: Duration) -> Answer {
        match self.world().take_fault(CallSite::Facts) {
            None => Ok(()),
            Some(_) => Err(unavailable()),
        }
    }

    fn positions(&self, plan: &Plan, identity: &Identity) -> Answer<Box<dyn Positions>> {
        Ok(Box::new(ModelPositions::new(self.clone(), plan, identity)))
    }

    fn session(&self, plan: &Plan, identity: &Identity) -> Answer<Box<dyn Session>> {
        Ok(Box::new(ModelSession::new(self.clone(), plan, identity)))
    }
}

fn unavailable() -> LedgerError {
    LedgerError::new(LedgerFailure::Retriable, "the ledger is not available")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> T {
    match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(why) => panic!(
            "a row of other types: {why}: {}",
            String::from_utf8_lossy(bytes)
        ),
    }
}

impl fmt::Debug for ModelLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelLedger").field(&self.name).finish()
    }
}

/// A place of a [`ModelLedger`]. Returned by [`ModelLedger::place`].
pub struct ModelPlace<K, V> {
    ledger: ModelLedger,
    name: String,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> Clone for ModelPlace<K, V> {
    fn clone(&self) -> Self {
        self.ledger.place(&self.name)
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned> ModelPlace<K, V> {
    /// Returns the committed rows.
    pub(crate) fn rows(&self) -> Vec<(K, Option<V>)> {
        self.ledger.rows(&self.name)
    }
}

impl<K, V> fmt::Debug for ModelPlace<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelPlace").field(&self.name).finish()
    }
}

impl<K: Serialize + 'static, V: Serialize + 'static> Place<K, V> for ModelPlace<K, V> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn encode(&self, key: &K, value: &V, row: &mut Row) -> Result<(), Failure> {
        serde_json::to_writer(&mut row.key, key)?;
        serde_json::to_writer(&mut row.row, value)?;
        Ok(())
    }
}
