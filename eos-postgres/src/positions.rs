//! The positions of a worker: reads and take-overs.

use std::collections::{HashMap, VecDeque};
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_core::boundary::{
    Answer, Epoch, Identity, Ledger, LedgerError, LedgerFailure, Plan, Positions, Taken,
};
use eos_protocol::{Offset, TopicPartition};
use tokio_postgres::{Client, Statement};

use crate::actor::{Actor, Inbound};
use crate::connect::{self, Target};
use crate::error::Failed;
use crate::postgres::Postgres;
use crate::sql;
use crate::sqlstate::{Call, Reaction};

/// Time limit for the lock of a position. A held position is tried again afterwards, so that it does not delay the
/// others.
const LOCK_LIMIT: Duration = Duration::from_millis(100);
/// A transaction that holds a position for this long may belong to a frozen worker: its session is ended.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for the response to a statement of one row.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// `lock_timeout` has passed.
const NO_LOCK: &str = "55P03";

/// The positions of a worker.
#[derive(Debug)]
pub(crate) struct PostgresPositions {
    start: Start,
    actor: Option<Actor<Request, Answer<Vec<Taken>>>>,
    asked: Option<Request>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Request {
    TakeOver(Vec<TopicPartition>),
    Look(Vec<TopicPartition>),
}

/// The settings of the thread.
#[derive(Debug, Clone)]
struct Start {
    target: Target,
    ledger: String,
    end_holder: String,
    app: String,
    owner: i64,
    cluster_id: String,
    topic_ids: HashMap<String, String>,
}

impl PostgresPositions {
    pub(crate) fn new(postgres: &Postgres, plan: &Plan, identity: &Identity) -> Self {
        let topic_ids = plan
            .topics
            .iter()
            .filter_map(|(name, id)| Some((name.as_str().to_owned(), id.as_ref()?.to_string())));
        Self {
            start: Start {
                target: postgres.target().clone(),
                ledger: postgres.name(),
                end_holder: postgres.statements().end_holder.clone(),
                app: plan.app.clone(),
                owner: identity.owner.cast_signed(),
                cluster_id: plan.cluster_id.clone().unwrap_or_default(),
                topic_ids: topic_ids.collect(),
            },
            actor: None,
            asked: None,
        }
    }

    fn ask(&mut self, request: Request, slice: Duration) -> Poll<Answer<Vec<Taken>>> {
        if self.actor.is_none() {
            let start = self.start.clone();
            let spawned = Actor::spawn("eos-pg-positions", |inbound| start.run(inbound));
            match spawned {
                Ok(actor) => self.actor = Some(actor),
                Err(error) => return Poll::Ready(Err(self.gone(&error.to_string()))),
            }
        }
        let Some(actor) = &mut self.actor else {
            return Poll::Ready(Err(self.gone("it was not started")));
        };
        if self.asked.as_ref() != Some(&request) {
            actor.abandon();
            self.asked = Some(request.clone());
        }
        match actor.ask("positions", || request, slice) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(answer)) => {
                self.asked = None;
                Poll::Ready(answer)
            }
            Poll::Ready(Err(_)) => {
                self.actor = None;
                self.asked = None;
                Poll::Ready(Err(self.gone("it has ended")))
            }
        }
    }

    fn gone(&self, why: &str) -> LedgerError {
        LedgerError::new(
            LedgerFailure::Retriable,
            format!("{}: no thread for positions: {why}", self.start.ledger),
        )
    }
}

