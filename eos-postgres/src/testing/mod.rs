//! Temporary servers of an installed PostgreSQL, for tests and examples. Nothing is downloaded.
//!
//! ```no_run
//! use eos_postgres::testing::Cluster;
//!
//! # fn main() -> Result<(), eos_postgres::testing::ClusterError> {
//! let cluster = Cluster::start()?;
//! let url = cluster.database("shop")?;
//! eos_postgres::testing::run(&url, "CREATE TABLE stock (sku text PRIMARY KEY, units bigint)")?;
//! # Ok(())
//! # }
//! ```

mod binaries;
mod process;
mod sql;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub use sql::{install, run, value};

use binaries::Binaries;
use process::Server;

/// A server that is used instead of a temporary one: a URL of a role that may create databases.
const OTHER_SERVER: &str = "EOS_POSTGRES_URL";

/// A PostgreSQL server that exists as long as this value, or the server of `EOS_POSTGRES_URL`.
///
/// It listens on a Unix socket only, in a fresh directory. Once the server runs, it also ends, and its directory is removed,
/// if this process is killed. PostgreSQL refuses to run as root. If this process is root, the server runs as the user
/// `postgres`, or as `daemon`.
///
/// The binaries are taken from `EOS_PG_BIN`, `pg_config --bindir`, `PATH`, or `/usr/lib/postgresql/*/bin`.
#[derive(Debug)]
pub struct Cluster {
    kind: Kind,
    databases: AtomicU32,
}

#[derive(Debug)]
enum Kind {
    Temporary(Server),
    Other(String),
}

impl Cluster {
    /// Creates and starts a server, or uses the one of `EOS_POSTGRES_URL`.
    ///
    /// # Errors
    /// [`ClusterError`] names the missing part and the way to install it.
    pub fn start() -> Result<Self, ClusterError> {
        match std::env::var(OTHER_SERVER) {
            Ok(url) if !url.is_empty() => Ok(Self::of(Kind::Other(url))),
            _ => Self::temporary(&[]),
        }
    }

    /// Creates and starts a temporary server with these settings, such as `("max_connections", "5")`.
    ///
    /// # Errors
    /// [`ClusterError`] names the missing part and the way to install it.
    pub fn temporary(settings: &[(&str, &str)]) -> Result<Self, ClusterError> {
        let binaries = Binaries::find()?;
        Ok(Self::of(Kind::Temporary(Server::start(
            &binaries, settings,
        )?)))
    }

    fn of(kind: Kind) -> Self {
        Self {
            kind,
            databases: AtomicU32::new(0),
        }
    }

    /// Returns the URL of a database of this server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        match &self.kind {
            Kind::Temporary(server) => server.url(database),
            Kind::Other(url) => with_database(url, database),
        }
    }

    /// Creates a database whose name begins with `name`, installs the schema of eos, and returns the URL.
    ///
    /// # Errors
    /// [`ClusterError::Sql`] if the server refuses it.
    pub fn database(&self, name: &str) -> Result<String, ClusterError> {
        let url = self.empty_database(name)?;
        sql::install(&url)?;
        Ok(url)
    }

    /// Creates a database whose name begins with `name`, and returns the URL.
    ///
    /// # Errors
    /// [`ClusterError::Sql`] if the server refuses it.
    pub fn empty_database(&self, name: &str) -> Result<String, ClusterError> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        // Other processes may use the same server.
        let name = format!("{name}_{}_{number}", std::process::id());
        let base = match &self.kind {
            Kind::Temporary(server) => server.url("postgres"),
            Kind::Other(url) => url.clone(),
        };
        run(
            &base,
            &format!("CREATE DATABASE \"{name}\" TEMPLATE template0"),
        )?;
        Ok(self.url(&name))
    }

    /// Stops the server as a crash would (`immediate`), and starts it again. Its recovery is over when this returns.
    ///
    /// # Errors
    /// [`ClusterError::NotOurs`] for the server of `EOS_POSTGRES_URL`.
    pub fn restart_immediate(&mut self) -> Result<(), ClusterError> {
        self.server()?.restart_immediate()
    }

    /// Kills all processes of the server with SIGKILL, and starts it again. Its recovery is over when this returns.
    ///
    /// # Errors
    /// [`ClusterError::NotOurs`] for the server of `EOS_POSTGRES_URL`.
    pub fn kill9(&mut self) -> Result<(), ClusterError> {
        self.server()?.kill9()
    }

    /// Copies the server to a standby, which follows it by streaming replication. The standby accepts connections when this
    /// returns. It runs `pg_basebackup` of the same installation, and has the same command-line settings.
    ///
    /// # Errors
    /// [`ClusterError::NotOurs`] for the server of `EOS_POSTGRES_URL`. [`ClusterError::Failed`] if the copy or the start fails.
    pub fn standby(&self) -> Result<Self, ClusterError> {
        let Kind::Temporary(server) = &self.kind else {
            return Err(ClusterError::NotOurs);
        };
        let standby = Self::of(Kind::Temporary(server.standby()?));
        // Names of databases stay unique after a promotion.
        let databases = self.databases.load(Ordering::Relaxed);
        standby.databases.store(databases, Ordering::Relaxed);
        Ok(standby)
    }

    /// Stops the server, and starts it as a standby without a primary. It accepts connections but refuses
    /// writes until [`promote`](Self::promote).
    ///
    /// # Errors
    /// [`ClusterError::NotOurs`] for the server of `EOS_POSTGRES_URL`. [`ClusterError::Failed`] if the start fails.
    pub fn demote(&mut self) -> Result<(), ClusterError> {
        self.server()?.demote()
    }

    /// Makes a [standby](Self::standby) or a [demoted](Self::demote) server a primary. It accepts writes when this returns. The
    /// primary of the standby keeps running: drop it to simulate a crash.
    ///
    /// # Errors
    /// [`ClusterError::NotOurs`] for the server of `EOS_POSTGRES_URL`. [`ClusterError::Sql`] if the server is no standby.
    pub fn promote(&mut self) -> Result<(), ClusterError> {
        let url = self.server()?.url("postgres");
        match value(&url, "SELECT pg_promote(true, 60)")?.as_str() {
            "t" => Ok(()),
            _ => Err(ClusterError::failed(
                "the promotion of the standby",
                "it has not ended within 60 s",
            )),
        }
    }

    fn server(&mut self) -> Result<&mut Server, ClusterError> {
        match &mut self.kind {
            Kind::Temporary(server) => Ok(server),
            Kind::Other(_) => Err(ClusterError::NotOurs),
        }
    }
}

