//! Tasks that a failed record pauses, on a real Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_core::run::{PauseId, PausedAt, Resume, Running, StopMode};
use eos_core::{App, ErrorPolicy, PlainTopic};
use integration_tests::wait::wait_until;
use kafka_wire::{Isolation, Producer};

use crate::common::{Case, KEEP, PATIENCE, With, ended, on_kafka};

const PARTITIONS: i32 = 3;
/// The shortest poll interval that the app accepts with the timeouts of this test.
const POLL_INTERVAL: Duration = Duration::from_secs(8);

#[test]
fn a_paused_task_waits_and_no_other_task_does() -> Result<()> {
    on_kafka(&[
        ("longer than the poll interval", |kafka| {
            let case = Case::with_partitions(kafka, "paused", PARTITIONS)?;
            Scene::new(case).waits_for_a_decision()
        }),
        ("all partitions", |kafka| {
            let case = Case::with_partitions(kafka, "all-paused", PARTITIONS)?;
            Scene::new(case).all_partitions_pause()
        }),
    ])
}

/// Returns the ids of the pauses. Each pause has a new id.
fn ids_of(running: &Running) -> Vec<PauseId> {
    let paused = running.handle().paused();
    paused.into_iter().map(|it| it.id).collect()
}

/// An app that copies values. Values that begin with `bad` fail while `is_broken` is set.
struct Scene {
    case: Case,
    is_broken: Arc<AtomicBool>,
    sent: BTreeMap<i32, Vec<String>>,
}

impl Scene {
    fn new(case: Case) -> Scene {
        Scene {
            case,
            is_broken: Arc::new(AtomicBool::new(true)),
            sent: BTreeMap::new(),
        }
    }

    fn letters(&self) -> String {
        format!("{}-dead", self.case.app)
    }

    fn app(&self) -> App {
        let is_broken = Arc::clone(&self.is_broken);
        let mut app = self
            .case
            .app()
            .with("session.timeout.ms", POLL_INTERVAL.as_millis())
            .with("transaction.timeout.ms", 6_000)
            .with("max.poll.interval.ms", POLL_INTERVAL.as_millis());
        app.source(&PlainTopic::<String, String>::named(&self.case.input))
            .on_error(ErrorPolicy::pause().dead_letters_to(&self.letters()))
            .try_map(move |value: String| {
                let fails = value.starts_with("bad") && is_broken.load(Ordering::Relaxed);
                if fails {
                    Err("it fails")?
                }
                Ok(value)
            })
            .to(&PlainTopic::named(&self.case.output));
        app
    }

    fn start(&mut self) -> Result<Running> {
        Ok(self.app().start_blocking(&self.case.bootstrap)?)
    }

    fn send(&mut self, at: i32, values: &[&str]) -> Result<()> {
        let mut producer = Producer::new(&self.case.bootstrap)?;
        for value in values {
            let (key, bytes) = (at.to_string(), Some(value.as_bytes()));
            producer.send(
                &self.case.input,
                at,
                Some(key.as_bytes()),
                bytes,
                &[],
                1_000,
            )?;
            self.sent.entry(at).or_default().push((*value).to_owned());
        }
        producer.flush()
    }

    /// Returns the committed output of each key. The key is the number of the partition.
    fn found(&mut self) -> Result<BTreeMap<i32, Vec<String>>> {
        let mut found = BTreeMap::<i32, Vec<String>>::new();
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (mut keys, output) = (Vec::new(), self.case.output.clone());
        let client = &mut self.case.client;
        client.read_all(&output, Isolation::ReadCommitted, |_, record| {
            keys.push((text(record.key.as_deref()), text(record.value.as_deref())));
        })?;
        for (key, value) in keys {
            found.entry(key.parse()?).or_default().push(value);
        }
        Ok(found)
    }

    fn await_output(&mut self, at: i32, values: &[&str]) -> Result<()> {
        let mut last = Vec::new();
        let waited = wait_until(PATIENCE, &format!("{values:?} of {at} are there"), || {
            last = self.found()?.remove(&at).unwrap_or_default();
            Ok(last == values)
        });
        waited.with_context(|| format!("partition {at} has {last:?}"))
    }

    /// Waits until these partitions are paused, each at this offset.
    fn await_pauses(&self, running: &Running, expected: &[(i32, i64)]) -> Result<()> {
        wait_until(PATIENCE, &format!("{expected:?} are paused"), || {
            let mut paused = Vec::new();
            for it in running.handle().paused() {
                if let PausedAt::Record { partition, offset } = it.at {
                    paused.push((partition.partition.get(), offset.get()));
                }
            }
            paused.sort_unstable();
            Ok(paused == expected)
        })
    }

