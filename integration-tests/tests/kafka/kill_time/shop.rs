//! A shop: orders in a topic, bookings and stock in a temporary PostgreSQL, and the faults of the database.

use std::fmt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_postgres::testing::{Cluster, run, value};
use integration_tests::fate::Fate;
use integration_tests::kill::Random;
use integration_tests::shop::{ARTICLES, Verdict, tables, torn_now};
use kafka_launcher::os::Signal;

use super::scene::{Input, Scene, now, seed};
use super::standbys::Standbys;

pub(super) const PARTITIONS: i32 = 6;
/// The time for which the judge waits until all orders are taken. If orders are lost, the run ends after this time.
const JUDGE_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two comparisons of bookings and stock.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum time of the search for a session with an open transaction.
const SEARCH: Duration = Duration::from_secs(2);

/// The part of the orders, in thousandths, for which a standby is cut off before its primary is lost.
const CUT_BEFORE: usize = 100;

/// The condition that a session has written bookings in its transaction.
const HAS_WRITTEN: &str = "AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.granted \
     AND l.relation = 'bookings'::regclass AND l.mode = 'RowExclusiveLock')";

/// Returns a statement that ends one session of the app with an open transaction. It returns the id of the transaction.
fn end_session_if(condition: &str) -> String {
    format!(
        "SELECT xid FROM (SELECT a.pid, a.backend_xid::text AS xid FROM pg_stat_activity AS a \
         WHERE a.datname = current_database() AND a.application_name ~ '^eos/[0-9a-f]{{16}}/[0-9]+/s$' \
           AND a.backend_xid IS NOT NULL {condition} \
         ORDER BY random() LIMIT 1) AS one WHERE pg_terminate_backend(pid)"
    )
}

/// The faults of the database.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// The points at which the server restarts, in thousandths of the orders.
    pub(super) restarts: &'static [usize],
    /// The number of sessions with an open transaction to end.
    pub(super) ends: usize,
    /// Whether these transactions have written bookings.
    pub(super) ends_writers: bool,
    /// The points at which the server is lost and a standby is promoted, in thousandths of the orders. The first
    /// failover loses no confirmed commit, and the second one loses some.
    pub(super) failovers: &'static [usize],
}

/// The database of a shop, and its faults.
pub(super) struct Shop {
    cluster: Cluster,
    standbys: Option<Standbys>,
    /// Whether the next standby is cut off.
    is_cut: bool,
    url: String,
    plan: Plan,
    /// The start times that the server has reported. Each restart adds a new one.
    starts: Vec<String>,
    /// The ended sessions whose transaction did not commit.
    ended: usize,
    looks: usize,
    looked: Instant,
}

impl Shop {
    pub(super) fn open(plan: Plan) -> Result<Shop> {
        let cluster = Cluster::temporary(&[("wal_retrieve_retry_interval", "100ms")])?;
        let mut url = cluster.database("shop")?;
        run(&url, &tables())?;
        let mut standbys = None;
        if !plan.failovers.is_empty() {
            let started = Standbys::start(&cluster, &url)?;
            url = started.with_hosts(&url)?;
            standbys = Some(started);
        }
        let mut shop = Shop {
            cluster,
            standbys,
            is_cut: false,
            url,
            plan,
            starts: Vec::new(),
            ended: 0,
            looks: 0,
            looked: Instant::now(),
        };
        shop.starts.push(shop.started_at()?);
        Ok(shop)
    }

    /// Creates the topic of the shop and starts the processes of its app.
    pub(super) fn scene(&self, bootstrap: &str, name: &str, refused: &str) -> Result<Scene> {
        let settings = [
            ("DATABASE", self.url.clone()),
            ("REFUSED", refused.to_owned()),
            // With this interval, a transaction is open most of the time.
            ("EOS_COMMIT_PACE", "fixed".to_owned()),
            ("EOS_COMMIT_INTERVAL_MS", "100".to_owned()),
        ];
        let mut scene = Scene::prepared("orders", bootstrap, name, PARTITIONS, &settings, &["in"])?;
        scene.start()?;
        Ok(scene)
    }

    fn started_at(&self) -> Result<String> {
        Ok(value(&self.url, "SELECT pg_postmaster_start_time()")?)
    }

    /// Causes the faults that are due when `done` thousandths of the orders are sent.
    pub(super) fn strike(&mut self, done: usize) -> Result<()> {
        let restarts = self.starts.len() - 1;
        if self
            .plan
            .restarts
            .get(restarts)
            .is_some_and(|at| done >= *at)
        {
            self.cluster.restart_immediate()?;
            self.starts.push(self.started_at()?);
        }
        self.fail_over_at(done)?;
        if self.ended < self.plan.ends && done * (self.plan.ends + 1) >= 1_000 * (self.ended + 1) {
            self.end_session()?;
        }
        if self.looked.elapsed() >= LOOK {
            let torn = torn_now(&self.url)?;
            ensure!(torn.is_empty(), "a reader sees torn orders: {torn:?}");
            self.looks += 1;
            self.looked = Instant::now();
        }
        Ok(())
    }

