//! The thread of a session: its transactions, one after the other.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use eos_core::boundary::{Answer, Expected, LedgerFailure, LedgerTotals, Move};
use eos_protocol::TopicPartition;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::chunk::Chunk;
use super::open::{Connection, Opening};
use super::pipeline::Pipeline;
use super::rows::{MAX_FOLDED, Rows};
use crate::actor::Inbound;
use crate::defence::Defence;
use crate::error::Failed;
use crate::place::Refused;
use crate::sql;
use crate::sqlstate::{Call, Reaction};

/// A call of the worker.
#[derive(Debug)]
pub(super) enum Command {
    Init,
    Begin,
    Hold(Vec<Expected>),
    Write(Chunk),
    Set(Vec<Move>),
    Flush,
    Commit,
    Abort,
}

/// The state that both threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Whether the connection is gone, or a commit has no answer.
    pub(super) is_spoiled: AtomicBool,
    /// Whether the connection is gone. Each connection has its own.
    is_gone: Mutex<Arc<AtomicBool>>,
    /// The bytes that were sent to the thread, and not yet to the server.
    pub(super) queued: AtomicUsize,
    /// A failure that no later call can repair, so that the worker need not decode more records.
    pub(super) failed: Mutex<Option<Failed>>,
}

impl Shared {
    pub(super) fn is_gone(&self) -> bool {
        let is_gone = self.is_gone.lock().unwrap_or_else(PoisonError::into_inner);
        is_gone.load(Ordering::Acquire)
    }

    fn connected(&self, is_gone: Arc<AtomicBool>) {
        *self.is_gone.lock().unwrap_or_else(PoisonError::into_inner) = is_gone;
    }

    fn publish(&self, failed: Option<Failed>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }
}

/// Runs the commands of a session until it is dropped.
pub(super) async fn run(
    opening: Opening,
    shared: Arc<Shared>,
    mut inbound: Inbound<Command, Answer>,
) {
    let ledger = eos_core::boundary::Ledger::name(&opening.postgres);
    let mut work: Option<Work> = None;
    while let Some((number, command)) = inbound.next().await {
        let result = match (&mut work, command) {
            (_, Command::Init) => {
                work = None;
                let is_gone = Arc::default();
                match opening.open(&is_gone).await {
                    Ok(connection) => {
                        shared.connected(is_gone);
                        work = Some(Work::new(&opening, &shared, connection));
                        Ok(())
                    }
                    Err(failed) => Err(failed),
                }
            }
            (Some(work), command) => work.handle(command).await,
            (None, _) => Err(Failed::new(Reaction::Lost, "the session was not started")),
        };
        if number > 0 {
            inbound.answer(number, result.map_err(|failed| failed.into_error(&ledger)));
        }
    }
}

/// A connection and its open transaction.
pub(super) struct Work {
    pub(super) opening: Opening,
    shared: Arc<Shared>,
    pub(super) connection: Rc<Connection>,
    pub(super) pipeline: Pipeline,
    pub(super) rows: Rows,
    /// The positions that this transaction has locked.
    pub(super) held: Vec<Expected>,
    /// All rows of the transaction, if a refused record does not end it.
    pub(super) memory: Vec<Rc<Chunk>>,
    /// The refusal that `set` repairs: it runs the records again.
    refused: Option<Failed>,
    /// Whether this transaction has compared the types of columns after a refusal.
    is_checked: bool,
    keeps_memory: bool,
    /// Counts of the open transaction, for the metrics.
    pub(super) counts: LedgerTotals,
}

