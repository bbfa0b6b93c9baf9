//! A cluster that this process owns.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::detached::Detached;
use crate::error::{StartError, TAIL_LINES};
use crate::faults::STOP_LIMIT;
use crate::home::Home;
use crate::install::{self, Installation};
use crate::layout::{Layout, NodeLayout};
use crate::options::ClusterOptions;
use crate::os::{self, Signal};
use crate::paths;
use crate::process::ProcessId;
use crate::spawner::Spawner;
use crate::{node, ready};

/// The timeout of a start. A node takes 1.5 s on an idle machine, but three nodes may share two cores with a compiler.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(90);

/// The number of attempts to start. Another program may take a port between the launcher's check and the broker's bind.
const PORT_ATTEMPTS: u32 = 4;

/// A running Kafka cluster, stopped and removed when dropped.
///
/// On Linux its JVMs end with this process, even if this process is killed. Nodes are named by their Kafka node id,
/// from 1. A node has these states:
///
/// ```text
///   start ──► Running ◄── thaw ── Frozen
///               │  └──── freeze ────▲
///        kill, stop │
///               ▼
///             Down ── start_node ──► Running
/// ```
#[derive(Debug)]
pub struct Cluster {
    bootstrap: String,
    pub(crate) layout: Layout,
    installation: Installation,
    pub(crate) nodes: Vec<State>,
    /// Declared after `nodes`, so that it is dropped after they have been stopped.
    spawner: Spawner,
    home: Home,
    outlives_owner: bool,
}

/// The state of one node's process.
#[derive(Debug)]
pub(crate) enum State {
    Running(Child),
    Frozen(Child),
    Down,
}

