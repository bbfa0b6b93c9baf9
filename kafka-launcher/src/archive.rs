//! The class data archive, which later JVMs map into memory.
//!
//! The archive contains parsed classes. It halves a broker's start (2.5 s to 1.3 s on two cores, JDK 17). It costs 50
//! MB in the cache and one training run. It fits one Java build and one class path. The JVM checks both, and starts
//! without the archive if they differ.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::install::Installation;
use crate::java::{self, Compiler};
use crate::layout::{Layout, NodeLayout};
use crate::options::ClusterOptions;
use crate::spawner::Spawner;
use crate::{node, ready, smoke};

/// The timeout of a training run.
const TRAINING_LIMIT: Duration = Duration::from_secs(120);

fn path(installation: &Installation) -> PathBuf {
    let name = format!("kafka-{}.jsa", installation.java.tag);
    installation.dir.join(name)
}

/// The file that marks a failed training.
fn refusal(installation: &Installation) -> PathBuf {
    path(installation).with_extension("none")
}

/// Returns whether a training failed within the last day. A retry may succeed, because the machine may have caused the
/// failure.
fn is_refused(installation: &Installation) -> bool {
    let refused = refusal(installation)
        .metadata()
        .and_then(|meta| meta.modified());
    let age = refused.ok().and_then(|when| when.elapsed().ok());
    age.is_some_and(|age| age < Duration::from_secs(86_400))
}

/// Returns whether there is an archive for this Java, or a recent training failed.
pub(crate) fn is_decided(installation: &Installation) -> bool {
    path(installation).is_file() || is_refused(installation)
}

/// Returns the flags that use the archive, if there is one.
pub(crate) fn use_flags(installation: &Installation) -> Vec<String> {
    let archive = path(installation);
    if !archive.is_file() {
        return Vec::new();
    }
    // `auto`: a JVM that cannot use the archive logs this and starts without it.
    vec![
        "-Xshare:auto".into(),
        format!("-XX:SharedArchiveFile={}", archive.display()),
    ]
}

/// Makes the archive once. A failure is recorded, and brokers then start slower.
pub(crate) fn make(installation: &Installation) -> Result<()> {
    if is_decided(installation) {
        return Ok(());
    }
    eprintln!("Preparing quick starts of Kafka (some seconds, once)");
    if let Err(error) = train(installation) {
        eprintln!("No quick starts with this Java, which is harmless: {error:#}");
        File::create(refusal(installation)).context("note that there is no class data archive")?;
    }
    Ok(())
}

/// Runs one broker for its start and has the JVM dump the used classes.
fn train(installation: &Installation) -> Result<()> {
    let scratch = tempfile::Builder::new()
        .prefix("training-")
        .tempdir_in(&installation.dir)?;
    let layout = Layout::plan(&ClusterOptions::default(), scratch.path())?;
    let only = &layout.nodes[0];
    node::lay_out(installation, &layout, only)?;
    let dumped = scratch.path().join("kafka.jsa");
    let spawner = Spawner::start(true);
    let mut child = spawner.spawn(dumping(installation, &layout, only, &dumped)?)?;
    let trained = exercise(only, &mut child);
    let ended = node::stop(&mut child, TRAINING_LIMIT);
    trained.with_context(|| format!("the broker's log:\n{}", node::log_tail(&only.log(), 10)))?;
    ended?;
    std::fs::rename(&dumped, path(installation)).context("the JVM wrote no archive")
}

fn dumping(
    installation: &Installation,
    layout: &Layout,
    node: &NodeLayout,
    to: &std::path::Path,
) -> Result<std::process::Command> {
    let mut flags = java::flags(layout.heap_mb, Compiler::Quick);
    flags.push(format!("-XX:ArchiveClassesAtExit={}", to.display()));
    flags.extend(node::directory_flags(&node.dir));
    let mut command = installation.java(&flags)?;
    command.arg("kafka.Kafka").arg(node.properties());
    node::log_to(&mut command, node)?;
    Ok(command)
}

fn exercise(node: &NodeLayout, child: &mut std::process::Child) -> Result<()> {
    let deadline = Instant::now() + TRAINING_LIMIT;
    ready::wait(&[node.address()], 1, deadline, || {
        match child.try_wait()? {
            Some(status) => anyhow::bail!("the broker ended: {status}"),
            None => Ok(()),
        }
    })?;
    smoke(&node.address(), 1)
}
