//! Records that can't be processed, on a real Kafka and while processes are killed. Each record has either an output or
//! the effect of its policy: never both, never neither, and never twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation, Producer, Record};

use crate::common::{PATIENCE, on_kafka};
use anyhow::{Context, Result, bail, ensure};
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};
use integration_tests::wait::{is_through, nothing_is_open, wait_until};
use tempfile::TempDir;

const PARTITIONS: i32 = 3;
/// `max.message.bytes` of the output. It is too small for a `large` record, and for a batch of the others.
const LIMIT: &str = "4096";
/// The number of kills.
const KILLS: usize = 4;

#[test]
fn each_record_is_an_output_or_what_its_policy_says() -> Result<()> {
    on_kafka(&[
        ("skip", |kafka| undisturbed(kafka, "skip")),
        ("dead letter", |kafka| undisturbed(kafka, "dead-letter")),
        ("retry, then dead letter", |kafka| {
            undisturbed(kafka, "retry")
        }),
        ("dead letter, killed", |kafka| killed(kafka, "dead-letter")),
        ("retry, then dead letter, killed", |kafka| {
            killed(kafka, "retry")
        }),
    ])
}

/// Returns the fault that a record causes.
fn does(seq: u64) -> &'static str {
    // 20 has no common factor with the number of partitions, so each partition has every kind.
    match seq % 20 {
        3 => "fail",
        5 => "wide",
        7 => "panic",
        11 => "unwritable",
        13 => "large",
        17 => "garbled",
        19 => "flaky",
        _ => "pass",
    }
}

/// Returns the kind of error in the header of a dead letter, or `None` for a record that has an output.
fn error_of(seq: u64, policy: &str) -> Option<&'static str> {
    Some(match does(seq) {
        "fail" => "Failure",
        "flaky" if policy != "retry" => "Failure",
        "panic" => "Panic",
        "unwritable" => "EncodeError",
        "large" => "OversizeOutput",
        "garbled" => "ValueDecodeError",
        _ => return None,
    })
}

/// One app with its own topics.
struct Shop {
    bootstrap: String,
    app: String,
    policy: &'static str,
    client: Client,
    fleet: Fleet,
    _dir: TempDir,
}

impl Shop {
    fn open(bootstrap: &str, policy: &'static str) -> Result<Shop> {
        let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let app = format!("{policy}-{mark:x}");
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        client.create_topic(&format!("{app}-in"), PARTITIONS, 1, &[])?;
        let limit = [("max.message.bytes", LIMIT)];
        client.create_topic(&format!("{app}-out"), PARTITIONS, 1, &limit)?;
        if policy != "skip" {
            client.create_topic(&format!("{app}-dead"), PARTITIONS, 1, &[])?;
        }
        let dir = tempfile::tempdir()?;
        let environment = [
            ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
            ("EOS_STATE_DIR", dir.path().display().to_string()),
            ("APP", app.clone()),
            ("POLICY", policy.to_owned()),
            ("RUST_BACKTRACE", "0".to_owned()),
        ];
        let program = build("integration-tests", Program::Example("faulty"), &[])?;
        let fleet = Fleet::new(&program, environment, &dir.path().join("logs"))?;
        Ok(Shop {
            bootstrap: bootstrap.to_owned(),
            app,
            policy,
            client,
            fleet,
            _dir: dir,
        })
    }

    fn topic(&self, which: &str) -> String {
        format!("{}-{which}", self.app)
    }

    /// Waits until the group has committed the end of every partition.
    fn finish(&mut self) -> Result<()> {
        let input = self.topic("in");
        let reached = wait_until(PATIENCE, &format!("{input} is committed"), || {
            self.fleet.check()?;
            is_through(&mut self.client, &self.app, &input)
        });
        reached.with_context(|| self.fleet.tails(20))?;
        self.fleet.stop_all(Signal::Term)?;
        nothing_is_open(&mut self.client, &self.app, PATIENCE)
    }

