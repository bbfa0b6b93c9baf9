//! A ledger under test, and a worker of it.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_core::Headers;
use eos_core::boundary::{
    Answer, Effect, Expected, Identity, Ledger, LedgerFailure, Move, Origin, Plan, Positions,
    Session, Taken,
};
use eos_protocol::state::TopicUuid;
use eos_protocol::{Offset, Partition, TopicName, TopicPartition};

use crate::ledger::ModelLedger;

/// The longest time that a call blocks.
pub(super) const SLICE: Duration = Duration::from_millis(20);
/// The longest wait for the result of a call. A take-over may have to end a session.
pub(super) const WAIT: Duration = Duration::from_secs(20);

/// Encodes the key and the row of a number.
pub type EncodeRow = Box<dyn Fn(u64) -> (Vec<u8>, Vec<u8>)>;

/// An empty ledger with one place.
pub struct Subject {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// The name of a place of rows.
    pub place: String,
    /// Encodes the key and the row of a number, in the format of the place.
    pub row: EncodeRow,
    /// Returns the numbers of the committed rows, as another connection reads them.
    pub rows: Box<dyn Fn() -> Vec<u64>>,
    /// Loses the last commit, as a failover to a standby may. `None` skips the test of L7.
    pub lose_last_commit: Option<Box<dyn Fn()>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl Subject {
    /// Returns a model as a subject.
    #[must_use]
    pub fn of_model(ledger: ModelLedger) -> Self {
        let (committed, lost) = (ledger.clone(), ledger.clone());
        Self {
            ledger: Arc::new(ledger),
            place: "rows".into(),
            row: Box::new(|number| (number.to_string().into(), number.to_string().into())),
            rows: Box::new(move || {
                let rows = committed.rows::<u64, u64>("rows").into_iter();
                rows.filter_map(|(_, row)| row).collect()
            }),
            lose_last_commit: Some(Box::new(move || lost.fail_over(1))),
        }
    }

    pub(super) fn plan(&self) -> Plan {
        Plan {
            app: "conformance".into(),
            cluster_id: Some("cluster-1".into()),
            topics: vec![(topic(), Some(TopicUuid(1)))],
            places: vec![self.place.clone()],
            dead_letters: Vec::new(),
            transaction_timeout: Duration::from_secs(10),
        }
    }

    pub(super) fn worker(&self, name: &str) -> Worker<'_> {
        self.worker_of(name, &self.plan())
    }

    pub(super) fn worker_of(&self, name: &str, plan: &Plan) -> Worker<'_> {
        let identity = Identity {
            worker: name.into(),
            owner: 7,
        };
        let session = self.ledger.session(plan, &identity);
        let positions = self.ledger.positions(plan, &identity);
        Worker {
            subject: self,
            session: session.expect("a session"),
            positions: positions.expect("a reader of positions"),
        }
    }

    /// Checks the rows.
    #[track_caller]
    pub(super) fn holds(&self, what: &str, expected: &[u64]) {
        let mut rows = (self.rows)();
        rows.sort_unstable();
        assert!(
            rows == expected,
            "{what}: the rows are {rows:?}, not {expected:?}"
        );
    }
}

/// A worker of the app.
pub(super) struct Worker<'s> {
    pub(super) subject: &'s Subject,
    pub(super) session: Box<dyn Session>,
    pub(super) positions: Box<dyn Positions>,
}

pub(super) fn topic() -> TopicName {
    TopicName::new("orders")
}

pub(super) fn partition(number: i32) -> TopicPartition {
    TopicPartition::new(topic(), Partition::new(number).expect("a partition"))
}

pub(super) fn offset(at: i64) -> Offset {
    Offset::new(at).expect("an offset")
}

pub(super) fn until<T>(mut call: impl FnMut() -> Poll<Answer<T>>) -> Answer<T> {
    let begun = Instant::now();
    loop {
        match call() {
            Poll::Ready(Err(error))
                if error.failure == LedgerFailure::Retriable && begun.elapsed() < WAIT => {}
            Poll::Ready(done) => return done,
            Poll::Pending => assert!(
                begun.elapsed() < WAIT,
                "a call has no result after {WAIT:?}"
            ),
        }
    }
}

pub(super) fn moved(taken: &Taken, to: i64, name: &str) -> Move {
    Move {
        expected: Expected {
            partition: taken.partition.clone(),
            epoch: taken.epoch,
            from: taken.offset,
        },
        to: offset(to),
        name: name.into(),
    }
}

impl Worker<'_> {
    pub(super) fn take_over(&mut self, number: i32) -> Taken {
        let of = [partition(number)];
        let taken = until(|| self.positions.take_over(&of, SLICE));
        let taken = taken.expect("a take-over").into_iter().next();
        taken.expect("the position of the partition")
    }

    pub(super) fn look(&mut self, number: i32) -> Taken {
        let of = [partition(number)];
        let found = until(|| self.positions.look(&of, SLICE));
        let found = found.expect("a look at a position").into_iter().next();
        found.expect("the position of the partition")
    }

    pub(super) fn begins(&mut self, taken: &[&Taken]) -> Answer {
        self.session.begin()?;
        let expected = taken.iter().map(|taken| moved(taken, 0, "").expected);
        self.session.hold(&expected.collect::<Vec<_>>())
    }

    pub(super) fn writes(&mut self, number: u64) -> Answer {
        let (key, row) = (self.subject.row)(number);
        let (headers, from) = (Headers::new(), partition(0));
        until(|| {
            self.session.write(&Effect {
                timestamp: None,
                place: 0,
                origin: Origin {
                    partition: &from,
                    offset: offset(i64::try_from(number).expect("a small number")),
                },
                key: Some(&key),
                row: Some(&row),
                headers: &headers,
            })
        })
    }

    pub(super) fn sets(&mut self, moves: &[Move]) -> Answer {
        until(|| self.session.set(moves, SLICE))
    }

    pub(super) fn ends(&mut self) -> Answer {
        until(|| self.session.flush(SLICE))?;
        until(|| self.session.commit(WAIT))
    }

    pub(super) fn init(&mut self) {
        until(|| self.session.init(SLICE)).expect("a connection");
    }

    /// Writes a row and moves the position.
    pub(super) fn commits(&mut self, taken: &Taken, number: u64, name: &str) -> Answer {
        self.begins(&[taken])?;
        self.writes(number)?;
        self.sets(&[moved(taken, 10, name)])?;
        self.ends()
    }
}
