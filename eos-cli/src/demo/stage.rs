//! The run itself: sends records, kills processes, and audits the output.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation};
use tempfile::TempDir;

use super::audit::Audit;
use super::feed::Feed;
use super::fleet::{Fleet, PROCESSES, Recipe};
use super::kills::{Kill, Kills};
use super::plan::{Plan, WORKERS};
use super::report::Told;
use super::script::{Cue, Script};
use super::show::{Show, State};
use super::stop::Stop;
use super::topics::{APP, INPUT, TIMEOUT};
use super::watch::{Sample, Watch};

/// The longest time without progress, longer than any timeout that a kill can lead to.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// The time that sending may take beyond the planned span.
const LATE: Duration = Duration::from_secs(60);

/// The running parts of the demo.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    show: &'a Show,
    client: Client,
    watch: Watch,
    fleet: Fleet,
    feed: Feed,
    script: Script,
    kills: Kills,
    /// Declared last, so that it is removed after the parts that write to it.
    _dir: TempDir,
}

impl<'a> Stage<'a> {
    /// Starts the processes and, once all workers are in the group, the watch and the feed.
    pub(crate) fn set(
        plan: &'a Plan,
        program: &Path,
        bootstrap: &str,
        stop: &'a Stop,
        show: &'a Show,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("eos-demo-").tempdir();
        let dir = dir.context("create a temporary directory")?;
        let logs = dir.path().join("logs");
        fs::create_dir(&logs)?;
        let environment = [
            ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
            // Not `EOS_STATE_DIR`: a pipeline without RocksDB refuses a directory for its state.
            ("XDG_STATE_HOME", dir.path().display().to_string()),
            ("WORKERS", WORKERS.to_string()),
        ];
        let recipe = Recipe {
            program: program.to_owned(),
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            logs: logs.clone(),
        };
        let mut client = Client::connect(bootstrap, TIMEOUT)?;
        let mut fleet = Fleet::start(recipe)?;
        assemble(&mut client, &mut fleet, stop)?;
        Ok(Stage {
            client,
            watch: Watch::start(bootstrap)?,
            fleet,
            feed: Feed::start(plan, bootstrap)?,
            script: Script::new(plan.seed, PROCESSES),
            kills: Kills::default(),
            plan,
            stop,
            show,
            _dir: dir,
        })
    }

    /// Runs the plan to its end, and audits the outcome.
    pub(crate) fn play(mut self) -> Result<Told> {
        self.first_records()?;
        self.hurt()?;
        self.feed_ends(self.plan.span() + LATE)?;
        self.catch_up()?;
        let signal = match self.plan.own_kafka {
            true => Signal::Term,
            // The group of the user's Kafka stays. On SIGINT its members leave, rather than time
            // out.
            false => Signal::Interrupt,
        };
        let processes = self.fleet.started();
        let rebalances = self.fleet.stop(signal, self.stop)?;
        let discarded = self.watch.finish()?;
        let audit = Audit::of(&mut self.client)?;
        Ok(Told {
            fewest_kills: self.plan.fewest_kills(),
            kills: self.kills.into_inner(),
            processes,
            rebalances,
            discarded,
            audit,
        })
    }

    /// Waits until every partition of every output has committed records.
    fn first_records(&mut self) -> Result<()> {
        let stop = self.stop;
        stop.wait_for(STALL_LIMIT, "every partition has committed output", || {
            let sample = self.look()?;
            let all = sample.is_some_and(|s| s.committed.iter().all(|records| *records > 0));
            Ok(all.then_some(()))
        })
    }

    /// Kills processes until the input is near its end.
    fn hurt(&mut self) -> Result<()> {
        let last_kill = self.plan.last_kill();
        let mut since = Instant::now();
        while let Some(cue) = self.script.next() {
            let stop = self.stop;
            let patience = cue.pause + STALL_LIMIT;
            let go_on = stop.wait_for(patience, "records come through after a kill", || {
                let Some(sample) = self.look()? else {
                    return Ok(None);
                };
                let over = sample.input >= last_kill;
                let due = since.elapsed() >= cue.pause && self.kills.is_calm();
                Ok((over || due).then_some(!over))
            })?;
            if !go_on {
                break;
            }
            since = Instant::now();
            self.kill(cue)?;
        }
        Ok(())
    }

    fn kill(&mut self, cue: Cue) -> Result<()> {
        let at = Instant::now();
        let fallen = self.fleet.kill(cue.victim)?;
        let left = self.client.transactions()?;
        self.fleet.restart(cue.victim)?;
        let prefix = fallen.instance.map(|instance| format!("{APP}-{instance}-"));
        // A prepared transaction is decided already. The brokers complete it by themselves.
        let of_the_dead = left.iter().filter(|transaction| {
            let id = &transaction.transactional_id;
            transaction.state == "Ongoing"
                && prefix.as_ref().is_some_and(|p| id.starts_with(p.as_str()))
        });
        self.kills.add(Kill {
            at,
            process: cue.victim + 1,
            pid: fallen.pid,
            open: of_the_dead.count() as u64,
            recovery: None,
        });
        Ok(())
    }

    fn feed_ends(&mut self, limit: Duration) -> Result<()> {
        let stop = self.stop;
        stop.wait_for(limit, "all lines are sent", || {
            self.look()?;
            self.feed.ended()
        })
    }

    /// Waits until the output is complete and the group has committed the end of the input.
    fn catch_up(&mut self) -> Result<()> {
        let ends = self.client.end_offsets(INPUT, Isolation::ReadUncommitted)?;
        let (stop, words) = (self.stop, self.plan.words);
        let last = stop.wait_for(STALL_LIMIT, "all of the input is committed", || {
            let Some(sample) = self.look()?.filter(|sample| sample.out() >= words) else {
                return Ok(None);
            };
            let committed = self.client.committed(APP, INPUT)?;
            let at = committed
                .iter()
                .map(|known| known.as_ref().map(|(at, _)| *at));
            Ok(at.eq(ends.iter().map(|end| Some(*end))).then_some(sample))
        })?;
        self.show.end(self.state(&last));
        Ok(())
    }

    /// Returns the latest sample and shows the progress. Fails if a process has ended.
    fn look(&mut self) -> Result<Option<Sample>> {
        self.fleet.check()?;
        let latest = self.watch.latest()?;
        if let Some(kill) = self.kills.recovered(&self.watch) {
            self.show.kill(&kill.line());
        }
        if let Some(sample) = &latest {
            self.show.progress(self.state(sample));
        }
        Ok(latest)
    }

    fn state(&self, sample: &Sample) -> State {
        State {
            input: sample.input,
            out: sample.out(),
            kills: self.kills.count(),
        }
    }
}

/// Waits until every worker is in the group, so that the first kill hits a working pipeline.
fn assemble(client: &mut Client, fleet: &mut Fleet, stop: &Stop) -> Result<()> {
    stop.wait_for(STALL_LIMIT, "every worker is in the group", || {
        fleet.check()?;
        let group = client.group_members(APP)?;
        let all = group.state == "Stable" && group.members.len() == PROCESSES * WORKERS;
        Ok(all.then_some(()))
    })
}
