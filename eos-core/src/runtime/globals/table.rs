//! One global table: its partitions, and its copy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::global::{
    GlobalAge, GlobalLog, GlobalMark, GlobalSituation, GlobalStalled, GlobalStart, MissedTombstones,
};
use eos_protocol::state::TopicUuid;
use eos_protocol::{Now, Offset, Partition, Timestamp, TopicName, TopicPartition};
use eos_state::global::{GlobalBatch, GlobalRows, GlobalWriter};

use super::error::GlobalError;
use crate::client::{Message, OffsetBounds};
use crate::global::{CheckRows, Checked, encode_row};
use crate::metrics::GlobalMeter;
use crate::panics::panic_text;
use crate::rules;
use crate::worker::{Home, HomeError};

/// The default of Kafka's `delete.retention.ms`.
const DELETE_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// The size of a batch, in bytes.
const BATCH: usize = 1 << 20;

/// The facts of a global table's topic, as of the preflight.
#[derive(Debug, Clone)]
pub(crate) struct GlobalTopicFacts {
    pub(crate) partitions: u32,
    pub(crate) id: Option<TopicUuid>,
    /// `delete.retention.ms`, if it is known.
    pub(crate) delete_retention: Option<Duration>,
}

/// A global table of a reader.
pub(super) struct Table {
    pub(super) name: Arc<str>,
    pub(super) topic: TopicName,
    pub(super) meter: Arc<GlobalMeter>,
    rows: Arc<dyn CheckRows>,
    skips: bool,
    facts: GlobalTopicFacts,
    /// The partitions, by number.
    pub(super) parts: Vec<Part>,
    /// The copy. `None` before it is opened.
    copy: Option<GlobalWriter>,
    /// Changes that are not written yet.
    pending: GlobalBatch,
    pending_bytes: usize,
    /// Whether the copy has older offsets than `parts`, or an older age.
    is_behind: bool,
    age: GlobalAge,
    cluster: String,
    key: Vec<u8>,
}

/// One partition.
pub(super) struct Part {
    pub(super) partition: TopicPartition,
    pub(super) next: Offset,
    /// The offset to reach next: the end of the partition as of a query.
    target: Offset,
    /// The time of the last progress, on the clock of the brokers.
    moved: Now,
}

impl Part {
    pub(super) fn has_arrived(&self) -> bool {
        self.next >= self.target
    }
}

impl Table {
    pub(super) fn new(
        (name, topic): (Arc<str>, TopicName),
        (rows, skips): (Arc<dyn CheckRows>, bool),
        (facts, cluster): (GlobalTopicFacts, String),
        meter: Arc<GlobalMeter>,
    ) -> Self {
        let numbers = 0..i32::try_from(facts.partitions).unwrap_or(i32::MAX);
        let numbers = numbers.filter_map(|number| Partition::new(number).ok());
        let parts = numbers.map(|number| Part {
            partition: TopicPartition::new(topic.clone(), number),
            next: Offset::ZERO,
            target: Offset::ZERO,
            moved: Now::default(),
        });
        Self {
            parts: parts.collect(),
            name,
            topic,
            meter,
            rows,
            skips,
            facts,
            copy: None,
            pending: GlobalBatch::new(),
            pending_bytes: 0,
            is_behind: false,
            age: GlobalAge::default(),
            cluster,
            key: Vec::new(),
        }
    }

    pub(super) fn facts(&self) -> &GlobalTopicFacts {
        &self.facts
    }

    fn failed(&self, source: impl Into<HomeError>) -> GlobalError {
        GlobalError::Copy {
            table: self.name.to_string(),
            source: Box::new(source.into()),
        }
    }

