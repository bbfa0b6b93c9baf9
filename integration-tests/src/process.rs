//! Programs under test: builds them, runs them, and kills them in the end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kafka_launcher::PROGRAMS_VAR;
use kafka_launcher::os::{self, Signal};

use crate::wait::wait_until;

/// A program that cargo can build and a test can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program<'a> {
    /// A binary of a package.
    Bin(&'a str),
    /// An example of a package.
    Example(&'a str),
}

/// Builds a program in the profile of the calling test and returns its path. `cargo xtask test` has built it
/// already.
///
/// `options` are further arguments for cargo, such as `--features failpoints`.
///
/// # Errors
/// When cargo cannot be run, the program does not compile, or the package has no such program.
pub fn build(package: &str, program: Program<'_>, options: &[&str]) -> Result<PathBuf> {
    let (flag, name) = match program {
        Program::Bin(name) => ("--bin", name),
        Program::Example(name) => ("--example", name),
    };
    if let Some(dir) = std::env::var_os(PROGRAMS_VAR) {
        let path = PathBuf::from(dir).join(name);
        ensure!(
            path.is_file(),
            "{PROGRAMS_VAR}: there is no {}",
            path.display()
        );
        return Ok(path);
    }
    let mut command = Command::new(cargo());
    command.arg("build").args(["-p", package, flag, name]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    built(command.args(options), package, name)
}

/// Builds the binary `name` of a crate outside of this workspace, from its `Cargo.toml`.
///
/// Dependencies have the profile settings of this workspace, so that compiled dependencies are reused.
///
/// # Errors
/// As [`build`].
pub fn build_manifest(manifest: &Path, name: &str) -> Result<PathBuf> {
    let mut command = Command::new(cargo());
    command.arg("build").arg("--manifest-path").arg(manifest);
    for setting in [
        "opt-level=1",
        "package.\"*\".debug=false",
        "package.kafka-protocol.opt-level=0",
        "package.librocksdb-sys.opt-level=3",
        "package.rdkafka-sys.opt-level=3",
    ] {
        command.args(["--config", &format!("profile.dev.{setting}")]);
    }
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir");
        command.arg(kafka_launcher::workspace_root().join("target"));
    }
    built(&mut command, &manifest.display().to_string(), name)
}

fn built(cargo: &mut Command, package: &str, name: &str) -> Result<PathBuf> {
    cargo.arg("--message-format=json-render-diagnostics");
    let output = cargo.output().context("run cargo: is it on the PATH?")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{name} of {package} does not build:\n{errors}");
    }
    executable(&output.stdout, name).with_context(|| format!("cargo built no {name} in {package}"))
}

/// A running program that is killed and reaped when the guard is dropped.
///
/// On Linux it also dies when the thread that started it ends, however that ends.
#[derive(Debug)]
pub struct ChildGuard {
    name: String,
    child: Child,
}

impl ChildGuard {
    /// Starts `command`.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(mut command: Command) -> Result<ChildGuard> {
        let name = command.get_program().to_string_lossy().into_owned();
        os::die_with_spawning_thread(&mut command);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(ChildGuard { name, child })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process still runs.
    ///
    /// # Errors
    /// When the operating system does not report its state.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The process is not reaped before `wait`, so its id cannot belong to another process.
        os::signal(self.id(), signal).with_context(|| format!("signal {}", self.name))
    }

    /// Kills the process (SIGKILL) and waits until it has ended.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child
            .kill()
            .with_context(|| format!("kill {}", self.name))?;
        Ok(self.child.wait()?)
    }

    /// Waits until the process ends by itself.
    ///
    /// # Errors
    /// When the process still runs after `patience`.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let what = format!("{} (process {}) ends", self.name, self.id());
        let mut status = None;
        wait_until(patience, &what, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("the process ended without a status")
    }

    /// Returns the process itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // This fails if the process has already ended. Then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns the path in cargo's message about the finished artifact `name`.
fn executable(messages: &[u8], name: &str) -> Option<PathBuf> {
    let lines = messages.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    messages
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_in_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"lib"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"app"},"executable":"/somewhere/app"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "app"), Some("/somewhere/app".into()));
        assert_eq!(executable(messages, "lib"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_dropped_guard_leaves_no_process() {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let mut guard = ChildGuard::spawn(sleep).unwrap();
        assert!(guard.is_running().unwrap());
        let process = PathBuf::from(format!("/proc/{}", guard.id()));
        drop(guard);
        assert!(!process.exists());
    }
}
