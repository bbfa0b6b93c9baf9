//! The committed rows and positions, the locks and the sessions.

use std::collections::{BTreeMap, BTreeSet};

use eos_core::boundary::{Epoch, Expected, Move, Taken};
use eos_protocol::state::TopicUuid;
use eos_protocol::{CallSite, Offset, TopicPartition};

use super::{LedgerDefence, LedgerFault};
use crate::rng::Rng;

/// An app and a partition.
pub(super) type Of = (String, TopicPartition);

type Rows = BTreeMap<String, Vec<(Vec<u8>, Option<Vec<u8>>)>>;

/// The data that survives a crash of the ledger.
#[derive(Debug, Default, Clone)]
pub(super) struct Committed {
    pub(super) positions: BTreeMap<Of, Position>,
    pub(super) rows: Rows,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Position {
    pub(super) offset: Option<Offset>,
    name: String,
    epoch: i64,
    /// The ids of the cluster and the topic.
    ids: Option<Ids>,
}

/// The ids of a cluster and a topic.
pub(super) type Ids = (Option<String>, Option<TopicUuid>);

/// A transaction of a session.
#[derive(Debug, Default, Clone)]
pub(super) struct Open {
    pub(super) rows: Vec<(String, Vec<u8>, Option<Vec<u8>>)>,
    pub(super) moves: Vec<(Of, Move)>,
    pub(super) held: BTreeSet<Of>,
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    worker: String,
    open: Open,
    /// The commit that takes effect when another session needs a lock.
    is_late: bool,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) committed: Committed,
    /// The state before each commit.
    history: Vec<Committed>,
    pub(super) commits: u64,
    /// The live connections.
    connections: BTreeMap<u64, Connection>,
    next: u64,
    /// The session epochs of the workers.
    sessions: BTreeMap<String, u64>,
    pub(super) faults: Vec<(CallSite, LedgerFault)>,
    /// The random faults: one in this number of calls.
    pub(super) chaos: Option<(Rng, usize)>,
    pub(super) occurred: usize,
    pub(super) missing: BTreeSet<LedgerDefence>,
}

impl World {
    pub(super) fn has(&self, defence: LedgerDefence) -> bool {
        !self.missing.contains(&defence)
    }

    pub(super) fn take_fault(&mut self, call: CallSite) -> Option<LedgerFault> {
        let planned = self.faults.iter().position(|(at, _)| *at == call);
        let fault = match planned {
            Some(at) => Some(self.faults.remove(at).1),
            None => self.drawn(call),
        };
        self.occurred += usize::from(fault.is_some());
        fault
    }

    /// Draws a fault of a call.
    fn drawn(&mut self, call: CallSite) -> Option<LedgerFault> {
        use LedgerFault::{Aborted, AnswerLost, Late, Lost, Slow, Unavailable};
        let (rng, n) = self.chaos.as_mut()?;
        let kinds: &[LedgerFault] = match call {
            CallSite::Send => &[Aborted, Lost, AnswerLost],
            CallSite::SendOffsets => &[Aborted, Lost, AnswerLost, Slow],
            CallSite::Commit => &[Lost, AnswerLost, Late],
            CallSite::Init | CallSite::Committed => &[Unavailable],
            _ => return None,
        };
        if !rng.one_in(*n) {
            return None;
        }
        let fault = rng.of(kinds).copied();
        match rng.below(8) {
            0 => self.restart(),
            1 if self.has_earlier_positions() => self.fail_over(1),
            _ => {}
        }
        fault
    }

    /// Whether the last commit moved positions that were there before. Without a position, an app stops if the consumer
    /// group has a copy of it.
    fn has_earlier_positions(&self) -> bool {
        let offset = |of: &Of| {
            let earlier = self.history.last()?;
            earlier.positions.get(of)?.offset
        };
        (self.committed.positions.iter())
            .all(|(of, now)| now.offset.is_none() || offset(of).is_some())
    }

    // Sessions.

    /// Opens a connection, and ends the older ones of the worker. Returns its number, which is its session epoch.
    pub(super) fn connect(&mut self, worker: &str) -> u64 {
        self.next += 1;
        self.sessions.insert(worker.to_owned(), self.next);
        let waits = self.has(LedgerDefence::WaitsForLocks);
        let older = self.connections.iter();
        let older = older.filter(|(_, it)| it.worker == worker && (waits || !it.is_late));
        let older: Vec<u64> = older.map(|(id, _)| *id).collect();
        for id in older {
            self.end(id);
        }
        let connection = Connection {
            worker: worker.to_owned(),
            ..Connection::default()
        };
        self.connections.insert(self.next, connection);
        self.next
    }

