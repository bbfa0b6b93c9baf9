//! Writes to a table on a full disk.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use eos_core::boundary::{LedgerFailure, Taken};
use eos_postgres::Postgres;
use eos_postgres::testing::{Cluster, run, value};

use crate::support::{Register, Worker, offset, rows};

/// A file system of 24 MiB in memory. It is unmounted when this is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Returns `None` if this process may not mount.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m,mode=777", "tmpfs"])
            .arg(directory.path())
            .output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        is_mounted.then(|| Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still have a file open when a test fails.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// The disk of a table is full. Transactions abort, no record is blamed, and the rows arrive once there is room.
#[test]
fn a_full_disk_aborts_until_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: this user may not mount a file system");
        return;
    };
    let server = Cluster::temporary(&[]).unwrap();
    let location = disk.0.path().join("space");
    let owner = std::fs::metadata(value(&server.url("postgres"), "SHOW data_directory").unwrap());
    let owner = owner.unwrap();
    std::fs::create_dir(&location).unwrap();
    std::os::unix::fs::chown(&location, Some(owner.uid()), Some(owner.gid())).unwrap();
    run(
        &server.url("postgres"),
        &format!("CREATE TABLESPACE small LOCATION '{}'", location.display()),
    )
    .unwrap();
    let url = server.database("full_disk").unwrap();
    let statements = [
        "CREATE TABLE t (n bigint, data text) TABLESPACE small",
        // Compressed values would fit.
        "ALTER TABLE t ALTER data SET STORAGE EXTERNAL",
        "CREATE TABLE ballast TABLESPACE small AS \
         SELECT repeat(chr(n), 800) FROM generate_series(65, 90) n, generate_series(1, 500)",
    ];
    for statement in statements {
        run(&url, statement).unwrap();
    }
    let shop = Postgres::connect(&url).unwrap();
    let table = shop
        .table::<String, i64>("t")
        .column("n", |_, n| *n)
        .column("data", |data: &String, _| data.clone());
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let mut taken = worker.take(0);
    let data = "x".repeat(4 << 20);
    let write = |worker: &mut Worker, taken: &Taken, n: i64| {
        worker.begin(taken);
        worker.put(&table, (0, n), &data, Some(&n)).unwrap();
        worker.finish(taken, n + 1)
    };
    let mut written = 0;
    let error = loop {
        match write(&mut worker, &taken, written) {
            Ok(next) => taken = next,
            Err(error) => break error,
        }
        written += 1;
        assert!(written < 20, "the disk is not full after 20 transactions");
    };
    assert_eq!(error.failure, LedgerFailure::Contended, "{error}");
    assert!(!error.blames_a_record, "{error}");
    assert!(error.text.contains("53100"), "{error}");
    assert!(written > 0);

    run(&url, "DROP TABLE ballast").unwrap();
    taken = write(&mut worker, &taken, written).unwrap();
    assert_eq!(taken.offset, Some(offset(written + 1)));
    let all = (0..=written).map(|n| n.to_string());
    let all: Vec<String> = all.collect();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), all.join(" "));
}