/// Replaces the database in a URL.
fn with_database(url: &str, database: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let start = base.find("://").map_or(0, |at| at + 3);
    let end = base
        .get(start..)
        .and_then(|rest| rest.find('/'))
        .map_or(base.len(), |at| start + at);
    let head = base.get(..end).unwrap_or(base);
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{query}")
    };
    format!("{head}/{database}{query}")
}

/// A temporary server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No PostgreSQL is installed.
    #[error(
        "no PostgreSQL was found (searched: {searched}). Install it (Debian, Ubuntu: `apt-get install postgresql`), \
         set EOS_PG_BIN to the directory of `initdb` and `postgres`, or use a running server: \
         `docker compose --profile postgres up -d postgres` and \
         EOS_POSTGRES_URL=postgres://postgres:eos@localhost:5432/postgres"
    )]
    NotInstalled {
        /// The searched directories.
        searched: String,
    },
    /// PostgreSQL refuses to run as root, and there is no other user.
    #[error(
        "PostgreSQL does not start as root, and /etc/passwd lists no user `postgres` or `daemon`. Add the user `postgres`, or run \
         the tests as a user other than root"
    )]
    NoUser,
    /// A step failed.
    #[error("{step} failed: {cause}")]
    Failed {
        /// The step.
        step: String,
        /// The output of the step, or its error.
        cause: String,
    },
    /// A statement failed.
    #[error("the server refused `{statement}`: {cause}")]
    Sql {
        /// The start of the statement.
        statement: String,
        /// The error of the server.
        cause: String,
    },
    /// The server belongs to another user.
    #[error(
        "the server of EOS_POSTGRES_URL cannot be restarted, copied or promoted from here: unset the variable for a temporary \
         server"
    )]
    NotOurs,
}

impl ClusterError {
    fn failed(step: impl Into<String>, cause: impl ToString) -> Self {
        Self::Failed {
            step: step.into(),
            cause: cause.to_string(),
        }
    }
}

/// Returns whether the directory contains the programs of a server.
fn holds_server(directory: &std::path::Path) -> bool {
    ["initdb", "postgres"]
        .iter()
        .all(|program| directory.join(program).is_file())
}

/// Formats paths for messages.
fn list(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gets_another_database() {
        let cases = [
            ("postgres://u:p@h:1/a?x=y", "postgres://u:p@h:1/b?x=y"),
            ("postgres://u@h", "postgres://u@h/b"),
            ("postgres://u@h/", "postgres://u@h/b"),
        ];
        for (url, expected) in cases {
            assert_eq!(with_database(url, "b"), expected);
        }
    }
}
