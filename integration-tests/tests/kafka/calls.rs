//! Asynchronous calls to an HTTP service: throughput without faults, and processes that are killed.
//!
//! `EOS_FULL=1` runs the full size, as `cargo xtask soak calls` does: 25 kills, a process that joins and leaves, one
//! that freezes, and at least 0.9 of the throughput that the service allows.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::counted::visible;
use integration_tests::fate::{Fate, Faults, TIME_OUT};
use integration_tests::faults::is_full;
use integration_tests::fleet::Fleet;
use integration_tests::kill::Random;
use integration_tests::partitioner::partition;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation, Producer};
use tempfile::TempDir;

use crate::common::{KEEP, PATIENCE};

const PARTITIONS: i32 = 2;
/// The number of processes that are killed. Each has one task.
const PROCESSES: usize = 2;
const KEYS: u64 = 2_000;
/// The calls at once of each task. A task is one partition.
const AT_ONCE: usize = 50;
/// The time of a response of the service, in milliseconds.
const LATENCY: std::ops::RangeInclusive<u64> = 5..=200;

/// Makes the tests of this module run one after another in `cargo xtask soak calls`, because one of them measures
/// throughput. In `cargo xtask test`, each test is a process, and the required throughput is lower.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request to the service.
#[derive(Debug, Clone)]
struct Request {
    id: String,
    /// Key and value of the record.
    record: String,
    began: Instant,
    ended: Instant,
}

/// A service that responds after a random time, and logs all requests.
#[derive(Debug, Clone, Default)]
struct Service(Arc<Mutex<Vec<Request>>>);

impl Service {
    /// Starts the service. Returns its address.
    fn start(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let service = self.clone();
        thread::spawn(move || {
            let mut random = Random::new(7);
            for stream in listener.incoming().flatten() {
                let (service, least) = (service.clone(), *LATENCY.start());
                let span = LATENCY.end() - least + 1;
                let takes = Duration::from_millis(least + random.roll() % span);
                // A killed process leaves half a request.
                thread::spawn(move || service.serve(stream, takes));
            }
        });
        Ok(address)
    }

    fn serve(&self, mut stream: TcpStream, takes: Duration) -> Result<()> {
        let began = Instant::now();
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut id, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some(("Idempotency-Key", value)) => id = value.to_owned(),
                Some(("Content-Length", value)) => length = value.parse()?,
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        thread::sleep(takes.saturating_sub(began.elapsed()));
        let record = String::from_utf8(body)?;
        let response = format!("{} {id}", record.split(' ').nth(1).unwrap_or_default());
        let request = Request {
            id,
            record,
            began,
            ended: Instant::now(),
        };
        self.lock().push(request);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{response}",
            response.len()
        )?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the requests in the order of their begin.
    fn requests(&self) -> Vec<Request> {
        let mut requests = self.lock().clone();
        requests.sort_by_key(|it| it.began);
        requests
    }
}

/// The topics, the processes and the service of a test, and the sent records.
struct Scene {
    app: String,
    client: Client,
    producer: Producer,
    fleet: Fleet,
    service: Service,
    random: Random,
    /// By partition: keys and values.
    sent: BTreeMap<i32, Vec<(String, String)>>,
    _dir: TempDir,
}

impl Scene {
    fn new(bootstrap: &str, name: &str, processes: usize) -> Result<Scene> {
        let app = format!("calls-{name}-{}", std::process::id());
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        for end in ["in", "out"] {
            client.create_topic(&format!("{app}-{end}"), PARTITIONS, 1, &KEEP)?;
        }
        let service = Service::default();
        let dir = TempDir::new()?;
        let features = ["--features", "failpoints"];
        let program = build("integration-tests", Program::Example("calls"), &features)?;
        let time_out = TIME_OUT.as_millis().to_string();
        let state = dir.path().join("state").display().to_string();
        let environment = [
            ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
            ("APP", app.clone()),
            ("SERVICE", service.start()?),
            ("AT_ONCE", AT_ONCE.to_string()),
            ("EOS_STATE_DIR", state),
            ("EOS_SESSION_TIMEOUT_MS", time_out.clone()),
            ("EOS_TRANSACTION_TIMEOUT_MS", time_out),
            ("RUST_LOG", "info".to_owned()),
            ("RUST_BACKTRACE", "0".to_owned()),
        ];
        let mut fleet = Fleet::new(&program, environment, &dir.path().join("logs"))?;
        for _ in 0..processes {
            fleet.start()?;
        }
        Ok(Scene {
            app,
            client,
            producer: Producer::new(bootstrap)?,
            fleet,
            service,
            random: Random::new(11),
            sent: BTreeMap::new(),
            _dir: dir,
        })
    }

    fn topic(&self, end: &str) -> String {
        format!("{}-{end}", self.app)
    }