impl Positions for PostgresPositions {
    fn take_over(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Answer<Vec<Taken>>> {
        self.ask(Request::TakeOver(of.to_vec()), slice)
    }

    fn look(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Answer<Vec<Taken>>> {
        self.ask(Request::Look(of.to_vec()), slice)
    }

    fn forget(&mut self) {
        self.asked = None;
        if let Some(actor) = &mut self.actor {
            actor.abandon();
        }
    }
}

impl Start {
    async fn run(self, mut inbound: Inbound<Request, Answer<Vec<Taken>>>) {
        let mut connection: Option<Connection> = None;
        let mut held_since = HashMap::new();
        while let Some((number, request)) = inbound.next().await {
            let answer = self
                .handle(&mut connection, &mut held_since, &inbound, request)
                .await;
            let Some(answer) = answer else {
                // The worker has sent another request.
                continue;
            };
            if let Err(failed) = &answer
                && failed.reaction == Reaction::Retry
            {
                // A new connection: this one may be gone.
                connection = None;
                held_since.clear();
            }
            inbound.answer(
                number,
                answer.map_err(|failed| failed.into_error(&self.ledger)),
            );
        }
    }

    async fn handle(
        &self,
        connection: &mut Option<Connection>,
        held_since: &mut HashMap<TopicPartition, Instant>,
        inbound: &Inbound<Request, Answer<Vec<Taken>>>,
        request: Request,
    ) -> Option<Result<Vec<Taken>, Failed>> {
        let connection = match connection {
            Some(connection) if !connection.client.is_closed() => connection,
            // Each host has a time limit of its own.
            _ => match self.connect().await {
                Ok(new) => connection.insert(new),
                Err(failed) => return Some(Err(failed)),
            },
        };
        match request {
            Request::Look(of) => {
                held_since.clear();
                Some(limited(self.look(connection, &of)).await)
            }
            Request::TakeOver(of) => {
                // The time of an abandoned take-over does not count.
                held_since.retain(|held, _| of.contains(held));
                let mut take_over = TakeOver {
                    start: self,
                    connection,
                    held_since,
                    left: of.into(),
                    taken: Vec::new(),
                };
                take_over.run(inbound).await
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Failed> {
        let client = connect::open(&self.target, "eos/positions").await?;
        limited(self.prepare(client)).await
    }

    async fn prepare(&self, client: Client) -> Result<Connection, Failed> {
        let failed =
            |error: tokio_postgres::Error| Failed::of(Call::Outside, "the connection", &error);
        let settings = format!(
            "SET lock_timeout = {}; SET statement_timeout = {}; \
             SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE; \
             SET idle_in_transaction_session_timeout = '30s'",
            LOCK_LIMIT.as_millis(),
            STATEMENT_LIMIT.as_millis()
        );
        client.batch_execute(&settings).await.map_err(failed)?;
        connect::notice_lost_client(&client).await.map_err(failed)?;
        let prepare = async |text: &str| client.prepare(text).await.map_err(failed);
        Ok(Connection {
            take_over: prepare(sql::TAKE_OVER).await?,
            look: prepare(sql::LOOK).await?,
            end_holder: prepare(&self.end_holder).await?,
            client,
        })
    }

    fn topic_id(&self, topic: &str) -> &str {
        self.topic_ids.get(topic).map_or("", String::as_str)
    }

    async fn look(
        &self,
        connection: &Connection,
        of: &[TopicPartition],
    ) -> Result<Vec<Taken>, Failed> {
        let failed =
            |error: tokio_postgres::Error| Failed::of(Call::Outside, "a look at positions", &error);
        let topics: Vec<&str> = of.iter().map(|of| of.topic.as_str()).collect();
        let numbers: Vec<i32> = of.iter().map(|of| of.partition.get()).collect();
        let rows = connection
            .client
            .query(&connection.look, &[&self.app, &topics, &numbers])
            .await
            .map_err(failed)?;
        let mut found = HashMap::new();
        for row in &rows {
            let topic: String = row.try_get(0).map_err(failed)?;
            let number: i32 = row.try_get(1).map_err(failed)?;
            let stored = Stored {
                cluster_id: row.try_get(5).map_err(failed)?,
                topic_id: row.try_get(6).map_err(failed)?,
            };
            if let Some(of) = of
                .iter()
                .find(|of| of.topic.as_str() == topic && of.partition.get() == number)
            {
                self.compare(of, &stored)?;
            }
            let epoch: i64 = row.try_get(2).map_err(failed)?;
            let offset: Option<i64> = row.try_get(3).map_err(failed)?;
            let name: String = row.try_get(4).map_err(failed)?;
            found.insert((topic, number), (epoch, offset, name));
        }
        of.iter()
            .map(|of| {
                let key = (of.topic.as_str().to_owned(), of.partition.get());
                let (epoch, offset, name) = found.remove(&key).unwrap_or_default();
                taken(of, epoch, offset, name)
            })
            .collect()
    }

    /// Fails if the stored position belongs to another cluster or topic, because its offsets mean other records.
    fn compare(&self, of: &TopicPartition, stored: &Stored) -> Result<(), Failed> {
        let pairs = [
            ("cluster", &*stored.cluster_id, &*self.cluster_id),
            ("topic", &*stored.topic_id, self.topic_id(of.topic.as_str())),
        ];
        for (what, stored, ours) in pairs {
            if !stored.is_empty() && !ours.is_empty() && stored != ours {
                return Err(Failed::new(
                    Reaction::Stop,
                    format!(
                        "the position of {of} in eos.positions belongs to the {what} with id {stored}, and this one has \
                         id {ours}: its offsets are those of other records. If the {what} was created again on purpose, \
                         delete the positions of app `{}` and topic `{}`; the app then reads from the start, and the \
                         tables keep the rows of before",
                        self.app, of.topic
                    ),
                ));
            }
        }
        Ok(())
    }
}

struct Stored {
    cluster_id: String,
    topic_id: String,
}

struct Connection {
    client: Client,
    take_over: Statement,
    look: Statement,
    end_holder: Statement,
}

/// One take-over. Each partition has a transaction of its own, so that a held position does not delay the others.
struct TakeOver<'a> {
    start: &'a Start,
    connection: &'a Connection,
    held_since: &'a mut HashMap<TopicPartition, Instant>,
    left: VecDeque<TopicPartition>,
    taken: Vec<Taken>,
}

impl TakeOver<'_> {
    /// Returns `None` if the worker has sent another request meanwhile.
    async fn run(
        &mut self,
        inbound: &Inbound<Request, Answer<Vec<Taken>>>,
    ) -> Option<Result<Vec<Taken>, Failed>> {
        loop {
            let round = self.left.len();
            for _ in 0..round {
                let Some(partition) = self.left.pop_front() else {
                    break;
                };
                if let Err(failed) = limited(self.take(partition)).await {
                    return Some(Err(failed));
                }
            }
            if !self.taken.is_empty() || self.left.is_empty() {
                return Some(Ok(std::mem::take(&mut self.taken)));
            }
            if !inbound.is_empty() {
                return None;
            }
        }
    }

    async fn take(&mut self, of: TopicPartition) -> Result<(), Failed> {
        let start = self.start;
        let topic = of.topic.as_str();
        let row = self
            .connection
            .client
            .query_opt(
                &self.connection.take_over,
                &[
                    &start.app,
                    &topic,
                    &of.partition.get(),
                    &start.owner,
                    &start.cluster_id,
                    &start.topic_id(topic),
                ],
            )
            .await;
        let failed =
            |error: tokio_postgres::Error| Failed::of(Call::Outside, "a take-over", &error);
        match row {
            Ok(Some(row)) => {
                self.held_since.remove(&of);
                let epoch = row.try_get(0).map_err(failed)?;
                let offset = row.try_get(1).map_err(failed)?;
                let name = row.try_get(2).map_err(failed)?;
                self.taken.push(taken(&of, epoch, offset, name)?);
                Ok(())
            }
            // The statement returns no row only for a position of another cluster or topic. The look returns an error
            // that names it.
            Ok(None) => {
                start
                    .look(self.connection, std::slice::from_ref(&of))
                    .await?;
                self.left.push_back(of);
                Ok(())
            }
            Err(error) if error.code().is_some_and(|code| code.code() == NO_LOCK) => {
                self.held(of).await
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Ends the session that holds the position, if it has been held for long.
    async fn held(&mut self, of: TopicPartition) -> Result<(), Failed> {
        let since = *self
            .held_since
            .entry(of.clone())
            .or_insert_with(|| Instant::now() - LOCK_LIMIT);
        if since.elapsed() >= PATIENCE {
            self.end_holder(&of).await?;
        }
        self.left.push_back(of);
        Ok(())
    }

    async fn end_holder(&mut self, of: &TopicPartition) -> Result<(), Failed> {
        let rows = self
            .connection
            .client
            .query(
                &self.connection.end_holder,
                &[&self.start.app, &of.topic.as_str(), &of.partition.get()],
            )
            .await;
        let rows = match rows {
            Ok(rows) => rows,
            // The session belongs to another role. It ends at its timeout.
            Err(error) if error.code().is_some_and(|code| code.code() == "42501") => {
                tracing::warn!(partition = %of, "{}: this role may not end the session that holds a position: waiting", self.start.ledger);
                return Ok(());
            }
            Err(error) => return Err(Failed::of(Call::Outside, "a take-over", &error)),
        };
        for row in &rows {
            let pid: i32 = row.try_get(0).unwrap_or_default();
            let name: String = row.try_get(1).unwrap_or_default();
            if row.try_get::<_, Option<bool>>(2).ok().flatten() == Some(true) {
                tracing::info!(partition = %of, pid, "{}: ended the session {name}, which held a position", self.start.ledger);
            } else {
                tracing::warn!(partition = %of, pid, "{}: a session that is not ours ({name}) holds a position: waiting", self.start.ledger);
            }
        }
        Ok(())
    }
}

fn taken(
    of: &TopicPartition,
    epoch: i64,
    offset: Option<i64>,
    name: String,
) -> Result<Taken, Failed> {
    let offset = match offset.map(Offset::new) {
        None => None,
        Some(Ok(offset)) => Some(offset),
        Some(Err(_)) => {
            return Err(Failed::new(
                Reaction::Stop,
                format!("the position of {of} in eos.positions is negative: correct the row"),
            ));
        }
    };
    Ok(Taken {
        partition: of.clone(),
        offset,
        name,
        epoch: Epoch(epoch),
    })
}

/// Limits the time of a call. A server that does not respond counts as unavailable.
async fn limited<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    match tokio::time::timeout(STATEMENT_LIMIT, work).await {
        Ok(result) => result,
        Err(_) => Err(Failed::new(
            Reaction::Retry,
            format!("the server has not answered for {STATEMENT_LIMIT:?}"),
        )),
    }
}
