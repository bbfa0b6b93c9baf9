//! The records of a partition beyond the last stable offset.

use std::time::Duration;

use eos_client::{LogEnds, Producer, Source};
use eos_protocol::TopicPartition;

use super::support::{
    Fixture, SLICE, bounds, close, offset, partition, ready, send, take, take_over, taken,
    wait_until,
};
use crate::KafkaSource;

#[test]
fn what_an_open_transaction_holds_back_is_counted_and_its_marker_is_not() {
    let Some(mut fixture) = Fixture::new("watermark") else {
        return;
    };
    let topic = fixture.topic("in", 2);
    fixture.fill(&topic, 0, 5);
    let mut producer = fixture.begun(&[&topic]);
    send(&mut producer, 0, 0, "held back");
    send(&mut producer, 0, 0, "this, too");
    ready(|slice| producer.flush(slice)).unwrap();

    let mut source = fixture.source();
    let (p0, p1) = (partition(&topic, 0), partition(&topic, 1));
    source.subscribe(std::slice::from_ref(&topic)).unwrap();
    assert_eq!(source.held_back(&p0), None, "not assigned yet");
    assert_eq!(source.high_watermark(&p0), None, "not assigned yet");
    take_over(&mut source);
    take(&mut source, &p0, 5);
    let heard = |source: &mut KafkaSource, of: &TopicPartition, count| {
        wait_until("last stable offset", || {
            // The client receives the end of a partition when records are taken.
            assert!(taken(source, of, 1).is_empty());
            source.wait(SLICE);
            source.held_back(of) == Some(count)
        });
    };
    heard(&mut source, &p0, 2);
    heard(&mut source, &p1, 0);
    // librdkafka's cached watermark is the high one, though it reads committed records only.
    assert_eq!(source.high_watermark(&p0), Some(offset(7)));
    assert_eq!(source.high_watermark(&p1), Some(offset(0)));
    let bounds = bounds(&mut source, &p0);
    assert_eq!(
        bounds.end,
        offset(5),
        "no record of the open transaction is readable"
    );
    // A reader of all records has another end. Partition 1 does not even have to be assigned.
    let ends = |source: &mut KafkaSource| {
        let ends = ready(|slice| source.ends(&[p0.clone(), p1.clone()], slice)).unwrap();
        let plain = |e: &LogEnds| [e.first.get(), e.stable.get(), e.end.get()];
        ends.iter().map(plain).collect::<Vec<_>>()
    };
    assert_eq!(ends(&mut source), [[0, 5, 7], [0, 0, 0]]);
    fixture.wire.delete_records(topic.as_str(), 0, 2).unwrap();
    assert_eq!(ends(&mut source), [[2, 5, 7], [0, 0, 0]]);

    ready(|slice| producer.abort(slice)).unwrap();
    heard(&mut source, &p0, 0);
    // The marker counts.
    assert_eq!(source.high_watermark(&p0), Some(offset(8)));
    assert_eq!(ends(&mut source), [[2, 8, 8], [0, 0, 0]]);
    source.unassign(&[p0.clone(), p1.clone()]).unwrap();
    assert_eq!(source.held_back(&p0), None, "another one's now");
    assert_eq!(source.high_watermark(&p0), None, "another one's now");
    close(source);
}

/// The metrics query twice a second. Meanwhile the watermark moves, and the last stable offset has to be queried again.
#[test]
fn what_is_held_back_stays_known_while_others_write_behind_it() {
    let Some(mut fixture) = Fixture::new("busy") else {
        return;
    };
    let topic = fixture.topic("in", 1);
    let p0 = partition(&topic, 0);
    let mut producer = fixture.begun(&[&topic]);
    send(&mut producer, 0, 0, "undecided");
    ready(|slice| producer.flush(slice)).unwrap();

    let mut source = fixture.source();
    source.assign(&[(p0.clone(), offset(0))]).unwrap();
    let mut looks = Vec::new();
    for _ in 0..10 {
        fixture.fill(&topic, 0, 3);
        std::thread::sleep(Duration::from_millis(400));
        assert!(taken(&mut source, &p0, 10).is_empty());
        looks.push(source.held_back(&p0));
    }
    // The first calls send the query.
    let known = &looks[3..];
    assert!(known.iter().all(Option::is_some), "{looks:?}");
    let grows = known.is_sorted() && known.last() > known.first();
    assert!(grows, "{looks:?}");
    ready(|slice| producer.abort(slice)).unwrap();
    close(source);
}
