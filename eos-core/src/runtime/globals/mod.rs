//! Reads the global tables of a process.
//!
//! A process has one reader for all of them, beside its workers. It is stepped like a worker: on a thread of its own, or
//! by a simulation. It has no group and no transaction. Its offsets are in the copies.
//!
//! ```text
//! query the bounds of all partitions ───► open the copies, decide ─► read up to these ends ─► query the ends again
//!        ▲                                                              │       ▲                │         │
//!        └──── an offset is gone meanwhile ─────────────────────────────┘       └── new records ─┘         ▼
//!                                                                       read on ◄── open the tables to the tasks
//! ```
//!
//! A compaction during the reading removes a row that was there at the start, if its key has a newer record behind the
//! end. So the tables open once the reader is at the end, or after `ROUNDS` rounds.

mod beginning;
mod error;
mod table;
mod thread;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{
    BrokerTime, ErrorClass, Now, SeenTopic, Timestamp, TopicName, TopicPartition, TopicRole,
    TopicWatch,
};

use super::preflight::Partitions;
use crate::client::{Client, ClientError, OffsetBounds, Records, Source, SourceEvent, SourceSpec};
use crate::rules;
use crate::topology::Topology;
use crate::worker::{Env, Step};

pub(super) use beginning::{Beginning, end, meters_of, tables_of};
pub use error::GlobalError;
pub(crate) use table::GlobalTopicFacts;

use beginning::ReaderSpec;
use table::Table;

/// The maximum number of records per fetch.
const FETCH: usize = 4096;
/// The longest time that a call may block.
const SLICE: Duration = Duration::from_millis(20);
/// The longest wait for records.
const NAP: Duration = Duration::from_millis(50);
/// The interval between two queries for the ends, once the tables are open.
const LOOK: Duration = Duration::from_secs(5);
/// The maximum number of queries for the ends at a start. Each round reads the records that were written during the
/// previous round.
const ROUNDS: u32 = 10;
/// The limit of prefetched keys and values of one partition, in bytes.
const PREFETCH: usize = 1 << 20;

/// Reads the global tables of a process.
pub(super) struct GlobalReader<C: Client> {
    spec: ReaderSpec,
    env: Env,
    source: C::Source,
    tables: Vec<Table>,
    watch: TopicWatch,
    brokers: BrokerTime,
    records: <C::Source as Source>::Records,
    phase: Phase,
    /// The number of queries for the ends in this start.
    rounds: u32,
    /// The time of the last query for the ends.
    looked: Now,
    /// The time of day at which the query under way began. `None` without a query.
    asked: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Queries the bounds of all partitions since this time, on the clock of the brokers.
    Asking(Now),
    /// Reads up to the ends as of the start, or as of the last round.
    Starting,
    /// Queries the ends again since this time, on the clock of the brokers.
    Confirming(Now),
    /// The tables are open.
    Open,
}

impl<C: Client> GlobalReader<C> {
    fn new(
        spec: ReaderSpec,
        env: Env,
        topology: &Topology,
        partitions: &Partitions,
        client: &C,
    ) -> Result<Self, GlobalError> {
        let globals = topology.globals().iter().zip(&partitions.globals);
        let globals = globals.zip(&spec.meters);
        let mut watch = TopicWatch::new(spec.app.clone());
        let tables = globals.map(|((table, facts), meter)| {
            let seen = SeenTopic {
                id: facts.id,
                partitions: facts.partitions,
            };
            watch.add(table.topic.clone(), TopicRole::Global, seen);
            Table::new(
                (Arc::clone(&table.name), table.topic.clone()),
                (Arc::clone(&table.rows), table.skips()),
                (facts.clone(), spec.cluster.clone()),
                Arc::clone(meter),
            )
        });
        let tables: Vec<_> = tables.collect();
        let source = client.source(&SourceSpec {
            group: spec.app.as_str().to_owned(),
            client_id: spec.client_id.clone(),
            protocol: spec.protocol.clone(),
            prefetch: PREFETCH,
            restores: true,
            // After the start, these topics are seldom busy.
            reads_several_topics: false,
            watched: watch.names(),
        });
        let topics = || tables.iter().map(|it| it.topic.clone()).collect();
        let source = source.map_err(|source| GlobalError::Client {
            topics: topics(),
            source,
        })?;
        let now = env.now();
        Ok(Self {
            spec,
            env,
            source,
            tables,
            watch,
            brokers: BrokerTime::new(now),
            records: Default::default(),
            phase: Phase::Asking(now),
            rounds: 0,
            looked: now,
            asked: None,
        })
    }

