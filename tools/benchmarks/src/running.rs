//! A side that runs: what it has done, what it has used, how it ends.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_launcher::os::{self, Signal};

use crate::proc;

/// How long a side may take over its clean stop.
const STOP: Duration = Duration::from_secs(60);

/// A started process; killed if it still runs when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
    ended: bool,
}

impl Running {
    /// Starts it. What it says goes to the file.
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

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        proc::cpu(self.child.id())
    }

    /// The most memory so far.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        proc::peak_mib(self.child.id())
    }

    /// The open file descriptors.
    pub(crate) fn files(&self) -> Result<usize> {
        proc::files(self.child.id())
    }

    /// Fails if it has ended badly.
    pub(crate) fn check(&mut self) -> Result<()> {
        // A side that has ended well has done its part.
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

    /// Asks it to stop and waits until it has. Returns what it said.
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

    /// Kills it outright.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.ended = true;
        Ok(())
    }

    /// What it said so far.
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
