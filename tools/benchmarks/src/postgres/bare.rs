//! A hand-written loop with the statements of eos, without positions.
//!
//! One thread reads and decodes records while the loop writes the previous ones. The loop commits offsets in Kafka after the rows.
//! A crash between the two commits therefore writes rows again.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use eos_postgres::tokio_postgres::{self, Client, NoTls, Statement, Transaction};
use futures::future::try_join_all;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::views::ADD;
use crate::side::Task;
use crate::work::{View, Work};

/// The most rows of a statement, as in eos.
const MAX_ROWS: usize = 5_000;
/// Chunks that wait for the database.
const WAITING: usize = 2;
/// The timeout of a poll.
const POLL: Duration = Duration::from_millis(5);

const INSERT: &str = "INSERT INTO page_views (username, page, ms, seq, pad) \
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])";
const UPSERT: &str = "INSERT INTO page_views (username, page, ms, seq, pad) \
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) \
    ON CONFLICT (username) DO UPDATE SET page = excluded.page, ms = excluded.ms, seq = excluded.seq, pad = excluded.pad";

/// The rows of one statement, and the next offset of each partition.
#[derive(Debug, Default)]
struct Chunk {
    users: Vec<String>,
    pages: Vec<String>,
    ms: Vec<i64>,
    seqs: Vec<i64>,
    pads: Vec<String>,
    /// The index of each key's row, for upserts.
    places: HashMap<String, usize>,
    next: BTreeMap<i32, i64>,
}

/// Writes all records of the task.
pub(crate) fn run(task: &Task) -> Result<()> {
    let consumer = consumer(task)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::scope(|scope| {
        // The reader thread owns the sender. The channel closes when that thread ends.
        let consumer = &consumer;
        let reader = scope.spawn(move || read(task, consumer, &sender));
        let written = runtime.block_on(write(task, consumer, receiver));
        let read = reader.join();
        let read = read.map_err(|_panic| anyhow::anyhow!("the reader thread panicked"))?;
        written.and(read)
    })
}

fn consumer(task: &Task) -> Result<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &task.bootstrap)
        .set("group.id", &task.group)
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("check.crcs", "true")
        .create()?;
    consumer.subscribe(&[&task.input])?;
    Ok(consumer)
}

fn read(task: &Task, consumer: &BaseConsumer, sender: &mpsc::Sender<Chunk>) -> Result<()> {
    let (mut chunk, mut count) = (Chunk::default(), 0);
    while count < task.records {
        let message = consumer.poll(POLL).transpose()?;
        if let Some(message) = &message {
            let view = serde_json::from_slice(
                message
                    .payload()
                    .context("a record of the input has no value")?,
            )?;
            chunk.push(view, task.work);
            chunk.next.insert(message.partition(), message.offset() + 1);
            count += 1;
        }
        let is_full = chunk.users.len() >= MAX_ROWS;
        if is_full || (message.is_none() && !chunk.users.is_empty()) || count == task.records {
            sender.blocking_send(std::mem::take(&mut chunk))?;
        }
    }
    Ok(())
}

impl Chunk {
    fn push(&mut self, view: View, work: Work) {
        let new = self.users.len();
        let place = match work {
            // One `ON CONFLICT` statement can't update a row twice.
            Work::Upsert => *self.places.entry(view.user.clone()).or_insert(new),
            _ => new,
        };
        let (ms, seq) = (i64::from(view.ms), view.seq.cast_signed());
        if place == new {
            self.users.push(view.user);
            self.pages.push(view.page);
            self.ms.push(ms);
            self.seqs.push(seq);
            self.pads.push(view.pad);
        } else {
            self.pages[place] = view.page;
            self.ms[place] = ms;
            self.seqs[place] = seq;
            self.pads[place] = view.pad;
        }
    }
}

async fn write(
    task: &Task,
    consumer: &BaseConsumer,
    mut chunks: mpsc::Receiver<Chunk>,
) -> Result<()> {
    let (mut client, connection) = tokio_postgres::connect(task.database()?, NoTls).await?;
    tokio::spawn(connection);
    let statement = prepare(&client, task.work).await?;
    while let Some(first) = chunks.recv().await {
        let end = Instant::now() + task.commit_interval;
        let mut next = first.next.clone();
        let transaction = client.transaction().await?;
        execute(&transaction, &statement, task.work, &first).await?;
        // After its deadline, `timeout_at` still returns a chunk that is ready, so the loop checks the time as well.
        while Instant::now() < end
            && let Ok(Some(chunk)) = timeout_at(end, chunks.recv()).await
        {
            execute(&transaction, &statement, task.work, &chunk).await?;
            next.extend(chunk.next);
        }
        transaction.commit().await?;
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in next {
            offsets.add_partition_offset(&task.input, partition, Offset::Offset(offset))?;
        }
        consumer.commit(&offsets, CommitMode::Async)?;
    }
    Ok(())
}

async fn prepare(client: &Client, work: Work) -> Result<Statement> {
    let text = match work {
        Work::Insert => INSERT,
        Work::Upsert => UPSERT,
        Work::Statements => ADD,
        _ => bail!("{} writes no rows", work.name()),
    };
    Ok(client.prepare(text).await?)
}

async fn execute(
    transaction: &Transaction<'_>,
    statement: &Statement,
    work: Work,
    chunk: &Chunk,
) -> Result<()> {
    let Chunk {
        users,
        pages,
        ms,
        seqs,
        pads,
        ..
    } = chunk;
    if work == Work::Statements {
        // The driver pipelines these calls. The server runs them one after the other.
        let each = users.iter().zip(ms);
        let each =
            each.map(|(user, ms)| async move { transaction.execute(statement, &[user, ms]).await });
        let changed = try_join_all(each).await?;
        anyhow::ensure!(
            changed.iter().all(|rows| *rows == 1),
            "an UPDATE of `totals` changed no row: its user has no row"
        );
        return Ok(());
    }
    transaction
        .execute(statement, &[users, pages, ms, seqs, pads])
        .await?;
    Ok(())
}
