//! What a successor concludes from a COMMIT whose answer it will never see. The ledger's way is right in every trial,
//! and each weaker way is wrong in some: this is why each part of the protocol is there.
//!
//! The statements are written out here, because the ledger has no weaker way.

use std::time::Duration;

use eos_postgres::testing::Cluster;
use futures::future::join_all;
use tokio_postgres::{Client, NoTls};

const TRIALS: u64 = 60;

const TABLES: &str = "CREATE TABLE t (n int);
    CREATE TABLE p (next_offset int, epoch int, name text)";

const ROWS: &str = "INSERT INTO t SELECT generate_series(1, 10)";
const SET: &str =
    "UPDATE p SET next_offset = 110, name = 'mine' WHERE epoch = 1 AND next_offset = 100";

/// How the successor reads the position, and whether the owner looks at the answers before it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    PlainSelect,
    SelectForUpdate,
    EpochButUncheckedSet,
    TheLedgers,
}

impl Way {
    fn read(self) -> &'static str {
        match self {
            Self::PlainSelect => "SELECT name FROM p",
            Self::SelectForUpdate => "SELECT name FROM p FOR UPDATE",
            Self::EpochButUncheckedSet | Self::TheLedgers => {
                "UPDATE p SET epoch = epoch + 1 RETURNING name"
            }
        }
    }
}

async fn connect(url: &str, name: &str) -> (Client, tokio::task::JoinHandle<()>) {
    let mut config: tokio_postgres::Config = url.parse().unwrap();
    config.application_name(name);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let task = tokio::spawn(async move { drop(connection.await) });
    (client, task)
}

async fn transaction(client: Client, way: Way) {
    let _ = client.batch_execute("BEGIN").await;
    let pause = "SELECT pg_sleep(0.002)";
    if way == Way::TheLedgers {
        let _ = client.batch_execute(pause).await;
        let moved = client.execute(SET, &[]).await;
        let rows = client.batch_execute(ROWS).await;
        if matches!(moved, Ok(1)) && rows.is_ok() {
            let _ = client.batch_execute("COMMIT").await;
        }
    } else {
        let all = [pause, SET, ROWS, "COMMIT"];
        join_all(all.map(|text| client.batch_execute(text))).await;
    }
}

/// The number of trials in which the successor is wrong, or rows are there without their position.
async fn wrong(url: &str, way: Way) -> u64 {
    let (successor, _task) = connect(url, "successor").await;
    let settings = "SET lock_timeout = '50ms'";
    successor.batch_execute(settings).await.unwrap();
    let mut wrong = 0;
    for trial in 0..TRIALS {
        let start = "TRUNCATE t; DELETE FROM p; INSERT INTO p VALUES (100, 1, 'before')";
        successor.batch_execute(start).await.unwrap();
        let (owner, task) = connect(url, "owner").await;
        let work = tokio::spawn(transaction(owner, way));
        // Each moment of about 6 ms, several times.
        tokio::time::sleep(Duration::from_micros(trial * 997 % 6000)).await;
        // The owner says and hears nothing more. What it has sent is on its way.
        work.abort();
        let name: String = loop {
            match successor.query_one(way.read(), &[]).await {
                Ok(row) => break row.get(0),
                Err(_) => end(&successor).await,
            }
        };
        wait_until_idle(&successor).await;
        let truth = "SELECT (SELECT count(*) FROM t), (SELECT next_offset FROM p)";
        let row = successor.query_one(truth, &[]).await.unwrap();
        let is_committed = row.get::<_, i64>(0) == 10;
        let is_moved = row.get::<_, i32>(1) == 110;
        wrong += u64::from((name == "mine") != is_committed || is_moved != is_committed);
        task.abort();
        end(&successor).await;
    }
    wrong
}

async fn end(client: &Client) {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'owner' \
               AND datname = current_database()";
    client.batch_execute(end).await.unwrap();
}

async fn wait_until_idle(client: &Client) {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'owner' \
                AND datname = current_database() AND state NOT LIKE 'idle%'";
    loop {
        let row = client.query_one(busy, &[]).await.unwrap();
        if row.get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn only_the_ledgers_way_is_always_right() {
    let cluster: &Cluster = crate::support::cluster();
    let url = cluster.empty_database("doubt_ways").unwrap();
    crate::support::rows(&url, TABLES);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let count = |way| runtime.block_on(wrong(&url, way));
    for way in [
        Way::PlainSelect,
        Way::SelectForUpdate,
        Way::EpochButUncheckedSet,
    ] {
        assert!(
            count(way) > 0,
            "{way:?} was right in all of {TRIALS} trials"
        );
    }
    assert_eq!(count(Way::TheLedgers), 0);
}
