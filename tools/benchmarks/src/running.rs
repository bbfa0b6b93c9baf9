//! A running side: its output, its CPU time and memory, and its end.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_launcher::os::{self, Signal};

use crate::proc;

/// The time limit of a clean stop.
const STOP: Duration = Duration::from_secs(60);

/// A started process. Dropping it kills the process if it still runs.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
    ended: bool,
}

impl Running {
    /// Starts the process. Its output goes to the file.
    pub(crate) fn start(name: &'static str, mut command: Command, log: PathBuf) -> Result<Self> {
        let said = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said);
        os::die_with_spawning_thread(&mut command);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self {
            name,
            child,
            log,
            ended: false,
        })
    }

    /// Returns the user and system time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        proc::cpu(self.child.id())
    }

    /// Returns the maximum memory so far.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        proc::peak_mib(self.child.id())
    }

    /// Returns the number of open file descriptors.
    pub(crate) fn files(&self) -> Result<usize> {
        proc::files(self.child.id())
    }

    /// Fails if the process has ended with an error.
    pub(crate) fn check(&mut self) -> Result<()> {
        // A side that ended without an error has completed its work.
        if let Some(status) = self.child.try_wait()? {
            self.ended = true;
            ensure!(
                status.success(),
                "{} ended ({status}). {}",
                self.name,
                self.said()
            );
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the end. Returns the output.
    pub(crate) fn stop(mut self) -> Result<String> {
        self.check()?;
        if self.ended {
            return Ok(self.text());
        }
        os::signal(self.child.id(), Signal::Term)?;
        let deadline = Instant::now() + STOP;
        while self.child.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                bail!("{} does not stop. {}", self.name, self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.ended = true;
        Ok(self.text())
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.ended = true;
        Ok(())
    }

    /// Returns the output so far.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let _nothing_to_read = File::open(&self.log).and_then(|mut f| f.read_to_string(&mut text));
        text
    }

    fn said(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().collect();
        let last = lines
            .get(lines.len().saturating_sub(20)..)
            .unwrap_or_default();
        format!("It said:\n{}", last.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _gone_already = self.child.kill();
            let _already_reaped = self.child.wait();
        }
    }
}
