//! The two inputs of a join, and its output.

use anyhow::{Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::wait::{is_through, nothing_is_open, wait_until};
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation, Record};

use super::scene::Scene;
use crate::common::PATIENCE;

/// The topics of the two sides.
pub(super) const INPUTS: [&str; 2] = ["in", "right"];

/// A record of one side.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// Its topic.
    pub(super) end: &'static str,
    pub(super) line: Line,
}

/// A committed record. Lines of a topic are in the order of partitions and offsets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) partition: i32,
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) time: i64,
}

impl Line {
    fn of(partition: i32, record: &Record) -> Line {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Line {
            partition,
            key: text(record.key.as_deref().unwrap_or_default()),
            value: record.value.as_deref().map(text),
            time: record.timestamp,
        }
    }
}

impl Scene {
    /// Buffers a record of one side.
    pub(super) fn deliver(&mut self, sent: &Sent) -> Result<()> {
        let Line {
            partition,
            key,
            value,
            time,
        } = &sent.line;
        self.send_to(sent.end, (*partition, key, value.as_deref(), *time))
    }

    /// Waits until both inputs are taken and committed.
    pub(super) fn await_taken(&mut self) -> Result<()> {
        let (app, inputs) = (self.app.clone(), INPUTS.map(|end| self.topic(end)));
        // In a full run, partitions rarely have an owner before the last kill.
        let patience = PATIENCE * if is_full() { 5 } else { 1 };
        wait_until(patience, "all records are taken", || {
            self.fleet.check()?;
            let client = &mut self.client;
            let mut taken = inputs.iter().map(|input| is_through(client, &app, input));
            taken.try_fold(true, |all, one| Ok(all && one?))
        })
    }

    /// Stops the processes, and waits until their transactions have ended.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.fleet.stop_all(Signal::Term)?;
        nothing_is_open(&mut self.client, &self.app, PATIENCE)
    }

    /// Reads the committed records of a topic.
    pub(super) fn lines(&mut self, end: &str) -> Result<Vec<Line>> {
        let topic = self.topic(end);
        read(&mut self.client, &topic, Isolation::ReadCommitted)
    }

    /// Fails if no kill of a full run interrupted a transaction that had written to one of these topics. Returns the
    /// number of records in aborted transactions.
    pub(super) fn must_have_aborted(&mut self, ends: &[&str]) -> Result<usize> {
        let mut aborted = 0;
        for end in ends {
            let topic = self.topic(end);
            let all = read(&mut self.client, &topic, Isolation::ReadUncommitted)?;
            aborted += all.len() - self.lines(end)?.len();
        }
        // Most kills of a small run come while the partitions of the previous victim have no owner.
        ensure!(
            aborted > 0 || !is_full(),
            "no kill interrupted a transaction"
        );
        Ok(aborted)
    }
}

fn read(client: &mut Client, topic: &str, isolation: Isolation) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    client.read_all(topic, isolation, |at, record| {
        lines.push(Line::of(at, record));
    })?;
    Ok(lines)
}
