//! An app that counts by key, its state directory, and its expected counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use eos_core::codec::{Plain, TimeWindowed};
use eos_core::errors::{RestartError, WorkerError};
use eos_core::run::{Running, StopMode};
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, Error, KeyValueStore, Topic};
use integration_tests::counted::{Counted, Counts};
use integration_tests::files::{copy_dir, restart_rows};
use integration_tests::process::{ChildGuard, Program, build};
use integration_tests::wait::wait_until;
use kafka_wire::{Isolation, Producer};
use tempfile::TempDir;

use crate::common::log;
use crate::common::{Case, PATIENCE, With, ended, says};

/// One scenario's app.
pub(crate) struct Scene {
    pub(crate) case: Case,
    /// The number of sent records of each key.
    sent: Counts,
    /// The number of log lines that were already read.
    read: usize,
}

/// The log of a start.
#[derive(Debug)]
pub(crate) struct Began {
    /// The rows of the restart table that it took.
    pub(crate) rows: Vec<String>,
    pub(crate) log: Vec<String>,
}

/// A copy of a state directory.
pub(crate) struct Kept(TempDir);

impl Scene {
    pub(crate) fn new(bootstrap: &str, name: &str) -> Result<Scene> {
        Ok(Scene {
            case: Case::new(bootstrap, name)?,
            sent: Counts::new(),
            read: 0,
        })
    }

    /// Returns an app that counts by key in a store of this name.
    pub(crate) fn counting(&self, store: &str) -> App {
        // After an error the membership stays for a session, and offsets can't be set meanwhile.
        let app = self
            .case
            .app()
            .with("session.timeout.ms", Duration::from_secs(6).as_millis());
        let mut app = app.with("commit.interval.ms", Duration::from_millis(20).as_millis());
        app.source(&Topic::<String, String>::plain(&self.case.input))
            .group_by_key()
            .count(&KeyValueStore::<String, u64>::plain(store))
            .to(&Topic::plain(&self.case.output));
        app
    }

    /// Returns an app that counts in windows of an hour.
    pub(crate) fn counting_by_windows(&self) -> App {
        let hour = Duration::from_secs(3_600);
        let mut app = self
            .case
            .app()
            .with("commit.interval.ms", Duration::from_millis(20).as_millis());
        let windowed = TimeWindowed::of(hour);
        app.source(&Topic::<String, String>::plain(&self.case.input))
            .group_by_key()
            .windowed_by(Tumbling::of(hour).grace(hour))
            .count(&WindowStore::plain("counts"))
            .to(&Topic::with(&self.case.output, windowed, Plain));
        app
    }

    /// As [`Scene::counting`], with an additional store that stays empty.
    pub(crate) fn counting_with_another_store(&self) -> App {
        let mut app = self.counting("counts");
        let spare = app.store(&KeyValueStore::<String, u64>::plain("spare"));
        app.source(&Topic::<String, String>::plain(&self.case.input))
            .with_store(&spare)
            .for_each(|_, _| ());
        app
    }

    /// Sends a record of each key.
    pub(crate) fn send(&mut self, keys: &[&str]) -> Result<()> {
        self.send_at(1_000, keys)
    }

    /// As [`Scene::send`], with this timestamp.
    pub(crate) fn send_at(&mut self, time: i64, keys: &[&str]) -> Result<()> {
        let mut producer = Producer::new(&self.case.bootstrap)?;
        for key in keys {
            let key_bytes = Some(key.as_bytes());
            producer.send(&self.case.input, 0, key_bytes, Some(b"v"), &[], time)?;
            *self.sent.entry((*key).to_owned()).or_default() += 1;
        }
        producer.flush()
    }

    pub(crate) fn total(&self) -> i64 {
        self.sent.values().sum::<u64>().cast_signed()
    }

    /// Sends a record of each key, starts the app, waits until all is committed, and stops it.
    pub(crate) fn run(&mut self, keys: &[&str]) -> Result<Began> {
        self.send(keys)?;
        let app = self.counting("counts");
        self.run_app(app)
    }

    pub(crate) fn run_app(&mut self, app: App) -> Result<Began> {
        match self.run_to_end(app)? {
            Ok(began) => Ok(began),
            Err(error) => bail!("{error}\n{}", self.log().concat()),
        }
    }

    /// As `run_app`, for an app that may stop by itself. Returns its error then.
    pub(crate) fn run_to_end(&mut self, app: App) -> Result<Result<Began, Error>> {
        let wanted = Some(self.total());
        self.log();
        let read = self.read;
        let mut running = match app.start_blocking(&self.case.bootstrap) {
            Ok(running) => running,
            Err(error) => return Ok(Err(error)),
        };
        let name = self.case.app.clone();
        let reached = wait_until(PATIENCE, "all is committed and its state is whole", || {
            let log = log::lines(&name, read);
            let says = |words: &str| log.iter().any(|line| line.contains(words));
            let whole = says("task restored") && self.case.committed()? == wanted;
            Ok(whole || says("stopped app="))
        });
        running.handle().stop(StopMode::Leave);
        if let Err(error) = ended(&mut running)? {
            return Ok(Err(error));
        }
        let log = self.log();
        reached.with_context(|| log.concat())?;
        Ok(Ok(Began {
            rows: restart_rows(log.iter().map(String::as_str)),
            log,
        }))
    }

