//! `cargo xtask kafka up --embedded`: a broker that stays until it is sent away, without Java.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The user's cache is this directory; whatever is up in it goes down with the test.
struct Xtask<'a>(&'a Path);

impl Xtask<'_> {
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(arguments.split(' '))
            .env("XDG_CACHE_HOME", self.0)
            .env_remove("KAFKA_BOOTSTRAP_SERVERS")
            // Neither is looked for.
            .env("PATH", "")
            .env_remove("JAVA_HOME");
        command
    }

    /// Runs it; what it says must be a success.
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

impl Drop for Xtask<'_> {
    fn drop(&mut self) {
        // Down already, in most cases.
        let _ = self.command("kafka down").output();
    }
}

fn text(output: Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_comes_up_without_java_holds_records_and_goes_down() {
    let cache = tempfile::tempdir().expect("a directory");
    let xtask = Xtask(cache.path());
    let up = xtask.says("kafka up --embedded");
    let address = up
        .lines()
        .find_map(|it| it.strip_prefix("KAFKA_BOOTSTRAP_SERVERS="));
    let address = address.expect("it says where").to_owned();
    xtask.says("kafka topic cities:1");
    xtask.sends("kafka produce cities", "a:1\nb:2\n");
    assert_eq!(xtask.says("kafka read cities"), "0@0 a:1\n0@1 b:2\n");
    let status = xtask.says("kafka status");
    assert!(
        status.contains("not Apache Kafka") && status.contains("ready"),
        "{status}"
    );
    let again = xtask.says("kafka up --embedded");
    assert!(again.contains(&address), "it was up: {again}");
    let other = xtask.command("kafka up --embedded --nodes 3").output();
    assert!(!other.expect("it runs").status.success());
    assert!(xtask.says("kafka down").contains("1 node(s) stopped"));
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
}
