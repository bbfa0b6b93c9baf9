//! The formatting of a node's directory, without its own JVM.
//!
//! Kafka's StorageTool takes most of a second per node. Its output differs between clusters in three ids only. So it
//! runs once per installation, and the nodes get copies.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::install::Installation;
use crate::java::{self, Compiler};
use crate::layout::{Layout, NodeLayout};
use crate::{ids, properties};
use crate::{paths, run};

/// The feature levels that the first controller writes into an empty metadata log.
const CHECKPOINT: &str = "bootstrap.checkpoint";

/// Runs StorageTool to format the directory that nodes are copied from.
pub(crate) fn make_template(installation: &Installation) -> Result<()> {
    let work = installation.dir.join("format");
    let formatted = installation.dir.join("formatted");
    paths::create_dir(&work)?;
    let log4j = work.join("log4j2.properties");
    paths::write(&log4j, properties::LOG4J2)?;
    let settings = work.join("server.properties");
    paths::write(&settings, &minimal(&formatted))?;
    let mut flags = java::flags(256, Compiler::Quick);
    flags.push(format!("-Dlog4j2.configurationFile={}", log4j.display()));
    let mut format = installation.java(&flags)?;
    format
        .args(["kafka.tools.StorageTool", "format"])
        .args(["--cluster-id", &ids::uuid(), "-c"])
        .arg(&settings);
    run::succeed(&mut format, Duration::from_secs(120))
        .context("Kafka's StorageTool could not format a data directory")?;
    let checkpoint = formatted.join(CHECKPOINT);
    anyhow::ensure!(
        checkpoint.is_file(),
        "Kafka's StorageTool wrote no {}",
        checkpoint.display()
    );
    paths::remove_dir(&work)
}

fn minimal(data: &Path) -> String {
    format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n\
         listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\n",
        data.display()
    )
}

/// Formats one node's data directory, unless it is already formatted.
pub(crate) fn format(
    installation: &Installation,
    layout: &Layout,
    node: &NodeLayout,
) -> Result<()> {
    let data = node.data();
    let meta = data.join("meta.properties");
    if meta.is_file() {
        return Ok(());
    }
    paths::create_dir(&data)?;
    let template = installation.dir.join("formatted").join(CHECKPOINT);
    std::fs::copy(&template, data.join(CHECKPOINT))
        .with_context(|| format!("copy {} to {}", template.display(), data.display()))?;
    let ids = format!(
        "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
        layout.cluster_id,
        node.id,
        ids::uuid()
    );
    paths::write(&meta, &ids)
}