    fn fail_over_at(&mut self, done: usize) -> Result<()> {
        let Some(standbys) = &mut self.standbys else {
            return Ok(());
        };
        let Some(at) = self.plan.failovers.get(standbys.lost.len()) else {
            return Ok(());
        };
        if standbys.next_loses() && !self.is_cut && done + CUT_BEFORE >= *at {
            standbys.cut()?;
            self.is_cut = true;
        }
        if done >= *at {
            standbys.fail_over(&mut self.cluster)?;
        }
        Ok(())
    }

    fn end_session(&mut self) -> Result<()> {
        let statement = end_session_if(match self.plan.ends_writers {
            true => HAS_WRITTEN,
            false => "",
        });
        let since = Instant::now();
        while since.elapsed() < SEARCH {
            let transaction = value(&self.url, &statement)?;
            // A session may commit before the signal arrives.
            if !transaction.is_empty() && self.rolls_back(&transaction, since)? {
                self.ended += 1;
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The processes may still be starting after a kill. The next call tries again.
        Ok(())
    }

    /// Returns whether a transaction is rolled back. Waits until the server has decided.
    fn rolls_back(&self, transaction: &str, since: Instant) -> Result<bool> {
        let status = format!("SELECT pg_xact_status('{transaction}'::xid8)");
        while since.elapsed() < SEARCH {
            match value(&self.url, &status)?.as_str() {
                "in progress" => thread::sleep(Duration::from_millis(1)),
                decided => return Ok(decided == "aborted"),
            }
        }
        Ok(false)
    }

    /// Sends the orders, waits for the app, and judges its rows.
    pub(super) fn play(
        &mut self,
        scene: &mut Scene,
        orders: &[Input],
        rate: u64,
        fate: &mut Fate,
    ) -> Result<Verdict> {
        let fed = scene.feed_with(orders, rate, fate, |done| self.strike(done));
        scene.told(fed)?;
        let judged = self.judge(scene);
        let verdict = scene.told(judged)?;
        let stopped = scene.fleet.stop_all(Signal::Term);
        scene.told(stopped)?;
        Ok(verdict)
    }

    fn judge(&self, scene: &Scene) -> Result<Verdict> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop_judge"));
        command.args(["--bootstrap", scene.bootstrap()]);
        command.args(["--topic", &scene.topic("in"), "--app", &scene.app]);
        command.args(["--database", &self.url]);
        command.args(["--wait", &JUDGE_PATIENCE.as_secs().to_string()]);
        let output = command.output()?;
        let verdict: Verdict = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the judge printed {output:?}"))?;
        ensure!(
            output.status.success() && verdict.is_clean(),
            "{verdict}\n{verdict:#?}"
        );
        Ok(verdict)
    }

    /// Fails unless every fault of the database happened.
    pub(super) fn check(&self) -> Result<Struck> {
        let Plan { restarts, ends, .. } = self.plan;
        let mut starts = self.starts.clone();
        starts.dedup();
        ensure!(
            starts.len() == restarts.len() + 1,
            "the server restarted {} times instead of {}",
            starts.len() - 1,
            restarts.len()
        );
        ensure!(
            self.ended == ends,
            "{} of {ends} sessions ended and rolled back",
            self.ended
        );
        ensure!(self.looks > 0, "no look at bookings and stock");
        let lost = self.standbys.as_ref().map(|standbys| standbys.lost.clone());
        let lost = lost.unwrap_or_default();
        ensure!(
            lost.len() == self.plan.failovers.len(),
            "{} failovers instead of {}",
            lost.len(),
            self.plan.failovers.len()
        );
        Ok(Struck {
            restarts: starts.len() - 1,
            lost,
            ended: self.ended,
            looks: self.looks,
        })
    }
}

/// The faults of the database that happened.
pub(super) struct Struck {
    restarts: usize,
    /// The bookings that each failover has lost.
    lost: Vec<u64>,
    ended: usize,
    /// The number of comparisons of bookings and stock during the run.
    looks: usize,
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} restarts of the server, failovers that lost {:?} bookings, {} sessions ended and rolled back, {} looks",
            self.restarts, self.lost, self.ended, self.looks
        )
    }
}

/// Returns orders of random articles, spread over the partitions. About one of `bad` orders has no units to sell.
pub(super) fn orders(count: usize, bad: Option<usize>) -> Result<Vec<Input>> {
    let mut random = Random::new(seed());
    let begins = now()?;
    let order = |n: usize| {
        let is_bad = bad.is_some_and(|bad| random.index(bad) == 0);
        let units = match is_bad {
            true => -7,
            false => 1 + random.index(5) as i64,
        };
        Input {
            partition: (random.index(PARTITIONS as usize)) as i32,
            key: format!("o{n}"),
            value: format!(
                "{{\"sku\":\"s{}\",\"units\":{units}}}",
                random.index(ARTICLES)
            ),
            time: begins + n as i64,
        }
    };
    Ok((0..count).map(order).collect())
}
