//! One process of the app, with its own log.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_launcher::os::Signal;

use crate::process::ChildGuard;
use crate::wait::wait_until;

// Texts that the cases search for in a log. If a case waits for one of them in vain, the text of the log line may have
// changed.
/// The process has its slot.
pub(super) const STARTING: &str = ": starting ";
/// The group has assigned partitions to the process.
pub(super) const ASSIGNED: &str = ": partitions assigned ";
/// The process knows the start offsets of its tasks.
pub(super) const TASKS_START: &str = ": tasks start ";
/// A transaction is committed.
pub(super) const COMMITTED: &str = ": committed app=";
/// Part of [`COMMITTED`] lines: the transaction holds the start offsets of new tasks.
pub(super) const CLAIMED: &str = "cause=\"first_start\"";

/// SIGKILL.
const KILLED: i32 = 9;

/// A process of the app. It is killed when this is dropped, even if it is frozen.
#[derive(Debug)]
pub struct Member {
    child: ChildGuard,
    log: PathBuf,
}

impl Member {
    /// Starts the process, with its output in the file `log`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn spawn(mut command: Command, log: PathBuf) -> Result<Member> {
        let file = File::create(&log)?;
        command.env("NO_COLOR", "1");
        command.stdout(file.try_clone()?).stderr(file);
        let child = ChildGuard::spawn(command)?;
        Ok(Member { child, log })
    }

    /// Returns its process id, which is also in its output records.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the last lines of its log, with a header.
    pub fn tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        let from = all.len().saturating_sub(lines);
        format!("--- process {}\n{}\n", self.id(), all[from..].join("\n"))
    }

    /// Returns whether it is stopped by a SIGSTOP.
    pub fn is_frozen(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()));
        // The state follows the program's name, which is in parentheses.
        let state = stat.unwrap_or_default();
        let state = state.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        state.is_some_and(|rest| rest.starts_with('T'))
    }

    /// Waits until the process has frozen itself at its failpoint.
    ///
    /// # Errors
    /// When it is not frozen after `patience`.
    pub fn await_frozen(&self, patience: Duration) -> Result<()> {
        wait_until(patience, "the process is frozen", || Ok(self.is_frozen()))
    }

    /// Waits until the process has killed itself with SIGKILL at its failpoint.
    ///
    /// # Errors
    /// When it still runs after `patience`, or ended in another way.
    pub fn await_killed(&mut self, patience: Duration) -> Result<()> {
        let status = self.child.wait(patience)?;
        ensure!(status.signal() == Some(KILLED), "it ended with {status}");
        Ok(())
    }

    /// Kills the process.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().map(|_| ())
    }

    /// Waits until the process ends by itself. Returns whether its exit code was 0.
    ///
    /// # Errors
    /// When it still runs after `patience`.
    pub fn await_any_end(&mut self, patience: Duration) -> Result<bool> {
        Ok(self.child.wait(patience)?.success())
    }

    /// Thaws the process.
    ///
    /// # Errors
    /// When it was not frozen.
    pub fn thaw(&self) -> Result<()> {
        ensure!(self.is_frozen(), "the process is not frozen any more");
        self.child.signal(Signal::Continue)
    }

    /// Fails if the process ended by itself. No fault of a case may stop an app.
    ///
    /// # Errors
    /// When it ended.
    pub fn check(&mut self) -> Result<()> {
        ensure!(self.child.is_running()?, "process {} ended", self.id());
        Ok(())
    }

    /// Requests a stop (SIGTERM).
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn ask_to_stop(&self) -> Result<()> {
        self.child.signal(Signal::Term)
    }

    /// Waits until the process has ended with exit code 0.
    ///
    /// # Errors
    /// When it still runs after `patience`, or ended in another way.
    pub fn await_end(&mut self, patience: Duration) -> Result<()> {
        let status = self.child.wait(patience).context("it does not stop")?;
        ensure!(
            status.success(),
            "process {} ended with {status}",
            self.id()
        );
        Ok(())
    }
}
