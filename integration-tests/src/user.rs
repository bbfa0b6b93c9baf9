//! A user who runs the commands of written instructions.
//!
//! The user has their own cache, state directory, installed programs and Kafka, so that a running Kafka on this machine
//! is not affected. They also have a directory beside the repository for their own crates.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation};
use tempfile::TempDir;

use crate::faults::is_full;
use crate::process::{ChildGuard, Program, build, build_manifest};
use crate::wait::wait_until;

const PATIENCE: Duration = Duration::from_secs(60);

/// The address of Kafka in the instructions.
const USUAL: &str = "localhost:9092";

/// The command that installs `eos`.
pub const INSTALL: &str = "cargo install --locked --debug --path eos-cli";

/// A program that runs until Ctrl-C, and its topics. Its work is done once its inputs and its results are committed.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline<'a> {
    /// Its binary.
    pub bin: &'a str,
    /// Its consumer group.
    pub app: &'a str,
    /// Its inputs that are not written in transactions.
    pub inputs: &'a [&'a str],
    /// Its inputs that are written in transactions, by the program itself. Checked after `inputs`.
    pub own_outputs: &'a [&'a str],
    /// Output topics, with the minimum number of committed records. For programs that write after their inputs are
    /// committed.
    pub results: &'a [(&'a str, usize)],
}

/// A user who follows instructions.
#[derive(Debug)]
pub struct User<'a> {
    root: PathBuf,
    home: TempDir,
    xtask: PathBuf,
    pipelines: &'a [Pipeline<'a>],
    bootstrap: RefCell<Option<String>>,
}

