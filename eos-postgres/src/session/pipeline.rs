//! Statements of a transaction, sent without waiting for the answers of earlier ones.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::error::Failed;
use crate::sqlstate::{Call, Reaction};

/// The most statements without an answer.
const MAX_IN_FLIGHT: usize = 256;

pub(super) type Params = Vec<Box<dyn ToSql + Sync>>;

/// A statement to send.
pub(super) struct Request {
    pub(super) statement: Statement,
    pub(super) params: Params,
    pub(super) expect: Expect,
    /// The purpose, for messages.
    pub(super) what: String,
    pub(super) place: usize,
}

/// The expected answer to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Success,
    /// This number of rows is affected.
    Affects(u64),
    /// The answer is the number of keys without a row, which must be 0.
    NoneMissing,
}

type InFlight = Pin<Box<dyn Future<Output = Result<(), Failed>>>>;

/// The statements under way.
pub(super) struct Pipeline {
    client: Rc<Client>,
    in_flight: VecDeque<(usize, InFlight)>,
    failed: Option<Failed>,
    /// The mark of the next statements.
    mark: usize,
    /// The mark of the failed statement.
    failed_mark: usize,
    /// Whether a failure is kept. It always is, except in a test that removes this defence.
    is_checked: bool,
}

impl Pipeline {
    pub(super) fn new(client: Rc<Client>, is_checked: bool) -> Self {
        Self {
            client,
            is_checked,
            in_flight: VecDeque::new(),
            failed: None,
            mark: 0,
            failed_mark: 0,
        }
    }

    /// Marks the statements that follow, to recognise the failed one.
    pub(super) fn mark(&mut self, mark: usize) {
        self.mark = mark;
    }

    /// Returns the mark of the statement that failed first.
    pub(super) fn failed_mark(&self) -> usize {
        self.failed_mark
    }

    pub(super) fn failed(&self) -> Option<&Failed> {
        self.failed.as_ref()
    }

    /// Keeps the first failure, because later statements fail as a consequence.
    pub(super) fn fail(&mut self, failed: Failed) {
        self.fail_at(self.mark, failed);
    }

    fn fail_at(&mut self, mark: usize, failed: Failed) {
        if self.failed.is_none() && self.is_checked {
            self.failed_mark = mark;
            self.failed = Some(failed);
        }
    }

    /// Replaces the first failure by its cause.
    pub(super) fn blame(&mut self, cause: Failed) {
        self.failed = Some(cause);
    }

    /// As [`fail`](Self::fail), after the answers of the statements that were sent before.
    pub(super) async fn fail_after_sent(&mut self, failed: Failed) {
        self.drain_into().await;
        self.fail(failed);
    }

    /// Forgets a transaction that has ended.
    pub(super) fn clear(&mut self) {
        self.in_flight.clear();
        self.failed = None;
    }

    /// Sends a statement, unless an earlier one has failed.
    pub(super) async fn send(&mut self, request: Request) {
        if self.failed.is_some() {
            return;
        }
        let client = Rc::clone(&self.client);
        self.launch(Box::pin(run(client, request))).await;
    }

    /// Sends statements without parameters.
    pub(super) async fn send_text(&mut self, call: Call, what: &'static str, text: String) {
        if self.failed.is_some() {
            return;
        }
        let client = Rc::clone(&self.client);
        let future = async move {
            let done = client.batch_execute(&text).await;
            done.map_err(|error| Failed::of(call, what, &error))
        };
        self.launch(Box::pin(future)).await;
    }

    /// Sends a statement whose answer needs more than an [`Expect`].
    pub(super) async fn send_future<F>(&mut self, future: F)
    where
        F: Future<Output = Result<(), Failed>> + 'static,
    {
        if self.failed.is_none() {
            self.launch(Box::pin(future)).await;
        }
    }

    async fn launch(&mut self, mut future: InFlight) {
        // The driver sends a statement when its future is polled for the first time.
        match first_poll(&mut future).await {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(failed)) => {
                // An earlier statement may have failed before this one.
                self.fail_after_sent(failed).await;
            }
            Poll::Pending => self.in_flight.push_back((self.mark, future)),
        }
        while self.in_flight.len() > MAX_IN_FLIGHT {
            self.next().await;
        }
    }

    /// Takes the answers that have arrived.
    pub(super) async fn reap(&mut self) {
        while let Some((mark, mut first)) = self.in_flight.pop_front() {
            match first_poll(&mut first).await {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(failed)) => self.fail_at(mark, failed),
                Poll::Pending => {
                    self.in_flight.push_front((mark, first));
                    return;
                }
            }
        }
    }

    async fn next(&mut self) {
        if let Some((mark, first)) = self.in_flight.pop_front()
            && let Err(failed) = first.await
        {
            self.fail_at(mark, failed);
        }
    }

    async fn drain_into(&mut self) {
        while !self.in_flight.is_empty() {
            self.next().await;
        }
    }

    /// Waits for all answers.
    pub(super) async fn drain(&mut self) -> Result<(), Failed> {
        self.drain_into().await;
        match &self.failed {
            None => Ok(()),
            Some(failed) => Err(failed.clone()),
        }
    }
}

async fn first_poll(future: &mut InFlight) -> Poll<Result<(), Failed>> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

async fn run(client: Rc<Client>, request: Request) -> Result<(), Failed> {
    let params: Vec<&(dyn ToSql + Sync)> = request.params.iter().map(AsRef::as_ref).collect();
    let failed = |error: tokio_postgres::Error| {
        Failed::of(Call::Data, &request.what, &error).at(request.place)
    };
    let refused = |text: String| Failed::new(Reaction::Refuse, text).at(request.place);
    match request.expect {
        Expect::NoneMissing => {
            let rows = client
                .query(&request.statement, &params)
                .await
                .map_err(failed)?;
            let count = |row: &Row| row.try_get::<_, i64>(0).unwrap_or(0);
            match rows.first().map_or(0, count) {
                0 => Ok(()),
                missing => Err(refused(format!(
                    "{} found no row for {missing} keys: insert them first, or use `.or_insert()`",
                    request.what
                ))),
            }
        }
        Expect::Affects(expected) => {
            let affected = client
                .execute(&request.statement, &params)
                .await
                .map_err(failed)?;
            if affected == expected {
                Ok(())
            } else {
                Err(refused(format!(
                    "{} affected {affected} rows instead of {expected}",
                    request.what
                )))
            }
        }
        Expect::Success => {
            let done = client.execute(&request.statement, &params).await;
            done.map(drop).map_err(failed)
        }
    }
}
