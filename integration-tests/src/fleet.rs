//! The processes of the app under test, each with its own log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kafka_launcher::os::Signal;

use crate::process::ChildGuard;
use crate::wait::wait_until;

/// The time limit for the first log line of a process.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The time limit for the end of a process after a signal: it commits, closes and leaves the group.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The running processes. They are killed when the fleet is dropped.
#[derive(Debug)]
pub struct Fleet {
    app: PathBuf,
    environment: Vec<(String, String)>,
    logs: PathBuf,
    members: Vec<Member>,
    started: usize,
}

#[derive(Debug)]
struct Member {
    /// The number of its start, from 0. It is part of the name of its log file.
    nth: usize,
    child: ChildGuard,
}

impl Fleet {
    /// Creates a fleet without processes. Each process will run `app` in this environment and log to a file in `logs`.
    pub fn new<K: Into<String>, V: Into<String>>(
        app: &Path,
        environment: impl IntoIterator<Item = (K, V)>,
        logs: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(logs)?;
        let environment = environment.into_iter();
        let environment = environment.map(|(key, value)| (key.into(), value.into()));
        Ok(Fleet {
            app: app.to_owned(),
            environment: environment.collect(),
            logs: logs.to_owned(),
            members: Vec::new(),
            started: 0,
        })
    }

    /// Returns the number of running processes.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether no process runs.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the number of processes that were started in all.
    pub fn started(&self) -> usize {
        self.started
    }

    /// Returns the number of the start of a running process, from 0.
    pub fn nth(&self, index: usize) -> Option<usize> {
        self.members.get(index).map(|member| member.nth)
    }

    /// Returns the process id of a running process.
    pub fn id(&self, index: usize) -> Option<u32> {
        self.members.get(index).map(|member| member.child.id())
    }

    /// Returns the index of the process that was started as number `nth`, or `None` if it ended.
    pub fn index_of(&self, nth: usize) -> Option<usize> {
        self.members.iter().position(|member| member.nth == nth)
    }

    /// Returns the log of the `nth` process so far.
    pub fn text(&self, nth: usize) -> String {
        let text = fs::read(self.log(nth)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Starts one more process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self) -> Result<()> {
        let nth = self.started;
        let log = File::create(self.log(nth))?;
        let mut command = Command::new(&self.app);
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.env("NO_COLOR", "1");
        command.stdout(log.try_clone()?).stderr(log);
        let child = ChildGuard::spawn(command)?;
        self.members.push(Member { nth, child });
        self.started += 1;
        Ok(())
    }

    /// Kills a process (SIGKILL) and starts another one in its place.
    ///
    /// # Errors
    /// When a process had already ended by itself.
    pub fn kill_and_restart(&mut self, index: usize) -> Result<()> {
        self.kill(index)?;
        self.start()
    }

    /// Kills a process (SIGKILL).
    ///
    /// # Errors
    /// When a process had already ended by itself.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.check()?;
        let mut member = self.members.remove(index);
        let status = member.child.kill()?;
        if status.code().is_some() {
            bail!(self.ended(member.nth, &status.to_string()));
        }
        Ok(())
    }

    /// Waits until a process ends by itself. Returns its exit code and its whole log.
    ///
    /// # Errors
    /// When it still runs after `patience`, or was killed by a signal.
    pub fn await_own_end(&mut self, index: usize, patience: Duration) -> Result<(i32, String)> {
        let mut member = self.members.remove(index);
        let log = self.log(member.nth);
        let status = member.child.wait(patience);
        let status = status.with_context(|| format!("its log:\n{}", tail(&log, 30)))?;
        let code = status.code().context("killed by a signal")?;
        Ok((code, fs::read_to_string(log)?))
    }

    /// Sends a process a signal to stop, and waits until it has ended with exit code 0.
    ///
    /// # Errors
    /// When it ends with another status, or not in time.
    pub fn stop(&mut self, index: usize, signal: Signal) -> Result<()> {
        self.await_word(self.members[index].nth)?;
        self.stop_silent(index, signal)
    }

    /// Sends a signal to a process, and does not wait for an effect.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn signal(&self, index: usize, signal: Signal) -> Result<()> {
        let member = self.members.get(index).context("no such process")?;
        member.child.signal(signal)
    }

    /// As [`Fleet::stop`], for a process that has logged nothing but is known to handle signals.
    ///
    /// # Errors
    /// As [`Fleet::stop`].
    pub fn stop_silent(&mut self, index: usize, signal: Signal) -> Result<()> {
        self.check()?;
        let mut member = self.members.remove(index);
        member.child.signal(signal)?;
        self.await_end(&mut member, signal)
    }

    /// Sends every process a signal to stop, and waits until all have ended with exit code 0.
    ///
    /// # Errors
    /// As [`Fleet::stop`].
    pub fn stop_all(&mut self, signal: Signal) -> Result<()> {
        for at in 0..self.members.len() {
            self.await_word(self.members[at].nth)?;
        }
        let mut members = std::mem::take(&mut self.members);
        for member in &members {
            member.child.signal(signal)?;
        }
        members
            .iter_mut()
            .try_for_each(|member| self.await_end(member, signal))
    }

    /// Waits until a process has logged a line. Before that, it may not handle signals yet, and a signal would kill it.
    fn await_word(&mut self, nth: usize) -> Result<()> {
        let log = self.log(nth);
        let what = format!("process {nth} logs something");
        wait_until(START_LIMIT, &what, || {
            self.check()?;
            Ok(fs::metadata(&log)?.len() > 0)
        })
    }

    fn await_end(&self, member: &mut Member, signal: Signal) -> Result<()> {
        let status = member.child.wait(STOP_LIMIT);
        let status = status.with_context(|| {
            let log = self.log(member.nth);
            format!(
                "process {} does not end by {signal:?}:\n{}",
                member.nth,
                tail(&log, 30)
            )
        })?;
        if !status.success() {
            let how = format!("{status} after {signal:?}");
            bail!(self.ended(member.nth, &how));
        }
        Ok(())
    }

    /// Fails if a process has ended by itself. No fault of a test may stop an app.
    ///
    /// # Errors
    /// Names the process, with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            if !member.child.is_running()? {
                let (nth, status) = (member.nth, member.child.wait(Duration::ZERO)?);
                bail!(self.ended(nth, &format!("{status}, by itself")));
            }
        }
        Ok(())
    }

    /// Returns the number of lines in all logs for which `is_such` is true.
    ///
    /// # Errors
    /// When a log can't be read.
    pub fn count_lines(&self, is_such: impl Fn(&str) -> bool) -> Result<usize> {
        let mut count = 0;
        for nth in 0..self.started {
            let text = fs::read(self.log(nth))?;
            let text = String::from_utf8_lossy(&text);
            count += text.lines().filter(|line| is_such(line)).count();
        }
        Ok(count)
    }

    /// Returns the last lines of every log, the latest process first.
    pub fn tails(&self, lines: usize) -> String {
        let logs = (0..self.started).rev().map(|nth| {
            let (log, live) = (self.log(nth), self.members.iter().any(|m| m.nth == nth));
            let state = if live { "live" } else { "ended" };
            format!("--- process {nth} ({state})\n{}\n", tail(&log, lines))
        });
        logs.collect()
    }

    fn ended(&self, nth: usize, how: &str) -> String {
        let log = tail(&self.log(nth), 30);
        format!("process {nth} of the app ended ({how}):\n{log}")
    }

    fn log(&self, nth: usize) -> PathBuf {
        self.logs.join(format!("process-{nth}.log"))
    }
}

/// Returns the last lines of a file.
fn tail(file: &Path, lines: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
