//! Tests of `eos kafka up --embedded`, a broker without Java.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

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
            .env_remove("EOS_CACHE_DIR")
            .env_remove("EOS_BOOTSTRAP_SERVERS")
            // Without Java and Docker.
            .env("PATH", "")
            .env_remove("JAVA_HOME");
        if let Some(checkout) = self.checkout {
            // Cargo sets it for tests. An installed program finds the checkout by the current directory.
            command
                .env_remove("CARGO_MANIFEST_DIR")
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
    let address = lines.find_map(|it| it.strip_prefix("EOS_BOOTSTRAP_SERVERS="));
    address.expect("it prints the address").to_owned()
}

fn is_up(address: &str) -> bool {
    std::net::TcpStream::connect(address).is_ok()
}

/// A directory with the files that identify a checkout.
fn checkout() -> tempfile::TempDir {
    // Without symbolic links, as the current directory of a program is.
    let parent = std::env::temp_dir().canonicalize().expect("a directory");
    let dir = tempfile::tempdir_in(parent).expect("a directory");
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
    let use_it = format!("Use it with EOS_BOOTSTRAP_SERVERS={their_address}");
    ours.refuses(
        "kafka read x",
        &["no local Kafka is up", &elsewhere, &use_it],
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

#[test]
fn the_installed_program_uses_the_kafka_that_cargo_xtask_started_in_the_clone() {
    let (cache, clone, outside) = (
        tempfile::tempdir().expect("a directory"),
        checkout(),
        tempfile::tempdir().expect("a directory"),
    );
    let of = |directory| Eos {
        cache: cache.path(),
        checkout: Some(directory),
    };
    let installed = of(clone.path());
    // Cargo names a package of the clone, and `cargo xtask` names itself.
    let mut xtask = of(outside.path()).command("kafka up --embedded");
    xtask.env("CARGO_MANIFEST_DIR", clone.path().join("eos-core"));
    xtask.env("CLI_PROGRAM_NAME", "cargo xtask");
    let up = xtask.output().expect("it runs");
    let error = String::from_utf8_lossy(&up.stderr).into_owned();
    assert!(error.contains("`cargo xtask kafka down`"), "{error}");
    let address = address(&text(up));

    let mut below = installed.command("kafka status");
    below.current_dir(clone.path().join("eos-protocol"));
    let status = text(below.output().expect("it runs"));
    assert!(status.contains(&address), "{status}");
    let elsewhere = of(outside.path()).says("kafka status");
    let none = "outside of a checkout. `eos kafka up` starts one.\nElsewhere: ";
    assert!(elsewhere.contains(none), "{elsewhere}");
    assert!(installed.says("kafka down").contains("1 node(s) stopped"));
    assert!(!is_up(&address));
}

#[test]
fn a_real_kafka_without_java_or_maven_names_the_command_that_installs_them() {
    let cache = tempfile::tempdir().expect("a directory");
    let eos = Eos {
        cache: cache.path(),
        checkout: None,
    };
    // Without a PATH there is no Maven. A usual directory of this machine may contain Java.
    let parts = [
        "no Maven",
        "run `cargo xtask setup`",
        "`eos kafka up --embedded`",
    ];
    eos.refuses("kafka up", &parts);
    assert!(is_up(&address(&eos.says("kafka up --embedded"))));
}

/// Each `up` binds the usual port for a moment to see whether it is free.
#[test]
fn a_port_that_is_in_use_for_a_moment_does_not_end_the_broker() {
    let cache = tempfile::tempdir().expect("a directory");
    let eos = Eos {
        cache: cache.path(),
        checkout: None,
    };
    let probe = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = probe.local_addr().expect("bound").port();
    let mut command = eos.command(&format!("kafka serve-embedded --port {port}"));
    let mut broker = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(broker.stdout.take().expect("piped")).lines();
    std::thread::sleep(Duration::from_millis(300));
    drop(probe);
    let listens = lines.nth(1).and_then(Result::ok).unwrap_or_default();
    let _ended_already = broker.kill();
    broker.wait().expect("collected");
    assert!(listens.ends_with(&port.to_string()), "{listens:?}");
}

#[test]
fn the_help_names_the_program_as_the_user_types_it() {
    let cache = tempfile::tempdir().expect("a directory");
    let eos = Eos {
        cache: cache.path(),
        checkout: None,
    };
    for (name, usage) in [
        (None, "Usage: eos kafka topic "),
        (Some("cargo xtask"), "Usage: cargo xtask kafka topic "),
    ] {
        let mut help = eos.command("kafka topic --help");
        help.envs(name.map(|name| ("CLI_PROGRAM_NAME", name)));
        let help = text(help.output().expect("it runs"));
        assert!(help.contains(usage), "{help}");
    }
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
