//! A Kafka client whose positions and effects are in a ledger, if the app has one.
//!
//! The worker's transaction machine runs on both kinds of transactions: a [`LedgeredProducer`] is a producer of Kafka or
//! a session of a ledger. Records come from Kafka in both cases.

mod producer;
mod source;
mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{CallSite, FirstStart, Offset, TopicName, TopicPartition, code};

use super::{Identity, Ledger, LedgerError, LedgerFailure, Plan};
use crate::client::{
    Client, ClientError, ClusterFacts, NewTopic, ProducerSpec, Result, SourceSpec,
};

pub(super) use producer::LedgeredProducer;
pub(super) use source::LedgeredSource;
use standing::Standing;

/// The ledger of an app, and what it knows of the app.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) plan: Plan,
    /// The driving topic of each topic that the group does not assign.
    pub(crate) drivers: BTreeMap<TopicName, TopicName>,
    /// Where a partition without a position starts.
    pub(crate) first_start: FirstStart,
    /// A random number of this process.
    pub(crate) owner: u64,
}

/// A Kafka client, with the ledger of the app if it has one.
///
/// Each worker has its own, because its source and its producer share the taken positions.
#[derive(Debug)]
pub struct Ledgered<C> {
    client: Arc<C>,
    books: Option<Arc<Books>>,
    standing: Option<Standing>,
}

impl<C> Ledgered<C> {
    pub(crate) fn new(client: Arc<C>, books: Option<Arc<Books>>) -> Self {
        Self {
            client,
            standing: (books.as_ref()).map(|books| Standing::new(books.drivers.clone())),
            books,
        }
    }

    /// Returns the client of another worker.
    pub(crate) fn of_worker(&self) -> Self {
        Self::new(Arc::clone(&self.client), self.books.clone())
    }
}

impl<C: Client> Client for Ledgered<C> {
    type Source = LedgeredSource<C::Source>;
    type Producer = LedgeredProducer<C::Producer>;

    fn facts(&self, topics: &[TopicName], within: Duration) -> Result<ClusterFacts> {
        self.client.facts(topics, within)
    }

    fn create_topics(
        &self,
        topics: &[NewTopic],
        within: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>> {
        self.client.create_topics(topics, within)
    }

    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        within: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>> {
        self.client.delete_records(before, within)
    }

    fn keeps_origins(&self) -> bool {
        self.books.is_some()
    }

    fn has_markers(&self) -> bool {
        self.books.is_none()
    }

    fn source(&self, spec: &SourceSpec) -> Result<Self::Source> {
        let source = self.client.source(spec)?;
        let first_start = self.books.as_ref().map(|books| books.first_start);
        let standing = self.standing.clone().zip(first_start);
        Ok(LedgeredSource::new(source, standing))
    }

    fn producer(&self, spec: &ProducerSpec) -> Result<Self::Producer> {
        let (Some(books), Some(standing)) = (&self.books, &self.standing) else {
            return Ok(LedgeredProducer::Kafka(self.client.producer(spec)?));
        };
        let id = spec.transactional_id.as_ref();
        let identity = Identity {
            worker: id.map_or_else(|| spec.client_id.clone(), ToString::to_string),
            owner: books.owner,
        };
        let failed = |error| failed(CallSite::Create, error);
        let (ledger, plan) = (&books.ledger, &books.plan);
        let session = ledger.session(plan, &identity).map_err(failed)?;
        let make = || ledger.positions(plan, &identity).map_err(failed);
        standing.connect(make)?;
        Ok(LedgeredProducer::Ledger(producer::Writer::new(
            session,
            standing.clone(),
        )))
    }
}

/// Returns the error of a client call for the failure of a ledger.
fn failed(call: CallSite, error: LedgerError) -> ClientError {
    let code = match error.failure {
        LedgerFailure::Retriable => code::LEDGER_UNAVAILABLE,
        LedgerFailure::Abortable if error.blames_a_record => code::LEDGER_REFUSED,
        LedgerFailure::Abortable => code::LEDGER_ABORTED,
        LedgerFailure::Contended => code::LEDGER_CONTENDED,
        LedgerFailure::Moved(_) => code::LEDGER_MOVED,
        LedgerFailure::Superseded => code::LEDGER_SUPERSEDED,
        LedgerFailure::Fatal => code::LEDGER_FATAL,
    };
    ClientError::new(call, code, error.text)
}