impl Work {
    fn new(opening: &Opening, shared: &Arc<Shared>, connection: Connection) -> Self {
        let connection = Rc::new(connection);
        let max_folded = match opening.postgres.has(Defence::SortedTransaction) {
            true => MAX_FOLDED,
            false => 0,
        };
        let keeps_memory = connection
            .places
            .iter()
            .any(|place| place.definition.refused != Refused::Fail);
        Self {
            opening: opening.clone(),
            shared: Arc::clone(shared),
            pipeline: Pipeline::new(
                Rc::clone(&connection.client),
                opening.postgres.has(Defence::CheckedAnswers),
            ),
            rows: Rows::new(Rc::clone(&connection), &opening.plan.app, max_folded),
            connection,
            held: Vec::new(),
            memory: Vec::new(),
            refused: None,
            is_checked: false,
            keeps_memory,
            counts: LedgerTotals::default(),
        }
    }

    async fn handle(&mut self, command: Command) -> Result<(), Failed> {
        // After any other command, `set` still leaves out the refused records.
        let decides = !self.keeps_memory || matches!(command, Command::Set(_));
        let mut result = match command {
            Command::Init => Ok(()),
            Command::Begin => {
                self.begin().await;
                Ok(())
            }
            Command::Hold(expected) => {
                self.hold(expected).await;
                Ok(())
            }
            Command::Write(chunk) => {
                self.write(chunk).await;
                Ok(())
            }
            Command::Flush => self.flush().await,
            Command::Set(moves) => self.set(&moves).await,
            Command::Commit => self.commit().await,
            Command::Abort => self.abort().await,
        };
        if decides && let Err(changed) = self.check_refusal().await {
            self.pipeline.blame(changed.clone());
            result = result.map_err(|_| changed);
        }
        self.note_failure();
        if let Err(failed) = &result
            && failed.reaction == Reaction::Lost
        {
            self.shared.is_spoiled.store(true, Ordering::Release);
        }
        result
    }

    /// Compares the types of columns before a refusal blames a record, or the type of a value stops the worker. Rolls the
    /// transaction back, and begins another one, which never commits.
    async fn check_refusal(&mut self) -> Result<(), Failed> {
        let is_refused =
            |failed: &Failed| failed.reaction == Reaction::Refuse || failed.is_of_type();
        if self.is_checked || !self.pipeline.failed().is_some_and(is_refused) {
            return Ok(());
        }
        self.is_checked = true;
        self.text("ROLLBACK; BEGIN").await?;
        self.connection
            .columns
            .compare(&self.connection.client)
            .await
    }

    /// Keeps a refusal that `set` repairs. Shares any other failure with the worker.
    fn note_failure(&mut self) {
        let Some(failed) = self.pipeline.failed() else {
            return;
        };
        if failed.reaction == Reaction::Lost {
            self.shared.is_spoiled.store(true, Ordering::Release);
        }
        if failed.reaction == Reaction::Refuse && self.keeps_memory {
            self.refused.get_or_insert_with(|| failed.clone());
        } else {
            self.shared.publish(Some(failed.clone()));
        }
    }

    async fn begin(&mut self) {
        self.forget();
        let connection = &self.connection;
        match connection.prepared.check_doubtful(&connection.client).await {
            Ok(()) => self.send_begin().await,
            Err(failed) => self.pipeline.blame(failed),
        }
    }

    fn forget(&mut self) {
        self.pipeline.clear();
        self.rows.clear();
        self.held.clear();
        self.memory.clear();
        self.refused = None;
        self.is_checked = false;
        self.counts = LedgerTotals::default();
        self.shared.publish(None);
    }

    pub(super) async fn send_begin(&mut self) {
        let text = sql::BEGIN.to_owned();
        self.pipeline
            .send_text(Call::Position, "the start of a transaction", text)
            .await;
    }

    async fn hold(&mut self, expected: Vec<Expected>) {
        self.send_hold(&expected).await;
        self.held.extend(expected);
    }

