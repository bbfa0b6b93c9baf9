//! The open databases of this process.

use eos_protocol::TaskId;
use eos_state::rocks::{Flusher, StateMemory};

use super::flushing::Flushing;

/// The databases share one limit of unflushed bytes. RocksDB keeps to the limit by flushing the database that is being
/// written to. With many databases, that gives small tables again and again, beside a large database that no task
/// writes to any more. So this type flushes earlier, and chooses the database.
#[derive(Debug)]
pub(super) struct OpenDatabases {
    memory: StateMemory,
    flushing: Flushing<Flusher>,
}

impl OpenDatabases {
    pub(super) fn new(memory: StateMemory) -> Self {
        let limit = u64::try_from(memory.flushes_beyond()).unwrap_or(u64::MAX);
        Self {
            memory,
            flushing: Flushing::new(limit),
        }
    }

    pub(super) fn memory(&self) -> &StateMemory {
        &self.memory
    }

    pub(super) fn opened(&self, task: TaskId, database: Flusher) {
        self.flushing.opened(task, database);
    }

    /// Releases a database. Call it before the database itself is dropped: until then it stays open.
    pub(super) fn closing(&self, task: TaskId) {
        self.flushing.closing(task);
    }

    /// Records a write. One of the databases may have to flush, in parallel to the writer. Cheap if none has to.
    pub(super) fn written(&self) {
        if self.memory.unflushed() > self.memory.flushes_beyond() {
            self.flushing.ask();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::on_disk::OnDisk;
    use super::*;
    use crate::worker::{Home, TaskHome};
    use eos_protocol::state::{
        Family, Identity, PerFamily, Position, Standing, StoreId, StoresHash,
    };
    use eos_protocol::{Partition, StageId, Timestamp};
    use eos_state::{Batch, StoreBackend};
    use std::time::{Duration, Instant};

    const BYTES: usize = 24 << 20;

    fn task(partition: i32) -> TaskId {
        TaskId {
            stage: StageId(0),
            partition: Partition::new(partition).unwrap(),
        }
    }

    /// Writes this number of values of a kilobyte.
    fn write(database: &mut dyn StoreBackend, task: TaskId, from: u64, count: u64) {
        let position = Position {
            identity: Identity {
                cluster: "c".into(),
                app: "a".into(),
                task,
                topics: Vec::new(),
                stores: StoresHash::of([("s", Family::Plain)]),
            },
            standing: Standing::Restoring {
                since: Timestamp(0),
                seen: PerFamily::default(),
            },
            changelogs: PerFamily::default(),
        };
        let store = StoreId::plain("s");
        for n in from..from + count {
            let mut batch = Batch::with_capacity(1);
            let (key, value) = (n.to_be_bytes(), [n as u8; 1000]);
            batch.write(store, &key, Some(&value));
            database.apply(&batch, &position).unwrap();
        }
    }

    #[test]
    fn together_they_keep_to_their_share_and_the_largest_flushes_first() {
        let slot = tempfile::tempdir().unwrap();
        let home = OnDisk::new(slot.path().to_owned(), "a".into(), "c".into(), BYTES);
        let open = |n| {
            let home_of = TaskHome {
                task: task(n),
                windowed: false,
            };
            home.open(&home_of).unwrap().unwrap()
        };
        let mut databases: Vec<_> = (0..8).map(open).collect();
        let limit = home.flushes_beyond() as u64;
        let sum = |databases: &[Box<dyn StoreBackend>]| -> u64 {
            databases.iter().map(|d| d.bytes_unflushed()).sum()
        };
        // A database without writes, which has the most bytes.
        write(&mut *databases[0], task(0), 0, 2000);
        let idle = databases[0].bytes_unflushed();
        assert!(idle > limit / 4, "{idle} of {limit}");
        let mut most = 0;
        for round in 0..40 {
            for (n, database) in databases.iter_mut().enumerate().skip(1) {
                write(&mut **database, task(n as i32), round * 50, 50);
            }
            // Bytes count until the flush has ended.
            let patience = Instant::now() + Duration::from_secs(30);
            while sum(&databases) > limit && Instant::now() < patience {
                write(&mut *databases[1], task(1), 0, 1);
                std::thread::sleep(Duration::from_millis(5));
            }
            most = most.max(sum(&databases));
        }
        assert!(most <= limit, "{most} of {limit}");
        assert!(most > limit / 2, "it was never put to the test: {most}");
        let idle = databases[0].bytes_unflushed();
        assert!(idle < limit / 50, "the largest was left as it was: {idle}");
        drop(databases);
        // No handle keeps them open.
        drop(open(0));
    }
}
