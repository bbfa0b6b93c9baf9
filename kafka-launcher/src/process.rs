//! Processes that outlive the program that started them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::os::{self, Signal};

/// A process id and the start time of that process. The system reuses ids, but not this pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The id, which a later process may reuse.
    pub pid: u32,
    started: String,
}

impl ProcessId {
    /// Returns the process that has this id now.
    pub fn of(pid: u32) -> Option<ProcessId> {
        Some(ProcessId {
            pid,
            started: started(pid)?,
        })
    }

    /// Returns the line of a pid file: the id, then the start time.
    pub(crate) fn to_line(&self) -> String {
        format!("{} {}\n", self.pid, self.started)
    }

    /// Parses the line of a pid file.
    pub(crate) fn parse(line: &str) -> Option<ProcessId> {
        let (pid, started) = line.trim().split_once(' ')?;
        Some(ProcessId {
            pid: pid.parse().ok()?,
            started: started.to_owned(),
        })
    }

    /// Returns whether this process still runs.
    pub fn is_alive(&self) -> bool {
        started(self.pid).is_some_and(|now| now == self.started)
    }

    /// Kills this process, and waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&self) -> anyhow::Result<()> {
        if self.is_alive() {
            os::signal(self.pid, Signal::Kill)?;
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.is_alive() {
            anyhow::ensure!(
                Instant::now() < deadline,
                "process {} survives SIGKILL",
                self.pid
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Returns the start time of a live process, in the system's own format.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = start_ticks(&stat)?;
    // Ticks count from the boot, so a reboot resets them.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{}/{ticks}", boot.trim()))
}

/// Returns the 22nd field of `/proc/<pid>/stat`, or `None` for a zombie whose threads have all ended.
///
/// The first thread of a process may be a zombie while other threads still end, and then its sockets still listen. The
/// 20th field is the number of threads.
#[cfg(target_os = "linux")]
fn start_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, which may contain any character.
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    if matches!(state, "Z" | "X") && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn started(pid: u32) -> Option<String> {
    let mut ps = std::process::Command::new("ps");
    ps.args(["-o", "stat=,lstart=", "-p", &pid.to_string()]);
    let said = crate::run::succeed(&mut ps, Duration::from_secs(5)).ok()?;
    let (state, started) = said.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_a_dead_one_has_no_identity() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        assert!(process.is_alive());
        assert_eq!(ProcessId::parse(&process.to_line()), Some(process.clone()));
        let namesake = ProcessId {
            started: "earlier".into(),
            ..process.clone()
        };
        assert!(!namesake.is_alive());
        namesake.kill().unwrap();
        assert!(process.is_alive(), "a namesake's killing must not reach it");
        process.kill().unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
        assert_eq!(ProcessId::of(child.id()), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_with_parentheses_do_not_confuse_the_fields() {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 4242 20";
        assert_eq!(start_ticks(&format!("7 (a) b)) S {fields}")), Some(4242));
        assert_eq!(start_ticks(&format!("7 (a) Z {fields}")), None);
        // Other threads of the process have not ended yet.
        let fields = fields.replace(" 16 1 18", " 16 7 18");
        assert_eq!(start_ticks(&format!("7 (a) Z {fields}")), Some(4242));
    }
}
