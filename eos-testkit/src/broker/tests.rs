//! The model as a whole, in pure code: time passes when the test says so.

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, ApiKey, DeleteGroupsRequest, DescribeGroupsRequest,
    DescribeTransactionsRequest, EndTxnRequest, FetchRequest, HeartbeatRequest,
    InitProducerIdRequest, JoinGroupRequest, MetadataRequest, OffsetDeleteRequest, ProduceRequest,
    RequestKind, ResponseKind, TransactionalId,
};

use super::{Broker, BrokerOptions, Hold, Output, Request, Ticket, Unanswered, text};
use crate::faults::{Act, Rule};
use crate::log::produced;

/// A broker, its clock, and requests in short.
struct Model {
    broker: Broker,
    now: i64,
    tickets: u64,
    /// Everything that came out and was not asked for yet.
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

    /// Lets time pass, to each moment at which something is due.
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
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text("x"))))
            .with_transaction_timeout_ms(5_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let ticket = self.send(4, request);
        match self.answer(ticket) {
            Some(ResponseKind::InitProducerId(it)) => {
                (it.error_code, it.producer_id.0, it.producer_epoch)
            }
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, id: i64, epoch: i16) -> i16 {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(text("t").into())
            .with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text("x")))
            .with_v3_and_below_producer_id(id.into())
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(vec![topic]);
        let ticket = self.send(0, request);
        match self.answer(ticket) {
            Some(ResponseKind::AddPartitionsToTxn(it)) => {
                it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            }
            other => panic!("{other:?}"),
        }
    }

    fn send_records(&mut self, records: Bytes, acks: i16) -> Ticket {
        let data = PartitionProduceData::default().with_records(Some(records));
        let topic = TopicProduceData::default()
            .with_name(text("t").into())
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(TransactionalId(text("x"))))
            .with_acks(acks)
            .with_topic_data(vec![topic]);
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
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text("x")))
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_committed(commit);
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
        let partition = FetchPartition::default()
            .with_fetch_offset(offset)
            .with_partition_max_bytes(10_000);
        let topic = FetchTopic::default()
            .with_topic(text("t").into())
            .with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_wait_ms(wait)
            .with_min_bytes(1)
            .with_max_bytes(10_000)
            .with_isolation_level(1)
            .with_topics(vec![topic]);
        self.send(11, request)
    }

    /// Error, bytes and last stable offset of a fetch that was answered.
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

    /// A producer with a record in an open transaction.
    fn open(&mut self) -> (i64, i16) {
        let (error, id, epoch) = self.init();
        assert_eq!(error, 0);
        assert_eq!(self.add(id, epoch), 0);
        assert_eq!(self.write(id, epoch, 0), 0);
        (id, epoch)
    }

    fn last_stable(&mut self) -> i64 {
        let ticket = self.send_fetch(0, 0);
        self.fetched(ticket).expect("answered").2
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

    /// Error, generation and member id of a join that was answered.
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

#[test]
fn the_same_requests_have_the_same_answers() {
    let run = || {
        let mut model = Model::new();
        let (id, epoch) = model.open();
        model.end(id, epoch, false);
        let first = model.join("");
        let joined = model.joined(first);
        model.pass(60_000);
        (joined, model.last_stable(), format!("{:?}", model.broker))
    };
    assert_eq!(run(), run());
}

/// The ids that a broker gives out: its own, a topic's, a member's, a producer's.
fn ids(incarnation: u64) -> (String, String, String, i64) {
    let mut model = Model::with(BrokerOptions {
        incarnation,
        ..BrokerOptions::default()
    });
    let request = MetadataRequest::default().with_topics(None);
    let ticket = model.send(10, request);
    let (cluster, topic) = match model.answer(ticket) {
        Some(ResponseKind::Metadata(it)) => {
            let cluster = it.cluster_id.map(|id| id.to_string()).unwrap_or_default();
            (cluster, it.topics[0].topic_id.to_string())
        }
        other => panic!("{other:?}"),
    };
    let joined = model.join("");
    let (_, _, member) = model.joined(joined).expect("answered");
    (cluster, topic, member, model.init().1)
}

/// A client that outlives a broker on the same port would take its successor for it: an old producer id
/// or member id would be somebody else's, a topic that is another one the same.
#[test]
fn ids_of_one_incarnation_are_none_of_another() {
    let first = (
        "eos-embedded-AAAAAAAAA".to_owned(),
        "656f735f-746f-7069-0000-000000000001".to_owned(),
        "tests-6d656d62-6572-0000-0000-000000000002".to_owned(),
        0,
    );
    assert_eq!(ids(0), first, "as ever without one");
    let mut seen = vec![first];
    for incarnation in [1, 2, 1 << 32, 1 << 40, 1 << 63, u64::MAX - 1, u64::MAX] {
        let own = ids(incarnation);
        assert_eq!(own, ids(incarnation), "runs can be repeated");
        assert_eq!(own.0.len(), 22, "as long as Kafka's: {}", own.0);
        assert!((0..i64::MAX / 4).contains(&own.3), "{}", own.3);
        for other in &seen {
            let apart = own.3.abs_diff(other.3) >= 1 << 32;
            let differs = own.0 != other.0 && own.1 != other.1 && own.2 != other.2;
            assert!(differs && apart, "{own:?} {other:?}");
        }
        seen.push(own);
    }
    let chosen = BrokerOptions {
        cluster_id: "mine".into(),
        incarnation: 1,
        ..BrokerOptions::default()
    };
    assert_eq!(Broker::new(chosen).options().cluster_id, "mine");
}

#[test]
fn a_fetch_waits_for_records_and_no_longer_than_it_says() {
    let mut model = Model::new();
    let waiting = model.send_fetch(0, 500);
    assert_eq!(model.fetched(waiting), None);
    model.pass(499);
    assert_eq!(model.fetched(waiting), None);
    model.pass(1);
    assert_eq!(model.fetched(waiting), Some((0, 0, 0)));
    let waiting = model.send_fetch(0, 500);
    model.produce(plain());
    let (error, bytes, stable) = model.fetched(waiting).expect("answered at once");
    assert_eq!((error, bytes > 0, stable), (0, true, 1));
}

/// Its client has old metadata: the sooner it hears of it, the better.
#[test]
fn a_fetch_with_another_leader_epoch_is_answered_at_once() {
    let mut model = Model::new();
    let expected = [
        (-1, None),
        (0, None),
        (1, Some(Error::UnknownLeaderEpoch)),
        (-2, Some(Error::FencedLeaderEpoch)),
    ];
    for (epoch, error) in expected {
        let partition = FetchPartition::default()
            .with_current_leader_epoch(epoch)
            .with_partition_max_bytes(10_000);
        let topic = FetchTopic::default()
            .with_topic(text("t").into())
            .with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(10_000)
            .with_topics(vec![topic]);
        let ticket = model.send(11, request);
        let answer = model.fetched(ticket);
        assert_eq!(answer.map(|it| it.0), error.map(|it| it.code()), "{epoch}");
    }
}

#[test]
fn a_fetch_of_committed_records_waits_for_the_marker() {
    let mut model = Model::new();
    let (id, epoch) = model.open();
    let waiting = model.send_fetch(0, 500);
    assert_eq!(model.fetched(waiting), None);
    assert_eq!(model.end(id, epoch, true), 0);
    let (error, bytes, stable) = model.fetched(waiting).expect("answered");
    assert_eq!((error, bytes > 78, stable), (0, true, 2));
}

#[test]
fn markers_may_take_their_time_and_the_id_is_busy_meanwhile() {
    let options = BrokerOptions {
        marker_delay_ms: 50,
        ..BrokerOptions::default()
    };
    let mut model = Model::with(options);
    let (id, epoch) = model.open();
    assert_eq!(model.end(id, epoch, true), 0);
    let busy = Error::ConcurrentTransactions.code();
    assert_eq!(model.last_stable(), 0);
    assert_eq!(
        (model.add(id, epoch), model.end(id, epoch, true)),
        (busy, busy)
    );
    assert_eq!(model.init().0, busy);
    model.pass(50);
    assert_eq!(model.last_stable(), 2);
    assert_eq!(model.add(id, epoch), 0);
}

#[test]
fn held_markers_hold_the_last_stable_offset() {
    let mut model = Model::new();
    let (id, epoch) = model.open();
    model.broker.hold_markers(Hold::Partition("t".into(), 0));
    assert_eq!(model.end(id, epoch, true), 0);
    model.pass(60_000);
    assert_eq!((model.last_stable(), model.broker.held_markers()), (0, 1));
    assert_eq!(model.add(id, epoch), Error::ConcurrentTransactions.code());
    model.broker.release_markers(model.now);
    model.pass(1);
    assert_eq!((model.last_stable(), model.broker.held_markers()), (2, 0));
    assert_eq!(model.add(id, epoch), 0);
}

#[test]
fn a_batch_for_another_partition_waits_while_the_transaction_ends() {
    let mut model = Model::new();
    model.broker.add_topic("u", 1, &[]).expect("created");
    let (id, epoch) = model.open();
    model.broker.hold_markers(Hold::All);
    assert_eq!(model.end(id, epoch, true), 0);
    let data = PartitionProduceData::default().with_records(Some(produced(
        Some((id, epoch, 0)),
        true,
        &[("k", None, 0)],
    )));
    let topic = TopicProduceData::default()
        .with_name(text("u").into())
        .with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_transactional_id(Some(TransactionalId(text("x"))))
        .with_acks(-1)
        .with_topic_data(vec![topic]);
    let ticket = model.send(10, request);
    match model.answer(ticket) {
        Some(ResponseKind::Produce(it)) => {
            let error = it.responses[0].partition_responses[0].error_code;
            assert_eq!(error, Error::NotEnoughReplicas.code(), "it tries again");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_times_out_and_its_producer_is_fenced() {
    let mut model = Model::new();
    let (id, epoch) = model.open();
    model.pass(4_999);
    assert_eq!(model.last_stable(), 0);
    model.pass(1);
    assert_eq!(model.last_stable(), 2);
    let fenced = Error::InvalidProducerEpoch.code();
    assert_eq!(
        (model.write(id, epoch, 1), model.end(id, epoch, true)),
        (fenced, fenced)
    );
}

#[test]
fn without_verification_a_late_batch_opens_a_transaction_that_hangs() {
    for verification in [true, false] {
        let options = BrokerOptions {
            transaction_partition_verification: verification,
            ..BrokerOptions::default()
        };
        let mut model = Model::with(options);
        let (id, epoch) = model.open();
        model.end(id, epoch, true);
        let late = model.write(id, epoch, 1);
        model.pass(600_000);
        let expected = if verification {
            (Error::InvalidTxnState.code(), 2)
        } else {
            (0, 2)
        };
        assert_eq!((late, model.last_stable()), expected);
        let end = model.broker.partition("t", 0).expect("there").end();
        assert_eq!(end, if verification { 2 } else { 3 });
    }
}

/// As Kafka: who writes in a transaction has to be allowed to, whatever is open, and it is asked once for the
/// whole request.
#[test]
fn a_request_with_a_transactional_batch_and_no_id_writes_nothing() {
    for acks in [-1, 0] {
        let mut model = Model::new();
        model.broker.add_topic("u", 1, &[]).expect("created");
        let (id, epoch) = model.open();
        let next = produced(Some((id, epoch, 1)), true, &[("k", None, 0)]);
        let topics = [("u", plain()), ("t", next)].map(|(topic, records)| {
            let data = PartitionProduceData::default().with_records(Some(records));
            TopicProduceData::default()
                .with_name(text(topic).into())
                .with_partition_data(vec![data])
        });
        let request = ProduceRequest::default()
            .with_acks(acks)
            .with_topic_data(topics.into());
        let ticket = model.send(10, request);
        match model.output(ticket) {
            Some(Output::Answer(_, ResponseKind::Produce(it))) if acks != 0 => {
                let codes = it.responses.iter();
                let codes = codes.map(|it| it.partition_responses[0].error_code);
                let refused = Error::TransactionalIdAuthorizationFailed.code();
                assert_eq!(codes.collect::<Vec<_>>(), [refused, refused]);
            }
            Some(Output::Disconnect(_)) if acks == 0 => {}
            other => panic!("{acks}: {other:?}"),
        }
        let ends = ["t", "u"].map(|topic| model.broker.end_offset(topic, 0));
        assert_eq!(ends, [Some(1), Some(0)]);
    }
}

#[test]
fn a_session_ends_when_its_time_is_over_and_heartbeats_prolong_it() {
    let mut model = Model::new();
    let ticket = model.join("");
    let (error, generation, id) = model.joined(ticket).expect("alone: answered at once");
    assert_eq!((error, generation), (0, 1));
    // It has joined, and never asks for its assignment: the rebalance time-out ends that.
    for _ in 0..3 {
        model.pass(9_000);
        assert_eq!(model.beat(&id, 1), 0);
    }
    model.pass(9_000);
    assert_eq!(model.beat(&id, 1), Error::UnknownMemberId.code());
}

#[test]
fn a_join_is_held_until_everybody_has_come_or_their_time_is_over() {
    let mut model = Model::new();
    let ticket = model.join("");
    let (_, _, first) = model.joined(ticket).expect("answered");
    let second = model.join("");
    assert_eq!(model.joined(second), None);
    let again = model.join(&first);
    let joined = (model.joined(again), model.joined(second));
    let (one, two) = (joined.0.expect("answered"), joined.1.expect("answered"));
    assert_eq!((one.0, one.1, two.0, two.1), (0, 2, 0, 2));
    // The first one does not come any more: a third one waits for its session only.
    let third = model.join("");
    let again = model.join(&two.2);
    model.pass(9_999);
    assert_eq!(model.joined(third), None);
    model.pass(1);
    let (_, generation, _) = model.joined(third).expect("answered");
    assert_eq!(generation, 3);
    assert!(model.joined(again).is_some());
}

#[test]
fn a_new_group_waits_for_more_members_if_told_to() {
    let options = BrokerOptions {
        group_initial_rebalance_delay_ms: 1_000,
        ..BrokerOptions::default()
    };
    let mut model = Model::with(options);
    let first = model.join("");
    model.pass(900);
    let second = model.join("");
    model.pass(100);
    assert_eq!(
        model.joined(first),
        None,
        "somebody came: it waits once more"
    );
    model.pass(1_000);
    let generations = (
        model.joined(first).map(|it| it.1),
        model.joined(second).map(|it| it.1),
    );
    assert_eq!(generations, (Some(1), Some(1)));
}

#[test]
fn memory_is_bounded_and_the_limit_is_named() {
    for (name, limit) in [
        ("log.memory.max.bytes", (1_000, usize::MAX)),
        ("partition.memory.max.bytes", (usize::MAX, 1_000)),
    ] {
        let options = BrokerOptions {
            log_memory_max_bytes: limit.0,
            partition_memory_max_bytes: limit.1,
            ..BrokerOptions::default()
        };
        let mut model = Model::with(options);
        let mut answers = (0..100).map(|_| model.produce(plain()));
        let refused = answers.find(|it| it.0 != 0).expect("memory is bounded");
        drop(answers);
        let why = refused.2.expect("a reason");
        assert_eq!((refused.0, refused.1), (Error::PolicyViolation.code(), -1));
        assert!(why.contains(&format!("{name}=1000")), "{why}");
        let held = model.broker.partition("t", 0).expect("there").bytes();
        assert!(held <= 1_000 && held == model.broker.bytes, "{held}");
    }
}

/// A producer whose answer was lost would take its batch for lost when the memory is full, and it is there.
#[test]
fn memory_is_asked_for_what_is_appended_only() {
    let batch = |sequence| produced(Some((7, 0, sequence)), false, &[("k", Some("v"), 0)]);
    let size = batch(0).len();
    for limit in [(2 * size, usize::MAX), (usize::MAX, 2 * size)] {
        let mut model = Model::with(BrokerOptions {
            log_memory_max_bytes: limit.0,
            partition_memory_max_bytes: limit.1,
            ..BrokerOptions::default()
        });
        let mut produce = |sequence| {
            let answer = model.produce(batch(sequence));
            (answer.0, answer.1)
        };
        assert_eq!((produce(0), produce(1)), ((0, 0), (0, 1)));
        assert_eq!(produce(2), (Error::PolicyViolation.code(), -1));
        assert_eq!((produce(0), produce(1)), ((0, 0), (0, 1)), "duplicates");
        let gap = (Error::OutOfOrderSequenceNumber.code(), -1);
        assert_eq!(produce(4), gap, "it would not fit in later either");
    }
}

#[test]
fn without_acks_there_is_no_answer_but_the_record() {
    let mut model = Model::new();
    let ticket = model.send_records(plain(), 0);
    let done = Output::Nothing(Unanswered::Done(ticket));
    assert_eq!(model.output(ticket), Some(done));
    assert_eq!(model.last_stable(), 1);
}

#[test]
fn retention_and_compaction_happen_on_demand() {
    let mut model = Model::new();
    model.produce(plain());
    model.broker.apply_retention(604_800_000);
    assert_eq!(model.broker.partition("t", 0).expect("there").start(), 0);
    model.broker.apply_retention(604_800_001);
    assert_eq!(model.broker.partition("t", 0).expect("there").start(), 1);
    assert_eq!(model.broker.bytes, 0);
    let compacted = [("cleanup.policy", "compact")];
    model.broker.add_topic("c", 1, &compacted).expect("created");
    let place = model.broker.topics["c"].place();
    let log = model.broker.partition_mut("c", 0).expect("there");
    for _ in 0..3 {
        let batch = crate::log::Batch::read(plain());
        log.produce(batch, place, 0).expect("appended");
    }
    let before = log.bytes();
    model.broker.compact(0);
    let log = model.broker.partition("c", 0).expect("there");
    assert_eq!((log.start(), log.end(), 3 * log.bytes()), (0, 3, before));
}

#[test]
fn a_tombstone_outlives_its_first_compaction() {
    let mut model = Model::new();
    let compacted = [("cleanup.policy", "compact"), ("delete.retention.ms", "70")];
    model.broker.add_topic("c", 1, &compacted).expect("created");
    let place = model.broker.topics["c"].place();
    let log = model.broker.partition_mut("c", 0).expect("there");
    for records in [
        [("k", Some("v"), 0)],
        [("k", None, 0)],
        [("other", None, 0)],
    ] {
        let batch = crate::log::Batch::read(produced(None, false, &records));
        log.produce(batch, place, 0).expect("appended");
    }
    let held = |model: &mut Model, now| {
        model.broker.compact(now);
        model.broker.bytes
    };
    let both = held(&mut model, 1_000_000);
    assert_eq!(held(&mut model, 1_000_069), both);
    let neither = held(&mut model, 1_000_070);
    // The last batch stays without records: it keeps the log's end.
    assert!(neither > 0 && neither < both / 2 + 1, "{both}, {neither}");
}

mod faults {
    use super::*;

    /// A model with an open transaction and a fault on EndTxn.
    fn ending(act: Act) -> (Model, crate::faults::RuleId, Ticket) {
        let mut model = Model::new();
        let (id, epoch) = model.open();
        let rule = Rule::on(ApiKey::EndTxn, act)
            .name("x")
            .client("te")
            .times(1);
        let rule = model.broker.add_fault(rule);
        let ticket = model.send_end(id, epoch, true);
        assert_eq!(model.broker.fired(rule), 1);
        (model, rule, ticket)
    }

    /// The connection goes on with nothing, or what was sent behind it would have overtaken it.
    fn lost(ticket: Ticket) -> Output {
        Output::Nothing(Unanswered::Lost(ticket))
    }

    #[test]
    fn a_dropped_request_does_nothing() {
        let (mut model, _, ticket) = ending(Act::DropRequest);
        assert_eq!(model.output(ticket), Some(lost(ticket)));
        assert_eq!(model.last_stable(), 0);
    }

    #[test]
    fn a_dropped_answer_is_applied() {
        let (mut model, _, ticket) = ending(Act::DropAnswer);
        assert_eq!(model.output(ticket), Some(lost(ticket)));
        assert_eq!(model.last_stable(), 2);
    }

    #[test]
    fn a_delayed_request_is_applied_later() {
        let (mut model, _, ticket) = ending(Act::DelayRequest(100));
        model.pass(99);
        assert_eq!((model.output(ticket), model.last_stable()), (None, 0));
        model.pass(1);
        assert_eq!(model.last_stable(), 2);
        assert!(model.answer(ticket).is_some());
    }

    #[test]
    fn a_delayed_answer_is_applied_at_once() {
        let (mut model, _, ticket) = ending(Act::DelayAnswer(100));
        assert_eq!((model.output(ticket), model.last_stable()), (None, 2));
        model.pass(100);
        assert!(model.answer(ticket).is_some());
    }

    #[test]
    fn a_refused_request_is_not_applied() {
        let (mut model, rule, ticket) = ending(Act::Refuse(Error::NotCoordinator));
        match model.answer(ticket) {
            Some(ResponseKind::EndTxn(it)) => {
                assert_eq!(it.error_code, Error::NotCoordinator.code());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(model.last_stable(), 0);
        assert_eq!(model.end(0, 0, true), 0, "once only");
        assert_eq!(model.broker.fired(rule), 1);
    }

    #[test]
    fn a_connection_is_cut_before_or_after() {
        let (mut model, _, ticket) = ending(Act::DisconnectBefore);
        assert_eq!(model.output(ticket), Some(Output::Disconnect(ticket)));
        assert_eq!(model.last_stable(), 0);
        let (mut model, _, ticket) = ending(Act::DisconnectAfter);
        assert_eq!(model.output(ticket), Some(Output::Disconnect(ticket)));
        assert_eq!(model.last_stable(), 2);
    }

    #[test]
    fn a_duplicated_batch_is_written_once_and_a_plain_one_twice() {
        let mut model = Model::new();
        model
            .broker
            .add_fault(Rule::on(ApiKey::Produce, Act::Duplicate).partition("t", 0));
        let producer = Some((77, 0, 0));
        let first = model.produce(produced(producer, false, &[("k", None, 0)]));
        assert_eq!((first.0, first.1, model.last_stable()), (0, 0, 1));
        let second = model.produce(plain());
        assert_eq!((second.0, second.1, model.last_stable()), (0, 1, 3));
        assert_eq!(model.out, [], "answered once");
    }

    #[test]
    fn a_duplicate_that_is_held_is_answered_once() {
        let mut model = Model::new();
        let both = [ApiKey::Fetch, ApiKey::JoinGroup];
        let ticket = model.join("");
        let (_, _, first) = model.joined(ticket).expect("answered");
        model
            .broker
            .add_fault(Rule::on_any(&both, Act::Duplicate).times(2));
        let fetch = model.send_fetch(0, 500);
        let join = model.join("");
        model.join(&first);
        model.pass(60_000);
        let mut tickets = model.out.iter().map(Output::ticket);
        assert_eq!(tickets.clone().filter(|it| *it == fetch).count(), 1);
        assert_eq!(tickets.by_ref().filter(|it| *it == join).count(), 1);
    }

    #[test]
    fn rules_are_narrow_skip_and_can_be_taken_away() {
        let mut model = Model::new();
        let other = Rule::on(ApiKey::Produce, Act::DropRequest);
        let elsewhere = model.broker.add_fault(other.clone().topic("u"));
        let somebody = model.broker.add_fault(other.clone().client("else"));
        let third = model.broker.add_fault(other.skip(2).times(1));
        let seen: Vec<bool> = (0..4)
            .map(|_| {
                let ticket = model.send_records(plain(), -1);
                matches!(model.output(ticket), Some(Output::Answer(..)))
            })
            .collect();
        assert_eq!(seen, [true, true, false, true]);
        let fired = [elsewhere, somebody, third].map(|id| model.broker.fired(id));
        assert_eq!(fired, [0, 0, 1]);
        let all = model
            .broker
            .add_fault(Rule::on(ApiKey::Produce, Act::DropRequest));
        model.broker.remove_fault(all);
        assert_eq!(model.produce(plain()).0, 0);
        assert_eq!(model.broker.fired(all), 0);
    }

    #[test]
    fn a_coordinator_is_away_for_a_while() {
        let mut model = Model::new();
        let until = model.now + 100;
        let rule = model.broker.add_fault(Rule::not_coordinator(until));
        let away = Error::NotCoordinator.code();
        assert_eq!((model.init().0, model.beat("m", 1)), (away, away));
        model.pass(100);
        assert_eq!(model.init().0, 0);
        assert_eq!(model.broker.fired(rule), 2);
    }

    /// An admin client asks the coordinator as others do, and looks for it anew when it is told to.
    #[test]
    fn a_coordinator_that_is_away_answers_no_admin_either() {
        let mut model = Model::new();
        let until = model.now + 100;
        model.broker.add_fault(Rule::not_coordinator(until));
        let id = || vec![TransactionalId(text("x"))];
        let asked: [(i16, RequestKind); 4] = [
            (
                5,
                DescribeGroupsRequest::default()
                    .with_groups(vec![text("g").into()])
                    .into(),
            ),
            (
                2,
                DeleteGroupsRequest::default()
                    .with_groups_names(vec![text("g").into()])
                    .into(),
            ),
            (
                0,
                OffsetDeleteRequest::default()
                    .with_group_id(text("g").into())
                    .into(),
            ),
            (
                0,
                DescribeTransactionsRequest::default()
                    .with_transactional_ids(id())
                    .into(),
            ),
        ];
        for (version, request) in asked {
            let ticket = model.send(version, request);
            let told = match model.answer(ticket) {
                Some(ResponseKind::DescribeGroups(it)) => it.groups[0].error_code,
                Some(ResponseKind::DeleteGroups(it)) => it.results[0].error_code,
                Some(ResponseKind::OffsetDelete(it)) => it.error_code,
                Some(ResponseKind::DescribeTransactions(it)) => it.transaction_states[0].error_code,
                other => panic!("{other:?}"),
            };
            assert_eq!(told, Error::NotCoordinator.code(), "{ticket:?}");
        }
    }

    #[test]
    fn an_answer_that_is_held_anyway_is_hurt_when_it_comes() {
        let mut model = Model::new();
        model
            .broker
            .add_fault(Rule::on(ApiKey::Fetch, Act::DisconnectAfter));
        let ticket = model.send_fetch(0, 500);
        assert_eq!(model.output(ticket), None);
        model.produce(plain());
        assert_eq!(model.output(ticket), Some(Output::Disconnect(ticket)));
    }

    #[test]
    fn an_answer_that_is_held_anyway_is_lost_when_it_comes() {
        let mut model = Model::new();
        model
            .broker
            .add_fault(Rule::on(ApiKey::Fetch, Act::DropAnswer));
        let ticket = model.send_fetch(0, 500);
        assert_eq!(model.output(ticket), None);
        model.produce(plain());
        assert_eq!(model.output(ticket), Some(lost(ticket)));
        model
            .broker
            .add_fault(Rule::on(ApiKey::Produce, Act::DropAnswer));
        let ticket = model.send_records(plain(), 0);
        let done = Output::Nothing(Unanswered::Done(ticket));
        assert_eq!(model.output(ticket), Some(done), "none was expected");
    }

    #[test]
    fn a_session_is_ended_at_once() {
        let mut model = Model::new();
        let ticket = model.join("");
        let (_, generation, id) = model.joined(ticket).expect("answered");
        model.broker.expire_session("g", &id, model.now);
        let out = model.broker.advance(model.now);
        assert_eq!(out, []);
        assert_eq!(model.beat(&id, generation), Error::UnknownMemberId.code());
    }
}
