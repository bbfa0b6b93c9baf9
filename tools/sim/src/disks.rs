//! Where simulated processes keep their databases.

use std::fmt;
use std::sync::Arc;

use eos_core::spi::stepped::Home;

use eos_testkit::disk::Disk;

/// How many earlier states of a database a power loss may go back to.
const EARLIER: usize = 6;

/// Gives each process of a run a disk. Several runs may ask at the same time.
pub trait Disks: Sync {
    /// A disk for a process of this name, with nothing on it.
    fn disk(&self, process: &str) -> Box<dyn ProcessDisk>;
}

/// What a process keeps, and what outlives it.
pub trait ProcessDisk: fmt::Debug {
    /// Opens what is on it.
    fn home(&self) -> Arc<dyn Home>;

    /// The process is dead; nothing of it is open any more.
    fn released(&self);

    /// Everything on it is gone. The process is dead.
    fn lose(&self);

    /// It goes back to what it was so many states ago, as far as it knows earlier ones: after a power loss, or
    /// put back from a copy. The process is dead.
    fn go_back(&self, states: usize);
}

/// In memory: what every run has that is not told otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub struct InMemory;

impl Disks for InMemory {
    fn disk(&self, _: &str) -> Box<dyn ProcessDisk> {
        Box::new(Disk::default().keeping(EARLIER))
    }
}

/// In memory, and two workers may have a database open at the same time: a planted bug.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unlocked;

impl Disks for Unlocked {
    fn disk(&self, _: &str) -> Box<dyn ProcessDisk> {
        Box::new(Disk::default().keeping(EARLIER).unlocked())
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
