//! The simulation with the state in RocksDB. It finds bugs that an engine in memory can't have.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use eos_core::spi::stepped::{Home, on_disk};
use eos_sim::{Disks, Place, ProcessDisk, Seeds};

/// The number of seeds. `EOS_ROCKSDB_SEEDS` sets another number.
const SEEDS: u64 = 100;
/// The memory for all databases of a process, in bytes.
const MEMORY: usize = 16 << 20;
/// The number of earlier states that a disk keeps.
const EARLIER: usize = 3;

/// The directories of all processes of all runs, and counts of their faults.
#[derive(Debug)]
struct Directories {
    root: PathBuf,
    next: AtomicU32,
    lost: Arc<AtomicU32>,
    went_back: Arc<AtomicU32>,
}

impl Disks for Directories {
    fn disk(&self, process: &str) -> Box<dyn ProcessDisk> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let root = self.root.join(format!("{number}-{process}"));
        let now = root.join("now");
        fs::create_dir_all(&now).unwrap();
        Box::new(Directory {
            home: on_disk(now.clone(), "sim".into(), "simulated", MEMORY),
            now,
            root,
            earlier: Mutex::default(),
            lost: Arc::clone(&self.lost),
            went_back: Arc::clone(&self.went_back),
        })
    }
}

#[derive(Debug)]
struct Directory {
    home: Arc<dyn Home>,
    root: PathBuf,
    now: PathBuf,
    earlier: Mutex<Earlier>,
    lost: Arc<AtomicU32>,
    went_back: Arc<AtomicU32>,
}

/// Copies of a directory, each from a time when its process was down.
#[derive(Debug, Default)]
struct Earlier {
    /// The copies, with the newest one last.
    copies: VecDeque<PathBuf>,
    /// The number of copies that were ever made. It gives each copy a unique name.
    made: u32,
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).expect("its databases are closed");
    }
}

impl ProcessDisk for Directory {
    fn home(&self) -> Arc<dyn Home> {
        Arc::clone(&self.home)
    }

    fn released(&self) {
        let mut earlier = self.earlier.lock().unwrap();
        let copy = self.root.join(format!("copy-{}", earlier.made));
        earlier.made += 1;
        copy_all(&self.now, &copy);
        earlier.copies.push_back(copy);
        // The last copy is the current state, and does not count.
        if earlier.copies.len() > EARLIER + 1
            && let Some(oldest) = earlier.copies.pop_front()
        {
            fs::remove_dir_all(oldest).unwrap();
        }
    }

    fn lose(&self) {
        fs::remove_dir_all(&self.now).unwrap();
        fs::create_dir_all(&self.now).unwrap();
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn go_back(&self, states: usize) {
        let earlier = &self.earlier.lock().unwrap().copies;
        // The last copy is the current state.
        let to = earlier.len().saturating_sub(1 + states);
        if let Some(copy) = earlier.get(to).filter(|_| to + 1 < earlier.len()) {
            fs::remove_dir_all(&self.now).unwrap();
            copy_all(copy, &self.now);
            self.went_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn whatever_goes_wrong_each_record_counts_once() {
    let count = std::env::var("EOS_ROCKSDB_SEEDS").map_or(SEEDS, |it| it.parse().unwrap());
    let root = tempfile::tempdir().unwrap();
    let disks = Directories {
        root: root.path().to_owned(),
        next: AtomicU32::new(0),
        lost: Arc::default(),
        went_back: Arc::default(),
    };
    let seeds = Seeds {
        from: 0,
        count,
        threads: 2,
        shape: None,
        without: None,
    };
    let summary = seeds.run_on(&disks);
    let took = summary.took.as_secs_f64();
    let (lost, went_back) = (
        disks.lost.load(Ordering::Relaxed),
        disks.went_back.load(Ordering::Relaxed),
    );
    println!(
        "{} seeds with RocksDB, {} faults; disks lost {lost} times, put back {went_back} times; {:.1} s per \
         1,000 seeds",
        summary.seeds,
        summary.faults,
        took * 1_000.0 / count as f64
    );
    let violated: Vec<_> = summary
        .violated
        .iter()
        .map(|it| format!("seed {}: {}", it.run.seed, it.violations[0]))
        .collect();
    assert!(violated.is_empty(), "{}", violated.join("\n"));
    assert_eq!(summary.seeds, count);
    assert!(summary.faults >= 5 * count, "{} faults", summary.faults);
    let writes = |place: &Place| matches!(place, Place::Opened(_) | Place::Disk(_));
    let pairs = summary.coverage.pairs();
    let at_writes: u64 = pairs
        .filter(|(place, ..)| writes(place))
        .map(|(.., hits)| hits)
        .sum();
    assert!(at_writes > count / 4, "{at_writes} faults at writes");
    assert!(lost > 0 && went_back > 0, "{lost} {went_back}");
}
