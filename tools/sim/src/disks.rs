//! The disks of simulated processes, which hold their databases.

use std::fmt;
use std::sync::Arc;

use eos_core::spi::stepped::Home;

use eos_testkit::disk::Disk;

/// The number of earlier states of a database that a power loss may restore.
const EARLIER: usize = 6;

/// Creates a disk for each process of a run. Several runs may call it at the same time.
pub trait Disks: Sync {
    /// Returns an empty disk for a process of this name.
    fn disk(&self, process: &str) -> Box<dyn ProcessDisk>;

    /// Returns whether databases write a position before its data: a planted bug.
    fn position_first(&self) -> bool {
        false
    }
}

/// The disk of a process, which outlives the process.
pub trait ProcessDisk: fmt::Debug {
    /// Opens the databases on the disk.
    fn home(&self) -> Arc<dyn Home>;

    /// Releases all databases. The process is dead.
    fn released(&self);

    /// Deletes all data on the disk. The process is dead.
    fn lose(&self);

    /// Restores the disk to its state `states` batches ago, or to the oldest known state. This is a power loss, or a
    /// restore from a copy. The process is dead.
    fn go_back(&self, states: usize);
}

/// Disks in memory, which are the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct InMemory;

impl Disks for InMemory {
    fn disk(&self, _: &str) -> Box<dyn ProcessDisk> {
        Box::new(Disk::default().keeping(EARLIER))
    }
}

/// Disks in memory on which two workers may open a database at the same time: a planted bug.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unlocked;

impl Disks for Unlocked {
    fn disk(&self, _: &str) -> Box<dyn ProcessDisk> {
        Box::new(Disk::default().keeping(EARLIER).unlocked())
    }
}

/// Disks in memory whose databases write a position before its data: a planted bug.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PositionFirst;

impl Disks for PositionFirst {
    fn disk(&self, process: &str) -> Box<dyn ProcessDisk> {
        InMemory.disk(process)
    }

    fn position_first(&self) -> bool {
        true
    }
}

impl ProcessDisk for Disk {
    fn home(&self) -> Arc<dyn Home> {
        Arc::new(self.clone())
    }

    fn released(&self) {
        Disk::released(self);
    }

    fn lose(&self) {
        Disk::lose(self);
    }

    fn go_back(&self, states: usize) {
        Disk::go_back(self, states);
    }
}
