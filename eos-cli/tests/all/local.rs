//! Tests of `eos kafka up | down | status | topic | produce | read`.
#![allow(
    clippy::unwrap_used,
    reason = "the lint spares test functions, not what they share"
)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A user of one's own, who has Kafka's jars already.
struct User {
    cache: tempfile::TempDir,
    /// One at a time: a broker that is killed here comes back on its port, which another test's broker
    /// could have taken meanwhile. Declared last, given back when everything is down.
    _turn: MutexGuard<'static, ()>,
}

impl User {
    /// None if tests on a real Kafka are skipped.
    fn new() -> Option<User> {
        if kafka_launcher::skipped().unwrap() {
            return None;
        }
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // Sees to it that the jars are there.
        drop(kafka_launcher::Cluster::start(&kafka_launcher::ClusterOptions::default()).unwrap());
        let jars = format!("kafka-{}", kafka_launcher::VERSION);
        let theirs = kafka_launcher::cache_dir().unwrap().join(&jars);
        let cache = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(theirs, cache.path().join(jars)).unwrap();
        Some(User { cache, _turn: turn })
    }

    fn run(&self, arguments: &str) -> Output {
        let mut eos = Command::new(env!("CARGO_BIN_EXE_eos"));
        eos.args(arguments.split(' '))
            .env("EOS_CACHE_DIR", self.cache.path());
        eos.env_remove(kafka_launcher::BOOTSTRAP_VAR)
            .output()
            .unwrap()
    }

    /// A command with this on its standard input.
    fn told(&self, arguments: &str, input: &str) -> Output {
        let mut eos = Command::new(env!("CARGO_BIN_EXE_eos"));
        eos.args(arguments.split(' '))
            .env("EOS_CACHE_DIR", self.cache.path())
            .env_remove(kafka_launcher::BOOTSTRAP_VAR)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = eos.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // One that has ended already does not read.
        let _ = pipe.write_all(input.as_bytes());
        drop(pipe);
        child.wait_with_output().unwrap()
    }

    /// What a command that succeeds prints.
    fn says(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments}: {error}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// What a command that fails complains of.
    fn complains(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments} must fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The data of the cluster that this checkout started.
    fn data(&self) -> std::path::PathBuf {
        let local = std::fs::read_dir(self.cache.path().join("local"));
        let dirs = local.into_iter().flatten().flatten();
        let mut data = dirs.map(|entry| entry.path().join("data"));
        data.find(|data| data.is_dir()).unwrap_or_default()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // A failed test must not leave brokers behind.
        self.run("kafka down");
    }
}

fn topics(bootstrap: &str) -> Vec<String> {
    let patience = Duration::from_secs(10);
    let mut client = kafka_wire::Client::connect(bootstrap, patience).unwrap();
    client.metadata(None).unwrap().topics.into_keys().collect()
}

#[test]
fn a_cluster_stays_until_it_is_sent_away_and_survives_the_death_of_its_processes() {
    let Some(user) = User::new() else {
        return;
    };
    let none = user.says("kafka status");
    assert!(none.starts_with("No local Kafka is up for "), "{none}");

    let line = user.says("kafka up");
    let told = |variable: &str| {
        let mut lines = line.lines();
        let value = lines.find_map(|line| line.strip_prefix(variable)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {variable} in {line}"))
    };
    let bootstrap = told("EOS_BOOTSTRAP_SERVERS");
    let others = |line: &str| line.starts_with("# ") || line.contains("_BOOTSTRAP_SERVERS=");
    assert!(line.lines().all(others), "a shell reads it: {line}");
    assert_eq!(user.says("kafka up"), line, "it is up already");
    assert_eq!(user.says("kafka up --nodes 1"), line, "that is what is up");
    let status = user.says("kafka status");
    assert!(
        status.contains("ready") && status.ends_with(&line),
        "{status}"
    );
    let complaint = user.complains("kafka up --nodes 3");
    assert!(complaint.contains("eos kafka down"), "{complaint}");

    let patience = Duration::from_secs(10);
    let mut client = kafka_wire::Client::connect(bootstrap, patience).unwrap();
    client.create_topic("kept", 1, 1, &[]).unwrap();
    kill(&user.data().join("node-1/pid"));
    let status = user.says("kafka status");
    assert!(status.contains("ended"), "{status}");
    let told = user.run("kafka up");
    assert_eq!(
        String::from_utf8_lossy(&told.stdout).trim(),
        line,
        "the same ports"
    );
    assert_eq!(topics(bootstrap), ["kept"], "the same data");
    let told = String::from_utf8_lossy(&told.stderr);
    let expected = "was restarted: it still has the topics kept";
    assert!(told.contains(expected), "{told}");
    assert!(told.contains("kafka up --fresh"), "{told}");

    user.says("kafka up --fresh");
    assert!(
        user.says("kafka topic kept").ends_with("created"),
        "it was empty"
    );

    assert!(user.says("kafka down").contains("data removed"));
    assert!(!user.data().exists());
    assert_eq!(user.says("kafka down"), none);
}

#[test]
fn a_named_cluster_is_used_as_it_is() {
    let Some(user) = User::new() else {
        return;
    };
    let mut eos = Command::new(env!("CARGO_BIN_EXE_eos"));
    eos.args(["kafka", "up"])
        .env(kafka_launcher::BOOTSTRAP_VAR, "theirs:9092");
    let output = eos
        .env("EOS_CACHE_DIR", user.cache.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        stdout.contains("\nEOS_BOOTSTRAP_SERVERS=theirs:9092\n"),
        "{stdout}"
    );
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("starting nothing"), "{stderr}");
    assert!(!user.data().exists());
}

