//! Several members of one group.

use std::time::{Duration, Instant};

use eos_protocol::{TopicPartition, code};

use super::support::{
    Fixture, PATIENCE, SLICE, classic, close, commit, config_of, event, expect, offsets, partition,
    ready, resume, send, take, take_over, taken, to_commit, until,
};
use crate::client::{Client, GroupMetadata, GroupProtocol, Producer, Source, SourceEvent};
use crate::kafka::{KafkaClient, KafkaSource};

/// Answers what comes up until both members own something and nothing moves any more.
fn settle(members: &mut [(&mut KafkaSource, &mut Vec<TopicPartition>)], total: usize) {
    let mut quiet = Instant::now();
    let start = Instant::now();
    loop {
        for (source, owned) in &mut *members {
            match source.poll() {
                Some(SourceEvent::Assigned(new)) => {
                    resume(source, &new);
                    owned.extend(new);
                    quiet = Instant::now();
                }
                Some(SourceEvent::Revoked { partitions, .. }) => {
                    source.unassign(&partitions).unwrap();
                    owned.retain(|p| !partitions.contains(p));
                    quiet = Instant::now();
                }
                Some(other) => panic!("{other:?}"),
                None => source.wait(Duration::from_millis(5)),
            }
        }
        let owned: usize = members.iter().map(|(_, owned)| owned.len()).sum();
        let all_own = members.iter().all(|(_, owned)| !owned.is_empty());
        if owned == total && all_own && quiet.elapsed() > Duration::from_millis(500) {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "it does not settle: {owned} of {total}"
        );
    }
}

#[test]
fn a_revoke_is_answered_after_a_commit_and_the_successor_starts_there() {
    let Some(mut fixture) = Fixture::new("cooperative") else {
        return;
    };
    let (input, output) = (fixture.topic("in", 4), fixture.topic("out", 1));
    for p in 0..4 {
        fixture.fill(&input, p, 50);
    }
    let mut first = fixture.source();
    first.subscribe(std::slice::from_ref(&input)).unwrap();
    let mut owned = take_over(&mut first);
    assert_eq!(owned.len(), 4);
    let mut producer = fixture.producer(&[&output]);
    ready(|slice| producer.init(slice)).unwrap();
    producer.begin().unwrap();
    for p in 0..4 {
        take(&mut first, &partition(&input, p), 5);
    }
    send(&mut producer, 0, 0, "half");

    let mut second = fixture.source();
    second.subscribe(std::slice::from_ref(&input)).unwrap();
    let revoked = until("revoke", || {
        assert!(second.poll().is_none(), "nothing can be free yet");
        first.wait(SLICE);
        first.poll()
    });
    let SourceEvent::Revoked {
        partitions: revoked,
        lost: false,
    } = revoked
    else {
        panic!("{revoked:?}")
    };
    assert_eq!(revoked.len(), 2, "only what moves is revoked: {revoked:?}");
    // In the middle of the rebalance, and late: the generation is a new one already.
    std::thread::sleep(Duration::from_millis(300));
    let done: Vec<_> = owned.iter().map(|p| to_commit(p, 5, "n")).collect();
    commit(&mut first, &mut producer, &done).unwrap();
    first.unassign(&revoked).unwrap();
    owned.retain(|p| !revoked.contains(p));

    let mut moved = Vec::new();
    settle(
        &mut [(&mut first, &mut owned), (&mut second, &mut moved)],
        4,
    );
    moved.sort();
    let mut expected = revoked;
    expected.sort();
    assert_eq!(moved, expected);
    for p in &moved {
        assert_eq!(offsets(&take(&mut second, p, 2)), [5, 6], "{p}");
    }
    for p in &owned {
        assert_eq!(
            offsets(&take(&mut first, p, 2)),
            [5, 6],
            "what stays goes on: {p}"
        );
    }
    expect(&mut fixture.wire, &output, &["half"]);
    close(first);
    close(second);
}

