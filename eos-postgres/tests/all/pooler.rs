//! A pooler between the app and the server: pgbouncer, if it is installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eos_core::boundary::LedgerFailure;
use eos_postgres::Postgres;
use eos_postgres::testing::{Cluster, run, value};

use crate::checks::check;
use crate::support::{Register, Worker};

/// A running pgbouncer. It ends with this value.
struct Pooler {
    process: Child,
    directory: tempfile::TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    directories
        .map(|directory| directory.join("pgbouncer"))
        .find(|program| program.exists())
}

impl Pooler {
    /// Starts it in front of a server with a Unix socket in this directory.
    fn start(program: &Path, server: &Path, mode: &str, sessions: u32, round_robin: u8) -> Self {
        use std::os::unix::fs::{MetadataExt, chown};
        let directory = tempfile::Builder::new()
            .prefix("eos-pb-")
            .tempdir()
            .unwrap();
        let own = directory.path().display();
        let settings = format!(
            "[databases]\n* = host={} user=postgres\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\n\
             unix_socket_dir = {own}\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {sessions}\n\
             server_round_robin = {round_robin}\n",
            server.display()
        );
        let file = directory.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        // It refuses to run as root, as PostgreSQL does.
        let owner = std::fs::metadata(server).unwrap();
        let mut command = Command::new(program);
        command.arg("-q").arg(&file).stdin(Stdio::null());
        if std::fs::metadata(directory.path()).unwrap().uid() != owner.uid() {
            use std::os::unix::process::CommandExt;
            for path in [directory.path(), &file] {
                chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
            }
            command.uid(owner.uid()).gid(owner.gid());
        }
        let process = command.spawn().unwrap();
        let pooler = Self { process, directory };
        let begin = Instant::now();
        while !pooler.directory.path().join(".s.PGSQL.6432").exists() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "pgbouncer does not start"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    fn url(&self, database: &str) -> String {
        let (_, name) = database.rsplit_once('/').unwrap();
        let own = self.directory.path().display().to_string();
        format!(
            "postgres://postgres@{}:6432/{name}",
            own.replace('/', "%2F")
        )
    }
}

#[test]
fn a_pooler_of_transactions_is_refused_and_one_of_sessions_is_not() {
    let Some(program) = installed() else {
        eprintln!("skipped: pgbouncer is not installed");
        return;
    };
    let cluster = Cluster::temporary(&[]).unwrap();
    let database = cluster.database("pooled").unwrap();
    run(&database, "CREATE TABLE t (n bigint)").unwrap();
    let socket = value(&database, "SHOW unix_socket_directories").unwrap();
    for (sessions, round_robin) in [(1, 0), (2, 0), (2, 1), (20, 0), (20, 1)] {
        let socket = Path::new(&socket);
        let pooler = Pooler::start(&program, socket, "transaction", sessions, round_robin);
        let shop = Postgres::connect(&pooler.url(&database)).unwrap();
        let error = check(&shop, &[]).unwrap_err();
        assert_eq!(
            error.failure,
            LedgerFailure::Fatal,
            "{sessions}, {round_robin}: {error}"
        );
        assert!(
            error.text.contains("pooler"),
            "{sessions}, {round_robin}: {error}"
        );
    }
    let pooler = Pooler::start(&program, Path::new(&socket), "session", 20, 0);
    let shop = Postgres::connect(&pooler.url(&database)).unwrap();
    let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
    check(&shop, &[table.register()]).unwrap();
    let (mut worker, taken) = Worker::writing(&shop, &table);
    worker.finish(&taken, 1).unwrap();
    assert_eq!(value(&database, "SELECT count(*) FROM t").unwrap(), "1");
}