#[test]
fn a_taken_port_is_named() {
    let Some(user) = User::new() else {
        return;
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let complaint = user.complains(&format!("kafka up --port {port}"));
    let expected = format!("port {port} is taken");
    assert!(complaint.contains(&expected), "{complaint}");
    assert!(user.says("kafka status").starts_with("No local Kafka"));
}

#[test]
fn topics_and_records_are_made_and_read_by_hand() {
    let Some(user) = User::new() else {
        return;
    };
    let complaint = user.complains("kafka read orders");
    assert!(
        complaint.contains("start one with `eos kafka up`"),
        "{complaint}"
    );
    user.says("kafka up");

    let said = user.says("kafka topic orders:1 prices");
    assert_eq!(
        said,
        "orders: 1 partitions, created\nprices: 6 partitions, created"
    );
    let said = user.says("kafka topic orders:1");
    assert_eq!(said, "orders: 1 partitions, was there");
    let complaint = user.complains("kafka topic orders:2");
    assert!(
        complaint.contains("it exists with 1 partitions, not 2"),
        "{complaint}"
    );
    let complaint = user.complains("kafka produce oders");
    assert!(complaint.contains("`eos kafka topic oders`"), "{complaint}");

    let said = user.told("kafka produce orders", "a:{\"n\":1}\n:2\nb:\n\n");
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "sent 3 records to orders\n"
    );
    let said = user.told("kafka produce orders --no-keys", "{\"n\":3}\n");
    assert!(said.status.success());
    let said = user.told("kafka produce orders", "c:4\nno colon\nd:5\n");
    let complaint = String::from_utf8_lossy(&said.stderr);
    let expected = "1 records before it are sent: line 2: \"no colon\" has no colon";
    assert!(
        !said.status.success() && complaint.contains(expected),
        "{complaint}"
    );
    assert_eq!(
        user.says("kafka read orders"),
        "0@0 a:{\"n\":1}\n0@1 null:2\n0@2 b:null\n0@3 null:{\"n\":3}\n0@4 c:4"
    );

    let complaint = user.complains("kafka produce orders --header =7");
    assert!(complaint.contains("write `name=value`"), "{complaint}");
    user.told("kafka produce orders --header id=7 --header t=a=b", "e:6\n");
    let read = user.says("kafka read orders");
    assert!(read.ends_with("0@5 e:6\n    id: 7\n    t: a=b"), "{read}");

    let complaint = user.complains("kafka produce orders --timestamp -1");
    assert!(complaint.contains("-1"), "{complaint}");
    user.told("kafka produce orders --timestamp 3600000", "f:7\n");
    let read = user.says("kafka read orders --timestamps");
    assert!(read.ends_with("0@6 3600000 f:7"), "{read}");

    // The partition is Java's: murmur2("21") is -973932308.
    user.told("kafka produce prices", "21:1\n");
    let partition = (-973_932_308i32 & 0x7fff_ffff) % 6;
    assert_eq!(
        user.says("kafka read prices"),
        format!("{partition}@0 21:1")
    );
}

/// Kills the process that a pid file names, and waits until it is dead.
fn kill(pid_file: &Path) {
    let line = std::fs::read_to_string(pid_file).unwrap();
    let pid = line.split(' ').next().unwrap();
    let kill = |signal: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("kill {signal} {pid} 2>/dev/null")]);
        shell.status().unwrap().success()
    };
    assert!(kill("-9"));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while kill("-0") && !is_zombie(pid) {
        assert!(std::time::Instant::now() < deadline, "{pid} survives");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Its parent is gone, and where process 1 reaps no children it stays a zombie. While other threads than its
/// first still end, it may hold files and ports.
fn is_zombie(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.contains(") Z ") && threads <= 1
}
