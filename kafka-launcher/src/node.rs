//! One broker: the command of its JVM, and its stop.

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

/// Writes the node's settings and formats its data, unless this is already done.
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

/// Returns the JVM command of a node that is laid out. The JVM appends to the node's log file.
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

/// Returns flags for the log settings and for the node's own temporary directory. The JVM unpacks native libraries into
/// that directory. A killed JVM would leave them in the system's temporary directory.
pub(crate) fn directory_flags(dir: &Path) -> [String; 2] {
    [
        format!(
            "-Dlog4j2.configurationFile={}",
            dir.join("log4j2.properties").display()
        ),
        format!("-Djava.io.tmpdir={}", dir.join("tmp").display()),
    ]
}

/// Redirects standard output and error to the node's log, and disconnects standard input from the terminal.
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
    // Its own process group: Ctrl-C reaches only the owner, which then stops the brokers cleanly.
    command.process_group(0);
    Ok(())
}

/// Kills the JVM and waits for its exit status.
pub(crate) fn kill(child: &mut Child) -> Result<ExitStatus> {
    child.kill().context("kill a broker")?;
    child.wait().context("wait for a killed broker")
}

/// Stops the JVM cleanly, or kills it if it does not end within `patience`.
pub(crate) fn stop(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    // A frozen JVM would not handle the signal to stop.
    os::signal(child.id(), Signal::Continue)?;
    os::signal(child.id(), Signal::Term)?;
    match run::wait_within(child, patience)? {
        Some(status) => Ok(status),
        None => kill(child),
    }
}

/// Returns the last lines of a log, or an error text if the log cannot be read.
pub(crate) fn log_tail(log: &Path, lines: usize) -> String {
    let text = match std::fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("(cannot read {}: {error})", log.display()),
    };
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
