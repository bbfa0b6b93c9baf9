//! The processes of the app under test, each with its own log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kafka_launcher::os::Signal;

use crate::process::ChildGuard;
use crate::wait::wait_until;

/// How long a process may take to its first line of log.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a process may take to end after a signal: commit, close, leave.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The live processes; all are killed when it is dropped.
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
    /// The how many-th start this is; names its log.
    nth: usize,
    child: ChildGuard,
}

impl Fleet {
    /// No process yet; each will run `app` in this environment and log to a file in `logs`.
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

    /// How many processes run.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no process runs.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How many were started in all.
    pub fn started(&self) -> usize {
        self.started
    }

    /// The how many-th start a running process is.
    pub fn nth(&self, index: usize) -> Option<usize> {
        self.members.get(index).map(|member| member.nth)
    }

    /// The process id of a running process.
    pub fn id(&self, index: usize) -> Option<u32> {
        self.members.get(index).map(|member| member.child.id())
    }

    /// Where the process runs that was started as the `nth`; nothing if it ended.
    pub fn index_of(&self, nth: usize) -> Option<usize> {
        self.members.iter().position(|member| member.nth == nth)
    }

    /// What the `nth` process has logged so far.
    pub fn text(&self, nth: usize) -> String {
        let text = fs::read(self.log(nth)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Starts one process more.
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

    /// Kills a process outright, and starts another in its place.
    ///
    /// # Errors
    /// When it had ended by itself before.
    pub fn kill_and_restart(&mut self, index: usize) -> Result<()> {
        self.kill(index)?;
        self.start()
    }

    /// Kills a process outright.
    ///
    /// # Errors
    /// When it had ended by itself before.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.check()?;
        let mut member = self.members.remove(index);
        let status = member.child.kill()?;
        if status.code().is_some() {
            bail!(self.ended(member.nth, &status.to_string()));
        }
        Ok(())
    }

    /// Waits until a process ends by itself; its exit code and the whole of its log.
    ///
    /// # Errors
    /// When it is still there after `patience`, or was killed.
    pub fn await_own_end(&mut self, index: usize, patience: Duration) -> Result<(i32, String)> {
        let mut member = self.members.remove(index);
        let log = self.log(member.nth);
        let status = member.child.wait(patience);
        let status = status.with_context(|| format!("its log:\n{}", tail(&log, 30)))?;
        let code = status.code().context("killed by a signal")?;
        Ok((code, fs::read_to_string(log)?))
    }

    /// Asks a process to stop, and waits until it has ended with exit code 0.
    ///
    /// # Errors
    /// When it ends otherwise, or not in time.
    pub fn stop(&mut self, index: usize, signal: Signal) -> Result<()> {
        self.await_word(self.members[index].nth)?;
        self.stop_silent(index, signal)
    }

    /// Sends a process a signal, whatever comes of it.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn signal(&self, index: usize, signal: Signal) -> Result<()> {
        let member = self.members.get(index).context("no such process")?;
        member.child.signal(signal)
    }

    /// As [`Fleet::stop`], for one that has logged nothing and yet is known to hear signals.
    ///
    /// # Errors
    /// As [`Fleet::stop`].
    pub fn stop_silent(&mut self, index: usize, signal: Signal) -> Result<()> {
        self.check()?;
        let mut member = self.members.remove(index);
        member.child.signal(signal)?;
        self.await_end(&mut member, signal)
    }

    /// Asks every process to stop, at the same time.
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

    /// Waits until a process has logged something: before, it may not hear signals yet and would
    /// die of one instead of stopping.
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

    /// Fails if a process has ended by itself: no fault of ours may make it give up.
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

    /// How many lines of all logs are such.
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

    /// The last lines of every log, the latest process first.
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

/// The last lines of a file.
fn tail(file: &Path, lines: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