    fn read(&mut self, which: &str) -> Result<Vec<(i32, Record)>> {
        let (topic, mut records) = (self.topic(which), Vec::new());
        self.client
            .read_all(&topic, Isolation::ReadCommitted, |partition, record| {
                records.push((partition, record.clone()));
            })?;
        Ok(records)
    }

    /// Compares the outputs and the dead letters with the expected ones.
    fn judge(&mut self, records: u64) -> Result<()> {
        let policy = self.policy;
        let input: HashMap<u64, (i32, Record)> = by_number(self.read("in")?)?;
        ensure!(input.len() as u64 == records, "{} are sent", input.len());
        let good = (0..records).filter(|seq| error_of(*seq, policy).is_none());
        let output = self.read("out")?;
        in_order(&output)?;
        same("outputs", by_number(output)?.into_keys(), good)?;
        if policy == "skip" {
            return Ok(());
        }
        let dead = by_number(self.read("dead")?)?;
        let bad = (0..records).filter(|seq| error_of(*seq, policy).is_some());
        same("dead letters", dead.keys().copied(), bad)?;
        for (seq, (_, letter)) in &dead {
            let (partition, sent) = &input[seq];
            let kind = error_of(*seq, policy).unwrap_or_default();
            is_letter(letter, sent, (&self.topic("in"), *partition), kind)
                .with_context(|| format!("record {seq}: {letter:?}"))?;
        }
        Ok(())
    }
}

/// Returns the records by the number in their key. Two records with the same number are an error.
fn by_number(records: Vec<(i32, Record)>) -> Result<HashMap<u64, (i32, Record)>> {
    let mut numbered = HashMap::new();
    for (partition, record) in records {
        let seq = number(&record)?;
        let place = format!("{partition}, offset {}", record.offset);
        if let Some((first, other)) = numbered.insert(seq, (partition, record)) {
            bail!(
                "{seq} is at {first}, offset {} and at {place}",
                other.offset
            );
        }
    }
    Ok(numbered)
}

fn number(record: &Record) -> Result<u64> {
    let key = record.key.as_deref().context("no key")?;
    Ok(std::str::from_utf8(key)?.parse()?)
}

fn same(
    what: &str,
    found: impl IntoIterator<Item = u64>,
    wanted: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let (found, wanted): (BTreeSet<_>, BTreeSet<_>) =
        (found.into_iter().collect(), wanted.into_iter().collect());
    let (missing, foreign): (Vec<_>, Vec<_>) = (
        wanted.difference(&found).collect(),
        found.difference(&wanted).collect(),
    );
    ensure!(
        missing.is_empty() && foreign.is_empty() && !wanted.is_empty(),
        "{what}: {missing:?} are missing, {foreign:?} should not be there"
    );
    Ok(())
}

/// Checks that the records of each input partition are in their order in each output partition.
fn in_order(output: &[(i32, Record)]) -> Result<()> {
    let mut last = BTreeMap::new();
    for (partition, record) in output {
        let seq = number(record)?;
        let way = (*partition, seq % PARTITIONS.unsigned_abs() as u64);
        if let Some(before) = last.insert(way, seq)
            && before > seq
        {
            bail!("{seq} comes after {before} in partition {partition}");
        }
    }
    Ok(())
}

