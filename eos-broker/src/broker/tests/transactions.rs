//! Markers, timeouts and late batches.

use super::*;

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
    let records = produced(Some((id, epoch, 0)), true, &[("k", None, 0)]);
    let request = requests::produce("u", 0, records, Some("x"), -1);
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

/// Kafka requires permission to write in a transaction, even if none is open, and checks it once for the whole request.
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