#[test]
fn partitions_may_be_assigned_later_than_the_rebalance_is_answered() {
    let Some(mut fixture) = Fixture::new("later") else {
        return;
    };
    let input = fixture.topic("in", 2);
    let sibling = fixture.topic("sibling", 1);
    fixture.fill(&input, 0, 10);
    fixture.fill(&input, 1, 10);
    fixture.fill(&sibling, 0, 10);
    let mut source = fixture.source();
    source.subscribe(std::slice::from_ref(&input)).unwrap();
    assert!(matches!(event(&mut source), SourceEvent::Assigned(_)));
    let (p0, p1, s0) = (
        partition(&input, 0),
        partition(&input, 1),
        partition(&sibling, 0),
    );
    let zero = eos_protocol::Offset::ZERO;
    source.assign(&[]).unwrap();
    source.assign(&[(p1.clone(), zero)]).unwrap();
    assert_eq!(offsets(&take(&mut source, &p1, 2)), [0, 1]);
    // A topic that nobody subscribed to comes along, and the first one is not disturbed.
    source
        .assign(&[(p0.clone(), zero), (s0.clone(), zero)])
        .unwrap();
    assert_eq!(offsets(&take(&mut source, &s0, 2)), [0, 1]);
    assert_eq!(offsets(&take(&mut source, &p1, 2)), [2, 3]);
    assert_eq!(offsets(&take(&mut source, &p0, 1)), [0]);
    // p1 is given back alone, as if it were revoked together with one that was never assigned.
    source
        .unassign(&[p1.clone(), partition(&input, 77)])
        .unwrap();
    assert_eq!(offsets(&take(&mut source, &p0, 2)), [1, 2]);
    close(source);
}

#[test]
fn a_static_member_that_restarts_keeps_its_partitions_and_nobody_else_notices() {
    let Some(mut fixture) = Fixture::new("static") else {
        return;
    };
    let input = fixture.topic("in", 4);
    let make = |name: &str| {
        let mut spec = fixture.source_spec();
        let id = format!("{}-{name}", spec.group);
        spec.protocol = classic(Some(id), Duration::from_secs(6));
        let mut source = fixture.client.source(&spec).unwrap();
        source.subscribe(std::slice::from_ref(&input)).unwrap();
        source
    };
    let (mut a, mut b) = (make("a"), make("b"));
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    settle(&mut [(&mut a, &mut of_a), (&mut b, &mut of_b)], 4);
    let generation = b.member().unwrap().generation_id();

    // Closed politely, and dropped without a word: both keep what they had.
    for polite in [true, false] {
        if polite {
            close(a);
        } else {
            drop(a);
        }
        a = make("a");
        let mut again = take_over(&mut a);
        again.sort();
        of_a.sort();
        assert_eq!(again, of_a);
        assert_eq!(b.poll(), None);
        assert_eq!(
            b.member().unwrap().generation_id(),
            generation,
            "no rebalance"
        );
    }
    close(a);
    close(b);
}

#[test]
fn a_static_member_that_unsubscribes_gives_its_partitions_away_at_once() {
    let Some(mut fixture) = Fixture::new("unsubscribe") else {
        return;
    };
    let input = fixture.topic("in", 2);
    let make = |name: &str| {
        let mut spec = fixture.source_spec();
        let id = format!("{}-{name}", spec.group);
        // Far longer than the test may take.
        let session = Duration::from_secs(120);
        spec.protocol = GroupProtocol::Classic {
            instance_id: Some(id),
            session_timeout: session,
            heartbeat_interval: Duration::from_millis(300),
        };
        let mut source = fixture.client.source(&spec).unwrap();
        source.subscribe(std::slice::from_ref(&input)).unwrap();
        source
    };
    let (mut a, mut b) = (make("a"), make("b"));
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    settle(&mut [(&mut a, &mut of_a), (&mut b, &mut of_b)], 2);

    let start = Instant::now();
    a.unsubscribe().unwrap();
    let SourceEvent::Revoked { partitions, lost } = event(&mut a) else {
        panic!()
    };
    assert_eq!((partitions.clone(), lost), (of_a.clone(), false));
    // It still is a member: the last transaction can commit.
    assert!(a.member().unwrap().generation_id() >= 0);
    a.unassign(&partitions).unwrap();
    close(a);
    let inherited = take_over(&mut b);
    assert_eq!(inherited, of_a);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    close(b);
}

#[test]
fn a_closing_member_still_gets_its_revoke_and_can_commit_before_it_answers() {
    let Some(mut fixture) = Fixture::new("closing") else {
        return;
    };
    let (input, output) = (fixture.topic("in", 1), fixture.topic("out", 1));
    fixture.fill(&input, 0, 10);
    let mut source = fixture.source();
    source.subscribe(std::slice::from_ref(&input)).unwrap();
    take_over(&mut source);
    let p0 = partition(&input, 0);
    let mut producer = fixture.producer(&[&output]);
    ready(|slice| producer.init(slice)).unwrap();
    producer.begin().unwrap();
    take(&mut source, &p0, 3);
    send(&mut producer, 0, 0, "last words");

    assert!(
        source.close(Duration::from_millis(300)).is_pending(),
        "the revoke waits for us"
    );
    let revoked = event(&mut source);
    assert_eq!(
        revoked,
        SourceEvent::Revoked {
            partitions: vec![p0.clone()],
            lost: false
        }
    );
    commit(&mut source, &mut producer, &[to_commit(&p0, 3, "")]).unwrap();
    source.unassign(std::slice::from_ref(&p0)).unwrap();
    ready(|slice| source.close(slice)).unwrap();
    assert!(source.poll().is_none());
    expect(&mut fixture.wire, &output, &["last words"]);
    let committed = fixture
        .wire
        .committed(&fixture.group(), input.as_str())
        .unwrap();
    assert_eq!(committed, [Some((3, String::new()))]);
}