    /// Opens the copy, decides where to read, and throws a stale copy away. `bounds` are those of all tables.
    pub(super) fn open(
        &mut self,
        home: &dyn Home,
        bounds: &[OffsetBounds],
        (asked, wall, brokers): (Timestamp, Timestamp, Now),
    ) -> Result<(), GlobalError> {
        // An earlier copy is closed first.
        self.copy = None;
        (self.pending, self.pending_bytes, self.is_behind) = (GlobalBatch::new(), 0, false);
        let its = |part: &Part| bounds.iter().find(|it| it.partition == part.partition);
        let logs = self.parts.iter().filter_map(|part| {
            let found = its(part)?;
            Some(GlobalLog {
                partition: part.partition.partition,
                first: found.first,
                end: found.end,
            })
        });
        let logs: Vec<_> = logs.collect();
        let mut copy = self.open_copy(home)?;
        let bytes = copy.mark().map_err(|error| self.failed(error))?;
        let mark = bytes.as_deref().and_then(GlobalMark::decode);
        let start = GlobalSituation {
            cluster: &self.cluster,
            topic: &self.topic,
            id: self.facts.id,
            types: &self.rows.types(),
            delete_retention: self.facts.delete_retention.unwrap_or(DELETE_RETENTION),
            logs: &logs,
            mark: mark.as_ref(),
            now: wall,
        };
        let at = match start.decide() {
            GlobalStart::ReadOn(at) => {
                let current = mark.as_ref().map_or(asked, |mark| mark.current);
                self.age = GlobalAge::starting(current, asked);
                at
            }
            GlobalStart::Rebuild { from, why } => {
                if let Some(why) = why {
                    tracing::warn!(
                        table = %self.name, topic = %self.topic, %why,
                        "throwing the copy of a global table away; reading its topic again"
                    );
                }
                drop(copy);
                home.discard_global(&self.name)
                    .map_err(|error| self.failed(error))?;
                copy = self.open_copy(home)?;
                self.age = GlobalAge::starting(asked, asked);
                from
            }
        };
        for ((part, log), (_, next)) in self.parts.iter_mut().zip(&logs).zip(at) {
            (part.next, part.target, part.moved) = (next, log.end, brokers);
        }
        self.copy = Some(copy);
        Ok(())
    }

    fn open_copy(&self, home: &dyn Home) -> Result<GlobalWriter, GlobalError> {
        let engine = home.open_global(&self.name);
        engine
            .map(GlobalWriter::new)
            .map_err(|error| self.failed(error))
    }

    /// Opens the copy for the workers.
    pub(super) fn serve(&mut self, now: Timestamp) -> Option<GlobalRows> {
        self.age.opens(now);
        self.copy.as_mut().map(GlobalWriter::serve)
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.parts.iter().all(Part::has_arrived)
    }

    /// Notes a record that the copy already has, because another table of the same topic is behind this one.
    pub(super) fn passes(&mut self, part: usize, brokers: Now) {
        if let Some(part) = self.parts.get_mut(part) {
            part.moved = brokers;
        }
    }

    /// Takes a record of a partition. Returns whether the batch is full.
    pub(super) fn take(
        &mut self,
        part: usize,
        record: &impl Message,
        brokers: Now,
    ) -> Result<bool, GlobalError> {
        let Some(part) = self.parts.get_mut(part) else {
            return Ok(false);
        };
        let offset = record.offset();
        let headers = record.headers();
        let check = || {
            self.rows
                .check(record.key(), record.value(), &headers, &mut self.key)
                .map_err(|fault| fault.to_string())
        };
        // The codec is user code, and may panic.
        let checked = catch_unwind(AssertUnwindSafe(check));
        let checked = checked
            .unwrap_or_else(|panic| Err(format!("its codec panicked: {}", panic_text(&*panic))));
        match checked {
            Ok(checked) => {
                let row = record.value().filter(|_| checked == Checked::Put);
                let row = row.map(|value| encode_row(value, &headers));
                self.pending_bytes += self.key.len() + row.as_ref().map_or(0, Vec::len);
                self.pending.insert(self.key.clone(), row);
                self.meter.read_one();
            }
            Err(reason) if self.skips => {
                let skipped = self.meter.skipped_one();
                // One line for each power of two, because there may be a million records to skip.
                if skipped.is_power_of_two() {
                    tracing::warn!(
                        table = %self.name, partition = %part.partition, %offset, %reason, skipped,
                        "skipping a record of a global table"
                    );
                }
            }
            Err(reason) => {
                return Err(GlobalError::Undecodable {
                    table: self.name.to_string(),
                    partition: part.partition.clone(),
                    offset,
                    reason,
                });
            }
        }
        part.next = offset.next();
        part.moved = brokers;
        self.is_behind = true;
        Ok(self.pending_bytes >= BATCH)
    }

