//! The processes of a temporary server.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::binaries::Binaries;
use super::{ClusterError, sql};

/// Time limit for a start. It suffices for a slow machine and a recovery.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The time after which the watchdog has certainly started the server.
const LAUNCH_LIMIT: Duration = Duration::from_secs(5);

/// Stops the server when standard input has a line or ends. If this process ends without stopping the server,
/// standard input ends without a line, and the watchdog also removes the directory.
const WATCHDOG: &str = "directory=$1; shift; \"$@\" </dev/null & server=$!; read -r line; \
     kill -QUIT $server 2>/dev/null; wait $server; [ \"$line\" ] || rm -rf \"$directory\"";

#[derive(Debug)]
pub(super) struct Server {
    directory: TempDir,
    postgres: PathBuf,
    user: Option<User>,
    settings: Vec<String>,
    running: Option<Running>,
}

/// The program that copies a server. Every version of PostgreSQL that eos supports has it.
const BASE_BACKUP: &str = "pg_basebackup";

/// The watchdog of a started server. The server runs until the pipe has a line or is closed.
#[derive(Debug)]
struct Running {
    watchdog: Child,
    pipe: Option<ChildStdin>,
}

/// A user without rights, for a test that runs as root.
#[derive(Debug, Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Server {
    pub(super) fn start(
        binaries: &Binaries,
        settings: &[(&str, &str)],
    ) -> Result<Self, ClusterError> {
        let settings = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let mut server = Self::empty(binaries.program("postgres"), settings)?;
        server.initdb(&binaries.program("initdb"))?;
        server.launch()?;
        Ok(server)
    }

    /// Returns a server that follows this one, with the same settings.
    pub(super) fn standby(&self) -> Result<Self, ClusterError> {
        let mut standby = Self::empty(self.postgres.clone(), self.settings.clone())?;
        standby.copy(self)?;
        standby.launch()?;
        Ok(standby)
    }

    /// Returns a directory for a server.
    fn empty(postgres: PathBuf, settings: Vec<String>) -> Result<Self, ClusterError> {
        let user = unprivileged_user()?;
        let failed = |error: std::io::Error| ClusterError::failed("create a directory", error);
        // The path of a Unix socket has at most 107 bytes, so it is short.
        let directory = tempfile::Builder::new()
            .prefix("eos-pg-")
            .tempdir()
            .map_err(failed)?;
        if let Some(user) = user {
            std::os::unix::fs::chown(directory.path(), Some(user.uid), Some(user.gid))
                .map_err(failed)?;
        }
        Ok(Self {
            directory,
            postgres,
            user,
            settings,
            running: None,
        })
    }

    pub(super) fn url(&self, database: &str) -> String {
        let directory = self.directory.path().display().to_string();
        let host = directory.replace('%', "%25").replace('/', "%2F");
        // The name of the socket contains the port.
        let port = self.port().map_or(String::new(), |port| format!(":{port}"));
        format!("postgres://postgres@{host}{port}/{database}")
    }

    fn port(&self) -> Option<&str> {
        let mut settings = self.settings.iter();
        settings.find_map(|one| one.strip_prefix("port="))
    }

    pub(super) fn restart_immediate(&mut self) -> Result<(), ClusterError> {
        self.stop();
        self.launch()
    }

    pub(super) fn kill9(&mut self) -> Result<(), ClusterError> {
        let mut killed = Vec::new();
        if let Some(postmaster) = self.postmaster() {
            // A stopped process starts no other one.
            kill(postmaster, Signal::STOP);
            killed = children_of(postmaster);
            for pid in std::iter::once(postmaster).chain(killed.iter().copied()) {
                kill(pid, Signal::KILL);
            }
        }
        self.stop();
        // A new server does not start while a process of the old one uses its memory.
        let begin = Instant::now();
        while killed.iter().any(|pid| is_running(*pid)) && begin.elapsed() < START_LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.launch()
    }

    /// Ends all sessions, and starts again as a standby without a primary.
    pub(super) fn demote(&mut self) -> Result<(), ClusterError> {
        // Shut down cleanly: after a crash, the standby might wait for changes that no primary sends.
        if let Some(postmaster) = self.postmaster() {
            kill(postmaster, Signal::INT);
            let begin = Instant::now();
            while is_running(postmaster) && begin.elapsed() < START_LIMIT {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.stop();
        std::fs::write(self.data().join("standby.signal"), "")
            .map_err(|error| ClusterError::failed("write standby.signal", error))?;
        self.launch()
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn initdb(&self, initdb: &Path) -> Result<(), ClusterError> {
        let mut command = self.command(initdb);
        command
            .args(["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8"])
            .args(["--locale=C", "-D"])
            .arg(self.data());
        succeed("initdb", &mut command)
    }

    /// Copies the data of a running server, with the settings of a standby of it.
    fn copy(&self, primary: &Self) -> Result<(), ClusterError> {
        let program = self.postgres.with_file_name(BASE_BACKUP);
        let mut command = self.command(&program);
        command
            .args(["-N", "-R", "-X", "stream", "-c", "fast"])
            .args(["-U", "postgres", "-D"])
            .arg(self.data())
            .arg("-h")
            .arg(primary.directory.path());
        if let Some(port) = primary.port() {
            command.args(["-p", port]);
        }
        succeed(BASE_BACKUP, &mut command)
    }

    fn launch(&mut self) -> Result<(), ClusterError> {
        let log = self.directory.path().join("log");
        let failed = |error: std::io::Error| ClusterError::failed("start PostgreSQL", error);
        let file = std::fs::File::create(&log).map_err(failed)?;
        let mut command = self.command(Path::new("/bin/sh"));
        command
            .args(["-c", WATCHDOG, "sh"])
            .arg(self.directory.path())
            .arg(&self.postgres)
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.directory.path())
            // A crash of processes needs no fsync, and a test is quicker without.
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .args(["-c", "shared_buffers=32MB"]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let output = file.try_clone().map_err(failed)?;
        command
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(file)
            .process_group(0);
        let mut watchdog = command.spawn().map_err(failed)?;
        let pipe = watchdog.stdin.take();
        self.running = Some(Running { watchdog, pipe });
        self.wait_until_ready(&log)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<(), ClusterError> {
        let start = Instant::now();
        loop {
            let cause = match sql::run(&self.url("postgres"), "SELECT 1") {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let ended = match &mut self.running {
                Some(running) => matches!(running.watchdog.try_wait(), Ok(Some(_))),
                None => true,
            };
            let has_given_up = start.elapsed() > LAUNCH_LIMIT && self.has_given_up();
            if ended || has_given_up || start.elapsed() > START_LIMIT {
                let mut text = String::new();
                if let Ok(mut file) = std::fs::File::open(log) {
                    let _ = file.read_to_string(&mut text);
                }
                let cause = format!("{cause}; its log: {}", text.trim());
                return Err(ClusterError::failed("start PostgreSQL", cause));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether the server has ended. A server that refuses to start removes the file with its process id.
    fn has_given_up(&self) -> bool {
        let Some(running) = &self.running else {
            return true;
        };
        children_of(running.watchdog.id()).is_empty() && self.postmaster().is_none()
    }

    fn postmaster(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        // The current directory may be closed to that user.
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    fn stop(&mut self) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        if let Some(mut pipe) = running.pipe.take() {
            // The write fails if the watchdog was killed.
            let _ = pipe.write_all(b"stop\n");
        }
        let _ = running.watchdog.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a program to its end.
fn succeed(name: &str, command: &mut Command) -> Result<(), ClusterError> {
    let output = command
        .output()
        .map_err(|error| ClusterError::failed(name, error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(ClusterError::failed(name, text.trim()))
}

fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended already.
        let _ = kill_process(pid, signal);
    }
}

/// Returns the children of a process, as the kernel lists them.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| state_of(*pid).is_some_and(|(_, of)| of == parent))
        .collect()
}

/// Returns whether a process still has its memory. An ended process that is still in the table of processes has none.
fn is_running(pid: u32) -> bool {
    state_of(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// Returns the state and the parent of a process, as the kernel lists them.
fn state_of(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses, and may contain any of them.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// Returns the user for the server, if this process is root.
fn unprivileged_user() -> Result<Option<User>, ClusterError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let find = |name: &str| passwd.lines().find_map(|line| user_of(line, name));
    match find("postgres").or_else(|| find("daemon")) {
        Some(user) => Ok(Some(user)),
        None => Err(ClusterError::NoUser),
    }
}

fn user_of(line: &str, name: &str) -> Option<User> {
    let mut fields = line.split(':');
    if fields.next()? != name {
        return None;
    }
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_it_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(children_of(std::process::id()).contains(&pid));
        assert!(is_running(pid));
        child.kill().unwrap();
        // It stays in the table of processes until the call of `wait`.
        while is_running(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(!is_running(pid));
    }

    #[test]
    fn a_user_is_read_from_passwd() {
        let user = user_of("daemon:x:65534:65533:daemon:/:/bin/false", "daemon").unwrap();
        assert_eq!((user.uid, user.gid), (65534, 65533));
        assert!(user_of("daemon2:x:1:2::/:", "daemon").is_none());
    }
}