#[test]
fn a_member_that_did_not_poll_in_time_learns_that_its_partitions_are_lost() {
    let Some(mut fixture) = Fixture::new("lost") else {
        return;
    };
    let input = fixture.topic("in", 1);
    let mut config = config_of(&fixture.bootstrap);
    config
        .properties
        .consumer
        .push(("max.poll.interval.ms".into(), "1500".into()));
    let mut spec = fixture.source_spec();
    spec.protocol = classic(None, Duration::from_millis(1000));
    let mut source = KafkaClient::new(config).source(&spec).unwrap();
    source.subscribe(std::slice::from_ref(&input)).unwrap();
    let owned = take_over(&mut source);
    std::thread::sleep(Duration::from_secs(3));
    let SourceEvent::Failed(error) = event(&mut source) else {
        panic!("no word of it")
    };
    assert_eq!(error.fault.code, code::LOCAL_MAX_POLL_EXCEEDED, "{error}");
    assert_eq!(
        event(&mut source),
        SourceEvent::Revoked {
            partitions: owned.clone(),
            lost: true
        }
    );
    source.unassign(&owned).unwrap();
    assert_eq!(take_over(&mut source), owned, "it joins again by itself");
    close(source);
}

#[test]
fn a_wait_ends_when_a_record_or_an_event_comes() {
    let Some(mut fixture) = Fixture::new("wait") else {
        return;
    };
    let input = fixture.topic("in", 1);
    let mut source = fixture.source();
    source.subscribe(std::slice::from_ref(&input)).unwrap();
    let start = Instant::now();
    let partitions = loop {
        source.wait(PATIENCE);
        if let Some(SourceEvent::Assigned(partitions)) = source.poll() {
            break partitions;
        }
    };
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    resume(&mut source, &partitions);
    let p0 = partition(&input, 0);
    let mut records = Vec::new();
    for n in 1..=5 {
        fixture.fill(&input, 0, 1);
        let start = Instant::now();
        while records.len() < n {
            source.wait(PATIENCE);
            records.extend(taken(&mut source, &p0, 10));
        }
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    }
    close(source);
}

#[test]
fn a_source_can_be_dropped_whatever_is_unanswered() {
    let Some(mut fixture) = Fixture::new("dropped") else {
        return;
    };
    let input = fixture.topic("in", 4);
    fixture.fill(&input, 0, 1000);
    let dropped = |source: KafkaSource| {
        let start = Instant::now();
        drop(source);
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "{:?}",
            start.elapsed()
        );
    };
    let spec = |n: i32| {
        let mut spec = fixture.source_spec();
        spec.group = format!("{}-{n}", spec.group);
        spec
    };
    let join = |n: i32| {
        let mut source = fixture.client.source(&spec(n)).unwrap();
        source.subscribe(std::slice::from_ref(&input)).unwrap();
        source
    };
    // Never joined; joining; asked and not answered; the question not even read.
    dropped(fixture.client.source(&spec(0)).unwrap());
    dropped(join(1));
    let mut asked = join(2);
    assert!(matches!(event(&mut asked), SourceEvent::Assigned(_)));
    dropped(asked);
    let mut unread = join(3);
    unread.wait(PATIENCE);
    std::thread::sleep(Duration::from_millis(200));
    dropped(unread);

    // A revocation that is not answered, with records still held and a query under way.
    let mut owner = join(4);
    let owned = take_over(&mut owner);
    let records = take(&mut owner, &partition(&input, 0), 10);
    let other = join(4);
    until("revoke", || {
        owner.wait(SLICE);
        matches!(owner.poll(), Some(SourceEvent::Revoked { .. })).then_some(())
    });
    assert!(owner.committed(&owned, Duration::ZERO).is_pending());
    dropped(owner);
    assert_eq!(
        offsets(&records),
        (0..10).collect::<Vec<_>>(),
        "records outlive their source"
    );
    drop(records);
    dropped(other);

    // A close that is abandoned.
    let mut closing = join(5);
    take_over(&mut closing);
    assert!(closing.close(SLICE).is_pending());
    dropped(closing);
}