    /// Locks positions. The answer is checked with those of the rows.
    pub(super) async fn send_hold(&mut self, expected: &[Expected]) {
        if expected.is_empty() {
            return;
        }
        let positions = self.positions(expected);
        let connection = Rc::clone(&self.connection);
        let opening = self.opening.clone();
        self.pipeline
            .send_future(async move {
                let rows = connection
                    .client
                    .query(
                        &connection.hold,
                        &positions.params(&opening, &connection.epoch),
                    )
                    .await
                    .map_err(|error| Failed::of(Call::Position, "the lock of positions", &error))?;
                positions.compare(&opening, &connection, &rows).await
            })
            .await;
    }

    fn positions(&self, expected: &[Expected]) -> PositionParams {
        PositionParams {
            partitions: expected.iter().map(|one| one.partition.clone()).collect(),
            topics: expected
                .iter()
                .map(|one| one.partition.topic.as_str().to_owned())
                .collect(),
            numbers: expected
                .iter()
                .map(|one| one.partition.partition.get())
                .collect(),
            epochs: expected.iter().map(|one| one.epoch.0).collect(),
            from: expected
                .iter()
                .map(|one| one.from.map(|offset| offset.get()))
                .collect(),
        }
    }

    async fn write(&mut self, chunk: Chunk) {
        let weight = chunk.weight();
        self.counts.rows += chunk.len() as u64;
        let chunk = Rc::new(chunk);
        if self.keeps_memory {
            self.memory.push(Rc::clone(&chunk));
        }
        self.pipeline.reap().await;
        self.rows.write(&mut self.pipeline, &chunk).await;
        self.shared.queued.fetch_sub(weight, Ordering::AcqRel);
    }

    /// Waits for the answers of all rows that were sent. Rows of a key, and of an inbox, are sent by `set`.
    async fn flush(&mut self) -> Result<(), Failed> {
        match self.pipeline.drain().await {
            Err(failed) if failed.reaction == Reaction::Refuse && self.keeps_memory => Ok(()),
            result => result,
        }
    }

    async fn set(&mut self, moves: &[Move]) -> Result<(), Failed> {
        if let Err(failed) = self.seal().await {
            if failed.reaction != Reaction::Refuse || !self.keeps_memory {
                return Err(failed);
            }
            tracing::debug!(
                "a row was refused, so the records run again in batches: {}",
                failed.text
            );
            self.refused = None;
            self.counts.careful_transactions = 1;
            self.careful().await?;
        }
        self.move_positions(moves).await
    }

    /// Sends the rest of the rows, and waits for all answers.
    async fn seal(&mut self) -> Result<(), Failed> {
        self.rows.seal(&mut self.pipeline).await;
        self.check_constraints().await;
        self.pipeline.drain().await
    }

    pub(super) async fn check_constraints(&mut self) {
        if !self.opening.postgres.has(Defence::EarlyConstraints) {
            return;
        }
        let text = sql::CHECK_CONSTRAINTS.to_owned();
        self.pipeline
            .send_text(Call::Data, "a deferred constraint", text)
            .await;
    }

    async fn move_positions(&mut self, moves: &[Move]) -> Result<(), Failed> {
        let expected: Vec<Expected> = moves.iter().map(|one| one.expected.clone()).collect();
        let positions = self.positions(&expected);
        let targets: Vec<i64> = moves.iter().map(|one| one.to.get()).collect();
        let names: Vec<&str> = moves.iter().map(|one| one.name.as_str()).collect();
        let mut params = positions.params(&self.opening, &self.connection.epoch);
        params.push(&targets);
        params.push(&names);
        let rows = self
            .connection
            .client
            .query(&self.connection.set, &params)
            .await
            .map_err(|error| Failed::of(Call::Position, "the move of positions", &error));
        let result = match rows {
            Ok(rows) => {
                positions
                    .compare(&self.opening, &self.connection, &rows)
                    .await
            }
            Err(failed) => Err(failed),
        };
        if let Err(failed) = &result {
            // A commit after this would commit rows without their positions.
            self.pipeline.fail(failed.clone());
        }
        match self.opening.postgres.has(Defence::CheckedAnswers) {
            true => result,
            false => Ok(()),
        }
    }