/// Checks that a dead letter is the original record, with KIP-1034's headers after its own headers.
fn is_letter(letter: &Record, sent: &Record, from: (&str, i32), kind: &str) -> Result<()> {
    ensure!(
        letter.key == sent.key && letter.value == sent.value,
        "bytes"
    );
    ensure!(letter.timestamp == sent.timestamp, "timestamp");
    ensure!(letter.transactional, "outside of a transaction");
    let headers = letter.headers.iter().map(|(name, value)| {
        let value = value.as_deref().unwrap_or_default();
        (name.as_str(), String::from_utf8_lossy(value).into_owned())
    });
    let headers: Vec<_> = headers.collect();
    let names = headers.iter().map(|(name, _)| *name);
    let wanted = [
        "trace",
        "__streams.errors.exception",
        "__streams.errors.message",
        "__streams.errors.stacktrace",
        "__streams.errors.topic",
        "__streams.errors.partition",
        "__streams.errors.offset",
        "__eos.errors.app",
        "__eos.errors.attempts",
        "__eos.errors.time",
    ];
    ensure!(names.eq(wanted), "{headers:?}");
    let value = |nth: usize| headers[nth].1.as_str();
    ensure!(value(0) == "t", "{headers:?}");
    ensure!(value(1) == kind, "{kind}: {headers:?}");
    let words = match kind {
        "Panic" => "at the disco",
        "EncodeError" => "words fail",
        "OversizeOutput" => "its max.message.bytes is 4096",
        "ValueDecodeError" => "not JSON of this type",
        _ => "",
    };
    ensure!(
        !value(2).is_empty() && value(2).contains(words),
        "{headers:?}"
    );
    ensure!(value(4) == from.0, "{headers:?}");
    ensure!(value(5) == from.1.to_string(), "{headers:?}");
    ensure!(value(6) == sent.offset.to_string(), "{headers:?}");
    Ok(())
}

/// Sends records with these numbers. The value of each names its fault.
fn send(producer: &mut Producer, topic: &str, numbers: std::ops::Range<u64>) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    for seq in numbers {
        let value = match does(seq) {
            "garbled" => format!("{{\"seq\":{seq},"),
            does => format!("{{\"seq\":{seq},\"does\":\"{does}\"}}"),
        };
        let (key, partition) = (
            seq.to_string(),
            (seq % PARTITIONS.unsigned_abs() as u64) as i32,
        );
        let headers: [(&str, &[u8]); 1] = [("trace", b"t")];
        let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
        producer.send(topic, partition, key, value, &headers, now + seq as i64)?;
    }
    producer.flush()
}

/// The whole input is sent before the app starts, so that batches are as large as possible.
fn undisturbed(bootstrap: &str, policy: &'static str) -> Result<()> {
    let records = if policy == "retry" { 400 } else { 6_000 };
    let mut shop = Shop::open(bootstrap, policy)?;
    send(
        &mut Producer::new(bootstrap)?,
        &shop.topic("in"),
        0..records,
    )?;
    shop.fleet.start()?;
    shop.finish()?;
    shop.judge(records)
}

/// Runs two processes. One of them is killed once there was a commit since the last kill.
fn killed(bootstrap: &str, policy: &'static str) -> Result<()> {
    const SLICE: u64 = 20;
    let mut shop = Shop::open(bootstrap, policy)?;
    let (input, dead) = (shop.topic("in"), shop.topic("dead"));
    shop.fleet.start()?;
    shop.fleet.start()?;
    let enough = AtomicBool::new(false);
    let mut producer = Producer::new(&shop.bootstrap)?;
    let records = thread::scope(|scope| -> Result<u64> {
        let sending = scope.spawn(|| -> Result<u64> {
            let mut next = 0;
            while !enough.load(Ordering::Relaxed) {
                send(&mut producer, &input, next..next + SLICE)?;
                next += SLICE;
                thread::sleep(Duration::from_millis(40));
            }
            Ok(next)
        });
        let kills = kill(&mut shop, &dead);
        enough.store(true, Ordering::Relaxed);
        let records = sending.join().ok().context("the sender panicked")??;
        kills.map(|()| records)
    })?;
    shop.finish()?;
    eprintln!("{records} records, {KILLS} kills");
    shop.judge(records)
}

fn kill(shop: &mut Shop, dead: &str) -> Result<()> {
    let mut before = 0;
    for nth in 0..KILLS {
        let mut now = 0;
        let what = format!("dead letters are committed before kill {}", nth + 1);
        wait_until(PATIENCE, &what, || {
            shop.fleet.check()?;
            let ends = shop.client.end_offsets(dead, Isolation::ReadCommitted)?;
            now = ends.iter().sum();
            Ok(now > before)
        })?;
        // The pause varies, so that the kills hit different steps.
        thread::sleep(Duration::from_millis(500 + 137 * (nth as u64 + 1) % 500));
        before = now;
        shop.fleet.kill_and_restart(nth % 2)?;
    }
    Ok(())
}