    /// Does a short piece of all due work. It never returns [`Step::Stopped`].
    ///
    /// # Errors
    /// [`GlobalError`] if the app has to stop.
    pub(super) fn step(&mut self) -> Result<Step, GlobalError> {
        self.poll()?;
        let busy = match self.phase {
            Phase::Asking(since) => self.ask(since)?,
            Phase::Starting | Phase::Confirming(_) | Phase::Open => self.read()?,
        };
        match self.phase {
            Phase::Starting => self.confirm_if_arrived()?,
            Phase::Confirming(since) => self.confirm(since)?,
            Phase::Open => self.look()?,
            Phase::Asking(_) => {}
        }
        Ok(match busy {
            true => Step::Busy,
            false => Step::Idle(NAP),
        })
    }

    /// Waits until there may be an event, or until `at_most` has passed.
    pub(super) fn wait(&mut self, at_most: Duration) {
        self.source.wait(at_most);
    }

    /// Whether the tables are open to the tasks.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns the next offset of each partition. All records before it are rows.
    pub(super) fn next(&self) -> impl Iterator<Item = (&TopicPartition, eos_protocol::Offset)> {
        let parts = self.tables.iter().flat_map(|table| &table.parts);
        parts.map(|part| (&part.partition, part.next))
    }

    fn topics(&self) -> Vec<TopicName> {
        self.tables.iter().map(|it| it.topic.clone()).collect()
    }

    fn partitions(&self) -> Vec<TopicPartition> {
        let parts = self.tables.iter().flat_map(|table| &table.parts);
        let mut all: Vec<_> = parts.map(|part| part.partition.clone()).collect();
        // Two tables may read one topic.
        all.sort();
        all.dedup();
        all
    }

    fn broker_time(&self) -> Now {
        self.brokers.at(self.env.now())
    }

    fn answered(&mut self) {
        self.brokers.answered(self.env.now());
    }

    fn failed(&self, source: ClientError) -> Result<(), GlobalError> {
        if source.class() == ErrorClass::Retriable {
            tracing::debug!(app = %self.spec.app, error = %source, "a call for global tables failed; continuing");
            return Ok(());
        }
        let topics = self.topics();
        Err(GlobalError::Client { topics, source })
    }

    fn poll(&mut self) -> Result<(), GlobalError> {
        while let Some(event) = self.source.poll() {
            match event {
                SourceEvent::Topics(report) => {
                    self.answered();
                    self.compare(&report)?;
                }
                SourceEvent::OutOfRange { partition, .. } => self.out_of_range(&partition)?,
                SourceEvent::Failed(error) => self.failed(error)?,
                // The reader is in no group.
                SourceEvent::Assigned(_) | SourceEvent::Revoked { .. } | SourceEvent::Moved(_) => {}
            }
        }
        Ok(())
    }

    fn compare(&mut self, report: &[(TopicName, Option<SeenTopic>)]) -> Result<(), GlobalError> {
        let Err(changed) = self.watch.compare(self.env.now(), report) else {
            return Ok(());
        };
        let mut tables = self.tables.iter();
        let table = tables.find(|table| table.topic == changed.topic);
        Err(GlobalError::Changed {
            table: table.map_or_else(String::new, |table| table.name.to_string()),
            topic: changed.topic,
            change: changed.change,
        })
    }

