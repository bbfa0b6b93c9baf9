//! Tests of `eos kafka up --embedded`, a broker without Java.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A checkout of a user with this cache. Its cluster is stopped with the test.
struct Eos<'a> {
    cache: &'a Path,
    checkout: Option<&'a Path>,
}

impl Eos<'_> {
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eos"));
        command
            .args(arguments.split(' '))
            .env("XDG_CACHE_HOME", self.cache)
            .env_remove("KAFKA_BOOTSTRAP_SERVERS")
            // Without Java and Docker.
            .env("PATH", "")
            .env_remove("JAVA_HOME");
        if let Some(checkout) = self.checkout {
            command
                .env("CARGO_MANIFEST_DIR", checkout)
                .current_dir(checkout);
        }
        command
    }

    /// Runs a command that must fail, and checks its error text.
    fn refuses(&self, arguments: &str, parts: &[&str]) {
        let output = self.command(arguments).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments} must fail");
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }

    /// Runs a command that must succeed, and returns its output.
    fn says(&self, arguments: &str) -> String {
        let output = self.command(arguments).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments}: {error}");
        text(output)
    }

    fn sends(&self, arguments: &str, input: &str) {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(input.as_bytes()).expect("written");
        drop(stdin);
        assert!(child.wait().expect("it ends").success());
    }
}

impl Drop for Eos<'_> {
    fn drop(&mut self) {
        // Down already, in most cases.
        let _ = self.command("kafka down").output();
    }
}

fn address(up: &str) -> String {
    let mut lines = up.lines();
    let address = lines.find_map(|it| it.strip_prefix("KAFKA_BOOTSTRAP_SERVERS="));
    address.expect("it prints the address").to_owned()
}

fn is_up(address: &str) -> bool {
    std::net::TcpStream::connect(address).is_ok()
}

/// A directory with the files that identify a checkout.
fn checkout() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for package in ["eos-core", "eos-protocol"] {
        std::fs::create_dir(dir.path().join(package)).expect("created");
        std::fs::write(dir.path().join(package).join("Cargo.toml"), "").expect("written");
    }
    dir
}

/// A start in containers that is refused leaves nothing behind: another Kafka starts.
#[test]
fn a_refused_start_in_containers_does_not_block_another_one() {
    let outside = tempfile::tempdir().expect("a directory");
    let inside = checkout();
    let cases = [
        (outside.path(), "omit --docker"),
        (inside.path(), "Docker Compose"),
    ];
    for (directory, fix) in cases {
        let cache = tempfile::tempdir().expect("a directory");
        let eos = Eos {
            cache: cache.path(),
            checkout: Some(directory),
        };
        eos.refuses("kafka up --docker", &[fix]);
        eos.refuses("kafka read x", &["no local Kafka is up", "`eos kafka up`"]);
        let address = address(&eos.says("kafka up --embedded"));
        assert!(is_up(&address));
        eos.says("kafka down");
        assert!(eos.says("kafka status").contains("No local Kafka is up"));
    }
}

#[test]
fn neither_another_checkouts_broker_nor_one_of_another_kind_is_replaced_or_stopped() {
    let (cache, ours, theirs) = (
        tempfile::tempdir().expect("a directory"),
        checkout(),
        checkout(),
    );
    let of = |checkout| Eos {
        cache: cache.path(),
        checkout: Some(checkout),
    };
    let (ours, theirs) = (of(ours.path()), of(theirs.path()));
    let their_address = address(&theirs.says("kafka up --embedded"));
    let port = their_address.rsplit(':').next().expect("a port");
    let their_path = theirs
        .checkout
        .expect("given")
        .to_string_lossy()
        .into_owned();

    let elsewhere = format!(
        "the embedded broker at {their_address}, which the checkout in {their_path} started"
    );
    assert!(ours.says("kafka status").contains(&elsewhere));
    ours.refuses(
        &format!("kafka up --embedded --port {port}"),
        &["is taken by", &elsewhere],
    );
    assert!(ours.says("kafka down").contains(&elsewhere));
    let our_address = address(&ours.says("kafka up --embedded --fresh"));
    assert_ne!(our_address, their_address);
    assert!(is_up(&their_address), "their broker is stopped by ours");

    for other_kind in ["kafka up --docker --fresh", "kafka up --docker"] {
        let ours_runs = format!("the embedded broker at {our_address}");
        ours.refuses(
            other_kind,
            &["a different Kafka is up", &ours_runs, "eos kafka down"],
        );
        assert!(
            is_up(&our_address),
            "{other_kind} stopped the embedded broker"
        );
    }
    assert!(ours.says("kafka down").contains("1 node(s) stopped"));
    assert!(!is_up(&our_address) && is_up(&their_address));
    assert!(theirs.says("kafka down").contains("1 node(s) stopped"));
}

fn text(output: Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_comes_up_without_java_holds_records_and_goes_down() {
    let cache = tempfile::tempdir().expect("a directory");
    let eos = Eos {
        cache: cache.path(),
        checkout: None,
    };
    let address = address(&eos.says("kafka up --embedded"));
    eos.says("kafka topic cities:1");
    eos.sends("kafka produce cities", "a:1\nb:2\n");
    assert_eq!(eos.says("kafka read cities"), "0@0 a:1\n0@1 b:2\n");
    let status = eos.says("kafka status");
    assert!(
        status.contains("not Apache Kafka") && status.contains("ready"),
        "{status}"
    );
    let again = eos.says("kafka up --embedded");
    assert!(again.contains(&address), "it was up: {again}");
    let other = eos.command("kafka up --embedded --nodes 3").output();
    assert!(!other.expect("it runs").status.success());
    assert!(eos.says("kafka down").contains("1 node(s) stopped"));
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "the broker still listens"
    );
}