    /// Sends this number of records with random keys.
    fn send(&mut self, records: u64) -> Result<()> {
        let topic = self.topic("in");
        for _ in 0..records {
            let key = format!("k{}", self.random.roll() % KEYS);
            let at = partition(key.as_bytes(), PARTITIONS);
            let sent = self.sent.entry(at).or_default();
            let value = format!("v{}", sent.len());
            let bytes = (Some(key.as_bytes()), Some(value.as_bytes()));
            self.producer.send(&topic, at, bytes.0, bytes.1, &[], 0)?;
            sent.push((key, value));
        }
        self.producer.flush()
    }

    fn count_sent(&self) -> u64 {
        self.sent.values().map(|sent| sent.len() as u64).sum()
    }

    fn await_output(&mut self, patience: Duration) -> Result<()> {
        let (topic, count) = (self.topic("out"), self.count_sent());
        wait_until(patience, &format!("{topic} has {count} records"), || {
            self.fleet.check()?;
            Ok(visible(&mut self.client, &topic)? >= count)
        })
    }

    /// Waits until the group is stable, with one partition for each process.
    fn await_group(&mut self) -> Result<()> {
        wait_until(PATIENCE, "each process has a partition", || {
            self.fleet.check()?;
            let group = self.client.group_members(&self.app)?;
            let members = &group.members;
            Ok(group.state == "Stable"
                && members.len() == PROCESSES
                && members.iter().all(|it| it.assigned == 1))
        })
    }

    fn members(&mut self) -> Result<BTreeSet<String>> {
        let group = self.client.group_members(&self.app)?;
        Ok(group.members.into_iter().map(|it| it.member_id).collect())
    }

    /// Sends records while there are no faults. Fails if a call is repeated.
    fn rest(&mut self, records: u64) -> Result<()> {
        // If the machine stalls for longer than a session, tasks move. Then only the second try counts.
        for is_last in [false, true] {
            self.await_group()?;
            let members = self.members()?;
            // The service logs a request at its end, also that of a killed process.
            thread::sleep(Duration::from_millis(2 * LATENCY.end()));
            let before = self.repeated();
            self.send(records)?;
            self.await_output(2 * PATIENCE)?;
            let repeated = self.repeated() - before;
            if repeated == 0 {
                break;
            }
            ensure!(
                !is_last && self.members()? != members,
                "{repeated} calls were repeated, but no process was killed, started or stopped"
            );
        }
        Ok(())
    }

    /// Compares the output with the sent records: each record once, in the order of offsets, with the id of its calls.
    fn judge(&mut self) -> Result<()> {
        self.fleet.stop_all(Signal::Term)?;
        let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in self.service.requests() {
            ids.entry(request.record).or_default().insert(request.id);
        }
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (mut found, output) = (BTreeMap::<i32, Vec<_>>::new(), self.topic("out"));
        self.client
            .read_all(&output, Isolation::ReadCommitted, |at, record| {
                let record = (text(record.key.as_deref()), text(record.value.as_deref()));
                found.entry(at).or_default().push(record);
            })?;
        outputs_are_in_order(&found)?;
        for (at, sent) in &self.sent {
            let expected = sent.iter().map(|(key, value)| {
                let ids = ids.get(&format!("{key} {value}"));
                let id = ids.and_then(|ids| ids.first()).cloned().unwrap_or_default();
                (key.clone(), format!("{value} {id}"))
            });
            let expected: Vec<_> = expected.collect();
            let found = found.remove(at).unwrap_or_default();
            let first = expected.iter().zip(&found).position(|(a, b)| a != b);
            ensure!(
                found == expected,
                "partition {at}: {} records instead of {}, first difference at {first:?}",
                found.len(),
                expected.len()
            );
        }
        ensure!(
            ids.values().all(|ids| ids.len() == 1),
            "a call has several ids"
        );
        let all: BTreeSet<_> = ids.values().flatten().collect();
        ensure!(all.len() == ids.len(), "two calls have one id");
        Ok(())
    }

    /// Returns the number of repeated calls.
    fn repeated(&self) -> usize {
        let requests = self.service.lock();
        let ids: BTreeSet<_> = requests.iter().map(|it| &it.id).collect();
        requests.len() - ids.len()
    }

    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("logs:\n{}", self.fleet.tails(12)))
    }
}

/// Checks that the outputs of each key are in the order of its records, by their offsets, and in the partition of the
/// key.
fn outputs_are_in_order(found: &BTreeMap<i32, Vec<(String, String)>>) -> Result<()> {
    let mut last: BTreeMap<&str, (i32, u64)> = BTreeMap::new();
    for (at, records) in found {
        for (key, value) in records {
            let number = value.split(' ').next().unwrap_or_default();
            let number = number.trim_start_matches('v').parse()?;
            if let Some((partition, before)) = last.insert(key, (*at, number)) {
                ensure!(
                    partition == *at && before < number,
                    "{key}: the output of {number} in partition {at} came after {before} in {partition}"
                );
            }
        }
    }
    Ok(())
}