    /// Handles a partition whose log no longer has the next record. This is an error once the tables are open. Before
    /// that, the start begins again.
    fn out_of_range(&mut self, partition: &TopicPartition) -> Result<(), GlobalError> {
        if self.phase == Phase::Open {
            let found = self.tables.iter().find_map(|table| {
                let part = table.parts.iter().find(|it| it.partition == *partition)?;
                Some((table.name.to_string(), part.next))
            });
            let (table, next) = found.unwrap_or_default();
            return Err(GlobalError::Deleted {
                table,
                partition: partition.clone(),
                next,
            });
        }
        if matches!(self.phase, Phase::Starting | Phase::Confirming(_)) {
            let all = self.partitions();
            let unassigned = self.source.unassign(&all);
            unassigned.or_else(|error| self.failed(error))?;
            self.phase = Phase::Asking(self.broker_time());
        }
        Ok(())
    }

    /// Queries the bounds of all partitions, and decides where to begin to read.
    fn ask(&mut self, since: Now) -> Result<bool, GlobalError> {
        let all = self.partitions();
        self.asked.get_or_insert_with(|| self.env.wall_clock());
        let Some(bounds) = self.bounds(&all)? else {
            return self.check_patience(since).map(|()| false);
        };
        let wall = self.env.wall_clock();
        let asked = self.asked.take().unwrap_or(wall);
        let now = (asked, wall, self.broker_time());
        let mut at = std::collections::BTreeMap::new();
        for table in &mut self.tables {
            table.open(&*self.spec.home, &bounds, now)?;
            for part in &table.parts {
                // Of two tables of one topic, the one that is further behind decides.
                let next = at.entry(part.partition.clone()).or_insert(part.next);
                *next = (*next).min(part.next);
            }
        }
        let at: Vec<_> = at.into_iter().collect();
        let topics = self.topics();
        let assigned = self.source.assign(&at);
        assigned.map_err(|source| GlobalError::Client { topics, source })?;
        (self.phase, self.rounds) = (Phase::Starting, 1);
        Ok(true)
    }

    /// Fails with `NoEnds` if the brokers have not reported the bounds for longer than the patience.
    fn check_patience(&self, since: Now) -> Result<(), GlobalError> {
        let waited = self.broker_time().since(since);
        if waited < self.spec.patience {
            return Ok(());
        }
        Err(GlobalError::NoEnds {
            topics: self.topics(),
            waited_s: waited.as_secs(),
        })
    }

    /// Returns the bounds of these partitions, once the brokers have responded.
    fn bounds(&mut self, of: &[TopicPartition]) -> Result<Option<Vec<OffsetBounds>>, GlobalError> {
        match self.source.bounds(of, SLICE) {
            Poll::Pending => Ok(None),
            Poll::Ready(Err(error)) => self.failed(error).map(|()| None),
            Poll::Ready(Ok(bounds)) => {
                self.answered();
                Ok(Some(bounds))
            }
        }
    }

    /// Takes fetched records, and writes them. Returns whether there were any.
    fn read(&mut self) -> Result<bool, GlobalError> {
        let mut any = false;
        for partition in self.partitions() {
            let taken = self.source.take(&partition, FETCH, &mut self.records);
            if let Err(error) = taken {
                self.failed(error)?;
                continue;
            }
            if self.records.first().is_none() {
                self.arrive(&partition);
                continue;
            }
            if !any && self.phase == Phase::Open {
                let now = self.env.wall_clock();
                self.tables
                    .iter()
                    .try_for_each(|it| it.must_be_current(now))?;
            }
            any = true;
            self.answered();
            let brokers = self.broker_time();
            while let Some(record) = self.records.first() {
                for table in &mut self.tables {
                    take(table, &partition, record, brokers)?;
                }
                self.records.drop_first();
            }
        }
        for table in &mut self.tables {
            table.write()?;
        }
        Ok(any)
    }