    fn resume(&self, running: &Running, at: i32, how: Resume) -> Result<()> {
        let handle = running.handle();
        let paused = handle.paused().into_iter().find(|it| {
            matches!(&it.at, PausedAt::Record { partition, .. } if partition.partition.get() == at)
        });
        let paused = paused.with_context(|| format!("{at} is not paused"))?;
        ensure!(paused.error.contains("it fails"), "{}", paused.error);
        Ok(handle.resume(paused.id, how)?)
    }

    fn offset(&mut self, at: i32) -> Result<Option<i64>> {
        let all = self
            .case
            .client
            .committed(&self.case.app, &self.case.input)?;
        let of = all.into_iter().nth(usize::try_from(at)?).flatten();
        Ok(of.map(|(offset, _)| offset))
    }

    fn waits_for_a_decision(mut self) -> Result<()> {
        let letters = self.letters();
        self.case
            .client
            .create_topic(&letters, PARTITIONS, 1, &KEEP)?;
        self.send(0, &["a", "bad 1", "b", "bad 2", "c", "bad 3", "d"])?;
        let mut running = self.start()?;
        self.await_pauses(&running, &[(0, 1)])?;
        let pauses = ids_of(&running);
        // The other partitions continue, even after the pause has lasted longer than the poll interval.
        let (since, mut n, mut is_long) = (Instant::now(), 0, false);
        while !is_long {
            is_long = since.elapsed() > POLL_INTERVAL + Duration::from_secs(3);
            for at in [1, 2] {
                self.send(at, &[&n.to_string()])?;
            }
            n += 1;
            for at in [1, 2] {
                let all = self.sent.get(&at).cloned().unwrap_or_default();
                let all: Vec<_> = all.iter().map(String::as_str).collect();
                self.await_output(at, &all)?;
            }
        }
        // If the member had left the group and joined it again, the task would have another pause.
        ensure!(ids_of(&running) == pauses, "the task has another pause");
        self.await_output(0, &["a"])?;
        ensure!(
            self.offset(0)? == Some(1),
            "committed: {:?}",
            self.offset(0)?
        );
        let members = self.case.client.group_members(&self.case.app)?.members;
        ensure!(members.len() == 1, "{members:?}");
        // A restart pauses at the same record.
        running.handle().stop(StopMode::Restart);
        ended(&mut running)??;
        running = self.start()?;
        self.await_pauses(&running, &[(0, 1)])?;
        self.resume(&running, 0, Resume::Skip)?;
        self.await_pauses(&running, &[(0, 3)])?;
        self.await_output(0, &["a", "b"])?;
        self.resume(&running, 0, Resume::DeadLetter)?;
        self.await_pauses(&running, &[(0, 5)])?;
        // The cause is fixed.
        self.is_broken.store(false, Ordering::Relaxed);
        self.resume(&running, 0, Resume::Retry)?;
        self.await_output(0, &["a", "b", "c", "bad 3", "d"])?;
        running.handle().stop(StopMode::Leave);
        ended(&mut running)??;
        let mut dead = Vec::new();
        let client = &mut self.case.client;
        client.read_all(&letters, Isolation::ReadCommitted, |_, record| {
            dead.push(record.value.clone());
        })?;
        ensure!(dead == [Some(b"bad 2"[..].into())], "{dead:?}");
        ensure!(self.case.is_through()?, "the offsets are not at the end");
        self.case.nothing_is_open()
    }

    fn all_partitions_pause(mut self) -> Result<()> {
        let letters = self.letters();
        self.case
            .client
            .create_topic(&letters, PARTITIONS, 1, &KEEP)?;
        for at in 0..PARTITIONS {
            self.send(at, &["a", "bad", "b"])?;
        }
        let mut running = self.start()?;
        let all: Vec<_> = (0..PARTITIONS).map(|at| (at, 1)).collect();
        self.await_pauses(&running, &all)?;
        let pauses = ids_of(&running);
        std::thread::sleep(POLL_INTERVAL + Duration::from_secs(2));
        ensure!(ids_of(&running) == pauses, "the tasks have other pauses");
        for at in 0..PARTITIONS {
            self.resume(&running, at, Resume::Skip)?;
        }
        for at in 0..PARTITIONS {
            self.await_output(at, &["a", "b"])?;
        }
        running.handle().stop(StopMode::Leave);
        ended(&mut running)??;
        ensure!(self.case.is_through()?, "the offsets are not at the end");
        self.case.nothing_is_open()
    }
}
