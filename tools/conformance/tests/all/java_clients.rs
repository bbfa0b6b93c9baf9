//! Kafka's Java clients on both brokers: a transactional copy loop that is killed in the middle.
//!
//! The test reads the output with librdkafka: every record once, none of an aborted transaction.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use conformance::World;
use eos_broker::EmbeddedKafka;
use kafka_launcher::{ClusterOptions, java_program, own_for_tests};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message};

const RECORDS: usize = 20_000;
/// The maximum number of records that the first process copies. It waits there if the kill is late.
const BEFORE_THE_KILL: usize = RECORDS * 2 / 3;
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(what: &str, bootstrap: &str, records: usize) -> Result<Command> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/CopyLoop.java");
    let mut command = java_program(&source)?;
    let records = records.to_string();
    command.args([what, bootstrap, "java-in", "java-out", &records]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn ends_well(command: &mut Command) -> Result<()> {
    let mut child = Killed(command.stderr(Stdio::inherit()).spawn()?);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.0.try_wait()? {
            ensure!(status.success(), "{status}");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of records in the output, with markers.
fn written(world: &World) -> Result<i64> {
    let mut all = 0;
    for partition in 0..3 {
        all += world.fetch("java-out", partition, 0, 0, 1)?.high;
    }
    Ok(all)
}

fn copy_with_a_kill(bootstrap: &str) -> Result<()> {
    ends_well(&mut program("feed", bootstrap, RECORDS)?)?;
    let world = World::new(bootstrap, "java")?;
    let mut first = program("copy", bootstrap, BEFORE_THE_KILL)?;
    let mut first = Killed(first.stderr(Stdio::null()).spawn()?);
    let deadline = Instant::now() + PATIENCE;
    while written(&world)? < RECORDS as i64 / 3 {
        ensure!(Instant::now() < deadline, "it copies too slowly");
        std::thread::sleep(Duration::from_millis(2));
    }
    ensure!(
        first.0.try_wait()?.is_none(),
        "it ended before it was killed"
    );
    first.0.kill()?;
    first.0.wait()?;
    let at_kill = written(&world)?;
    ensure!(at_kill < RECORDS as i64, "killed in the middle: {at_kill}");
    ends_well(&mut program("copy", bootstrap, RECORDS)?)?;
    let copied = copied(bootstrap)?;
    let twice = copied.values().filter(|count| **count > 1).count();
    println!(
        "{bootstrap}: killed at {at_kill}; {} copied, {twice} twice",
        copied.len()
    );
    ensure!(copied.len() == RECORDS && twice == 0, "lost or doubled");
    ensure!(
        !copied.contains_key("aborted"),
        "a record of an aborted transaction"
    );
    Ok(())
}

/// Reads the committed output. Returns the number of records with each value.
fn copied(bootstrap: &str) -> Result<BTreeMap<String, usize>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "java-readers")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .create()?;
    consumer.subscribe(&["java-out"])?;
    let mut copied = BTreeMap::new();
    let mut at_end = 0;
    let deadline = Instant::now() + PATIENCE;
    while at_end < 3 {
        ensure!(Instant::now() < deadline, "it does not end");
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => at_end += 1,
            Some(message) => {
                let message = message?;
                let value = message.payload().context("no value")?;
                let value = String::from_utf8_lossy(value).into_owned();
                *copied.entry(value).or_insert(0) += 1;
            }
        }
    }
    Ok(copied)
}

#[test]
fn a_java_copy_loop_survives_a_kill_on_both_brokers() -> Result<()> {
    let Some(kafka) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    copy_with_a_kill(kafka.bootstrap()).context("on Apache Kafka")?;
    drop(kafka);
    let embedded = EmbeddedKafka::start()?;
    copy_with_a_kill(&embedded.bootstrap()).context("on the embedded broker")
}
