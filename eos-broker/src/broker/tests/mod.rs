//! Tests of the whole model in pure code.
//!
//! Time passes only when a test advances it.

mod faults;
mod fetching;
mod groups;
mod identity;
mod logs;
mod transactions;

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, DeleteGroupsRequest, DescribeGroupsRequest, DescribeTransactionsRequest,
    HeartbeatRequest, JoinGroupRequest, MetadataRequest, OffsetDeleteRequest, ProduceRequest,
    RequestKind, ResponseKind, TransactionalId,
};
use kafka_wire::batch::ProducerIdentity;
use kafka_wire::requests::{self, NO_PRODUCER};

use super::{Broker, BrokerOptions, Hold, Output, Request, Ticket, Unanswered, text};
use crate::faults::{Act, Rule};
use crate::log::produced;

/// A broker and its clock, with short methods for requests.
struct Model {
    broker: Broker,
    now: i64,
    tickets: u64,
    /// All outputs that the test has not taken yet.
    out: Vec<Output>,
}

impl Model {
    fn new() -> Model {
        Model::with(BrokerOptions::default())
    }

    fn with(options: BrokerOptions) -> Model {
        let mut broker = Broker::new(options);
        broker.add_topic("t", 1, &[]).expect("created");
        Model {
            broker,
            now: 1_000,
            tickets: 0,
            out: Vec::new(),
        }
    }

    fn send(&mut self, version: i16, body: impl Into<RequestKind>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut request = Request::new(ticket, version, body.into());
        request.client_id = "tests".into();
        let out = self.broker.step(request, self.now);
        self.out.extend(out);
        ticket
    }

    /// Lets time pass, and stops at each moment at which work is due.
    fn pass(&mut self, milliseconds: i64) {
        let end = self.now + milliseconds;
        while let Some(wake) = self.broker.next_wake().filter(|wake| *wake <= end) {
            self.now = self.now.max(wake);
            let out = self.broker.advance(self.now);
            self.out.extend(out);
            let next = self.broker.next_wake();
            assert!(
                next.is_none_or(|next| next > wake),
                "it wakes for nothing at {wake}"
            );
        }
        self.now = end;
    }

    fn output(&mut self, ticket: Ticket) -> Option<Output> {
        let at = self.out.iter().position(|it| it.ticket() == ticket)?;
        Some(self.out.remove(at))
    }

    fn answer(&mut self, ticket: Ticket) -> Option<ResponseKind> {
        match self.output(ticket) {
            Some(Output::Answer(_, answer)) => Some(answer),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    fn init(&mut self) -> (i16, i64, i16) {
        let request = requests::init_producer_id(Some("x"), 5_000, NO_PRODUCER);
        let ticket = self.send(4, request);
        match self.answer(ticket) {
            Some(ResponseKind::InitProducerId(it)) => {
                (it.error_code, it.producer_id.0, it.producer_epoch)
            }
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, id: i64, epoch: i16) -> i16 {
        let producer = ProducerIdentity { id, epoch };
        let request = requests::add_partitions("x", producer, &[("t", 0)]);
        let ticket = self.send(0, request);
        match self.answer(ticket) {
            Some(ResponseKind::AddPartitionsToTxn(it)) => {
                it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            }
            other => panic!("{other:?}"),
        }
    }

    fn send_records(&mut self, records: Bytes, acks: i16) -> Ticket {
        let request = requests::produce("t", 0, records, Some("x"), acks);
        self.send(10, request)
    }

    fn produce(&mut self, records: Bytes) -> (i16, i64, Option<String>) {
        let ticket = self.send_records(records, -1);
        match self.answer(ticket) {
            Some(ResponseKind::Produce(it)) => {
                let it = &it.responses[0].partition_responses[0];
                let why = it.error_message.as_deref().map(str::to_owned);
                (it.error_code, it.base_offset, why)
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, id: i64, epoch: i16, sequence: i32) -> i16 {
        let producer = Some((id, epoch, sequence));
        self.produce(produced(producer, true, &[("k", Some("v"), 0)]))
            .0
    }

    fn send_end(&mut self, id: i64, epoch: i16, commit: bool) -> Ticket {
        let request = requests::end_txn("x", ProducerIdentity { id, epoch }, commit);
        self.send(1, request)
    }

    fn end(&mut self, id: i64, epoch: i16, commit: bool) -> i16 {
        let ticket = self.send_end(id, epoch, commit);
        match self.answer(ticket) {
            Some(ResponseKind::EndTxn(it)) => it.error_code,
            other => panic!("{other:?}"),
        }
    }

    fn send_fetch(&mut self, offset: i64, wait: i32) -> Ticket {
        let request = requests::fetch("t", 0, offset, 1, wait, 10_000);
        self.send(11, request)
    }

    /// Returns the error, bytes and last stable offset of a completed fetch.
    fn fetched(&mut self, ticket: Ticket) -> Option<(i16, usize, i64)> {
        match self.answer(ticket)? {
            ResponseKind::Fetch(it) => {
                let it = &it.responses[0].partitions[0];
                let bytes = it.records.as_ref().map_or(0, Bytes::len);
                Some((it.error_code, bytes, it.last_stable_offset))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns a producer with a record in an open transaction.
    fn open(&mut self) -> (i64, i16) {
        let (error, id, epoch) = self.init();
        assert_eq!(error, 0);
        assert_eq!(self.add(id, epoch), 0);
        assert_eq!(self.write(id, epoch, 0), 0);
        (id, epoch)
    }

    fn last_stable(&mut self) -> i64 {
        let ticket = self.send_fetch(0, 0);
        self.fetched(ticket).expect("a response").2
    }

    fn join(&mut self, id: &str) -> Ticket {
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        let request = JoinGroupRequest::default()
            .with_group_id(text("g").into())
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(30_000)
            .with_member_id(text(id))
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        self.send(3, request)
    }

    /// Returns the error, generation and member id of a completed join.
    fn joined(&mut self, ticket: Ticket) -> Option<(i16, i32, String)> {
        match self.answer(ticket)? {
            ResponseKind::JoinGroup(it) => {
                Some((it.error_code, it.generation_id, it.member_id.to_string()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn beat(&mut self, id: &str, generation: i32) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(text("g").into())
            .with_generation_id(generation)
            .with_member_id(text(id));
        let ticket = self.send(3, request);
        match self.answer(ticket) {
            Some(ResponseKind::Heartbeat(it)) => it.error_code,
            other => panic!("{other:?}"),
        }
    }
}

fn plain() -> Bytes {
    produced(None, false, &[("k", Some("v"), 0)])
}
