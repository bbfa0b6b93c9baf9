//! A check of counts by window and session.
//!
//! A plain loop over the input computes all of them.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use eos_protocol::partition_for;
use kafka_wire::{Client, Isolation, Record};

use crate::records::{event_ms, key_number, number_of_key};
use crate::work::{ADVANCE, GAP, GRACE, WINDOW, Work};

/// The number of a key, and the start and the end of a window or session in milliseconds since the base of event times.
type Place = (u64, i64, i64);

/// The input of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Events {
    pub(crate) work: Work,
    pub(crate) partitions: i32,
    /// The number of different keys.
    pub(crate) keys: u64,
    /// The base of event times, in milliseconds since the epoch.
    pub(crate) begin: i64,
}

/// Checks counts as they are read, and keeps the first violation.
#[derive(Debug)]
pub(crate) struct WindowedCheck {
    events: Events,
    counts: HashMap<Place, u64>,
    /// The end of the last final window of each partition, in milliseconds since the base of event times.
    ends: Vec<i64>,
    outputs: u64,
    wrong: Option<String>,
}

fn ms(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn partition(key: &[u8], partitions: i32) -> i32 {
    partition_for(key, partitions.unsigned_abs()).get()
}

impl WindowedCheck {
    pub(crate) fn new(events: Events) -> Self {
        Self {
            events,
            counts: HashMap::new(),
            ends: vec![i64::MIN; events.partitions.unsigned_abs() as usize],
            outputs: 0,
            wrong: None,
        }
    }

    /// Checks one more output record.
    pub(crate) fn take(&mut self, partition: i32, key: &[u8], value: Option<&[u8]>) {
        self.outputs += 1;
        if let Err(why) = self.judge(partition, key, value) {
            self.wrong.get_or_insert_with(|| {
                let key = String::from_utf8_lossy(key);
                format!("partition {partition}, key {key}: {why:#}")
            });
        }
    }

    fn judge(&mut self, at: i32, bytes: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (key, place) = self.place(bytes)?;
        let expected = partition(key, self.events.partitions);
        ensure!(expected == at, "it belongs to partition {expected}");
        let Some(value) = value else {
            ensure!(
                self.events.work == Work::Sessions,
                "only sessions have tombstones"
            );
            let known = self.counts.remove(&place);
            known.with_context(|| format!("a tombstone for {place:?}, which has no count"))?;
            return Ok(());
        };
        let count = u64::from_be_bytes(value.try_into().context("no count")?);
        let before = self.counts.insert(place, count);
        match (self.events.work, before) {
            (Work::Sessions, _) => {}
            (Work::OnClose, Some(before)) => bail!("{place:?} was final with {before}"),
            (Work::OnClose, None) => {
                let end = &mut self.ends[usize::try_from(at)?];
                ensure!(
                    *end <= place.2,
                    "{place:?} follows a window that ends at {end}"
                );
                *end = place.2;
            }
            (_, before) => {
                let before = before.unwrap_or(0);
                ensure!(count == before + 1, "{place:?}: {count} follows {before}");
            }
        }
        Ok(())
    }

    /// Decodes a key in the formats of Kafka Streams: key and start of a window, or key, end and start of a session.
    fn place<'a>(&self, bytes: &'a [u8]) -> Result<(&'a [u8], Place)> {
        let begin = self.events.begin;
        let (rest, last) = bytes.split_last_chunk().context("no window")?;
        let start = i64::from_be_bytes(*last) - begin;
        let (key, end) = match self.events.work {
            Work::Sessions => {
                let (key, end) = rest.split_last_chunk().context("no session")?;
                (key, i64::from_be_bytes(*end) - begin)
            }
            _ => (rest, start + ms(WINDOW)),
        };
        let number = number_of_key(key, self.events.keys).context("this key was never sent")?;
        Ok((key, (number, start, end)))
    }

    /// Checks that the counts are those of the first `records`. Returns the number of outputs.
    pub(crate) fn complete(&self, records: u64) -> Result<u64> {
        if let Some(wrong) = &self.wrong {
            bail!("the output is wrong: {wrong}");
        }
        let expected = match self.events.work {
            Work::Sessions => self.sessions(records),
            _ => self.windows(records),
        };
        for (place, count) in &expected {
            let found = self.counts.get(place);
            ensure!(
                found == Some(count),
                "{place:?} has the count {found:?}, expected {count}"
            );
        }
        let more = self
            .counts
            .keys()
            .find(|place| !expected.contains_key(place));
        if let Some(place) = more {
            bail!("unexpected result for {place:?}");
        }
        Ok(self.outputs)
    }

    fn windows(&self, records: u64) -> HashMap<Place, u64> {
        let Events { begin, .. } = self.events;
        let (size, advance) = match self.events.work {
            Work::Hopping => (ms(WINDOW), ms(ADVANCE)),
            _ => (ms(WINDOW), ms(WINDOW)),
        };
        let mut counts = HashMap::new();
        let mut latest = vec![i64::MIN; self.ends.len()];
        for seq in 0..records {
            let (number, time) = (key_number(seq, self.events.keys), event_ms(seq));
            let at = self.partition_of(number);
            latest[at] = latest[at].max(time);
            // Windows are aligned to the epoch, not to the first record.
            let mut start = time - (begin + time).rem_euclid(advance);
            while start > time - size {
                *counts.entry((number, start, start + size)).or_default() += 1;
                start -= advance;
            }
        }
        if self.events.work == Work::OnClose {
            // Kafka Streams looks for closed windows once per second, when a record comes. It may not have looked
            // after the last window closed.
            counts.retain(|(number, _, end), _| {
                let at = self.partition_of(*number);
                let closed = end + ms(GRACE) <= latest[at];
                closed && (*end <= self.ends[at] || *end + size + ms(GRACE) <= latest[at])
            });
        }
        counts
    }

    fn sessions(&self, records: u64) -> HashMap<Place, u64> {
        let mut times: Vec<(u64, i64)> = (0..records)
            .map(|seq| (key_number(seq, self.events.keys), event_ms(seq)))
            .collect();
        times.sort_unstable();
        let mut counts = HashMap::new();
        let mut open: Option<(Place, u64)> = None;
        for (number, time) in times {
            open = Some(match open.take() {
                Some(((of, start, end), count)) if of == number && time - end <= ms(GAP) => {
                    ((of, start, time), count + 1)
                }
                before => {
                    counts.extend(before);
                    ((number, time, time), 1)
                }
            });
        }
        counts.extend(open);
        counts
    }

    fn partition_of(&self, number: u64) -> usize {
        let key = crate::records::key_of(number);
        let at = partition(&key, self.events.partitions);
        usize::try_from(at).unwrap_or(0)
    }
}

/// Reads all counts as a reader of committed records.
pub(crate) fn read(
    client: &mut Client,
    topic: &str,
    mut check: WindowedCheck,
) -> Result<WindowedCheck> {
    let each = |partition: i32, record: &Record| {
        let key = record.key.as_deref().unwrap_or_default();
        check.take(partition, key, record.value.as_deref());
    };
    client.read_all(topic, Isolation::ReadCommitted, each)?;
    Ok(check)
}
