//! A worker of an app, without Kafka.

use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_core::Headers;
use eos_core::boundary::{
    Answer, Effect, Expected, Identity, Ledger, LedgerError, Move, Origin, Place, Plan, Positions,
    Row, Session, Taken,
};
use eos_postgres::testing::{Cluster, run};
use eos_postgres::{Apply, Postgres, SqlTable, Statement};
use eos_protocol::{Offset, Partition, TopicPartition};

/// The server of this program.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().unwrap_or_else(|error| panic!("{error}")))
}

/// A database with the tables of eos, after these statements.
pub(crate) fn database(name: &str, statements: &str) -> String {
    let url = cluster().database(name).unwrap();
    if !statements.is_empty() {
        run(&url, statements).unwrap();
    }
    url
}

pub(crate) fn partition(number: i32) -> TopicPartition {
    TopicPartition::new("orders", Partition::new(number).unwrap())
}

pub(crate) fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap()
}

/// Repeats a call until it is ready.
pub(crate) fn wait<T>(mut call: impl FnMut(Duration) -> Poll<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if let Poll::Ready(value) = call(Duration::from_millis(100)) {
            return value;
        }
    }
    panic!("a call is still pending after 20 s");
}

/// The plan of an app whose places are registered with `shop`.
pub(crate) fn plan(places: &[String]) -> Plan {
    Plan {
        app: "shop-v1".into(),
        cluster_id: Some("cluster-a".into()),
        topics: vec![("orders".into(), None)],
        places: places.to_vec(),
        dead_letters: Vec::new(),
        transaction_timeout: Duration::from_secs(10),
    }
}

/// Registers a place with its database, as the end of a stream does.
pub(crate) trait Register {
    fn register(&self) -> String;
}

impl<K: 'static, V: 'static> Register for SqlTable<K, V> {
    fn register(&self) -> String {
        Place::<K, V>::name(self)
    }
}

impl<K, V> Register for Apply<K, V>
where
    K: serde::Serialize + 'static,
    V: serde::Serialize + 'static,
{
    fn register(&self) -> String {
        Place::<K, V>::name(self)
    }
}

impl<K: 'static, V: 'static> Register for Statement<K, V> {
    fn register(&self) -> String {
        Place::<K, V>::name(self)
    }
}

pub(crate) struct Worker {
    pub(crate) shop: Postgres,
    pub(crate) plan: Plan,
    pub(crate) identity: Identity,
    pub(crate) positions: Box<dyn Positions>,
    pub(crate) session: Box<dyn Session>,
}

impl Worker {
    /// A worker with an initialised session.
    pub(crate) fn new(shop: &Postgres, places: &[String], name: &str) -> Self {
        Self::of(shop, plan(places), name)
    }

    pub(crate) fn of(shop: &Postgres, plan: Plan, name: &str) -> Self {
        static OWNER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(u64::MAX);
        let identity = Identity {
            worker: name.into(),
            owner: OWNER.fetch_sub(1, std::sync::atomic::Ordering::Relaxed),
        };
        let mut worker = Self {
            positions: shop.positions(&plan, &identity).unwrap(),
            session: shop.session(&plan, &identity).unwrap(),
            shop: shop.clone(),
            plan,
            identity,
        };
        worker.init().unwrap();
        worker
    }

    /// A worker "w" with an open transaction of one row.
    pub(crate) fn writing(shop: &Postgres, table: &SqlTable<String, i64>) -> (Self, Taken) {
        let mut worker = Self::new(shop, &[table.register()], "w");
        let taken = worker.take(0);
        worker.begin(&taken);
        worker.put(table, (0, 0), &"k".into(), Some(&1)).unwrap();
        (worker, taken)
    }

    pub(crate) fn init(&mut self) -> Answer {
        wait(|slice| self.session.init(slice))
    }

    /// A new session instead of a spoiled one.
    pub(crate) fn renew(&mut self) -> Answer {
        self.session = self.shop.session(&self.plan, &self.identity).unwrap();
        self.init()
    }

    pub(crate) fn take(&mut self, number: i32) -> Taken {
        self.try_take(number).unwrap()
    }

    pub(crate) fn try_take(&mut self, number: i32) -> Result<Taken, LedgerError> {
        let of = [partition(number)];
        let taken = wait(|slice| self.positions.take_over(&of, slice))?;
        assert_eq!(taken.len(), 1);
        Ok(taken.into_iter().next().unwrap())
    }

    /// Begins a transaction that holds the position.
    pub(crate) fn begin(&mut self, taken: &Taken) {
        self.session.begin().unwrap();
        self.session.hold(&[expected(taken)]).unwrap();
    }

    pub(crate) fn put<K, V>(
        &mut self,
        place: &(impl Register + Place<K, Option<V>>),
        at: (i32, i64),
        key: &K,
        value: Option<&V>,
    ) -> Answer
    where
        V: Clone,
    {
        let name = place.register();
        let index = self.plan.places.iter().position(|place| *place == name);
        let mut row = Row::default();
        place.encode(key, &value.cloned(), &mut row).unwrap();
        let of = partition(at.0);
        let mut headers = Headers::new();
        headers.push("nul", Some(b"a\0b"));
        let effect = Effect {
            timestamp: None,
            place: index.unwrap(),
            origin: Origin {
                partition: &of,
                offset: offset(at.1),
            },
            key: Some(&row.key),
            row: (!row.is_deleted).then_some(&*row.row),
            headers: &headers,
        };
        loop {
            match self.session.write(&effect) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => wait(|slice| self.session.flush(slice))?,
            }
        }
    }

    pub(crate) fn set(&mut self, taken: &Taken, to: i64, name: &str) -> Answer {
        let moves = [Move {
            expected: expected(taken),
            to: offset(to),
            name: name.into(),
        }];
        wait(|slice| self.session.set(&moves, slice))?;
        wait(|slice| self.session.flush(slice))
    }

    pub(crate) fn commit(&mut self) -> Answer {
        match self.session.commit(Duration::from_secs(10)) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("a commit does not wait for longer than its slice"),
        }
    }

    pub(crate) fn abort(&mut self) -> Answer {
        wait(|slice| self.session.abort(slice))
    }

    /// Sets, and commits or aborts. Returns the position after it.
    pub(crate) fn finish(&mut self, taken: &Taken, to: i64) -> Result<Taken, LedgerError> {
        let done = self.set(taken, to, &format!("t{to}"));
        if let Err(error) = done {
            self.abort().unwrap();
            return Err(error);
        }
        self.commit()?;
        Ok(Taken {
            offset: Some(offset(to)),
            name: format!("t{to}"),
            ..taken.clone()
        })
    }
}

pub(crate) fn expected(taken: &Taken) -> Expected {
    Expected {
        partition: taken.partition.clone(),
        epoch: taken.epoch,
        from: taken.offset,
    }
}

/// A query's rows as text: `a|1 b|2`.
pub(crate) fn rows(url: &str, query: &str) -> String {
    let rows = run(url, query).unwrap();
    let line = |row: Vec<Option<String>>| {
        let cells: Vec<String> = row
            .into_iter()
            .map(|cell| cell.unwrap_or_else(|| "NULL".into()))
            .collect();
        cells.join("|")
    };
    rows.into_iter().map(line).collect::<Vec<_>>().join(" ")
}
