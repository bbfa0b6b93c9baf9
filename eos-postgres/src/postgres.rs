//! The handle of a database.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use eos_core::boundary::Plan;

use crate::connect::Target;
use crate::counters::Counters;
use crate::defence::{Defence, Statements};
use crate::place::{Definition, Places};
use crate::url_error::UrlError;

/// A PostgreSQL database: rows and positions in one transaction. A clone is cheap, and is the same database.
///
/// # Exactly-once
/// Each transaction writes the rows of some records, and moves the positions of their partitions in `eos.positions`
/// behind them. A new owner of a partition raises the epoch of its position first, so that a former owner cannot
/// commit any more. A reader of the database sees the rows of each record exactly once.
///
/// After a failover that loses commits, rows and positions went back together. The rows are written again from Kafka,
/// as long as Kafka keeps the records.
///
/// # Examples
/// ```
/// use eos_postgres::Postgres;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Postgres::connect("postgres://shop:secret@localhost/shop")?;
/// assert_eq!(format!("{shop:?}"), "postgres shop at localhost");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    target: Target,
    places: Places,
    /// The newest epoch of the sessions of this process, by identity.
    epochs: Mutex<HashMap<String, i64>>,
    counters: Counters,
    /// The defences that a test has removed.
    removed: Vec<Defence>,
    statements: Statements,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.target.fmt(f)
    }
}

impl Postgres {
    /// Returns the database of a URL, such as `postgres://user:password@host/database`. Does not connect yet.
    ///
    /// Connections to other machines are encrypted, and the certificate is verified. This needs the feature `tls`.
    /// `sslrootcert=/path` in the URL names a file of root certificates, and `sslmode=insecure` allows connections
    /// without encryption. No log and no error contains the password.
    ///
    /// # Errors
    /// [`UrlError`] if the URL cannot be read, or if the connection would not be encrypted.
    pub fn connect(url: &str) -> Result<Self, UrlError> {
        Self::with_removed(url, &[])
    }

    /// As [`connect`](Self::connect), but with some defences removed: rows are lost or doubled.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn connect_without(url: &str, removed: &[Defence]) -> Result<Self, UrlError> {
        Self::with_removed(url, removed)
    }

    fn with_removed(url: &str, removed: &[Defence]) -> Result<Self, UrlError> {
        Ok(Self(Arc::new(Inner {
            target: Target::parse(url)?,
            places: Places::default(),
            epochs: Mutex::default(),
            counters: Counters::default(),
            removed: removed.to_vec(),
            statements: Statements::new(|defence| !removed.contains(&defence)),
        })))
    }

    /// Returns whether a defence is in place. It always is, except in a test that removes it.
    pub(crate) fn has(&self, defence: Defence) -> bool {
        !self.0.removed.contains(&defence)
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.0.statements
    }

    pub(crate) fn register(&self, definition: Definition) -> String {
        self.0.places.register(definition)
    }

    /// Returns the counters of all sessions in this process.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn target(&self) -> &Target {
        &self.0.target
    }

    /// Returns the definitions of the plan's places, and all mistakes in them.
    pub(crate) fn definitions(&self, plan: &Plan) -> (Vec<Arc<Definition>>, Vec<String>) {
        self.0.places.of(&plan.places, &plan.dead_letters)
    }

    pub(crate) fn last_epoch(&self, identity: &str) -> Option<i64> {
        let epochs = self.0.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.get(identity).copied()
    }

    pub(crate) fn remember_epoch(&self, identity: &str, epoch: i64) {
        let mut epochs = self.0.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.insert(identity.to_owned(), epoch);
    }
}