impl Cluster {
    /// Starts a cluster and waits until every node responds and lists the others.
    ///
    /// The first call downloads Kafka's jars.
    ///
    /// # Errors
    /// If Java or Maven is missing (the error contains the fix), or a [`StartError`] with the end of the broker's log.
    pub fn start(options: &ClusterOptions) -> Result<Cluster> {
        if !matches!(options.nodes, 1 | 3) {
            bail!("a local Kafka has 1 or 3 nodes, not {}", options.nodes);
        }
        let installation = install::prepare()?;
        let mut attempt = 1;
        loop {
            let mut cluster = Cluster::plan(options, installation.clone())?;
            match cluster.start_all() {
                Ok(()) => return Ok(cluster),
                Err(error) if attempt < PORT_ATTEMPTS && is_worth_other_ports(options, &error) => {
                    cluster.stop_all();
                    cluster.home.clear()?;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn plan(options: &ClusterOptions, installation: Installation) -> Result<Cluster> {
        let home = Home::new(options.data_dir.as_deref())?;
        let layout = Layout::plan(options, home.path())?;
        Ok(Cluster {
            bootstrap: layout.bootstrap(),
            nodes: layout.nodes.iter().map(|_| State::Down).collect(),
            layout,
            installation,
            spawner: Spawner::start(!options.outlives_owner),
            home,
            outlives_owner: options.outlives_owner,
        })
    }

    fn start_all(&mut self) -> Result<()> {
        for index in 0..self.nodes.len() {
            node::lay_out(&self.installation, &self.layout, &self.layout.nodes[index])?;
            self.spawn(index)?;
        }
        let addresses: Vec<_> = self.layout.nodes.iter().map(NodeLayout::address).collect();
        self.wait_ready(&addresses, self.nodes.len())
    }

    pub(crate) fn spawn(&mut self, index: usize) -> Result<()> {
        let node = &self.layout.nodes[index];
        let command = node::command(&self.installation, &self.layout, node)?;
        let child = self.spawner.spawn(command).context("start a JVM")?;
        let process = ProcessId::of(child.id());
        self.nodes[index] = State::Running(child);
        let line = process.map(|process| process.to_line());
        paths::write(&node.pid_file(), &line.unwrap_or_default())
    }

    pub(crate) fn wait_ready(&mut self, addresses: &[String], nodes: usize) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let outcome = ready::wait(addresses, nodes, deadline, || self.check_alive());
        outcome.map_err(|error| match error.downcast::<StartError>() {
            Ok(ended) => ended.into(),
            Err(why) => StartError::NotReady {
                waited: START_LIMIT,
                why: format!("{why:#}"),
                tail: self.log_tail(TAIL_LINES),
            }
            .into(),
        })
    }

    /// Returns an error if a node that should run has ended by itself.
    fn check_alive(&mut self) -> Result<()> {
        for (state, node) in self.nodes.iter_mut().zip(&self.layout.nodes) {
            let State::Running(child) = state else {
                continue;
            };
            if let Some(status) = child.try_wait()? {
                *state = State::Down;
                let log = node.log();
                let tail = node::log_tail(&log, TAIL_LINES);
                bail!(StartError::NodeEnded {
                    node: node.id,
                    status,
                    log,
                    tail
                });
            }
        }
        Ok(())
    }

    /// Returns the addresses for clients: `127.0.0.1:p1,127.0.0.1:p2,..`. With [`ClusterOptions::advertised_ports`],
    /// these are the advertised ports.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Returns the addresses on which the nodes listen, in their order. A client that connects there is redirected to
    /// [`Cluster::bootstrap`].
    pub fn listeners(&self) -> Vec<String> {
        self.layout.nodes.iter().map(NodeLayout::address).collect()
    }

    /// Returns the directory of settings, logs and data: `node-<id>/broker.log` and so on.
    pub fn dir(&self) -> &Path {
        self.home.path()
    }

    /// Returns the process ids of the nodes that are not down, including frozen nodes.
    pub fn node_pids(&self) -> Vec<u32> {
        let children = self.nodes.iter().filter_map(|state| match state {
            State::Running(child) | State::Frozen(child) => Some(child.id()),
            State::Down => None,
        });
        children.collect()
    }

    /// Returns the last lines of every node's log. With several nodes, each log has a heading.
    pub fn log_tail(&self, lines: usize) -> String {
        logs(&self.layout, lines)
    }

    /// Leaves the brokers running and returns the data to find them again.
    ///
    /// # Errors
    /// If they were not started with [`ClusterOptions::outlives_owner`] and a directory of their own. Such brokers
    /// would end with this process.
    pub fn detach(mut self) -> Result<Detached> {
        let Home::Kept(_) = &self.home else {
            bail!("only a cluster with a data directory of its own can be left running");
        };
        if !self.outlives_owner {
            bail!("only a cluster started with `outlives_owner` can be left running");
        }
        let pids = self.node_pids();
        let processes = pids.iter().filter_map(|pid| ProcessId::of(*pid)).collect();
        self.nodes.clear();
        Ok(Detached::new(self.layout.clone(), processes))
    }

    /// Stops all nodes. It kills nodes with temporary data, and stops nodes with kept data cleanly and in parallel.
    fn stop_all(&mut self) {
        let temporary = matches!(self.home, Home::Temporary(_));
        let mut children: Vec<Child> = Vec::new();
        for state in &mut self.nodes {
            match std::mem::replace(state, State::Down) {
                State::Running(child) | State::Frozen(child) => children.push(child),
                State::Down => {}
            }
        }
        for child in &mut children {
            // A node that ended by itself needs no signal.
            let _ = if temporary {
                child.kill()
            } else {
                ask_to_stop(child)
            };
        }
        for child in &mut children {
            let _ = node::stop(child, STOP_LIMIT);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_all();
    }
}

fn ask_to_stop(child: &mut Child) -> std::io::Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    os::signal(child.id(), Signal::Continue)?;
    os::signal(child.id(), Signal::Term)
}

fn is_worth_other_ports(options: &ClusterOptions, error: &anyhow::Error) -> bool {
    let start = error.downcast_ref::<StartError>();
    options.port.is_none() && start.is_some_and(StartError::is_port_clash)
}

/// Returns the last lines of the logs, with a heading per node if there are several.
pub(crate) fn logs(layout: &Layout, lines: usize) -> String {
    let tail = |node: &NodeLayout| node::log_tail(&node.log(), lines);
    match layout.nodes.as_slice() {
        [only] => tail(only),
        nodes => {
            let headed = nodes
                .iter()
                .map(|n| format!("--- node {}\n{}", n.id, tail(n)));
            headed.collect::<Vec<_>>().join("\n")
        }
    }
}
