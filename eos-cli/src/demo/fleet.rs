//! The processes of the pipeline: started, killed, started again, stopped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use kafka_launcher::os::Signal;

use super::child::Guard;
use super::rebalances::Rebalances;
use super::stop::Stop;

/// The number of processes of the pipeline.
pub(crate) const PROCESSES: usize = 3;

/// Time limit for the first log line of a process.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Time limit for the end of a process, longer than it may take to commit and to close.
const STOP_LIMIT: Duration = Duration::from_secs(45);

/// The settings with which every process is started.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// The program.
    pub(crate) program: PathBuf,
    /// Its environment variables.
    pub(crate) environment: Vec<(String, String)>,
    /// The directory of the logs.
    pub(crate) logs: PathBuf,
}

/// The running processes; all are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    recipe: Recipe,
    running: Vec<Guard>,
    rebalances: Rebalances,
    started: u64,
}

/// A process that was killed.
#[derive(Debug)]
pub(crate) struct Fallen {
    pub(crate) pid: u32,
    /// The identity in its transactional ids. `None` if the process was killed before it logged its
    /// identity.
    pub(crate) instance: Option<String>,
}

impl Fleet {
    /// Starts all of them.
    pub(crate) fn start(recipe: Recipe) -> Result<Fleet> {
        let mut fleet = Fleet {
            recipe,
            running: Vec::new(),
            rebalances: Rebalances::default(),
            started: 0,
        };
        for place in 0..PROCESSES {
            let process = fleet.spawn(place)?;
            fleet.running.push(process);
        }
        Ok(fleet)
    }

    /// Returns the number of processes started so far, restarts included.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// Fails if a process has ended by itself. The kills of other processes must not make it give
    /// up.
    pub(crate) fn check(&mut self) -> Result<()> {
        for process in &mut self.running {
            if let Some(status) = process.ended()? {
                bail!(process.obituary(&format!("ended unexpectedly ({status})")));
            }
        }
        Ok(())
    }

    /// Kills a process outright. It is down until [`Fleet::restart`].
    pub(crate) fn kill(&mut self, place: usize) -> Result<Fallen> {
        self.check()?;
        let process = &mut self.running[place];
        process.kill()?;
        let log = process.log();
        self.rebalances.add_log(&log);
        Ok(Fallen {
            pid: process.id(),
            instance: instance(&log).map(str::to_owned),
        })
    }

    /// Starts another process in the place of the killed one.
    pub(crate) fn restart(&mut self, place: usize) -> Result<()> {
        self.running[place] = self.spawn(place)?;
        Ok(())
    }

    /// Sends `signal` to all processes and waits for their end. Returns the counts from all logs.
    pub(crate) fn stop(mut self, signal: Signal, stop: &Stop) -> Result<Rebalances> {
        // A process may not handle signals before its first log line, and a signal would kill it.
        stop.wait_for(START_LIMIT, "every process logs something", || {
            let all = self.running.iter().all(|process| !process.log().is_empty());
            Ok(all.then_some(()))
        })?;
        self.check()?;
        for process in &self.running {
            process.signal(signal)?;
        }
        for process in &mut self.running {
            process.succeed(STOP_LIMIT)?;
            self.rebalances.add_log(&process.log());
        }
        Ok(self.rebalances)
    }

    fn spawn(&mut self, place: usize) -> Result<Guard> {
        self.started += 1;
        let log = log_file(&self.recipe.logs, self.started);
        let mut command = Command::new(&self.recipe.program);
        command
            .envs(
                self.recipe
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            // The demo reads the log.
            .env("RUST_LOG", "info,eos_core::worker::restore=debug")
            .env("NO_COLOR", "1")
            // An error shows the end of the log. A backtrace would push the error out of it.
            .env("RUST_LIB_BACKTRACE", "0")
            .env_remove("GUARANTEE")
            // See `Stage::set`. The pipeline would refuse the user's directory, or find other state
            // in it.
            .env_remove("EOS_STATE_DIR");
        Guard::spawn(&format!("worker process {}", place + 1), command, &log)
    }
}

fn log_file(logs: &Path, nth: u64) -> PathBuf {
    logs.join(format!("start-{nth}.log"))
}

/// Returns the identity that a process logs when it starts.
fn instance(log: &str) -> Option<&str> {
    let (_, after) = log.split_once(" instance=")?;
    after.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_names_itself_in_its_log() {
        let log = "INFO eos_core::runtime::run: starting app=enrich-v1 instance=00c0ffee00c0ffee slot=/x\n";
        assert_eq!(instance(log), Some("00c0ffee00c0ffee"));
        assert_eq!(instance("INFO something else"), None);
    }
}