    /// Starts the app, which must stop by itself before its first record because of the restart table.
    pub(crate) fn refused(&mut self) -> Result<(RestartError, Began)> {
        let app = self.counting("counts");
        self.refused_app(app)
    }

    pub(crate) fn refused_app(&mut self, app: App) -> Result<(RestartError, Began)> {
        let (before, output) = (self.case.committed()?, self.case.output()?.len());
        let error = self.case.failure_of(app)?;
        let log = self.log();
        let Error::Worker(WorkerError::Restart(found)) = error else {
            bail!("{error}\n{}", log.concat());
        };
        ensure!(self.case.committed()? == before, "an offset was moved");
        ensure!(self.case.output()?.len() == output, "something was counted");
        let rows = restart_rows(log.iter().map(String::as_str));
        Ok((*found, Began { rows, log }))
    }

    /// Checks that a start fails with this error, and that its text contains these words.
    pub(crate) fn stops(&mut self, error: &str, words: &[&str]) -> Result<Began> {
        let (found, began) = self.refused()?;
        is_error(&found, error, words)?;
        Ok(began)
    }

    /// Returns the log lines that were not read before.
    pub(crate) fn log(&mut self) -> Vec<String> {
        let new = log::lines(&self.case.app, self.read);
        self.read += new.len();
        new
    }

    /// Fails unless every key was counted exactly as often as it was sent, one by one, in the output, in the changelog
    /// and in the databases.
    pub(crate) fn judge(&mut self) -> Result<()> {
        let changelog = self.changelog()?;
        let counted = Counted {
            output: &self.case.output,
            changelog: &changelog,
            partitions: 1,
            state: self.case.state.path(),
        };
        let findings = counted.check(&mut self.case.client, &self.sent)?;
        findings.ensure_clean()
    }

    /// Fails unless every update in the output raises the count of its key by one, and there is an update for each
    /// record.
    pub(crate) fn judge_output(&mut self) -> Result<()> {
        let (mut last, output) = (BTreeMap::<Vec<u8>, u64>::new(), self.case.output.clone());
        let mut wrong = Vec::new();
        let client = &mut self.case.client;
        client.read_all(&output, Isolation::ReadCommitted, |_, record| {
            let value = record.value.as_deref().and_then(|v| v.try_into().ok());
            let found = value.map_or(0, u64::from_be_bytes);
            let key = record.key.as_deref().unwrap_or_default().to_owned();
            let before = last.insert(key, found).unwrap_or(0);
            if found != before + 1 {
                wrong.push(format!("{found} after {before} at {}", record.offset));
            }
        })?;
        let total = i64::try_from(last.values().sum::<u64>())?;
        ensure!(
            wrong.is_empty() && total == self.total(),
            "{last:?}: {wrong:?}"
        );
        Ok(())
    }

    /// Returns the name of the app's changelog.
    pub(crate) fn changelog(&mut self) -> Result<String> {
        let all = self.case.client.metadata(None)?;
        let is_ours = |name: &&String| {
            name.starts_with(&format!("{}-", self.case.app)) && name.ends_with("-changelog")
        };
        let found = all.topics.keys().find(is_ours);
        found.cloned().context("the app has no changelog")
    }

    /// Returns the committed offset and its metadata.
    pub(crate) fn named(&mut self) -> Result<(i64, String)> {
        let all = self
            .case
            .client
            .committed(&self.case.app, &self.case.input)?;
        all.into_iter().flatten().next().context("no offset")
    }

    /// Sets the group's offset once the group has no members.
    pub(crate) fn set_offset(&mut self, offset: i64, metadata: &str) -> Result<()> {
        let app = self.case.app.clone();
        wait_until(PATIENCE, "the group has no members", || {
            Ok(self.case.client.group_members(&app)?.members.is_empty())
        })?;
        self.case.set_offset(offset, metadata)
    }

    /// Returns the path of the database of the only task.
    pub(crate) fn database(&self) -> Result<PathBuf> {
        find(self.case.state.path(), "CURRENT")?.context("no database")
    }

    /// Copies the state directory.
    pub(crate) fn keep(&self) -> Result<Kept> {
        let kept = Kept(TempDir::new()?);
        copy_dir(self.case.state.path(), kept.0.path())?;
        Ok(kept)
    }

    /// Replaces the state directory by a copy.
    pub(crate) fn put_back(&self, kept: &Kept) -> Result<()> {
        self.delete_state()?;
        copy_dir(kept.0.path(), self.case.state.path())
    }

    /// Deletes the databases, but keeps the identity of the process.
    pub(crate) fn delete_databases(&self) -> Result<()> {
        let slot = find(self.case.state.path(), "instance")?.context("no slot")?;
        Ok(fs::remove_dir_all(slot.join("tasks"))?)
    }

