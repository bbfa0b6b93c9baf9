//! The server, and a database per run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::tokio_postgres::{Client, Config, NoTls, config::Host, types::ToSql};
use tokio::runtime::Runtime;

use super::views;
use crate::proc;
use crate::work::Work;

/// A server as in production: it waits for the disk at every commit. The rest keeps checkpoints out of the runs.
const SETTINGS: [(&str, &str); 4] = [
    ("fsync", "on"),
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
];

/// A temporary server.
#[derive(Debug)]
pub(crate) struct Server {
    cluster: Cluster,
    postmaster: u32,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        let cluster = Cluster::temporary(&SETTINGS)?;
        let data = PathBuf::from(value(&cluster.url("postgres"), "SHOW data_directory")?);
        let path = data.join("postmaster.pid");
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        let postmaster = text.lines().next().unwrap_or_default().trim().parse();
        let postmaster = postmaster.with_context(|| format!("{}: no pid", path.display()))?;
        Ok(Self {
            cluster,
            postmaster,
        })
    }

    /// Creates a database with the tables of the work.
    pub(crate) fn database(&self, work: Work, keys: u64) -> Result<Database> {
        let url = self.cluster.database("bench")?;
        run(&url, &views::schema(work, keys))?;
        Database::open(url)
    }

    /// Drops a database, and writes the dirty pages of the run to the disk.
    pub(crate) fn remove(&self, database: &Database) -> Result<()> {
        let name = &database.name;
        let base = self.cluster.url("postgres");
        run(&base, &format!("DROP DATABASE \"{name}\" WITH (FORCE)"))?;
        run(&base, "CHECKPOINT")?;
        Ok(())
    }

    /// Returns the CPU time of all processes of the server so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        proc::cpu_with_children(self.postmaster)
    }
}

/// A database, and a connection to it.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) url: String,
    name: String,
    client: Client,
    runtime: Runtime,
}

impl Database {
    fn open(url: String) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let config: Config = url.parse()?;
        let name = config.get_dbname().context("a URL without a database")?;
        let name = name.to_owned();
        let client = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            anyhow::Ok(client)
        })?;
        Ok(Self {
            url,
            name,
            client,
            runtime,
        })
    }

    /// Returns the number of records of a topic that an eos app has committed. The topic must begin at offset 0.
    pub(crate) fn committed(&self, app: &str, topic: &str) -> Result<u64> {
        const QUERY: &str = "SELECT coalesce(sum(next_offset), 0)::bigint FROM eos.positions \
                             WHERE app = $1 AND topic = $2";
        let of: [&(dyn ToSql + Sync); 2] = [&app, &topic];
        let row = self.client.query_one(QUERY, &of);
        let sum: i64 = self.runtime.block_on(row)?.get(0);
        Ok(u64::try_from(sum)?)
    }

    /// Passes every row of a query to a closure.
    pub(crate) fn each(
        &self,
        query: &str,
        mut take: impl FnMut(&eos_postgres::tokio_postgres::Row) -> Result<()>,
    ) -> Result<()> {
        use futures::TryStreamExt as _;
        self.runtime.block_on(async {
            let none: [&str; 0] = [];
            let rows = self.client.query_raw(query, none).await?;
            let mut rows = std::pin::pin!(rows);
            while let Some(row) = rows.try_next().await? {
                take(&row)?;
            }
            Ok(())
        })
    }
}

/// The parts of a URL that other drivers need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path of the Unix socket.
    pub(crate) socket: PathBuf,
    pub(crate) user: String,
    pub(crate) database: String,
}

impl Place {
    pub(crate) fn of(url: &str) -> Result<Self> {
        let config: Config = url.parse()?;
        let Some(Host::Unix(directory)) = config.get_hosts().first() else {
            anyhow::bail!("{url}: the host is not a Unix socket, which the benchmark needs");
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        Ok(Self {
            socket: directory.join(format!(".s.PGSQL.{port}")),
            user: config.get_user().unwrap_or("postgres").to_owned(),
            database: config.get_dbname().unwrap_or("postgres").to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_socket_has_its_parts() {
        let place = Place::of("postgres://me@%2Ftmp%2Feos-pg-1/bench_1").unwrap();
        assert_eq!(place.socket, PathBuf::from("/tmp/eos-pg-1/.s.PGSQL.5432"));
        assert_eq!((&*place.user, &*place.database), ("me", "bench_1"));
        assert!(Place::of("postgres://me@localhost/x").is_err());
    }
}