    /// Moves behind the markers at the end of a partition.
    fn arrive(&mut self, partition: &TopicPartition) {
        let part_of = |table: &Table| {
            let mut parts = table.parts.iter();
            parts.position(|part| part.partition == *partition)
        };
        let waits = |table: &Table| {
            let part = part_of(table).and_then(|at| table.parts.get(at));
            part.is_some_and(|part| !part.has_arrived())
        };
        // The client may have to query a broker, so skip the query if no table waits for the end.
        if !self.tables.iter().any(waits) {
            return;
        }
        let Some(stable) = self.source.drained(partition) else {
            return;
        };
        let brokers = self.broker_time();
        for table in &mut self.tables {
            if let Some(at) = part_of(table) {
                table.drained(at, stable, brokers);
            }
        }
    }

    fn confirm_if_arrived(&mut self) -> Result<(), GlobalError> {
        if rules::reads_global_tables_first() && !self.tables.iter().all(Table::has_arrived) {
            let (brokers, patience) = (self.broker_time(), self.spec.patience);
            let mut stalled = self.tables.iter();
            let stalled = stalled.find_map(|table| table.stalled(brokers, patience));
            return stalled.map_or(Ok(()), |stalled| Err(stalled.into()));
        }
        let asks = rules::asks_for_ends_again() && rules::reads_global_tables_first();
        if asks && self.rounds < ROUNDS {
            self.phase = Phase::Confirming(self.broker_time());
        } else {
            self.open();
        }
        Ok(())
    }

    /// Opens the tables if there are no new records. Otherwise reads these first.
    fn confirm(&mut self, since: Now) -> Result<(), GlobalError> {
        self.asked.get_or_insert_with(|| self.env.wall_clock());
        let all = self.partitions();
        let Some(bounds) = self.bounds(&all)? else {
            return self.check_patience(since);
        };
        self.asked = None;
        self.rounds += 1;
        let brokers = self.broker_time();
        for table in &mut self.tables {
            table.read_on_to(&bounds, brokers);
        }
        match self.tables.iter().all(Table::has_arrived) {
            true => self.open(),
            false => self.phase = Phase::Starting,
        }
        Ok(())
    }

    fn open(&mut self) {
        let now = self.env.wall_clock();
        let rows = self.tables.iter_mut().filter_map(|it| it.serve(now));
        let rows: Vec<_> = rows.collect();
        self.spec.shared.open(rows.into_iter());
        self.phase = Phase::Open;
        for table in &self.tables {
            tracing::info!(
                app = %self.spec.app, table = %table.name, topic = %table.topic,
                partitions = table.facts().partitions, "the global table is read"
            );
        }
    }

    /// Queries the ends periodically, for the lag of the tables and the time up to which they are complete.
    fn look(&mut self) -> Result<(), GlobalError> {
        let now = self.env.now();
        if self.asked.is_none() && now.since(self.looked) < LOOK {
            return Ok(());
        }
        let asked = *self.asked.get_or_insert_with(|| self.env.wall_clock());
        let all = self.partitions();
        let Some(bounds) = self.bounds(&all)? else {
            return Ok(());
        };
        (self.asked, self.looked) = (None, now);
        for table in &mut self.tables {
            table.look(&bounds, asked);
        }
        Ok(())
    }
}

/// Gives a record to a table, if the table reads its partition and does not have the record yet.
fn take(
    table: &mut Table,
    partition: &TopicPartition,
    record: &impl crate::client::Message,
    brokers: Now,
) -> Result<(), GlobalError> {
    let mut parts = table.parts.iter();
    let Some(at) = parts.position(|part| part.partition == *partition) else {
        return Ok(());
    };
    if table
        .parts
        .get(at)
        .is_some_and(|part| record.offset() < part.next)
    {
        table.passes(at, brokers);
        return Ok(());
    }
    if table.take(at, record, brokers)? {
        table.write()?;
    }
    Ok(())
}

impl<C: Client> std::fmt::Debug for GlobalReader<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GlobalReader")
            .field("phase", &self.phase)
            .field("next", &self.next().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
