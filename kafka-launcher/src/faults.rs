//! What can be done to a single node of a running cluster.

use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, State};
use crate::node;
use crate::os::{self, Signal};

/// A broker hands its partitions over before it ends.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(90);

impl Cluster {
    /// Kills a node as `kill -9` does: nothing flushed, nothing handed over.
    ///
    /// # Errors
    /// When there is no such node, or it is down.
    pub fn kill_node(&mut self, id: u8) -> Result<()> {
        let mut child = self.take_up(id)?;
        node::kill(&mut child).map(drop)
    }

    /// Stops a node in good order: it hands its partitions over first, if it can.
    ///
    /// # Errors
    /// When there is no such node, or it is down.
    pub fn stop_node(&mut self, id: u8) -> Result<()> {
        let mut child = self.take_up(id)?;
        node::stop(&mut child, STOP_LIMIT).map(drop)
    }

    /// Starts a node that is down, on its old port and data.
    ///
    /// Waits until it is ready, unless too few nodes run for it ever to be.
    ///
    /// # Errors
    /// When it is not down, or a [`StartError`](crate::StartError).
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

    /// Stops a node's clock, as a suspended machine would: connections stay, nothing answers.
    ///
    /// # Errors
    /// When the node is not running.
    pub fn freeze(&mut self, id: u8) -> Result<()> {
        let child = self.take_up(id)?;
        let outcome = os::signal(child.id(), Signal::Stop);
        let index = self.index(id)?;
        self.nodes[index] = State::Frozen(child);
        outcome.with_context(|| format!("freeze node {id}"))
    }

    /// Lets a frozen node go on. It may take itself for a leader that it no longer is.
    ///
    /// # Errors
    /// When the node is down.
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

    /// Takes the process of a node that is up; the node is down until it is put back.
    fn take_up(&mut self, id: u8) -> Result<Child> {
        let index = self.index(id)?;
        match std::mem::replace(&mut self.nodes[index], State::Down) {
            State::Running(child) | State::Frozen(child) => Ok(child),
            State::Down => bail!("node {id} is down already"),
        }
    }
}