    pub(super) fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&id).filter(|it| !it.is_late)
    }

    /// Whether another session of this worker is newer.
    pub(super) fn is_superseded(&self, worker: &str, id: u64) -> bool {
        self.sessions.get(worker).is_some_and(|newest| *newest > id)
    }

    pub(super) fn open(&mut self, id: u64) -> Option<&mut Open> {
        self.connection(id).map(|it| &mut it.open)
    }

    /// Ends a connection. An open transaction is rolled back, and a late commit takes effect.
    pub(super) fn end(&mut self, id: u64) {
        if let Some(it) = self.connections.remove(&id)
            && it.is_late
        {
            self.apply(it.open);
        }
    }

    /// Breaks a connection whose commit takes effect later.
    pub(super) fn late(&mut self, id: u64) {
        if let Some(it) = self.connections.get_mut(&id) {
            it.is_late = true;
        }
    }

    pub(super) fn restart(&mut self) {
        let all: Vec<u64> = self.connections.keys().copied().collect();
        for id in all {
            self.end(id);
        }
    }

    pub(super) fn fail_over(&mut self, commits: usize) {
        self.connections.clear();
        let kept = self.history.len().saturating_sub(commits);
        if let Some(earlier) = self.history.get(kept) {
            self.committed = earlier.clone();
            self.history.truncate(kept);
        }
    }

    // Positions.

    fn taken(&self, of: &Of) -> Taken {
        let position = self
            .committed
            .positions
            .get(of)
            .cloned()
            .unwrap_or_default();
        Taken {
            partition: of.1.clone(),
            offset: position.offset,
            name: position.name,
            epoch: Epoch(position.epoch),
        }
    }

    /// Returns the ids of a position that has others.
    pub(super) fn other_ids(&mut self, of: &Of, ids: &Ids) -> Option<Ids> {
        let position = self.committed.positions.entry(of.clone()).or_default();
        let known = position.ids.get_or_insert_with(|| ids.clone());
        (known != ids).then(|| known.clone())
    }

    pub(super) fn look(&self, of: &Of) -> Taken {
        self.taken(of)
    }

    /// Returns the connection that holds a position.
    fn holder(&self, of: &Of, but: Option<u64>) -> Option<u64> {
        let waits = self.has(LedgerDefence::WaitsForLocks);
        let mut all = self.connections.iter();
        all.find(|(id, it)| {
            Some(**id) != but && it.open.held.contains(of) && (waits || !it.is_late)
        })
        .map(|(id, _)| *id)
    }

    /// Takes over a position. `None` while a transaction holds it; `force` ends that session.
    pub(super) fn take_over(&mut self, of: &Of, force: bool) -> Option<Taken> {
        if self.has(LedgerDefence::WaitsForLocks)
            && let Some(holder) = self.holder(of, None)
        {
            let is_late = self.connections.get(&holder).is_some_and(|it| it.is_late);
            if !is_late && !force {
                return None;
            }
            self.end(holder);
        }
        let raises = self.has(LedgerDefence::Epoch);
        let position = self.committed.positions.entry(of.clone()).or_default();
        position.epoch += i64::from(raises);
        Some(self.taken(of))
    }

    pub(super) fn steal(&mut self, partition: &TopicPartition) {
        for ((_, of), position) in &mut self.committed.positions {
            if of == partition {
                position.epoch += 1;
            }
        }
    }

    /// Whether a position is as a session expects it.
    pub(super) fn is_as_expected(&self, of: &Of, expected: &Expected) -> bool {
        let found = self.taken(of);
        found.epoch == expected.epoch && found.offset == expected.from
    }

    /// Whether another session holds a position.
    pub(super) fn is_held(&self, of: &Of, by_other_than: u64) -> bool {
        self.holder(of, Some(by_other_than)).is_some()
    }

    // Commits.

    /// Applies a transaction.
    pub(super) fn apply(&mut self, open: Open) {
        self.history.push(self.committed.clone());
        for (place, key, row) in open.rows {
            let rows = self.committed.rows.entry(place).or_default();
            rows.push((key, row));
        }
        for (of, moved) in open.moves {
            self.set(of, moved);
        }
        self.commits += 1;
    }

    pub(super) fn set(&mut self, of: Of, moved: Move) {
        let position = self.committed.positions.entry(of).or_default();
        position.offset = Some(moved.to);
        position.name = moved.name;
    }

    pub(super) fn commit(&mut self, id: u64) {
        let late = self.connections.iter().filter(|(_, it)| it.is_late);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for late in late {
            self.end(late);
        }
        if let Some(open) = self.open(id) {
            let open = std::mem::take(open);
            self.apply(open);
        }
    }
}
