//! `cargo xtask kafka up | down | status`, as one uses it.
#![allow(
    clippy::unwrap_used,
    reason = "the lint spares test functions, not what they share"
)]

use std::path::Path;
use std::process::{Command, Output};

use xtask::kafka;

/// A user of one's own, who has Kafka's jars already.
struct User {
    cache: tempfile::TempDir,
}

impl User {
    /// None where brokers cannot be started. Continuous integration may not skip.
    fn new() -> Option<User> {
        if let Some(why) = kafka::missing() {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "CI must not skip: {why}"
            );
            eprintln!("SKIPPED, needs a local Kafka: {why}");
            return None;
        }
        // Sees to it that the jars are there.
        drop(kafka::Cluster::start(&kafka::ClusterOptions::default()).unwrap());
        let jars = format!("kafka-{}", kafka::VERSION);
        let theirs = xtask::cache_dir().unwrap().join(&jars);
        let cache = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(theirs, cache.path().join(jars)).unwrap();
        Some(User { cache })
    }

    fn run(&self, arguments: &str) -> Output {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask
            .args(arguments.split(' '))
            .env("EOS_CACHE_DIR", self.cache.path());
        xtask.env_remove(kafka::BOOTSTRAP_VAR).output().unwrap()
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

    fn data(&self) -> std::path::PathBuf {
        self.cache.path().join("local/data")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // A failed test must not leave brokers behind.
        self.run("kafka down");
    }
}

fn topics(bootstrap: &str) -> Vec<String> {
    let patience = std::time::Duration::from_secs(10);
    let mut client = xtask::wire::Client::connect(bootstrap, patience).unwrap();
    client.metadata(None).unwrap().topics.into_keys().collect()
}

#[test]
fn a_cluster_stays_until_it_is_sent_away_and_survives_the_death_of_its_processes() {
    let Some(user) = User::new() else {
        return;
    };
    let none = "No local Kafka is up.";
    assert!(user.says("kafka status").starts_with(none));

    let line = user.says("kafka up");
    let bootstrap = line.strip_prefix("KAFKA_BOOTSTRAP_SERVERS=").unwrap();
    assert_eq!(user.says("kafka up"), line, "it is up already");
    assert_eq!(user.says("kafka up --nodes 1"), line, "that is what is up");
    let status = user.says("kafka status");
    assert!(
        status.contains("ready") && status.ends_with(&line),
        "{status}"
    );
    let complaint = user.complains("kafka up --nodes 3");
    assert!(complaint.contains("cargo xtask kafka down"), "{complaint}");

    let patience = std::time::Duration::from_secs(10);
    let mut client = xtask::wire::Client::connect(bootstrap, patience).unwrap();
    client.create_topic("kept", 1, 1, &[]).unwrap();
    kill(&user.data().join("node-1/pid"));
    let status = user.says("kafka status");
    assert!(status.contains("ended"), "{status}");
    assert_eq!(user.says("kafka up"), line, "the same ports");
    assert_eq!(topics(bootstrap), ["kept"], "the same data");

    assert!(user.says("kafka down").contains("data removed"));
    assert!(!user.data().exists());
    assert_eq!(user.says("kafka down"), none);
}

#[test]
fn a_named_cluster_is_used_as_it_is() {
    let Some(user) = User::new() else {
        return;
    };
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask
        .args(["kafka", "up"])
        .env(kafka::BOOTSTRAP_VAR, "theirs:9092");
    let output = xtask
        .env("EOS_CACHE_DIR", user.cache.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(stdout, "KAFKA_BOOTSTRAP_SERVERS=theirs:9092\n");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("nothing is started"), "{stderr}");
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

/// Its parent is gone, and where process 1 collects nobody it stays one.
fn is_zombie(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") Z ")
}
