//! The host name of the brokers. It resolves to several addresses of which only one is alive, to no address for a
//! while, or never.
//!
//! The app is the example as a user runs it. It runs in a mount namespace in which `/etc/hosts` is a file of the test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests, print_skipped};
use kafka_wire::{Client, Isolation, Producer};

use crate::common::{PATIENCE, says};
use anyhow::{Context, Result, ensure};
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use tempfile::TempDir;

const INPUT: &str = "cities";
const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
/// Addresses without a broker. The brokers of the tests listen on 127.0.0.1.
const DEAD: [&str; 2] = ["::1", "127.0.0.77"];

#[test]
fn a_name_with_dead_addresses_or_none_for_a_while_is_enough() -> Result<()> {
    if let Some(why) = cannot_have_hosts_of_its_own()? {
        print_skipped(&format!(
            "a process can't have an /etc/hosts of its own here: {why}"
        ));
        return Ok(());
    }
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let mut client = Client::connect(cluster.bootstrap(), PATIENCE)?;
    for topic in OUTPUTS.iter().chain([&INPUT]) {
        client.create_topic(topic, 1, 1, &crate::common::KEEP)?;
    }
    let (kafka, state) = (cluster.bootstrap(), TempDir::new()?);
    let world = || World::new(kafka, state.path(), PATIENCE);
    let impatient = World::new(kafka, state.path(), Duration::from_secs(8))?;
    let [a, b] = DEAD;
    works(world()?, kafka, &[a, b, "127.0.0.1"]).context("the first addresses are dead")?;
    works(world()?, kafka, &["127.0.0.1", a, b]).context("the last addresses are dead")?;
    resolves_later(world()?, kafka).context("it resolves after a while")?;
    never_resolves(impatient).context("it never resolves")
}

/// Checks that an app processes a record if the name has these addresses.
fn works(mut world: World, bootstrap: &str, addresses: &[&str]) -> Result<()> {
    world.knows(addresses)?;
    world.fleet.start()?;
    world.one_record(bootstrap)
}

fn resolves_later(mut world: World, bootstrap: &str) -> Result<()> {
    world.fleet.start()?;
    let begun = Instant::now();
    wait_until(PATIENCE, "the name was not found for three seconds", || {
        world.fleet.check()?;
        Ok(begun.elapsed() > Duration::from_secs(3))
    })?;
    world.knows(&["127.0.0.1"])?;
    world.one_record(bootstrap)
}

fn never_resolves(mut world: World) -> Result<()> {
    let begun = Instant::now();
    world.fleet.start()?;
    let (code, log) = world.fleet.await_own_end(0, PATIENCE)?;
    let took = begun.elapsed();
    ensure!(code == 1, "exit code {code}:\n{log}");
    says(
        &log,
        &[
            "no Kafka broker responded",
            &format!("Failed to resolve '{}'", world.broker),
            &format!("Tried {}", world.broker),
            "for 8 s",
        ],
    )?;
    ensure!(took < PATIENCE / 2, "{took:?}");
    Ok(())
}

/// An environment in which the test sets the addresses of the brokers' name.
struct World {
    hosts: PathBuf,
    name: String,
    /// `name:port`.
    broker: String,
    fleet: Fleet,
    _dir: TempDir,
}

impl World {
    /// Creates an environment in which the name has no address yet. With the same state directory, the app is the same
    /// member of the group.
    fn new(bootstrap: &str, state: &Path, start_deadline: Duration) -> Result<World> {
        let dir = TempDir::new()?;
        let (_, port) = bootstrap.rsplit_once(':').context("no port")?;
        // A reserved name, which never resolves (RFC 6761).
        let name = "broker.eos.invalid".to_owned();
        let broker = format!("{name}:{port}");
        let hosts = dir.path().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n")?;
        let enrich = build("eos-examples", Program::Bin("02-enrich"), &[])?;
        let program = dir.path().join("program");
        let inside = format!(
            "mount --bind '{}' /etc/hosts && exec '{}'",
            hosts.display(),
            enrich.display()
        );
        fs::write(
            &program,
            format!("#!/bin/sh\nexec unshare -rm sh -c \"{inside}\"\n"),
        )?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let environment = [
            ("EOS_BOOTSTRAP_SERVERS", broker.clone()),
            ("EOS_STATE_DIR", state.display().to_string()),
            (
                "EOS_START_DEADLINE_MS",
                start_deadline.as_millis().to_string(),
            ),
            ("RUST_BACKTRACE", "0".into()),
        ];
        let fleet = Fleet::new(&program, environment, &dir.path().join("logs"))?;
        Ok(World {
            hosts,
            name,
            broker,
            fleet,
            _dir: dir,
        })
    }

    /// Sets the addresses of the name. Writes the file in place, because the mount belongs to the file and not to its
    /// path.
    fn knows(&self, addresses: &[&str]) -> Result<()> {
        let lines = addresses.iter().map(|a| format!("{a} {}\n", self.name));
        Ok(fs::write(&self.hosts, lines.collect::<String>())?)
    }

    /// Sends a record, waits for its output, and stops the app.
    fn one_record(&mut self, bootstrap: &str) -> Result<()> {
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        let mut outputs = || -> Result<usize> {
            let mut count = 0;
            client.read_all(OUTPUTS[0], Isolation::ReadCommitted, |_, _| count += 1)?;
            Ok(count)
        };
        let before = outputs()?;
        let mut producer = Producer::new(bootstrap)?;
        let city = br#"{"seq":1,"name":"Vaduz","country":"LI","lat":47.1,"lon":9.5}"#;
        producer.send(INPUT, 0, Some(b"LI"), Some(city), &[], 1_790_000_000_000)?;
        producer.flush()?;
        wait_until(PATIENCE, "the record is through", || {
            self.fleet.check()?;
            Ok(outputs()? > before)
        })?;
        self.fleet.stop(0, Signal::Term)
    }
}

/// Returns the reason if this machine does not allow such a mount.
fn cannot_have_hosts_of_its_own() -> Result<Option<String>> {
    let probe = Path::new("/etc/hosts");
    let script = format!("mount --bind '{0}' '{0}'", probe.display());
    let tried = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script])
        .output();
    Ok(match tried {
        Err(error) => Some(format!("unshare: {error}")),
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
    })
}