    /// Records that all records before the last stable offset were taken.
    pub(super) fn drained(&mut self, part: usize, stable: Offset, brokers: Now) {
        if let Some(part) = self.parts.get_mut(part)
            && stable > part.next
        {
            // Behind the last record are only markers.
            part.next = stable;
            part.moved = brokers;
            self.is_behind = true;
        }
    }

    /// Compares the offsets with the ends of the partitions, which were queried at the time `asked`.
    pub(super) fn look(&mut self, bounds: &[OffsetBounds], asked: Timestamp) {
        // A table that is far behind reaches its former targets first.
        let has_targets = self.age.has_targets();
        let mut behind = 0;
        for part in &mut self.parts {
            if let Some(found) = bounds.iter().find(|it| it.partition == part.partition) {
                behind += found.end.get().saturating_sub(part.next.get()).max(0);
                if !has_targets {
                    part.target = found.end;
                }
            }
        }
        self.meter.is_behind(u64::try_from(behind).unwrap_or(0));
        self.age.asks(asked);
    }

    /// Sets the ends up to which a start reads in the next round. The age of the copy stays that of the first round.
    pub(super) fn read_on_to(&mut self, bounds: &[OffsetBounds], brokers: Now) {
        for part in &mut self.parts {
            if let Some(found) = bounds.iter().find(|it| it.partition == part.partition) {
                (part.target, part.moved) = (found.end, brokers);
            }
        }
    }

    /// Checks that an open table that finds records at this time has missed no tombstone before them.
    pub(super) fn must_be_current(&self, now: Timestamp) -> Result<(), GlobalError> {
        let retention = self.facts.delete_retention.unwrap_or(DELETE_RETENTION);
        let (table, topic) = (self.name.to_string(), self.topic.clone());
        match self.age.missed(now, retention) {
            Some(MissedTombstones::Suspended(why)) => Err(GlobalError::Stale { table, topic, why }),
            Some(MissedTombstones::SlowStart { took }) => Err(GlobalError::SlowStart {
                table,
                topic,
                took,
                retention,
            }),
            None => Ok(()),
        }
    }

    /// Records that the table was up to date at the query of its targets, once it has reached them.
    fn reached(&mut self) {
        if self.has_arrived() && self.age.reached() {
            self.is_behind = true;
            self.meter.is_behind(0);
        }
    }

    /// Writes the changes since the last write, with the offsets.
    pub(super) fn write(&mut self) -> Result<(), GlobalError> {
        self.reached();
        if !self.is_behind {
            return Ok(());
        }
        let next = self.parts.iter();
        let next = next.map(|part| (part.partition.partition, part.next));
        let mark = GlobalMark {
            cluster: self.cluster.clone(),
            topic: self.topic.clone(),
            id: self.facts.id,
            types: self.rows.types(),
            current: self.age.current(),
            next: next.collect(),
        };
        let mark = mark.encode();
        let written = match &mut self.copy {
            Some(copy) if rules::writes_rows_with_position() => copy.write(&self.pending, &mark),
            Some(copy) => copy
                .write(&GlobalBatch::new(), &mark)
                .and_then(|()| copy.write(&self.pending, &mark)),
            None => Ok(()),
        };
        written.map_err(|error| self.failed(error))?;
        self.pending.clear();
        (self.pending_bytes, self.is_behind) = (0, false);
        Ok(())
    }

    /// Returns a partition that has not reached its target, and has made no progress for `patience`.
    pub(super) fn stalled(&self, brokers: Now, patience: Duration) -> Option<GlobalStalled> {
        let mut waiting = self.parts.iter().filter(|part| !part.has_arrived());
        let part = waiting.find(|part| brokers.since(part.moved) >= patience)?;
        Some(GlobalStalled {
            table: self.name.to_string(),
            partition: part.partition.clone(),
            next: part.next,
            end: part.target,
            waited: brokers.since(part.moved),
        })
    }
}
