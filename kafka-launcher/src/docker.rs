//! The same cluster in containers, from the checkout's `docker-compose.yml`.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::ready;
use crate::{paths, run};

/// The timeout of a start, which may include the download of an image.
const UP_LIMIT: Duration = Duration::from_secs(900);

/// Returns the addresses for clients on this machine. `docker-compose.yml` publishes these ports.
pub fn bootstrap(nodes: u8) -> &'static str {
    match nodes {
        1 => "localhost:9092",
        _ => "localhost:9192,localhost:9193,localhost:9194",
    }
}

/// Returns the services of `docker-compose.yml` that make up the cluster.
pub(crate) fn services(nodes: u8) -> &'static [&'static str] {
    match nodes {
        1 => &["kafka"],
        _ => &["kafka-1", "kafka-2", "kafka-3"],
    }
}

/// Returns whether containers can be started. This needs the client, its compose plug-in, and a daemon that responds.
pub fn usable() -> bool {
    let mut info = Command::new("docker");
    info.args(["info", "--format", "{{.ServerVersion}}"]);
    run::succeed(&mut info, Duration::from_secs(10)).is_ok() && compose().is_ok()
}

/// Checks that Docker Compose and the checkout's `docker-compose.yml` exist.
///
/// # Errors
/// If one of them is missing.
pub fn check() -> Result<()> {
    compose().map(drop)
}

/// Starts the containers, and waits until the brokers are ready.
///
/// # Errors
/// If Docker Compose is missing or fails, or the brokers are not ready in time.
pub fn up(nodes: u8) -> Result<()> {
    let mut up = compose()?;
    up.args(["up", "--detach"]).args(services(nodes));
    run::succeed(&mut up, UP_LIMIT)?;
    let addresses: Vec<_> = bootstrap(nodes).split(',').map(str::to_owned).collect();
    let deadline = Instant::now() + crate::cluster::START_LIMIT;
    ready::wait(&addresses, usize::from(nodes), deadline, || Ok(()))
        .context("the containers run, but Kafka in them is not ready; see `docker compose logs`")
}

/// Removes the containers with their data.
///
/// # Errors
/// If Docker Compose is missing or fails.
pub fn down() -> Result<()> {
    let mut down = compose()?;
    down.args(["--profile", "three", "down", "--volumes"]);
    run::succeed(&mut down, Duration::from_secs(120)).map(drop)
}

/// Returns `docker compose`, or the older standalone program.
fn compose() -> Result<Command> {
    let Some(checkout) = paths::checkout() else {
        bail!(
            "no docker-compose.yml (outside of a clone of eos): run this in a clone of eos, or omit --docker"
        );
    };
    let file = checkout.join("docker-compose.yml");
    let known: [&[&str]; 2] = [&["docker", "compose"], &["docker-compose"]];
    for words in known {
        let command = || {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        };
        if run::succeed(command().arg("version"), Duration::from_secs(10)).is_ok() {
            let mut compose = command();
            compose.arg("--file").arg(file);
            return Ok(compose);
        }
    }
    bail!(
        "Docker Compose is missing: install Docker with its compose plug-in, or omit --docker \
         (Kafka then runs without Docker)"
    );
}
