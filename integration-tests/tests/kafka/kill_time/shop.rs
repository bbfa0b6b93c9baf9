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
/// The judge waits so long for orders that are not taken: a loss ends a run after this time.
const JUDGE_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at bookings and stock.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum time of the search for a session with an open transaction.
const SEARCH: Duration = Duration::from_secs(2);

/// A standby is cut off before its primary is lost, in thousandths of the orders.
const CUT_BEFORE: usize = 100;

/// The condition that a session has written bookings in its transaction.
const HAS_WRITTEN: &str = "AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.granted \
     AND l.relation = 'bookings'::regclass AND l.mode = 'RowExclusiveLock')";

/// The statement that ends one session of the app with an open transaction, and returns the id of the transaction.
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
    /// When the server restarts, in thousandths of the orders.
    pub(super) restarts: &'static [usize],
    /// How many sessions with an open transaction end.
    pub(super) ends: usize,
    /// Whether these transactions have written bookings.
    pub(super) ends_writers: bool,
    /// When the server is lost and a standby is promoted, in thousandths of the orders. The first failover loses no confirmed
    /// commit, and the second one does.
    pub(super) failovers: &'static [usize],
}

/// The database of a shop, and what happens to it.
pub(super) struct Shop {
    cluster: Cluster,
    standbys: Option<Standbys>,
    /// Whether the next standby is cut off.
    is_cut: bool,
    url: String,
    plan: Plan,
    /// When the server started, as it says: another time after each restart.
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

    /// The topic of the shop and the processes of its app.
    pub(super) fn scene(&self, bootstrap: &str, name: &str, refused: &str) -> Result<Scene> {
        let settings = [
            ("DATABASE", self.url.clone()),
            ("REFUSED", refused.to_owned()),
            // Most of the time, a transaction is open.
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

    /// What is due when so many thousandths of the orders are sent.
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
        // The processes of a kill are still starting: the next call tries again.
        Ok(())
    }

    /// Whether a transaction does not commit. Waits until the server has decided.
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

    /// Feeds the orders, waits for the app, and judges what it left.
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

/// What happened to the database.
pub(super) struct Struck {
    restarts: usize,
    /// The bookings that each failover has lost.
    lost: Vec<u64>,
    ended: usize,
    /// How often bookings and stock were compared during the run.
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

/// Orders of random articles, spread over the partitions. One of `bad` has no units to sell.
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
