//! A cluster that outlives the process that started it.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cluster::{START_LIMIT, logs};
use crate::error::TAIL_LINES;
use crate::layout::{Layout, NodeLayout};
use crate::paths;
use crate::process::ProcessId;
use crate::spawner::Spawner;
use crate::{install, node, ready};

/// The data to find a detached cluster again: its layout and the processes of its nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Detached {
    pub(crate) layout: Layout,
    /// In the order of the nodes.
    pub(crate) processes: Vec<ProcessId>,
}

impl Detached {
    pub(crate) fn new(layout: Layout, processes: Vec<ProcessId>) -> Detached {
        Detached { layout, processes }
    }

    /// Returns the addresses for clients.
    pub fn bootstrap(&self) -> String {
        self.layout.bootstrap()
    }

    /// Returns every node with its process, or `None` if the process has ended.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeLayout, Option<&ProcessId>)> {
        let live = |index: usize| {
            self.processes
                .get(index)
                .filter(|process| process.is_alive())
        };
        let nodes = self.layout.nodes.iter().enumerate();
        nodes.map(move |(index, node)| (node, live(index)))
    }

    /// Starts the nodes that ended, on their old ports and data. After a reboot, these are all nodes.
    ///
    /// Returns whether it started any node.
    ///
    /// # Errors
    /// If a node cannot be started.
    pub fn revive(&mut self) -> Result<bool> {
        let installation = install::prepare()?;
        let spawner = Spawner::start(false);
        let mut processes = Vec::new();
        let mut revived = false;
        for (node, live) in self.nodes() {
            if let Some(process) = live {
                processes.push(process.clone());
                continue;
            }
            node::lay_out(&installation, &self.layout, node)?;
            let child = spawner.spawn(node::command(&installation, &self.layout, node)?)?;
            processes.push(ProcessId::of(child.id()).context("a broker ended at once")?);
            revived = true;
        }
        self.processes = processes;
        Ok(revived)
    }

    /// Waits until every node responds and lists the others.
    ///
    /// # Errors
    /// If a node ends, or is not ready in time.
    pub fn wait_ready(&self) -> Result<()> {
        let addresses: Vec<_> = self.layout.nodes.iter().map(NodeLayout::address).collect();
        let deadline = Instant::now() + START_LIMIT;
        let outcome = ready::wait(&addresses, addresses.len(), deadline, || {
            match self.nodes().find(|(_, live)| live.is_none()) {
                Some((node, _)) => bail!("node {} ended", node.id),
                None => Ok(()),
            }
        });
        outcome.with_context(|| format!("the log:\n{}", logs(&self.layout, TAIL_LINES)))
    }

    /// Kills the nodes and removes their data. Affects no other processes.
    ///
    /// # Errors
    /// If a process survives, or data cannot be removed.
    pub fn destroy(&self) -> Result<()> {
        for process in &self.processes {
            process.kill()?;
        }
        paths::remove_dir(&self.layout.dir)
    }
}
