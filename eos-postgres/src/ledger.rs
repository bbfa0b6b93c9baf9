//! A database as a ledger.

use std::time::Duration;

use eos_core::boundary::{
    Answer, Identity, Ledger, LedgerError, LedgerFailure, LedgerTotals, Plan, Positions, Session,
};
use eos_core::{Failure, Record};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::apply::Apply;
use crate::check;
use crate::connect::{self, ConnectError};
use crate::error::Failed;
use crate::positions::PostgresPositions;
use crate::postgres::Postgres;
use crate::session::PostgresSession;
use crate::table::{Inbox, SqlTable, Statement};
use crate::tx::Tx;

/// The pause after the first attempt of a check. Each later pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Postgres {
    /// Begins the description of a table: `stock`, or `sales.stock`. See [`SqlTable`].
    #[must_use]
    pub fn table<K, V>(&self, name: &str) -> SqlTable<K, V> {
        SqlTable::new(self.clone(), name.to_owned())
    }

    /// Begins a statement that runs for each record. The name is for messages. See [`Statement`].
    #[must_use]
    pub fn statement<K, V>(&self, name: &str, sql: &str) -> Statement<K, V> {
        Statement::new(self.clone(), name.to_owned(), sql.to_owned())
    }

    /// Makes a closure with the transaction of its record. The name is for messages. See [`Apply`].
    #[must_use]
    pub fn apply<K, V>(
        &self,
        name: &str,
        closure: impl AsyncFn(&mut Tx, Record<K, V>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Apply<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + 'static,
    {
        Apply::new(self.clone(), name.to_owned(), closure)
    }

    /// Returns the inbox of a subscriber, for `once_by` of a table, a statement or a closure.
    #[must_use]
    pub fn inbox(&self, subscriber: &str) -> Inbox {
        Inbox::new(subscriber.to_owned())
    }

    fn check_here(&self, plan: &Plan, within: Duration) -> Answer {
        let retriable = |text: String| LedgerError::new(LedgerFailure::Retriable, text);
        let runtime = connect::runtime().map_err(|error| {
            retriable(format!(
                "{}: failed to start a tokio runtime: {error}",
                self.name()
            ))
        })?;
        let checked = runtime.block_on(self.check_until_available(plan, within));
        runtime.shutdown_background();
        checked
    }

    /// Repeats the check until the server is available, or until the time has passed.
    async fn check_until_available(&self, plan: &Plan, within: Duration) -> Answer {
        let end = Instant::now() + within;
        let mut pause = FIRST_PAUSE;
        let timed_out = format!(
            "{}: the check timed out after {within:?}. Check that the server is reachable",
            self.name()
        );
        let mut last = LedgerError::new(LedgerFailure::Retriable, timed_out);
        while let Ok(checked) = tokio::time::timeout_at(end, self.run_check(plan)).await {
            match checked {
                Err(error) if error.failure == LedgerFailure::Retriable => last = error,
                checked => return checked,
            }
            if Instant::now() >= end {
                break;
            }
            if pause == FIRST_PAUSE {
                tracing::warn!(
                    "the check of the ledger failed, and runs again until {within:?} have passed: {last}"
                );
            } else {
                tracing::debug!(
                    "the check of the ledger failed, and runs again in {pause:?}: {last}"
                );
            }
            tokio::time::sleep_until(end.min(Instant::now() + pause)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        Err(last)
    }

    async fn run_check(&self, plan: &Plan) -> Answer {
        let name = self.name();
        let failed = |error: ConnectError| Failed::from(error).into_error(&name);
        let (definitions, mistakes) = self.definitions(plan);
        // Concurrently, because each connection may try several hosts.
        let open = || connect::open(self.target(), "eos/check");
        let (client, other) = tokio::try_join!(open(), open()).map_err(failed)?;
        check::check(&client, &other, &name, &definitions, mistakes).await
    }
}

impl Ledger for Postgres {
    fn name(&self) -> String {
        format!("postgres {}", self.target().database())
    }

    fn check(&self, plan: &Plan, within: Duration) -> Answer {
        // A thread of a tokio runtime can't block on another runtime. `App::start_blocking` may run on such a thread.
        let check = || self.check_here(plan, within);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("eos-pg-check".into());
            let running = thread.spawn_scoped(scope, check).map_err(|error| {
                let text = format!("{}: failed to start a thread: {error}", self.name());
                LedgerError::new(LedgerFailure::Retriable, text)
            })?;
            running
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn positions(&self, plan: &Plan, identity: &Identity) -> Answer<Box<dyn Positions>> {
        Ok(Box::new(PostgresPositions::new(self, plan, identity)))
    }

    fn session(&self, plan: &Plan, identity: &Identity) -> Answer<Box<dyn Session>> {
        Ok(Box::new(PostgresSession::new(self, plan, identity)))
    }

    fn totals(&self) -> LedgerTotals {
        self.counters().totals()
    }
}
