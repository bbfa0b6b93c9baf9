//! The start of a session: a connection, its epoch, and the end of older sessions.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use eos_core::boundary::{Identity, LedgerFailure, Plan};
use tokio_postgres::{Client, Statement};

use super::columns::Columns;
use super::places::{self, Prepared};
use crate::check;
use crate::connect;
use crate::defence::Defence;
use crate::error::Failed;
use crate::postgres::Postgres;
use crate::schema;
use crate::sql;
use crate::sqlstate::Call;
use crate::tx::{PreparedStatements, Tx};

/// The pause between two checks whether the older sessions have ended.
const END_POLL: Duration = Duration::from_millis(10);
/// The shortest and the longest time that a statement waits for a lock of another session. The time is below that of a
/// closure and of a commit, so that the wait is known as the cause of the abort.
const LOCK_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// The parameters of a session.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) postgres: Postgres,
    pub(super) plan: Plan,
    /// The key in `eos.sessions`.
    pub(super) identity: String,
    pub(super) owner: i64,
}

/// A connection that is ready for transactions.
pub(super) struct Connection {
    pub(super) client: Rc<Client>,
    pub(super) epoch: i64,
    pub(super) places: Vec<Prepared>,
    pub(super) columns: Columns,
    pub(super) hold: Statement,
    pub(super) set: Statement,
    pub(super) claim: Statement,
    /// Whether ids are claimed in a transaction of their own, which loses messages.
    pub(super) claims_alone: bool,
    /// The statements of closures.
    pub(super) prepared: Rc<PreparedStatements>,
}

impl Connection {
    /// Returns the open transaction, for a closure.
    pub(super) fn tx(&self, what: &str) -> Tx {
        Tx::new(&self.client, &self.prepared, what)
    }
}

impl Opening {
    pub(super) fn new(postgres: &Postgres, plan: &Plan, identity: &Identity) -> Self {
        Self {
            postgres: postgres.clone(),
            plan: plan.clone(),
            identity: format!("{}/{}", plan.app, identity.worker),
            owner: identity.owner.cast_signed(),
        }
    }

    /// Connects, and ends all older sessions of this worker.
    pub(super) async fn open(&self, is_gone: &Arc<AtomicBool>) -> Result<Connection, Failed> {
        let (definitions, mistakes) = self.postgres.definitions(&self.plan);
        if !mistakes.is_empty() {
            return Err(check::not_ready(&mistakes));
        }
        let client = connect::open_watched(self.postgres.target(), "eos/new", is_gone).await?;
        self.settings(&client).await?;
        let version = schema::version(&client).await.map_err(failed)?;
        if let Some(mistake) = check::wrong_version(version) {
            return Err(check::not_ready(&[mistake]));
        }
        let epoch = self.raise(&client).await?;
        self.end_older_sessions(&client, epoch).await?;
        self.is_newest(&client, epoch).await?;
        let (places, columns) = places::prepare(&client, &self.postgres, &definitions).await?;
        let prepare = async |text: &str| client.prepare(text).await.map_err(failed);
        Ok(Connection {
            epoch,
            places,
            columns,
            hold: prepare(&self.postgres.statements().hold).await?,
            set: prepare(&self.postgres.statements().set).await?,
            claim: prepare(sql::CLAIM).await?,
            claims_alone: !self.postgres.has(Defence::ClaimsWithRows),
            prepared: Rc::new(PreparedStatements::new(
                self.postgres.has(Defence::LoggedTables),
            )),
            client: Rc::new(client),
        })
    }

    async fn settings(&self, client: &Client) -> Result<(), Failed> {
        let limit = self.plan.transaction_timeout;
        let lock = (limit / 4).clamp(LOCK_LIMITS.0, LOCK_LIMITS.1);
        let settings = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}",
            limit.as_millis(),
            lock.as_millis(),
            // Longer than any pause inside of a transaction, such as a slow closure.
            limit.saturating_mul(2).as_millis(),
        );
        client.batch_execute(&settings).await.map_err(failed)?;
        connect::notice_lost_client(client).await.map_err(failed)
    }

    /// Raises the epoch of this identity. A newer session of another process is reported once: if both processes
    /// continued, they would end each other's sessions forever.
    async fn raise(&self, client: &Client) -> Result<i64, Failed> {
        if let Some(mine) = self.postgres.last_epoch(&self.identity) {
            let row = client
                .query_opt(sql::READ_SESSION, &[&self.identity])
                .await
                .map_err(failed)?;
            if let Some(row) = row {
                let epoch: i64 = row.try_get(0).map_err(failed)?;
                let owner: i64 = row.try_get(1).map_err(failed)?;
                let is_newest = epoch <= mine || owner == self.owner;
                if !is_newest && self.postgres.has(Defence::NewestSession) {
                    self.postgres.remember_epoch(&self.identity, epoch);
                    return Err(self.superseded());
                }
            }
        }
        let row = client
            .query_one(sql::RAISE_SESSION, &[&self.identity, &self.owner])
            .await
            .map_err(failed)?;
        let epoch = row.try_get(0).map_err(failed)?;
        self.postgres.remember_epoch(&self.identity, epoch);
        client
            .query_one(sql::NAME_SESSION, &[&self.identity, &epoch])
            .await
            .map_err(failed)?;
        Ok(epoch)
    }

    async fn end_older_sessions(&self, client: &Client, epoch: i64) -> Result<(), Failed> {
        let statement = client
            .prepare(&self.postgres.statements().end_older_sessions)
            .await
            .map_err(failed)?;
        let mut has_warned = false;
        loop {
            let rows = client
                .query(&statement, &[&self.identity, &epoch])
                .await
                .map_err(failed)?;
            if rows.is_empty() {
                return Ok(());
            }
            let was_told = rows
                .iter()
                .all(|row| row.try_get::<_, Option<bool>>(1).ok().flatten() == Some(true));
            if !was_told && !has_warned {
                has_warned = true;
                tracing::warn!(
                    "an older session of {} has an open transaction, and belongs to another role or waits for a \
                     standby: waiting for the end of the transaction",
                    self.identity
                );
            }
            tokio::time::sleep(END_POLL).await;
        }
    }

    /// Fails if a newer session exists. It may have looked for older sessions before this one had its name.
    async fn is_newest(&self, client: &Client, epoch: i64) -> Result<(), Failed> {
        let row = client
            .query_opt(sql::READ_SESSION, &[&self.identity])
            .await
            .map_err(failed)?;
        let stored: Option<i64> = row.and_then(|row| row.try_get(0).ok());
        if stored == Some(epoch) {
            Ok(())
        } else {
            Err(self.superseded())
        }
    }

    pub(super) fn superseded(&self) -> Failed {
        Failed::overtaken(
            LedgerFailure::Superseded,
            format!(
                "a newer session of {} exists. If another process has the same identity, give each its own instance id \
                 and state directory",
                self.identity
            ),
        )
    }
}

fn failed(error: tokio_postgres::Error) -> Failed {
    Failed::of(Call::Outside, "the start of a session", &error)
}
