//! The input of a run. The generator is started again while faults are still due.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::process::ChildGuard;

/// The time limit for the end of the generator.
const PATIENCE: Duration = Duration::from_secs(120);

/// A paced stream of records.
#[derive(Debug)]
pub struct Load {
    program: PathBuf,
    bootstrap: String,
    topic: String,
    rate: u64,
    planned: u64,
    running: ChildGuard,
}

impl Load {
    /// Starts sending `records` at `rate` records per second.
    ///
    /// # Errors
    /// When the generator cannot be started.
    pub fn start(
        program: &Path,
        bootstrap: &str,
        topic: &str,
        records: u64,
        rate: u64,
    ) -> Result<Self> {
        Ok(Load {
            running: spawn(program, bootstrap, topic, (0, records), rate)?,
            program: program.to_owned(),
            bootstrap: bootstrap.to_owned(),
            topic: topic.to_owned(),
            rate,
            planned: records,
        })
    }

    /// Returns the number of records that are sent or planned so far.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Returns whether records are being sent.
    ///
    /// # Errors
    /// When the operating system does not report the state of the generator.
    pub fn flows(&mut self) -> Result<bool> {
        self.running.is_running()
    }

    /// Sends records for two more seconds if all planned records are sent. On a slow machine, the faults take longer
    /// than the planned records.
    ///
    /// # Errors
    /// When the generator failed or cannot be started.
    pub fn keep_going(&mut self) -> Result<()> {
        if self.flows()? {
            return Ok(());
        }
        self.finish()?;
        let (first, more) = (self.planned, self.rate * 2);
        let (bootstrap, topic) = (&self.bootstrap, &self.topic);
        self.running = spawn(&self.program, bootstrap, topic, (first, more), self.rate)?;
        self.planned += more;
        Ok(())
    }

    /// Waits until all planned records are acknowledged.
    ///
    /// # Errors
    /// When the generator fails, or does not end in time.
    pub fn finish(&mut self) -> Result<()> {
        let status = self.running.wait(PATIENCE)?;
        ensure!(status.success(), "the generator ended with {status}");
        Ok(())
    }
}

fn spawn(
    program: &Path,
    bootstrap: &str,
    topic: &str,
    (first, records): (u64, u64),
    rate: u64,
) -> Result<ChildGuard> {
    let mut command = Command::new(program);
    command.args(["--bootstrap", bootstrap, "--topic", topic]);
    command.args(["--records", &records.to_string()]);
    command.args(["--first-seq", &first.to_string()]);
    command.args(["--rate", &rate.to_string()]);
    command.stdout(Stdio::null());
    ChildGuard::spawn(command)
}
