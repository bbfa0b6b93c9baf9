//! The end of a partition, without a query.

use std::time::{Duration, Instant};

use eos_client::{Producer, Source};
use eos_protocol::TopicPartition;

use super::support::{Fixture, offset, partition, ready, send, take, taken, until, wait_until};
use crate::KafkaSource;

/// Waits until only the end is as expected, and stays so for longer than a fetch takes.
#[track_caller]
fn settles_at(source: &mut KafkaSource, of: &TopicPartition, end: i64) {
    let mut since = None;
    until("such an end", || {
        assert!(source.poll().is_none());
        assert!(taken(source, of, 10).is_empty());
        source.wait(Duration::from_millis(10));
        if source.end(of) == Some(offset(end)) {
            let since = since.get_or_insert_with(Instant::now);
            return (since.elapsed() > Duration::from_millis(400)).then_some(());
        }
        since = None;
        None
    });
}

#[test]
fn the_end_is_known_and_neither_markers_nor_open_transactions_are_lag() {
    let Some(mut fixture) = Fixture::new("ends") else {
        return;
    };
    let input = fixture.topic("in", 1);
    let p0 = partition(&input, 0);
    let mut producer = fixture.producer(&[&input]);
    let write = |producer: &mut crate::KafkaProducer, value: &str| {
        producer.begin().unwrap();
        send(producer, 0, 0, value);
        ready(|slice| producer.flush(slice)).unwrap();
    };

    // Only an open transaction: there is nothing to wait for.
    write(&mut producer, "a");
    let mut source = fixture.source();
    assert_eq!(source.end(&p0), None, "not assigned");
    source.assign(&[(p0.clone(), offset(0))]).unwrap();
    settles_at(&mut source, &p0, 0);

    // Committed: the record, then the marker at offset 1.
    ready(|slice| producer.commit(slice)).unwrap();
    take(&mut source, &p0, 1);
    settles_at(&mut source, &p0, 1);

    // Open, then aborted: a record and a marker that no reader ever receives.
    write(&mut producer, "b");
    settles_at(&mut source, &p0, 1);
    ready(|slice| producer.abort(slice)).unwrap();
    settles_at(&mut source, &p0, 1);

    // Fetched records that are not taken are ahead.
    write(&mut producer, "c");
    ready(|slice| producer.commit(slice)).unwrap();
    wait_until("something ahead", || {
        source.wait(Duration::from_millis(10));
        source.end(&p0) > Some(offset(1))
    });
    take(&mut source, &p0, 1);
    settles_at(&mut source, &p0, 5);

    // After a rewind all records are ahead again.
    ready(|slice| source.seek(&[(p0.clone(), offset(0))], slice)).unwrap();
    assert_ne!(source.end(&p0), Some(offset(0)), "records are ahead");
    let first = take(&mut source, &p0, 1);
    assert_eq!(first[0].offset, offset(0));
    assert!(source.end(&p0) > Some(offset(1)));
    take(&mut source, &p0, 1);
    settles_at(&mut source, &p0, 5);

    // Earlier offsets are not valid after the partition was away.
    source.unassign(std::slice::from_ref(&p0)).unwrap();
    assert_eq!(source.end(&p0), None);
    source.assign(&[(p0.clone(), offset(6))]).unwrap();
    settles_at(&mut source, &p0, 6);
}

#[test]
fn the_end_is_settled_without_waiting_for_another_fetch() {
    let Some(mut fixture) = Fixture::new("settled") else {
        return;
    };
    let input = fixture.topic("in", 1);
    let p0 = partition(&input, 0);
    fixture.fill(&input, 0, 100);
    let mut source = fixture.source();
    source.assign(&[(p0.clone(), offset(0))]).unwrap();
    take(&mut source, &p0, 99);
    assert_eq!(source.end(&p0), Some(offset(100)));
    take(&mut source, &p0, 1);
    // The broker holds the next fetch for 100 ms.
    assert_eq!(source.end(&p0), Some(offset(100)));
}
