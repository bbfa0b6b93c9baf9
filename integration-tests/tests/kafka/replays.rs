//! Replays of dead letters with decisions, on a real Kafka: discarded letters, released keys, and records that are not
//! dead letters.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use eos_core::replays::Replay;
use eos_core::run::{Running, StopMode};
use eos_core::{App, ErrorPolicy, PlainTopic};
use integration_tests::wait::wait_until;
use kafka_wire::{Isolation, Producer};

use crate::common::{Case, KEEP, PATIENCE, With, ended, on_kafka};

/// The interval between two rounds of a replay.
const ROUND: Duration = Duration::from_millis(500);

#[test]
fn decisions_about_letters_are_carried_out_once() -> Result<()> {
    on_kafka(&[("discards and releases", |kafka| {
        Scene {
            case: Case::new(kafka, "decided")?,
        }
        .decides()
    })])
}

struct Scene {
    case: Case,
}

impl Scene {
    fn letters(&self) -> String {
        format!("{}-dead", self.case.app)
    }

    /// Copies values, except those that begin with `bad`.
    fn app(&self) -> App {
        let mut app = self.case.app();
        app.source(&PlainTopic::<String, String>::named(&self.case.input))
            .on_error(ErrorPolicy::dead_letter(&self.letters()).in_sequence("parked"))
            .try_map(|value: String| match value.starts_with("bad") {
                true => Err("it fails")?,
                false => Ok(value),
            })
            .to(&PlainTopic::named(&self.case.output));
        app
    }

    /// Starts the replay with decisions. It skips records that are not dead letters.
    fn replay(&self, decide: impl Fn(Replay) -> Replay) -> Result<Running> {
        let replay = App::replay(&self.letters()).to(&self.case.input);
        let mut app = decide(replay)
            .app()
            .with("state.dir", self.case.state.path().display())
            .with("start.deadline.ms", PATIENCE.as_millis());
        app.on_error(ErrorPolicy::skip());
        Ok(app.start_blocking(&self.case.bootstrap)?)
    }

    fn send(&self, topic: &str, records: &[(&str, &str)]) -> Result<()> {
        let mut producer = Producer::new(&self.case.bootstrap)?;
        for (key, value) in records {
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            producer.send(topic, 0, key, value, &[], 1_000)?;
        }
        producer.flush()
    }

    fn read(&mut self, topic: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let client = &mut self.case.client;
        client.read_all(topic, Isolation::ReadCommitted, |_, record| {
            found.push((text(record.key.as_deref()), text(record.value.as_deref())));
        })?;
        Ok(found)
    }

    /// Waits until the output has these values by key.
    fn await_output(&mut self, expected: &[(&str, &[&str])]) -> Result<()> {
        let mut last = BTreeMap::<String, Vec<String>>::new();
        let topic = self.case.output.clone();
        let waited = wait_until(PATIENCE, &format!("the output is {expected:?}"), || {
            last.clear();
            for (key, value) in self.read(&topic)? {
                last.entry(key).or_default().push(value);
            }
            let found = last.iter().map(|(key, values)| (&**key, values.clone()));
            let owned = |values: &[&str]| values.iter().map(|it| (*it).to_owned()).collect();
            Ok(found.eq(expected.iter().map(|(key, values)| (*key, owned(values)))))
        });
        waited.with_context(|| format!("the output is {last:?}"))
    }

    fn await_letters(&mut self, count: usize) -> Result<()> {
        let letters = self.letters();
        wait_until(PATIENCE, &format!("{count} letters are there"), || {
            Ok(self.read(&letters)?.len() >= count)
        })?;
        let found = self.read(&letters)?.len();
        ensure!(found == count, "{found} letters instead of {count}");
        Ok(())
    }

    fn decides(mut self) -> Result<()> {
        let letters = self.letters();
        self.case.client.create_topic(&letters, 1, 1, &KEEP)?;
        let (input, mut app) = (
            self.case.input.clone(),
            self.app().start_blocking(&self.case.bootstrap)?,
        );
        self.send(
            &input,
            &[
                ("discarded", "bad"),
                ("discarded", "1"),
                ("discarded", "2"),
                ("released", "bad"),
                ("released", "1"),
                ("good", "1"),
            ],
        )?;
        self.await_output(&[("good", &["1"])])?;
        self.await_letters(5)?;
        self.send(&letters, &[("discarded", "no letter")])?;
        // Without a decision, the letters fail again, in the same order.
        let mut replay = self.replay(|it| it)?;
        self.await_letters(1 + 10)?;
        replay.handle().stop(StopMode::Leave);
        ended(&mut replay)??;
        self.await_output(&[("good", &["1"])])?;
        let mut replay = self.replay(|it| {
            it.discard(&input, "discarded", 1)
                .release(&input, "released")
        })?;
        self.await_output(&[("discarded", &["1", "2"]), ("good", &["1"])])?;
        // Both keys are free again.
        self.send(&input, &[("discarded", "3"), ("released", "2")])?;
        let expected: [(&str, &[&str]); 3] = [
            ("discarded", &["1", "2", "3"]),
            ("good", &["1"]),
            ("released", &["2"]),
        ];
        self.await_output(&expected)?;
        replay.handle().stop(StopMode::Leave);
        ended(&mut replay)??;
        // After another start, no letter waits.
        let before = self.read(&input)?.len();
        let mut replay = self.replay(|it| it)?;
        self.send(&input, &[("released", "bad")])?;
        self.await_letters(1 + 10 + 1)?;
        // The replay reads the letter, and then has several rounds in which it could write one.
        let (group, client) = (format!("{letters}-replay"), &mut self.case.client);
        let last = client.end_offsets(&letters, Isolation::ReadCommitted)?[0];
        wait_until(PATIENCE, "the replay has committed the last letter", || {
            let committed = client.committed(&group, &letters)?;
            let at = committed.into_iter().next().flatten();
            // The last offset is that of a transaction marker.
            Ok(at.is_some_and(|(offset, _)| offset >= last - 1))
        })?;
        thread::sleep(6 * ROUND);
        let after = self.read(&input)?.len();
        ensure!(after == before + 1, "{} more records", after - before);
        replay.handle().stop(StopMode::Leave);
        ended(&mut replay)??;
        self.await_output(&expected)?;
        app.handle().stop(StopMode::Leave);
        ended(&mut app)??;
        ensure!(self.case.is_through()?, "the offsets are not at the end");
        self.case.nothing_is_open()
    }
}