    /// Starts the app as a separate process, which kills itself at its failpoint.
    pub(crate) fn crash(&mut self, failpoints: &str, undefended: &str) -> Result<()> {
        let mut child = self.child(failpoints, undefended)?;
        let status = child.wait(PATIENCE)?;
        let fired = fs::read_to_string(self.fired()).unwrap_or_default();
        ensure!(
            status.code().is_none() && fired.lines().count() == 1,
            "it did not kill itself at {failpoints}: {status}, {fired:?}"
        );
        Ok(())
    }

    /// Starts the app as a separate process.
    pub(crate) fn child(&self, failpoints: &str, undefended: &str) -> Result<ChildGuard> {
        let mut command = Command::new(program()?);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env("EOS_BOOTSTRAP_SERVERS", &self.case.bootstrap)
            .env("APP", &self.case.app)
            .env("EOS_STATE_DIR", self.case.state.path())
            .env("EOS_COMMIT_INTERVAL_MS", "20")
            .env("EOS_SESSION_TIMEOUT_MS", "6000")
            .env("EOS_FAILPOINTS", failpoints)
            .env("EOS_FAILPOINTS_LOG", self.fired())
            .env("EOS_UNDEFENDED", undefended);
        ChildGuard::spawn(command)
    }

    fn fired(&self) -> PathBuf {
        self.case.state.path().with_extension("fired")
    }

    /// Starts the app, and leaves it running.
    pub(crate) fn begin(&self) -> Result<Running> {
        Ok(self
            .counting("counts")
            .start_blocking(&self.case.bootstrap)?)
    }

    /// Waits until all sent records are committed.
    pub(crate) fn await_committed(&mut self) -> Result<()> {
        let wanted = Some(self.total());
        wait_until(PATIENCE, "all is committed", || {
            Ok(self.case.committed()? == wanted)
        })
    }

    /// Replaces the database of the only task by that of a copy.
    pub(crate) fn put_database_back(&self, kept: &Kept) -> Result<()> {
        let (from, to) = (find(kept.0.path(), "CURRENT")?, self.database()?);
        fs::remove_dir_all(&to)?;
        copy_dir(&from.context("no database in the copy")?, &to)
    }

    pub(crate) fn delete_state(&self) -> Result<()> {
        for entry in fs::read_dir(self.case.state.path())? {
            fs::remove_dir_all(entry?.path())?;
        }
        Ok(())
    }
}

impl Began {
    /// Fails unless this was the only row that was taken.
    pub(crate) fn took(&self, row: &str) -> Result<()> {
        ensure!(
            self.rows == [row],
            "{:?}, not {row}:\n{}",
            self.rows,
            self.log.concat()
        );
        Ok(())
    }

    /// Fails unless this row was taken, which discards the local copy.
    ///
    /// A child process of a parallel scenario holds every lock of this process between `fork` and `exec`. The copy is
    /// judged again then, or its directory is found without a copy.
    pub(crate) fn discarded(&self, row: &str) -> Result<()> {
        self.took_first(row)?;
        let again = |it: &String| it == row || it == "no_state";
        ensure!(
            self.rows.iter().all(again),
            "{:?}, not {row}:\n{}",
            self.rows,
            self.log.concat()
        );
        self.says("discarding local state")
    }

    /// Checks that the app took this row first.
    pub(crate) fn took_first(&self, row: &str) -> Result<()> {
        let first = self.rows.first();
        ensure!(first.is_some_and(|first| first == row), "{self:?}");
        Ok(())
    }

    /// Checks that the app took no other row.
    pub(crate) fn took_only(&self, row: &str) -> Result<()> {
        ensure!(self.rows.iter().all(|taken| taken == row), "{self:?}");
        Ok(())
    }

    /// Checks that a line of the log contains this text.
    pub(crate) fn says(&self, part: &str) -> Result<()> {
        let found = self.log.iter().any(|line| line.contains(part));
        ensure!(found, "{part:?} is not in:\n{}", self.log.concat());
        Ok(())
    }

    /// Returns the number of records that the app read from the changelog.
    pub(crate) fn records(&self) -> u64 {
        let lines = self
            .log
            .iter()
            .filter(|line| line.contains("changelog read"));
        let counts = lines.filter_map(|line| line.split_once("records=")?.1.split(' ').next());
        counts.filter_map(|count| count.parse::<u64>().ok()).sum()
    }
}

/// Checks the name of the error, and that its text contains these words.
pub(crate) fn is_error(error: &RestartError, name: &str, words: &[&str]) -> Result<()> {
    let is_named = format!("{error:?}").split(' ').next() == Some(name);
    ensure!(is_named, "{error}, not {name}");
    says(error, words)
}

/// Builds the app as a separate program with failpoints.
pub(crate) fn program() -> Result<PathBuf> {
    let app = Program::Example("counting");
    build("integration-tests", app, &["--features", "failpoints"])
}

/// Returns the directory below `root` that contains a file of this name.
fn find(root: &Path, file: &str) -> Result<Option<PathBuf>> {
    if root.join(file).is_file() {
        return Ok(Some(root.to_owned()));
    }
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Some(found) = find(&entry.path(), file)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
