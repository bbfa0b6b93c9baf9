//! A process that never outlives the demo.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kafka_launcher::os::{self, Signal};
use kafka_launcher::run;

use super::text;

/// The number of log lines in an error.
const TAIL_LINES: usize = 30;

/// A running program with a log file; killed and reaped when dropped.
///
/// On Linux the kernel also kills it when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Guard {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Guard {
    /// Starts `command`. All its output goes to the file `log`.
    pub(crate) fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Guard> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        // A process group of its own. Ctrl-C must reach only the demo, which then stops its
        // processes itself.
        command.process_group(0);
        os::die_with_spawning_thread(&mut command);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Guard {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        // The process is not reaped before the wait for it, so its id cannot belong to another
        // process.
        os::signal(self.id(), signal).with_context(|| format!("signal {}", self.name))
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::Kill)?;
        Ok(self.child.wait()?)
    }

    /// Waits for the end of the process. Fails unless it succeeds within `patience`.
    pub(crate) fn succeed(&mut self, patience: Duration) -> Result<()> {
        match run::wait_within(&mut self.child, patience)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!(self.obituary(&status.to_string())),
            None => {
                let waited = patience.as_secs();
                bail!(self.obituary(&format!("still running after {waited} s")))
            }
        }
    }

    /// Returns the output of the process.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Returns the name and id of the process, the way it ended (`how`), and its last lines of
    /// output.
    pub(crate) fn obituary(&self, how: &str) -> String {
        let words = text::tail(&self.log(), TAIL_LINES);
        format!(
            "{} (pid {}): {how}. The end of its log:\n{words}",
            self.name,
            self.id()
        )
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The kill fails if the process has ended already. Then nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Guard {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        // The log needs the directory. Each test removes it.
        Guard::spawn("sh", command, &dir.keep().join("log")).unwrap()
    }

    #[test]
    fn a_failure_comes_with_the_last_words() {
        let mut child = shell("echo so long; exit 3");
        let error = child.succeed(Duration::from_secs(10)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("so long") && error.contains('3'), "{error}");
        fs::remove_dir_all(child.log.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_dropped_guard_leaves_no_process() {
        let child = shell("exec sleep 600");
        let (id, dir) = (child.id(), child.log.parent().unwrap().to_owned());
        drop(child);
        assert!(os::signal(id, Signal::Continue).is_err());
        fs::remove_dir_all(dir).unwrap();
    }
}
