//! One broker: how its JVM is called, and how it ends.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::install::Installation;
use crate::layout::{Layout, NodeLayout};
use crate::os::{self, Signal};
use crate::{archive, format, java, properties};
use crate::{paths, run};

/// Writes the node's settings and formats its data, as far as that is not done.
pub(crate) fn lay_out(
    installation: &Installation,
    layout: &Layout,
    node: &NodeLayout,
) -> Result<()> {
    paths::create_dir(&node.dir.join("tmp"))?;
    paths::write(&node.properties(), &properties::server(layout, node))?;
    paths::write(&node.dir.join("log4j2.properties"), properties::LOG4J2)?;
    format::format(installation, layout, node)
}

/// The JVM of a node that is laid out. It appends to the node's log file.
pub(crate) fn command(
    installation: &Installation,
    layout: &Layout,
    node: &NodeLayout,
) -> Result<Command> {
    let mut flags = java::flags(layout.heap_mb, layout.compiler);
    flags.extend(archive::use_flags(installation));
    flags.extend(directory_flags(&node.dir));
    let mut command = installation.java(&flags)?;
    command.arg("kafka.Kafka").arg(node.properties());
    log_to(&mut command, node)?;
    Ok(command)
}

/// Log settings and a temporary directory of the node's own: native libraries are unpacked there,
/// and a killed JVM would leave them in the system's.
pub(crate) fn directory_flags(dir: &Path) -> [String; 2] {
    [
        format!(
            "-Dlog4j2.configurationFile={}",
            dir.join("log4j2.properties").display()
        ),
        format!("-Djava.io.tmpdir={}", dir.join("tmp").display()),
    ]
}

/// Standard output and error go to the node's log, and keys typed at the terminal do not reach it.
pub(crate) fn log_to(command: &mut Command, node: &NodeLayout) -> Result<()> {
    let log = node.log();
    let log = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("open {}", log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    // A group of its own: Ctrl-C is for the owner, who then stops the brokers in good order.
    command.process_group(0);
    Ok(())
}

/// Kills the JVM and collects it.
pub(crate) fn kill(child: &mut Child) -> Result<ExitStatus> {
    child.kill().context("kill a broker")?;
    child.wait().context("wait for a killed broker")
}

/// Stops the JVM cleanly, or kills it when it does not end within `patience`.
pub(crate) fn stop(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    // A frozen JVM would not see the request to stop.
    os::signal(child.id(), Signal::Continue)?;
    os::signal(child.id(), Signal::Term)?;
    match run::wait_within(child, patience)? {
        Some(status) => Ok(status),
        None => kill(child),
    }
}

/// The last lines of a log; a line that is missing says why.
pub(crate) fn log_tail(log: &Path, lines: usize) -> String {
    let text = match std::fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("(cannot read {}: {error})", log.display()),
    };
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