/// Checks that no call of a key began before the previous record had its first response, even with kills. A repeated
/// call may run at the same time as the call of a killed process.
fn first_calls_of_keys_are_in_order(requests: &[Request]) -> Result<()> {
    let mut calls: BTreeMap<&str, BTreeMap<u64, (Instant, Instant)>> = BTreeMap::new();
    for request in requests {
        let (key, value) = request.record.split_once(' ').context("no value")?;
        let number = value.trim_start_matches('v').parse()?;
        let first = calls.entry(key).or_default().entry(number);
        let (began, ended) = first.or_insert((request.began, request.ended));
        (*began, *ended) = ((*began).min(request.began), (*ended).min(request.ended));
    }
    for (key, calls) in calls {
        let next = calls.iter().skip(1);
        for ((before, (_, ended)), (number, (began, _))) in calls.iter().zip(next) {
            ensure!(
                ended <= began,
                "{key}: {number} began before {before} had a response"
            );
        }
    }
    Ok(())
}

/// Checks that the calls of each key ran one after another, in the order of its records.
fn keys_are_in_order(requests: &[Request]) -> Result<()> {
    let mut last: BTreeMap<&str, (u64, Instant)> = BTreeMap::new();
    for request in requests {
        let (key, value) = request.record.split_once(' ').context("no value")?;
        let number = value.trim_start_matches('v').parse()?;
        if let Some((before, ended)) = last.insert(key, (number, request.ended)) {
            ensure!(before < number, "{key}: {number} came after {before}");
            ensure!(
                ended <= request.began,
                "{key}: {number} began before {before} had ended"
            );
        }
    }
    Ok(())
}

/// One process with two tasks. Each makes 50 calls at once.
#[test]
fn calls_use_what_the_service_allows_and_keep_the_order_of_keys() -> Result<()> {
    let _alone = alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (records, least) = match is_full() {
        true => (60_000, 0.9),
        // Other tests run at the same time.
        false => (5_000, 0.4),
    };
    let mut scene = Scene::new(kafka.bootstrap(), "rate", 1)?;
    scene.send(records)?;
    let waited = scene.await_output(4 * PATIENCE);
    scene.told(waited)?;
    let judged = scene.judge();
    scene.told(judged)?;
    let requests = scene.service.requests();
    keys_are_in_order(&requests)?;
    ensure!(
        scene.repeated() == 0,
        "{} calls were repeated",
        scene.repeated()
    );
    let took: Duration = requests.iter().map(|it| it.ended - it.began).sum();
    let possible = took / (AT_ONCE as u32 * PARTITIONS as u32);
    let (first, last) = (
        requests.first().context("none")?,
        requests.last().context("none")?,
    );
    let whole = last.ended - first.began;
    let share = possible.as_secs_f64() / whole.as_secs_f64();
    eprintln!(
        "{} calls in {whole:.1?}, {:.0} per second, {share:.2} of what the service allows",
        requests.len(),
        requests.len() as f64 / whole.as_secs_f64()
    );
    ensure!(share >= least, "{share:.2} of what the service allows");
    Ok(())
}

#[test]
fn killed_processes_repeat_calls_under_the_same_id_and_write_each_result_once() -> Result<()> {
    let _alone = alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    // The pause in milliseconds comes between two rounds. In a full run, the zombie is frozen for 9 seconds.
    let (faults, kills, rounds, pause, rest) = match is_full() {
        true => (Faults::KillsAndMoves, 25, 400, 150, 2_000),
        false => (Faults::Kills, 3, 60, 100, 500),
    };
    let mut scene = Scene::new(kafka.bootstrap(), "kills", PROCESSES)?;
    let mut fate = Fate::new(faults, kills, 5)?;
    let rested = scene.rest(rest);
    scene.told(rested)?;
    for round in 0..rounds {
        scene.send(40)?;
        let struck = fate.strike(&mut scene.fleet, 1_000 * (round + 1) / rounds);
        scene.told(struck)?;
        thread::sleep(Duration::from_millis(pause));
    }
    fate.thaw(&mut scene.fleet)?;
    let patience = PATIENCE * if is_full() { 5 } else { 2 };
    let waited = scene.await_output(patience);
    let rested = waited.and_then(|()| scene.rest(rest));
    let judged = scene.judge();
    scene.told(judged)?;
    scene.told(rested)?;
    fate.check(&scene.fleet, PROCESSES)?;
    first_calls_of_keys_are_in_order(&scene.service.requests())?;
    // A fault repeats the admitted calls of each task. The phases without faults show that there is no other cause.
    let faults = fate.count();
    let most = (faults as usize + 2) * PARTITIONS as usize * 4 * AT_ONCE;
    let repeated = scene.repeated();
    eprintln!(
        "{faults} faults, {repeated} of {} calls repeated",
        scene.count_sent()
    );
    ensure!(repeated > 0, "no call was repeated, so no kill hit one");
    ensure!(repeated <= most, "{repeated} calls were repeated");
    Ok(())
}
