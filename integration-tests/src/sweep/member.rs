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

// What the cases look for in a log. A case that waits for one of these in vain has missed a change of
// the words.
/// The process has its slot.
pub(super) const STARTING: &str = ": starting ";
/// The group has given it partitions.
pub(super) const ASSIGNED: &str = ": partitions assigned ";
/// It knows where to begin.
pub(super) const TASKS_START: &str = ": tasks start ";
/// A transaction is committed.
pub(super) const COMMITTED: &str = ": committed app=";
/// One that holds the start offsets of new tasks.
pub(super) const CLAIMED: &str = "cause=\"first_start\"";

/// SIGKILL.
const KILLED: i32 = 9;

/// A process of the app. It is killed when this is dropped, frozen or not.
#[derive(Debug)]
pub struct Member {
    child: ChildGuard,
    log: PathBuf,
}

impl Member {
    /// Starts it; what it prints goes into a file.
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

    /// Its process id: what its outputs carry.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of its log, for people.
    pub fn tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        let from = all.len().saturating_sub(lines);
        format!("--- process {}\n{}\n", self.id(), all[from..].join("\n"))
    }

    /// Whether it is stopped by a SIGSTOP.
    pub fn is_frozen(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()));
        // The state follows the program's name, which is in parentheses.
        let state = stat.unwrap_or_default();
        let state = state.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        state.is_some_and(|rest| rest.starts_with('T'))
    }

    /// Waits until it is frozen, as it did to itself.
    ///
    /// # Errors
    /// When it is not after `patience`.
    pub fn await_frozen(&self, patience: Duration) -> Result<()> {
        wait_until(patience, "the process is frozen", || Ok(self.is_frozen()))
    }

    /// Waits until it is dead by SIGKILL, as it did to itself.
    ///
    /// # Errors
    /// When it goes on, or ended otherwise.
    pub fn await_killed(&mut self, patience: Duration) -> Result<()> {
        let status = self.child.wait(patience)?;
        ensure!(status.signal() == Some(KILLED), "it ended with {status}");
        Ok(())
    }

    /// Kills it at once.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().map(|_| ())
    }

    /// Waits until it ends by itself. Returns whether that was well.
    ///
    /// # Errors
    /// When it goes on.
    pub fn await_any_end(&mut self, patience: Duration) -> Result<bool> {
        Ok(self.child.wait(patience)?.success())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it was not frozen.
    pub fn thaw(&self) -> Result<()> {
        ensure!(self.is_frozen(), "the process is not frozen any more");
        self.child.signal(Signal::Continue)
    }

    /// Fails if it ended by itself: nothing that happens to it may make it give up.
    ///
    /// # Errors
    /// When it ended.
    pub fn check(&mut self) -> Result<()> {
        ensure!(self.child.is_running()?, "process {} ended", self.id());
        Ok(())
    }

    /// Asks it to stop (SIGTERM).
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn ask_to_stop(&self) -> Result<()> {
        self.child.signal(Signal::Term)
    }

    /// Waits until it has stopped well.
    ///
    /// # Errors
    /// When it goes on, or ended otherwise.
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