impl Pipeline<'_> {
    /// Returns whether the program has joined its group, committed all its inputs, and written enough results.
    fn is_done(&self, client: &mut Client) -> Result<bool> {
        // Before the program has joined, it may not handle Ctrl-C yet.
        if client.group_members(self.app)?.members.is_empty() {
            return Ok(false);
        }
        let inputs = self.inputs.iter().map(|input| (input, 0));
        // The marker of the last transaction takes an offset, and the committed offset stays below it.
        let own = self.own_outputs.iter().map(|own| (own, 1));
        for (topic, rest) in inputs.chain(own) {
            let ends = client.end_offsets(topic, Isolation::ReadCommitted)?;
            let committed = client.committed(self.app, topic)?;
            let behind =
                |(end, at): (i64, Option<(i64, String)>)| at.is_none_or(|(at, _)| at + rest < end);
            if ends.into_iter().zip(committed).any(behind) {
                return Ok(false);
            }
        }
        for (topic, minimum) in self.results {
            let mut count = 0;
            client.read_all(topic, Isolation::ReadCommitted, |_, _| count += 1)?;
            if count < *minimum {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the text of each code block of this kind in a Markdown text.
#[must_use]
pub fn blocks(markdown: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    let after = markdown.split(&fence).skip(1);
    after
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

impl<'a> User<'a> {
    /// Creates a user who has only the repository and the Kafka archives in the cache.
    ///
    /// # Errors
    /// When `xtask` does not build, or the directory can't be created.
    pub fn new(pipelines: &'a [Pipeline<'a>]) -> Result<Self> {
        let root = kafka_launcher::workspace_root().to_owned();
        let home = tempfile::tempdir()?;
        let cache = kafka_launcher::cache_dir()?;
        for entry in fs::read_dir(&cache)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("kafka-") {
                std::os::unix::fs::symlink(entry.path(), home.path().join(entry.file_name()))?;
            }
        }
        std::os::unix::fs::symlink(&root, home.path().join("eos"))?;
        let xtask = build("xtask", Program::Bin("xtask"), &[])?;
        Ok(Self {
            root,
            home,
            xtask,
            pipelines,
            bootstrap: RefCell::default(),
        })
    }

    /// Returns the path of a file beside the repository. Instructions in the repository name it `../name`.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Runs one line of instructions. Returns its output.
    ///
    /// # Errors
    /// When the command fails, or is not supported here.
    pub fn run(&self, line: &str) -> Result<String> {
        self.run_with(&[], line)
    }

    /// As [`User::run`], with these variables in the environment.
    ///
    /// # Errors
    /// As [`User::run`].
    pub fn run_with(&self, environment: &[(&str, &str)], line: &str) -> Result<String> {
        let ran = self.try_line(line, environment);
        ran.with_context(|| format!("`{line}`"))
    }

    fn try_line(&self, line: &str, environment: &[(&str, &str)]) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            _ if line == INSTALL => self.install(),
            // This command runs the current test, so only the `rule_` tests of one package are run.
            ["cargo", "xtask", "test"] => self.shell("cargo xtask test -p eos-protocol rule_"),
            ["cargo", "run", "-p", package, "--bin", bin, ref rest @ ..] => {
                let program = build(package, Program::Bin(bin), &[])?;
                if package == "eos-examples" && !rest.contains(&"--kafka") {
                    return self.alone(bin, Command::new(program));
                }
                self.program(&program, bin, rest, environment)
            }
            [
                "cargo",
                "run",
                "-p",
                package,
                "--features",
                features,
                "--bin",
                bin,
                ref rest @ ..,
            ] => {
                let features = ["--features", features];
                let program = build(package, Program::Bin(bin), &features)?;
                self.program(&program, bin, rest, environment)
            }
            ["cargo", "new", path] => self.new_crate(self.own(path)?),
            ["cargo", "run", "--manifest-path", path] => {
                let manifest = self.own(path)?;
                let bin = manifest.parent().and_then(Path::file_name);
                let bin = bin.context("no crate")?.to_string_lossy().into_owned();
                let program = build_manifest(&manifest, &bin)?;
                self.program(&program, &bin, &[], environment)
            }
            _ if line.contains("cargo xtask ") || line.contains("eos kafka ") => self.shell(line),
            _ => bail!("this test does not know how to run it: teach it"),
        }
    }

    fn own(&self, path: &str) -> Result<PathBuf> {
        let name = path.strip_prefix("../");
        Ok(self.beside(name.context("crates of one's own are beside the repository")?))
    }

    fn new_crate(&self, path: PathBuf) -> Result<String> {
        let mut cargo = Command::new("cargo");
        cargo.args(["new", "--quiet", "--vcs", "none"]).arg(&path);
        let printed = output(&mut cargo)?;
        // Uses the versions that are already downloaded.
        fs::copy(self.root.join("Cargo.lock"), path.join("Cargo.lock"))?;
        Ok(printed)
    }

    /// Puts `eos` on the PATH of this user. In a full run, cargo installs it. Otherwise it is the program under test.
    fn install(&self) -> Result<String> {
        let eos = self.programs().join("eos");
        if is_full() {
            let printed = self.shell(INSTALL)?;
            ensure!(eos.is_file(), "cargo installed no {}", eos.display());
            return Ok(printed);
        }
        // Cargo would compile the dependencies again, because the tests select other features.
        let tested = build("eos-cli", Program::Bin("eos"), &[])?;
        fs::create_dir_all(self.programs())?;
        std::os::unix::fs::symlink(tested, eos)?;
        Ok(String::new())
    }

    /// Returns the directory in which cargo installs programs for this user.
    fn programs(&self) -> PathBuf {
        self.beside("bin")
    }

    fn shell(&self, line: &str) -> Result<String> {
        let line = line.replace("cargo xtask", "\"$XTASK\"");
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.programs()).chain(std::env::split_paths(&others));
        let mut sh = Command::new("sh");
        sh.args(["-c", &line])
            .env("XTASK", &self.xtask)
            .env("PATH", std::env::join_paths(path)?)
            .env("CARGO_INSTALL_ROOT", self.home.path())
            // Cargo sets this variable for tests. In a shell, `eos` finds the clone by the current directory.
            .env_remove("CARGO_MANIFEST_DIR");
        self.be(&mut sh);
        output(&mut sh)
    }

    fn program(
        &self,
        program: &Path,
        bin: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<String> {
        let mut command = Command::new(program);
        let kafka = self.bootstrap()?;
        for argument in arguments.iter().skip_while(|a| **a == "--") {
            command.arg(if *argument == USUAL {
                &kafka
            } else {
                *argument
            });
        }
        self.be(&mut command);
        command.envs(environment.iter().copied());
        match self.pipelines.iter().find(|p| p.bin == bin) {
            Some(pipeline) => self.pipeline(pipeline, command),
            None => output(&mut command),
        }
    }

    /// Runs an example on the Kafka that it starts itself. Sends Ctrl-C once it has printed a result.
    fn alone(&self, bin: &str, mut command: Command) -> Result<String> {
        self.be(&mut command);
        let paths = ["out", "err"].map(|stream| self.beside(&format!("{bin}.{stream}")));
        let [out, err] = &paths;
        command
            .stdout(File::create(out)?)
            .stderr(File::create(err)?);
        let said = || {
            paths
                .each_ref()
                .map(|path| fs::read_to_string(path).unwrap_or_default())
        };
        let mut child = ChildGuard::spawn(command)?;
        let printed = wait_until(PATIENCE, "it prints a result", || {
            ensure!(child.is_running()?, "it ended by itself");
            Ok(fs::metadata(out)?.len() > 0)
        });
        printed.with_context(|| said().concat())?;
        child.signal(Signal::Interrupt)?;
        let status = child.wait(PATIENCE)?;
        let said = said().concat();
        ensure!(status.success(), "Ctrl-C ended it with {status}: {said}");
        Ok(said)
    }

    /// Runs a pipeline until all its input is committed, and then sends Ctrl-C.
    fn pipeline(&self, pipeline: &Pipeline<'_>, mut command: Command) -> Result<String> {
        let kafka = self.bootstrap()?;
        let log = self.beside(&format!("{}.log", pipeline.bin));
        let file = File::create(&log)?;
        command.stdout(file.try_clone()?).stderr(file);
        // An address in the environment overrides the address in the program.
        command.env("EOS_BOOTSTRAP_SERVERS", &kafka);
        let mut child = ChildGuard::spawn(command)?;
        let mut client = Client::connect(&kafka, PATIENCE)?;
        let what = format!("{} has committed its input", pipeline.app);
        let done = wait_until(PATIENCE, &what, || {
            ensure!(child.is_running()?, "it ended by itself");
            pipeline.is_done(&mut client)
        });
        let said = || fs::read_to_string(&log).unwrap_or_default();
        done.with_context(said)?;
        child.signal(Signal::Interrupt)?;
        let status = child.wait(PATIENCE)?;
        ensure!(
            status.success(),
            "Ctrl-C ended it with {status}: {}",
            said()
        );
        Ok(said())
    }

    /// Returns the address of the Kafka that this user started. Its port differs from the usual one if that is taken.
    ///
    /// # Errors
    /// When no Kafka is up.
    pub fn bootstrap(&self) -> Result<String> {
        if let Some(known) = &*self.bootstrap.borrow() {
            return Ok(known.clone());
        }
        let status = self.shell("eos kafka status")?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("EOS_BOOTSTRAP_SERVERS="));
        let found = line.with_context(|| format!("Kafka is not up: {status}"))?;
        *self.bootstrap.borrow_mut() = Some(found.trim().to_owned());
        Ok(found.trim().to_owned())
    }

    fn be(&self, command: &mut Command) {
        command
            .current_dir(&self.root)
            .env("EOS_CACHE_DIR", self.home.path())
            .env("EOS_STATE_DIR", self.beside("state"))
            .env_remove("EOS_BOOTSTRAP_SERVERS");
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        // Stops Kafka, even if a command failed. Uses `xtask`, because an `eos` on the PATH that this user has not
        // installed could be another program.
        let _down = self.shell("cargo xtask kafka down");
    }
}

/// Runs a command that must succeed. Returns its standard output, followed by its standard error.
fn output(command: &mut Command) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output()?;
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{status}\n{text}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_kind() {
        let text = "a\n```sh\none\ntwo\n```\nb\n```rust\nfn\n```\n```sh\nthree\n```\n";
        assert_eq!(blocks(text, "sh"), ["one\ntwo\n", "three\n"]);
        assert_eq!(blocks(text, "toml"), [""; 0]);
    }
}