    /// Commits only after all statements have succeeded, because a `COMMIT` of a failed transaction rolls back without
    /// an error.
    async fn commit(&mut self) -> Result<(), Failed> {
        self.pipeline.drain().await?;
        let mut done = self.connection.client.batch_execute("COMMIT").await;
        if done.is_err() && !self.opening.postgres.has(Defence::OneCommit) {
            done = self.connection.client.batch_execute("COMMIT").await;
        }
        done.map_err(|error| Failed::of(Call::End, "COMMIT", &error))?;
        self.opening.postgres.counters().add(&self.counts);
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), Failed> {
        // The answers must be taken before that of ROLLBACK.
        let _ = self.pipeline.drain().await;
        self.forget();
        match self.connection.client.batch_execute("ROLLBACK").await {
            Ok(()) => Ok(()),
            // Without a connection, the server ends the transaction.
            Err(_) if self.connection.client.is_closed() => {
                self.shared.is_spoiled.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                self.shared.is_spoiled.store(true, Ordering::Release);
                Err(Failed::of(Call::End, "ROLLBACK", &error))
            }
        }
    }
}

/// Positions as arrays.
struct PositionParams {
    partitions: Vec<TopicPartition>,
    topics: Vec<String>,
    numbers: Vec<i32>,
    epochs: Vec<i64>,
    from: Vec<Option<i64>>,
}

impl PositionParams {
    fn params<'a>(&'a self, opening: &'a Opening, epoch: &'a i64) -> Vec<&'a (dyn ToSql + Sync)> {
        vec![
            &opening.plan.app,
            &opening.owner,
            &opening.identity,
            epoch,
            &self.topics,
            &self.numbers,
            &self.epochs,
            &self.from,
        ]
    }

    /// Fails unless `rows` contains all positions.
    async fn compare(
        &self,
        opening: &Opening,
        connection: &Connection,
        rows: &[tokio_postgres::Row],
    ) -> Result<(), Failed> {
        let failed = |error: tokio_postgres::Error| Failed::of(Call::Position, "positions", &error);
        let mut good = Vec::new();
        for row in rows {
            let topic: String = row.try_get(0).map_err(failed)?;
            let number: i32 = row.try_get(1).map_err(failed)?;
            good.push((topic, number));
        }
        let is_good = |of: &TopicPartition| {
            good.iter()
                .any(|(topic, number)| of.topic.as_str() == topic && of.partition.get() == *number)
        };
        let moved: Vec<TopicPartition> = self
            .partitions
            .iter()
            .filter(|of| !is_good(of))
            .cloned()
            .collect();
        if moved.is_empty() {
            return Ok(());
        }
        let why = connection
            .client
            .query_one(sql::WHY, &[&opening.identity, &connection.epoch])
            .await;
        match why {
            // A row that was sent after the lock of the positions has failed before this query.
            Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {}
            Err(error) => return Err(failed(error)),
            Ok(why) => {
                if !why.try_get::<_, bool>(0).map_err(failed)? {
                    return Err(Failed::new(
                        Reaction::Stop,
                        "a statement has ended the transaction, so that its rows are committed without their position. \
                         Remove COMMIT and ROLLBACK from the statements of the app",
                    ));
                }
                if !why.try_get::<_, bool>(1).map_err(failed)? {
                    return Err(opening.superseded());
                }
                if !why.try_get::<_, bool>(2).map_err(failed)? {
                    return Err(Failed::new(
                        Reaction::Stop,
                        "a statement has changed the role or the search_path, so that later statements could use other \
                         tables. Write schema.table, or call a function that has a SET clause",
                    ));
                }
            }
        }
        let names: Vec<String> = moved.iter().map(ToString::to_string).collect();
        let text = format!(
            "the positions of {} are not as expected: another worker took them over, or the database went back",
            names.join(", ")
        );
        Err(Failed::overtaken(LedgerFailure::Moved(moved), text))
    }
}
