//! Proof of `docker-compose.yml` without Docker.
//!
//! The image's setup program is in Kafka's jars. For each container's environment, it writes the broker's settings and
//! formats its data as it would in the container. The broker then runs with these settings. Only hosts and ports
//! differ, because containers have their own addresses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::START_LIMIT;
use crate::compose::{self, Service};
use crate::error::TAIL_LINES;
use crate::install::{self, Installation};
use crate::java::{self, Compiler};
use crate::layout::NodeLayout;
use crate::remap::{Ports, clients_port};
use crate::scratch::Scratch;
use crate::spawner::Spawner;
use crate::{archive, docker, node, properties, ready, smoke};
use crate::{paths, run};

/// Sets up and starts the containers' brokers as processes, and produces and consumes with them.
///
/// # Errors
/// If the file is inconsistent, or its brokers do not work.
pub fn prove_compose(nodes: u8) -> Result<()> {
    let file = paths::workspace_root().join("docker-compose.yml");
    let mut services = compose::read(&file)?;
    let wanted = docker::services(nodes);
    services.retain(|name, _| wanted.contains(&name.as_str()));
    ensure!(
        services.len() == wanted.len(),
        "docker-compose.yml lacks one of {wanted:?}"
    );
    let ports = Ports::choose(&services)?;
    let installation = install::prepare()?;
    let scratch = Scratch::new()?;
    let spawner = Spawner::start(true);
    let mut running = Running(Vec::new());
    for service in services.values() {
        let place = set_up(&installation, service, &ports, scratch.path())?;
        let child = spawner.spawn(broker(&installation, &place)?)?;
        running.0.push((place, child));
    }
    running.wait_ready()?;
    smoke(&running.addresses().join(","), i16::from(nodes))
        .with_context(|| format!("the brokers' log:\n{}", running.tails()))
}

/// Runs the image's setup program: settings from the environment, then a formatted directory.
fn set_up(
    installation: &Installation,
    service: &Service,
    ports: &Ports<'_>,
    base: &Path,
) -> Result<NodeLayout> {
    let dir = base.join(&service.name);
    let place = NodeLayout {
        id: service.variable("KAFKA_NODE_ID")?.parse()?,
        port: clients_port(service, ports)?,
        ipv6: false,
        controller_port: 0,
        detour: None,
        dir: dir.join("final"),
    };
    for part in ["default", "mounted", "final", "tmp", "final/tmp"] {
        paths::create_dir(&dir.join(part))?;
    }
    for part in ["default", "final"] {
        paths::write(&dir.join(part).join("server.properties"), "")?;
        for log4j in ["log4j2.yaml", "tools-log4j2.yaml"] {
            paths::write(&dir.join(part).join(log4j), LOG4J2)?;
        }
    }
    // A container has its own /tmp. Here the mounted settings name the data directory instead.
    let data = format!("log.dirs={}\n", place.data().display());
    paths::write(&dir.join("mounted/server.properties"), &data)?;
    paths::write(&place.dir.join("log4j2.properties"), properties::LOG4J2)?;
    let mut wrapper = installation.java(&jvm_flags(&place))?;
    wrapper.arg("kafka.docker.KafkaDockerWrapper").arg("setup");
    for (option, part) in [
        ("default", "default"),
        ("mounted", "mounted"),
        ("final", "final"),
    ] {
        wrapper
            .arg(format!("--{option}-configs-dir"))
            .arg(dir.join(part));
    }
    only_these(&mut wrapper, ports.environment(service)?);
    run::succeed(&mut wrapper, Duration::from_secs(120))
        .with_context(|| format!("set up service `{}` as its image does", service.name))?;
    Ok(place)
}

/// Replaces the command's environment, because a container has none of this machine's variables.
fn only_these(command: &mut Command, environment: BTreeMap<String, String>) {
    let class_path = command.get_envs().find(|(key, _)| *key == "CLASSPATH");
    let class_path = class_path
        .and_then(|(_, value)| value)
        .unwrap_or_default()
        .to_owned();
    command
        .env_clear()
        .env("CLASSPATH", class_path)
        .envs(environment);
}

/// The log settings of the image, which the setup program edits.
const LOG4J2: &str = "\
Configuration:
  Appenders:
    Console:
      name: STDOUT
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        - ref: STDOUT
    Logger:
      - name: kafka
        level: INFO
";

fn jvm_flags(place: &NodeLayout) -> Vec<String> {
    let mut flags = java::flags(256, Compiler::Quick);
    flags.extend(node::directory_flags(&place.dir));
    flags
}

fn broker(installation: &Installation, place: &NodeLayout) -> Result<Command> {
    let mut flags = jvm_flags(place);
    flags.extend(archive::use_flags(installation));
    let mut command = installation.java(&flags)?;
    command.arg("kafka.Kafka").arg(place.properties());
    node::log_to(&mut command, place)?;
    Ok(command)
}

/// The brokers, killed when dropped.
struct Running(Vec<(NodeLayout, Child)>);

impl Running {
    fn addresses(&self) -> Vec<String> {
        self.0.iter().map(|(place, _)| place.address()).collect()
    }

    fn tails(&self) -> String {
        let tails = self
            .0
            .iter()
            .map(|(place, _)| node::log_tail(&place.log(), TAIL_LINES));
        tails.collect::<Vec<_>>().join("\n---\n")
    }

    fn wait_ready(&mut self) -> Result<()> {
        let addresses = self.addresses();
        let deadline = Instant::now() + START_LIMIT;
        let outcome = ready::wait(&addresses, addresses.len(), deadline, || {
            for (place, child) in &mut self.0 {
                let ended = child.try_wait()?;
                ensure!(ended.is_none(), "broker {} ended", place.id);
            }
            Ok(())
        });
        outcome.with_context(|| format!("the brokers' log:\n{}", self.tails()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // A broker that ended by itself cannot be killed.
            let _ = node::kill(child);
        }
    }
}
