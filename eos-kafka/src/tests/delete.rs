//! Deletes the right records, without harm to the process (docs/design/0025).

use std::time::{Duration, Instant};

use eos_client::{Client, Result};
use eos_protocol::{CallSite, Offset, Partition, TopicName, TopicPartition, code};

use super::support::{Fixture, PATIENCE, assert_quick, client_of};

fn at(topic: &TopicName, partition: i32, offset: i64) -> (TopicPartition, Offset) {
    let partition = Partition::new(partition).unwrap();
    let offset = Offset::new(offset).unwrap();
    (TopicPartition::new(topic.clone(), partition), offset)
}

/// Returns a topic from which only this test deletes records. The timestamps of its records are small numbers, so
/// retention would delete them half a minute after the broker's start.
fn kept(fixture: &mut Fixture, partitions: i32) -> TopicName {
    let name = format!("{}-in", fixture.group());
    let settings = [("retention.ms", "-1")];
    let made = fixture.wire.create_topic(&name, partitions, 1, &settings);
    made.unwrap();
    name.as_str().into()
}

fn outcomes(answers: Vec<(TopicPartition, Result<Offset>)>) -> Vec<Result<i64, i32>> {
    let answers = answers.into_iter();
    answers
        .map(|(_, outcome)| match outcome {
            Ok(begins) => Ok(begins.get()),
            Err(error) => {
                assert_eq!(error.call, CallSite::DeleteRecords);
                Err(error.fault.code)
            }
        })
        .collect()
}

#[test]
fn what_lies_before_an_offset_is_deleted_and_nothing_else() {
    let Some(mut fixture) = Fixture::new("delete") else {
        return;
    };
    let topic = kept(&mut fixture, 3);
    for partition in 0..3 {
        fixture.fill(&topic, partition, 10);
    }
    let order = [at(&topic, 0, 4), at(&topic, 1, 10)];
    for _again in 0..2 {
        let answers = fixture.client.delete_records(&order, PATIENCE).unwrap();
        assert_eq!(outcomes(answers), [Ok(4), Ok(10)]);
    }
    let first = fixture.wire.start_offsets(topic.as_str()).unwrap();
    assert_eq!(
        first,
        [4, 10, 0],
        "no deletion of the last one was requested"
    );
    let nothing = fixture.client.delete_records(&[], PATIENCE);
    assert_eq!(nothing, Ok(Vec::new()));
}

#[test]
fn what_can_t_be_deleted_keeps_nothing_else_from_it() {
    let Some(mut fixture) = Fixture::new("delete-some") else {
        return;
    };
    let topic = kept(&mut fixture, 1);
    fixture.fill(&topic, 0, 10);
    let absent = TopicName::new(format!("{topic}-absent"));
    let order = [at(&absent, 0, 1), at(&topic, 7, 1), at(&topic, 0, 5)];
    let answers = fixture.client.delete_records(&order, PATIENCE).unwrap();
    let unknown = Err(code::UNKNOWN_TOPIC_OR_PARTITION);
    let no_partition = Err(code::LOCAL_UNKNOWN_PARTITION);
    assert_eq!(outcomes(answers), [unknown, no_partition, Ok(5)]);
    // Beyond the end.
    let order = [at(&topic, 0, 11)];
    let answers = fixture.client.delete_records(&order, PATIENCE).unwrap();
    assert_eq!(outcomes(answers), [Err(1)], "OFFSET_OUT_OF_RANGE");
    assert_eq!(fixture.wire.start_offsets(topic.as_str()).unwrap(), [5]);
}

#[test]
fn without_a_broker_it_fails_in_time() {
    let client = client_of("127.0.0.1:1");
    let order = [at(&"nowhere".into(), 0, 1)];
    let begun = Instant::now();
    let error = client
        .delete_records(&order, Duration::from_millis(700))
        .unwrap_err();
    assert_quick(begun);
    assert_eq!(error.fault.code, code::LOCAL_TIMED_OUT);
    // With the reason, or without one if there was no attempt in so short a time.
    assert!(error.text.contains("127.0.0.1:1"), "{error}");
    let error = client_of("").delete_records(&order, PATIENCE).unwrap_err();
    assert!(error.text.contains("no broker"), "{error}");
}

/// For the address sanitizer: `EOS_DELETIONS=2000`, see docs/design/0025.
#[test]
fn many_deletions_at_once_do_no_harm() {
    let rounds: usize = std::env::var("EOS_DELETIONS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(8);
    let Some(mut fixture) = Fixture::new("deletions") else {
        return;
    };
    let topic = kept(&mut fixture, 3);
    for partition in 0..3 {
        fixture.fill(&topic, partition, 10);
    }
    let absent = TopicName::new(format!("{topic}-absent"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, topic, absent) = (&fixture.client, &topic, &absent);
            scope.spawn(move || {
                for round in 0..rounds.div_ceil(4) {
                    let good = [at(topic, 0, 1), at(topic, 1, 2), at(topic, 2, 3)];
                    let some = [at(absent, 0, 1), at(topic, 0, 1)];
                    let none = [at(absent, 0, 1)];
                    // Dropped during the request, at another point each time.
                    let short = Duration::from_millis(1 + round as u64 % 40);
                    match (thread + round) % 4 {
                        0 => {
                            let answers = client.delete_records(&good, PATIENCE).unwrap();
                            assert_eq!(outcomes(answers), [Ok(1), Ok(2), Ok(3)]);
                        }
                        1 => {
                            let answers = client.delete_records(&some, PATIENCE).unwrap();
                            assert_eq!(outcomes(answers)[1], Ok(1));
                        }
                        2 => drop(client.delete_records(&none, PATIENCE)),
                        _ => drop(client.delete_records(&good, short)),
                    }
                }
            });
        }
    });
}
