//! Latency of new messages while old ids of the inbox are deleted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use eos_postgres::prune_inbox;
use eos_postgres::testing::run;
use eos_postgres::tokio_postgres::{Client, NoTls, connect};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::database::{Database, Server};
use crate::options::Options;
use crate::stats::{Latencies, rounded};
use crate::work::Work;

/// The time for which latency is measured before the deletion.
const CALM: Duration = Duration::from_secs(20);
/// Messages per second.
pub(crate) const RATE: u32 = 200;
/// The time for which ids are kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Inserts ids that are a day older than [`KEPT`].
const OLD: &str = "INSERT INTO eos.inbox SELECT 'billing', int8send(n), now() - interval '31 days' \
                   FROM generate_series(1, $1::bigint) n";
const TABLE: &str = "CREATE TABLE bills (id bigint NOT NULL, pad text NOT NULL)";
const CLAIM: &str = "INSERT INTO eos.inbox (subscriber, message_id) VALUES ('billing', int8send(-$1::bigint)) ON CONFLICT DO NOTHING";
const INSERT: &str = "INSERT INTO bills VALUES ($1, repeat('x', 100))";
const CHECK: &str =
    "SELECT (SELECT count(*) FROM eos.inbox) || '/' || (SELECT count(*) FROM bills)";

/// The latencies of one round.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) round: u32,
    /// The number of deleted ids.
    pub(crate) deleted: u64,
    pub(crate) took: Duration,
    pub(crate) calm: Latencies,
    pub(crate) pruning: Latencies,
}

impl Outcome {
    pub(crate) fn ratio(&self) -> f64 {
        self.pruning.p99 / self.calm.p99
    }

    fn json(&self) -> Value {
        json!({
            "benchmark": "pruning",
            "round": self.round,
            "deleted": self.deleted,
            "seconds": rounded(self.took.as_secs_f64()),
            "p99_ms_before": rounded(self.calm.p99),
            "p99_ms_during": rounded(self.pruning.p99),
            "ratio": rounded(self.ratio()),
        })
    }
}

/// Measures each round in a database of its own.
pub(crate) fn rounds(options: &Options) -> Result<Vec<Outcome>> {
    let ids = options.records.unwrap_or(10_000_000);
    let server = Server::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    (1..=options.rounds.unwrap_or(3))
        .map(|round| {
            eprintln!("round {round}");
            let database = server.database(Work::Insert, 0)?;
            run(&database.url, TABLE)?;
            let outcome = runtime.block_on(measure(round, ids, &database));
            let outcome = outcome.with_context(|| format!("round {round}"))?;
            println!("{}", outcome.json());
            server.remove(&database)?;
            Ok(outcome)
        })
        .collect()
}

async fn measure(round: u32, ids: u64, database: &Database) -> Result<Outcome> {
    let pruner = client(&database.url).await?;
    pruner.execute(OLD, &[&ids.cast_signed()]).await?;
    // On a real server, autovacuum would have done this long ago.
    pruner.batch_execute("VACUUM ANALYZE eos.inbox").await?;
    pruner.batch_execute("CHECKPOINT").await?;

    let (stop, stopped) = watch::channel(false);
    let writer = client(&database.url).await?;
    let messages = tokio::spawn(write(writer, stopped));
    tokio::time::sleep(CALM).await;
    let from = Instant::now();
    let deleted = prune_inbox(&pruner, KEPT).await?;
    let to = Instant::now();
    stop.send_replace(true);
    let messages = messages.await??;

    ensure!(
        deleted == ids,
        "{deleted} ids were deleted instead of {ids}"
    );
    let left: String = pruner.query_one(CHECK, &[]).await?.try_get(0)?;
    let written = messages.len();
    ensure!(
        left == format!("{written}/{written}"),
        "{left} new ids and rows instead of {written}"
    );
    let (calm, pruning): (Vec<_>, Vec<_>) = messages.into_iter().partition(|(due, _)| *due < from);
    let latencies =
        |all: Vec<(Instant, f64)>| Latencies::of(all.into_iter().map(|it| it.1).collect());
    Ok(Outcome {
        round,
        deleted,
        took: to - from,
        calm: latencies(calm),
        pruning: latencies(pruning),
    })
}

/// Claims an id and inserts its row in one transaction, at a fixed rate. Returns the due time and the latency of
/// each message.
async fn write(mut client: Client, stopped: watch::Receiver<bool>) -> Result<Vec<(Instant, f64)>> {
    let claim = client.prepare(CLAIM).await?;
    let insert = client.prepare(INSERT).await?;
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut all = Vec::new();
    while !*stopped.borrow() {
        let due = ticks.tick().await;
        let id = i64::try_from(all.len())? + 1;
        let transaction = client.transaction().await?;
        let claimed = transaction.execute(&claim, &[&id]).await?;
        ensure!(claimed == 1, "the id {id} is not new");
        transaction.execute(&insert, &[&id]).await?;
        transaction.commit().await?;
        all.push((due, due.elapsed().as_secs_f64() * 1_000.0));
    }
    Ok(all)
}

async fn client(url: &str) -> Result<Client> {
    let (client, connection) = connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
