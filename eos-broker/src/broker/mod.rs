//! The broker model, a function of request and time.
//!
//! The model behaves like Kafka, and has no I/O, no clock, no threads and no randomness. The same requests at the same
//! times have the same responses, so both a simulation and a socket can use it.
//!
//! ```text
//! step(request, now) ─► one handler per request ─► outputs: responses, now or later
//! advance(now)       ─► effects of time: held responses, timeouts of sessions and transactions
//! next_wake()        ─► the time of the next call of advance
//! ```

mod admin;
mod config_requests;
mod configs;
mod describe;
mod faulty;
mod fetch;
mod group_offsets;
mod group_requests;
mod metadata;
mod offsets;
mod options;
mod produce;
mod request;
#[cfg(test)]
mod tests;
mod topics;
mod transaction_requests;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::{RequestKind, ResponseKind};
use kafka_wire::refusal::refuse;
use kafka_wire::requests::text;
use uuid::Uuid;

use crate::faults::{Act, Faults};
use crate::groups::Group;
use crate::transactions::{Markers, Transactions};
use faulty::HeldBack;
use fetch::Fetches;
use topics::Topic;

pub use faulty::Hold;
pub use options::BrokerOptions;
pub use request::{Output, Request, Ticket, Unanswered, key_of};
pub use versions::{Api, SERVED};

/// The id of the only node.
pub(crate) const NODE: i32 = 1;

/// A model of one Kafka broker.
///
/// # Example
/// ```
/// use eos_broker::broker::{Broker, BrokerOptions, Output, Request, Ticket};
/// use kafka_protocol::messages::{ApiVersionsRequest, RequestKind, ResponseKind};
///
/// let mut broker = Broker::new(BrokerOptions::default());
/// let request = Request::new(Ticket(1), 3, RequestKind::ApiVersions(ApiVersionsRequest::default()));
/// let outputs = broker.step(request, 0);
/// assert!(matches!(
///     outputs[..],
///     [Output::Answer(Ticket(1), ResponseKind::ApiVersions(_))]
/// ));
/// ```
#[derive(Debug)]
pub struct Broker {
    options: BrokerOptions,
    topics: BTreeMap<String, Topic>,
    /// The number of created and deleted topics so far.
    topic_changes: u64,
    groups: BTreeMap<String, Group>,
    transactions: Transactions,
    /// Decided transactions whose markers are not all written yet.
    marking: Vec<Marking>,
    fetches: Fetches,
    faults: Faults,
    /// Requests and responses that a fault holds back.
    held_back: Vec<HeldBack>,
    /// Requests whose responses a fault will affect.
    answers_hurt: BTreeMap<Ticket, Act>,
    /// The second requests of duplicates. Their responses are discarded.
    doubles: BTreeSet<Ticket>,
    doubled: u64,
    /// The partitions in which no markers are written for now.
    unmarked: Vec<Hold>,
    out: Vec<Output>,
    /// The time of the next wake-up. It is not later than the next moment at which time alone changes the state.
    wake: Option<i64>,
    bytes: usize,
    made: u64,
    /// The number of decided transactions with several participants.
    decisions: usize,
}

/// Markers of a transaction that are not written yet.
#[derive(Debug)]
struct Marking {
    markers: Markers,
    due: i64,
}

/// The result of a handler: a response, or none yet (or, for acks=0, none at all).
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and none is kept"
)]
enum Reply {
    Now(ResponseKind),
    Held,
    Nothing,
}

impl<R: Into<ResponseKind>> From<R> for Reply {
    fn from(response: R) -> Reply {
        Reply::Now(response.into())
    }
}

/// The client and version of a request.
#[derive(Debug, Clone)]
struct Context {
    ticket: Ticket,
    version: i16,
    client_id: String,
    host: String,
    now: i64,
}

impl Broker {
    /// Returns a broker without topics.
    pub fn new(options: BrokerOptions) -> Broker {
        let options = options.incarnate();
        Broker {
            transactions: Transactions::beginning_with(options.first_producer_id()),
            options,
            topics: BTreeMap::new(),
            topic_changes: 0,
            groups: BTreeMap::new(),
            marking: Vec::new(),
            fetches: Fetches::default(),
            faults: Faults::default(),
            held_back: Vec::new(),
            answers_hurt: BTreeMap::new(),
            doubles: BTreeSet::new(),
            doubled: 0,
            unmarked: Vec::new(),
            out: Vec::new(),
            wake: None,
            bytes: 0,
            made: 0,
            decisions: 0,
        }
    }

    /// Handles a request. Returns its response, and all other responses that result from it.
    ///
    /// `now` is in milliseconds since the epoch and must never decrease.
    pub fn step(&mut self, request: Request, now: i64) -> Vec<Output> {
        self.pass_time(now);
        let key = request.key();
        let faults = &mut self.faults;
        let act = key.and_then(|key| faults.on(key, &request.client_id, &request.body, now));
        match act {
            None => self.apply(request, now),
            Some(act) => self.hurt(act, request, now),
        }
        self.pass_time(now);
        self.finish(now)
    }

