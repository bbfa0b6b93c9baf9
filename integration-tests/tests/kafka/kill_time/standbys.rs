//! Two standbys of a server in a row. Failovers promote them one after the other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use eos_postgres::testing::{Cluster, run, value};
use integration_tests::wait::wait_until;

const BOOKINGS: &str = "SELECT count(*) FROM bookings";
/// The maximum time until a standby is cut off, or has fewer bookings than its primary.
const PATIENCE: Duration = Duration::from_secs(20);

/// The standbys of a server. The first one is synchronous, and the second one follows the first one.
pub(super) struct Standbys {
    /// The remaining standbys. The last one is promoted next.
    left: Vec<Cluster>,
    database: String,
    /// The bookings that each failover has lost.
    pub(super) lost: Vec<u64>,
}

impl Standbys {
    /// Copies the server of this database. From now on, its commits wait for the first standby.
    pub(super) fn start(primary: &Cluster, url: &str) -> Result<Self> {
        let first = primary.standby()?;
        let second = first.standby()?;
        let (_, database) = url.rsplit_once('/').context("the URL has no database")?;
        run(url, "ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        run(url, "SELECT pg_reload_conf()")?;
        Ok(Self {
            left: vec![second, first],
            database: database.to_owned(),
            lost: Vec::new(),
        })
    }

    /// Returns the URL of the primary with the hosts of the standbys added.
    pub(super) fn with_hosts(&self, url: &str) -> Result<String> {
        let (primary, database) = url.rsplit_once('/').context("the URL has no database")?;
        let mut hosts = primary.to_owned();
        for standby in self.left.iter().rev() {
            let url = standby.url(database);
            let (_, host) = url.split_once('@').context("the URL has no host")?;
            let (host, _) = host.rsplit_once('/').context("the URL has no database")?;
            hosts = format!("{hosts},{host}");
        }
        Ok(format!("{hosts}/{database}"))
    }

    /// Returns whether the next failover loses commits.
    pub(super) fn next_loses(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Ends the replication to the next standby.
    pub(super) fn cut(&self) -> Result<()> {
        let url = self.next_url()?;
        run(&url, "ALTER SYSTEM SET primary_conninfo = ''")?;
        run(&url, "SELECT pg_reload_conf()")?;
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        wait_until(PATIENCE, "the standby is cut off", || {
            Ok(value(&url, receivers)? == "0")
        })
    }

    /// Kills the primary, and promotes the next standby.
    pub(super) fn fail_over(&mut self, primary: &mut Cluster) -> Result<()> {
        let (old, new) = (primary.url(&self.database), self.next_url()?);
        let loses = self.next_loses();
        if loses {
            wait_until(PATIENCE, "the standby has fewer bookings", || {
                Ok(count(&old)? > count(&new)?)
            })?;
        }
        let confirmed = count(&old)?;
        let next = self.left.pop().context("no standby is left")?;
        drop(std::mem::replace(primary, next));
        primary.promote()?;
        // The next standby is not synchronous.
        run(&new, "ALTER SYSTEM RESET synchronous_standby_names")?;
        run(&new, "SELECT pg_reload_conf()")?;
        let lost = confirmed.saturating_sub(count(&new)?);
        ensure!(
            (lost > 0) == loses,
            "the failover lost {lost} of {confirmed} bookings"
        );
        self.lost.push(lost);
        Ok(())
    }

    fn next_url(&self) -> Result<String> {
        let next = self.left.last().context("no standby is left")?;
        Ok(next.url(&self.database))
    }
}

fn count(url: &str) -> Result<u64> {
    Ok(value(url, BOOKINGS)?.parse()?)
}
