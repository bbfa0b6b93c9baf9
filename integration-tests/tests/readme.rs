//! Every command of the README, run as it stands there, in order.
//!
//! (Its Rust code is a documentation test of `eos-core`.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use integration_tests::process::{ChildGuard, Program, build};
use integration_tests::wait::wait_until;
use xtask::kafka::missing;
use xtask::os::Signal;
use xtask::wire::{Client, Isolation};

const PATIENCE: Duration = Duration::from_secs(60);
const CITIES: i64 = 100_000;

/// Where the README says Kafka is.
const USUAL: &str = "localhost:9092";

#[test]
fn every_command_does_what_it_says() -> Result<()> {
    let root = xtask::workspace_root();
    let commands = commands(&fs::read_to_string(root.join("README.md"))?);
    ensure!(
        commands.len() >= 6,
        "the README lost its commands: {commands:?}"
    );
    if let Some(why) = missing() {
        ensure!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        eprintln!("SKIPPED: {why}");
        return Ok(());
    }
    let user = User::new(root)?;
    for command in &commands {
        eprintln!("$ {command}");
        user.run(command)
            .with_context(|| format!("`{command}` of the README"))?;
    }
    Ok(())
}

/// The lines of all `sh` blocks.
fn commands(readme: &str) -> Vec<String> {
    let blocks = readme.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks
        .flat_map(str::lines)
        .map(|line| line.trim().to_owned())
        .collect()
}

/// Somebody who follows the README, with a cache and a state directory of their own, so that a
/// Kafka which is already up on this machine is left alone.
struct User {
    root: PathBuf,
    home: tempfile::TempDir,
    xtask: PathBuf,
}

impl User {
    fn new(root: &Path) -> Result<Self> {
        let home = tempfile::tempdir()?;
        // What was downloaded once is not downloaded again.
        let cache = xtask::cache_dir()?;
        for entry in fs::read_dir(&cache)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("kafka-") {
                std::os::unix::fs::symlink(entry.path(), home.path().join(entry.file_name()))?;
            }
        }
        let xtask = build("xtask", Program::Bin("xtask"), &[])?;
        Ok(Self {
            root: root.to_owned(),
            home,
            xtask,
        })
    }

    fn run(&self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["cargo", "xtask", "demo"] => {
                let story = self.output(self.xtask(&["demo"]))?;
                ensure!(
                    story.contains("lost") && story.contains("doubled"),
                    "{story}"
                );
                Ok(())
            }
            // It is what runs this test; one of its tests stands for all.
            ["cargo", "xtask", "test"] => {
                let story = self.output(self.xtask(&["test", "-p", "eos-protocol", "rule_"]))?;
                ensure!(story.contains(" passed, 0 failed"), "{story}");
                Ok(())
            }
            ["cargo", "xtask", "kafka", "up"] => {
                self.output(self.xtask(&["kafka", "up"])).map(drop)
            }
            [
                "cargo",
                "run",
                "-p",
                package,
                "--bin",
                bin,
                "--",
                ref arguments @ ..,
            ] => {
                let kafka = self.bootstrap()?;
                let arguments = arguments
                    .iter()
                    .map(|a| if *a == USUAL { &kafka[..] } else { a });
                let mut command = Command::new(build(package, Program::Bin(bin), &[])?);
                self.output(self.as_user(command.args(arguments))).map(drop)
            }
            ["cargo", "run", "-p", "eos-examples", "--bin", "01-hello"] => self.hello(),
            _ => bail!("this test does not know how to run it: teach it"),
        }
    }

    /// Runs until everybody is greeted, then Ctrl-C.
    fn hello(&self) -> Result<()> {
        let kafka = self.bootstrap()?;
        let mut command = Command::new(build("eos-examples", Program::Bin("01-hello"), &[])?);
        self.as_user(&mut command);
        command.env("KAFKA_BOOTSTRAP_SERVERS", &kafka);
        let mut hello = ChildGuard::spawn(command)?;
        let mut client = Client::connect(&kafka, PATIENCE)?;
        wait_until(PATIENCE, "everybody to be greeted", || {
            let mut greeted = 0;
            client.read_all("greetings", Isolation::ReadCommitted, |_, _| greeted += 1)?;
            ensure!(greeted <= CITIES, "{greeted} greetings for {CITIES} cities");
            Ok(greeted == CITIES)
        })?;
        hello.signal(Signal::Interrupt)?;
        let status = hello.wait(PATIENCE)?;
        ensure!(status.success(), "Ctrl-C ended it with {status}");
        Ok(())
    }

    /// Where `kafka up` really put it: another port if the usual one is taken.
    fn bootstrap(&self) -> Result<String> {
        let status = self.output(self.xtask(&["kafka", "status"]))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("KAFKA_BOOTSTRAP_SERVERS="));
        Ok(line
            .with_context(|| format!("Kafka is not up: {status}"))?
            .trim()
            .to_owned())
    }

    fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.xtask);
        self.as_user(command.args(arguments));
        command
    }

    fn as_user<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .current_dir(&self.root)
            .env("EOS_CACHE_DIR", self.home.path())
            .env("EOS_STATE_DIR", self.home.path().join("state"))
            .env_remove("KAFKA_BOOTSTRAP_SERVERS")
    }

    /// Everything that a command that has to succeed printed.
    fn output(&self, mut command: impl std::borrow::BorrowMut<Command>) -> Result<String> {
        let Output {
            status,
            stdout,
            stderr,
        } = command.borrow_mut().output()?;
        let text =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "{status}\n{text}");
        Ok(text)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // Also where a command failed in between.
        let _down = self.xtask(&["kafka", "down"]).output();
    }
}