    /// Handles a request without a fault.
    fn apply(&mut self, request: Request, now: i64) {
        let context = Context {
            ticket: request.ticket,
            version: request.version,
            client_id: request.client_id,
            host: request.host,
            now,
        };
        match self.handle(request.body, &context) {
            Reply::Now(response) => self.out.push(Output::Answer(context.ticket, response)),
            Reply::Nothing => {
                let done = Unanswered::Done(context.ticket);
                self.out.push(Output::Nothing(done));
            }
            Reply::Held => {}
        }
    }

    /// Lets time pass without a request.
    pub fn advance(&mut self, now: i64) -> Vec<Output> {
        self.pass_time(now);
        self.finish(now)
    }

    /// Returns the latest time for the next call of [`Broker::advance`].
    pub fn next_wake(&self) -> Option<i64> {
        self.wake
    }

    /// Returns the options of the broker.
    pub fn options(&self) -> &BrokerOptions {
        &self.options
    }

    fn handle(&mut self, request: RequestKind, context: &Context) -> Reply {
        match request {
            RequestKind::ApiVersions(_) => self.api_versions(context).into(),
            RequestKind::Metadata(it) => self.metadata(it, context).into(),
            RequestKind::DescribeCluster(it) => self.describe_cluster(it).into(),
            RequestKind::FindCoordinator(it) => self.find_coordinator(it, context).into(),
            RequestKind::Produce(it) => self.produce(it, context),
            RequestKind::Fetch(it) => self.fetch(it, context),
            RequestKind::ListOffsets(it) => self.list_offsets(it, context).into(),
            RequestKind::OffsetForLeaderEpoch(it) => self.leader_epochs(it).into(),
            RequestKind::DeleteRecords(it) => self.delete_records(it).into(),
            RequestKind::CreateTopics(it) => self.create_topics(it, context).into(),
            RequestKind::DeleteTopics(it) => self.delete_topics(it, context).into(),
            RequestKind::CreatePartitions(it) => self.create_partitions(it).into(),
            RequestKind::DescribeConfigs(it) => self.describe_configs(it).into(),
            RequestKind::AlterConfigs(it) => self.alter_configs(it).into(),
            RequestKind::IncrementalAlterConfigs(it) => self.change_configs(it).into(),
            RequestKind::InitProducerId(it) => self.init_producer_id(it, context).into(),
            RequestKind::AddPartitionsToTxn(it) => self.add_partitions(it, context).into(),
            RequestKind::AddOffsetsToTxn(it) => self.add_offsets(it, context).into(),
            RequestKind::TxnOffsetCommit(it) => self.txn_offset_commit(it, context).into(),
            RequestKind::EndTxn(it) => self.end_txn(it, context).into(),
            RequestKind::DescribeTransactions(it) => self.describe_transactions(it).into(),
            RequestKind::ListTransactions(it) => self.list_transactions(it, context).into(),
            RequestKind::DescribeProducers(it) => self.describe_producers(it).into(),
            RequestKind::JoinGroup(it) => self.join_group(it, context),
            RequestKind::SyncGroup(it) => self.sync_group(it, context),
            RequestKind::Heartbeat(it) => self.heartbeat(it, context).into(),
            RequestKind::LeaveGroup(it) => self.leave_group(it, context).into(),
            RequestKind::OffsetCommit(it) => self.offset_commit(it, context).into(),
            RequestKind::OffsetFetch(it) => self.offset_fetch(it, context).into(),
            RequestKind::OffsetDelete(it) => self.offset_delete(it).into(),
            RequestKind::DescribeGroups(it) => self.describe_groups(it, context).into(),
            RequestKind::ListGroups(it) => self.list_groups(it, context).into(),
            RequestKind::DeleteGroups(it) => self.delete_groups(it).into(),
            other => refuse(&other, context.version, Error::UnsupportedVersion.code())
                .map_or(Reply::Nothing, Reply::Now),
        }
    }

    /// Returns a response with only this error, or `None` if the response has no field for it.
    pub fn refusal(request: &RequestKind, version: i16, error: Error) -> Option<ResponseKind> {
        refuse(request, version, error.code())
    }

    /// Does all due work, in an order that depends only on the state.
    fn pass_time(&mut self, now: i64) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        for markers in self.transactions.expire(now) {
            self.decided(markers, now);
        }
        self.release(now);
        self.write_due_markers(now);
        self.expire_groups(now);
        self.answer_fetches(now);
        let deadlines = [
            self.transactions.next_expiry(),
            self.next_marking(),
            self.held_back.iter().map(HeldBack::due).min(),
            self.groups.values().filter_map(Group::next_deadline).min(),
            self.fetches.next_deadline(),
        ];
        self.wake = deadlines.into_iter().flatten().min();
    }

    /// Sets a wake-up at this time, unless there is an earlier one.
    fn wake_at(&mut self, at: i64) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Returns an id that neither this broker nor another incarnation has assigned. It is deterministic, so runs can be
    /// repeated.
    fn fresh(&mut self, kind: u64) -> Uuid {
        self.made += 1;
        Uuid::from_u64_pair(kind ^ self.options.incarnation, self.made)
    }
}

/// Returns the error code of a result.
fn code<T>(result: &Result<T, Error>) -> i16 {
    result.as_ref().err().map_or(0, Error::code)
}
