//! Faults of a single node in a running cluster.

use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, State};
use crate::node;
use crate::os::{self, Signal};

/// The timeout of a clean stop. A broker hands its partitions over before it ends.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(90);

impl Cluster {
    /// Kills a node like `kill -9`: it flushes nothing and hands over nothing.
    ///
    /// # Errors
    /// If there is no such node, or it is down.
    pub fn kill_node(&mut self, id: u8) -> Result<()> {
        let mut child = self.take_up(id)?;
        node::kill(&mut child).map(drop)
    }

    /// Stops a node cleanly. The node hands its partitions over first, if it can.
    ///
    /// # Errors
    /// If there is no such node, or it is down.
    pub fn stop_node(&mut self, id: u8) -> Result<()> {
        let mut child = self.take_up(id)?;
        node::stop(&mut child, STOP_LIMIT).map(drop)
    }

    /// Starts a node that is down, on its old port and data.
    ///
    /// Waits until the node is ready, unless too few nodes run for it to become ready.
    ///
    /// # Errors
    /// If the node is not down, or a [`StartError`](crate::StartError).
    pub fn start_node(&mut self, id: u8) -> Result<()> {
        let index = self.index(id)?;
        if !matches!(self.nodes[index], State::Down) {
            bail!("node {id} is not down");
        }
        self.spawn(index)?;
        let states = self.nodes.iter();
        let running = states.filter(|s| matches!(s, State::Running(_))).count();
        if running * 2 < self.nodes.len() {
            return Ok(());
        }
        let address = self.layout.nodes[index].address();
        self.wait_ready(&[address], running)
    }

    /// Freezes a node, like a suspended machine. Its connections stay open, but it does not respond.
    ///
    /// # Errors
    /// If the node is not running.
    pub fn freeze(&mut self, id: u8) -> Result<()> {
        let child = self.take_up(id)?;
        let outcome = os::signal(child.id(), Signal::Stop);
        let index = self.index(id)?;
        self.nodes[index] = State::Frozen(child);
        outcome.with_context(|| format!("freeze node {id}"))
    }

    /// Resumes a frozen node. It may act as the leader of partitions that have another leader now.
    ///
    /// # Errors
    /// If the node is down.
    pub fn thaw(&mut self, id: u8) -> Result<()> {
        let child = self.take_up(id)?;
        let outcome = os::signal(child.id(), Signal::Continue);
        let index = self.index(id)?;
        self.nodes[index] = State::Running(child);
        outcome.with_context(|| format!("thaw node {id}"))
    }

    fn index(&self, id: u8) -> Result<usize> {
        let found = self.layout.nodes.iter().position(|node| node.id == id);
        found.with_context(|| format!("no node {id}: they count from 1 to {}", self.nodes.len()))
    }

    /// Takes the process of a node that is up. The node is down until the process is put back.
    fn take_up(&mut self, id: u8) -> Result<Child> {
        let index = self.index(id)?;
        match std::mem::replace(&mut self.nodes[index], State::Down) {
            State::Running(child) | State::Frozen(child) => Ok(child),
            State::Down => bail!("node {id} is down already"),
        }
    }
}
