//! Tests of several members of one group.

use std::time::{Duration, Instant};

use eos_client::{Client, GroupMetadata, GroupProtocol, Source, SourceEvent};
use eos_protocol::{TopicPartition, code};

use super::support::{
    Fixture, PATIENCE, SLICE, assert_quick, classic, close, commit, config_of, event, expect,
    offsets, partition, ready, resume, send, settle, subscribed, take, take_over, taken, to_commit,
    until, wait_until,
};
use crate::{KafkaClient, KafkaSource};

/// Runs scenarios of dynamic members under both protocols.
macro_rules! under_both_protocols {
    ($($scenario:ident,)*) => {
        mod classic_protocol {
            use crate::tests::support::dynamic;
            $(#[test] fn $scenario() {
                super::run(dynamic(), stringify!($scenario), super::$scenario);
            })*
        }
        mod consumer_protocol {
            use eos_client::GroupProtocol::Consumer;
            $(#[test] fn $scenario() {
                super::run(Consumer, stringify!($scenario), super::$scenario);
            })*
        }
    };
}

fn run(protocol: GroupProtocol, name: &str, scenario: fn(Fixture)) {
    if let Some(fixture) = Fixture::speaking(protocol, name) {
        scenario(fixture);
    }
}

under_both_protocols! {
    the_requested_protocol_is_used,
    a_member_that_polls_too_late_loses_its_partitions,
    a_successor_starts_at_offsets_committed_during_the_revocation,
    partitions_can_be_assigned_after_the_rebalance_ended,
    a_closing_member_receives_its_revocation_and_can_commit_before_it_leaves,
    a_wait_ends_when_a_record_or_an_event_comes,
    a_source_can_be_dropped_with_pending_events,
}

fn the_requested_protocol_is_used(mut fixture: Fixture) {
    let input = fixture.topic("in", 1);
    let mut source = fixture.reader(&input);
    let member = source.member().unwrap();
    // Classic: the coordinator derives an id from the client's. KIP-848: the member creates its own.
    let id = fixture.source_spec().client_id;
    let by_broker = member.member_id().starts_with(&id);
    let classic = fixture.protocol != GroupProtocol::Consumer;
    assert_eq!(by_broker, classic, "{member:?}");
    close(source);
}

fn a_successor_starts_at_offsets_committed_during_the_revocation(mut fixture: Fixture) {
    let (input, output) = (fixture.topic("in", 4), fixture.topic("out", 1));
    for p in 0..4 {
        fixture.fill(&input, p, 50);
    }
    let mut first = fixture.subscriber(&input);
    let mut owned = take_over(&mut first);
    assert_eq!(owned.len(), 4);
    let mut producer = fixture.begun(&[&output]);
    for p in 0..4 {
        take(&mut first, &partition(&input, p), 5);
    }
    send(&mut producer, 0, 0, "half");

    let mut second = fixture.subscriber(&input);
    let revoked = until("revoke", || {
        assert!(second.poll().is_none(), "nothing can be free yet");
        first.wait(SLICE);
        first.poll()
    });
    let SourceEvent::Revoked { partitions, lost } = revoked else {
        panic!("{revoked:?}")
    };
    assert!(!lost);
    let revoked = partitions;
    assert_eq!(revoked.len(), 2, "only what moves is revoked: {revoked:?}");
    // During the rebalance, and late: the generation is already a new one.
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
        let next = offsets(&take(&mut first, p, 2));
        assert_eq!(next, [5, 6], "a partition that stays continues: {p}");
    }
    expect(&mut fixture.wire, &output, &["half"]);
    close(first);
    close(second);
}

fn partitions_can_be_assigned_after_the_rebalance_ended(mut fixture: Fixture) {
    let input = fixture.topic("in", 2);
    let sibling = fixture.topic("sibling", 1);
    fixture.fill(&input, 0, 10);
    fixture.fill(&input, 1, 10);
    fixture.fill(&sibling, 0, 10);
    let mut source = fixture.subscriber(&input);
    assert!(matches!(event(&mut source), SourceEvent::Assigned(_)));
    let [p0, p1] = [0, 1].map(|number| partition(&input, number));
    let s0 = partition(&sibling, 0);
    let zero = eos_protocol::Offset::ZERO;
    source.assign(&[]).unwrap();
    source.assign(&[(p1.clone(), zero)]).unwrap();
    assert_eq!(offsets(&take(&mut source, &p1, 2)), [0, 1]);
    // A topic without a subscription is assigned too, and the first one continues.
    source
        .assign(&[(p0.clone(), zero), (s0.clone(), zero)])
        .unwrap();
    assert_eq!(offsets(&take(&mut source, &s0, 2)), [0, 1]);
    assert_eq!(offsets(&take(&mut source, &p1, 2)), [2, 3]);
    assert_eq!(offsets(&take(&mut source, &p0, 1)), [0]);
    // p1 is unassigned alone, as in a revocation together with a partition that was never assigned.
    source
        .unassign(&[p1.clone(), partition(&input, 77)])
        .unwrap();
    assert_eq!(offsets(&take(&mut source, &p0, 2)), [1, 2]);
    close(source);
}

fn a_closing_member_receives_its_revocation_and_can_commit_before_it_leaves(mut fixture: Fixture) {
    let (input, output) = fixture.topics();
    let mut source = fixture.reader(&input);
    let p0 = partition(&input, 0);
    let mut producer = fixture.begun(&[&output]);
    take(&mut source, &p0, 3);
    send(&mut producer, 0, 0, "last words");

    let closing = source.close(Duration::from_millis(300));
    assert!(closing.is_pending(), "the revocation waits for this member");
    let (partitions, lost) = (vec![p0.clone()], false);
    let revoked = SourceEvent::Revoked { partitions, lost };
    assert_eq!(event(&mut source), revoked);
    commit(&mut source, &mut producer, &[to_commit(&p0, 3, "")]).unwrap();
    source.unassign(std::slice::from_ref(&p0)).unwrap();
    ready(|slice| source.close(slice)).unwrap();
    assert!(source.poll().is_none());
    expect(&mut fixture.wire, &output, &["last words"]);
    let group = fixture.group();
    let committed = fixture.wire.committed(&group, input.as_str()).unwrap();
    assert_eq!(committed, [Some((3, String::new()))]);
}

fn a_member_that_polls_too_late_loses_its_partitions(mut fixture: Fixture) {
    let input = fixture.topic("in", 1);
    let mut config = config_of(&fixture.bootstrap);
    config
        .consumer
        .push(("max.poll.interval.ms".into(), "6000".into()));
    let mut spec = fixture.source_spec();
    if fixture.protocol != GroupProtocol::Consumer {
        // A session is no longer than the time between two polls.
        spec.protocol = classic(None, Duration::from_secs(6));
    }
    let mut source = subscribed(&KafkaClient::new(config), &spec, &input);
    let owned = take_over_at_last(&mut source);
    std::thread::sleep(Duration::from_secs(9));
    let SourceEvent::Failed(error) = event(&mut source) else {
        panic!("the source reports no error")
    };
    assert_eq!(error.fault.code, code::LOCAL_MAX_POLL_EXCEEDED, "{error}");
    let (partitions, lost) = (owned.clone(), true);
    let revoked = SourceEvent::Revoked { partitions, lost };
    assert_eq!(event(&mut source), revoked);
    source.unassign(&owned).unwrap();
    let again = take_over_at_last(&mut source);
    assert_eq!(again, owned, "the member rejoins by itself");
    close(source);
}

/// As [`take_over`], for a member that stalls sometimes and loses all partitions.
#[track_caller]
fn take_over_at_last(source: &mut KafkaSource) -> Vec<TopicPartition> {
    until("assignment", || match event(source) {
        SourceEvent::Assigned(partitions) => {
            resume(source, &partitions);
            Some(partitions)
        }
        SourceEvent::Failed(error) => {
            assert_eq!(error.fault.code, code::LOCAL_MAX_POLL_EXCEEDED, "{error}");
            None
        }
        SourceEvent::Revoked { partitions, .. } => {
            source.unassign(&partitions).unwrap();
            None
        }
        other => panic!("not an assignment: {other:?}"),
    })
}

fn a_wait_ends_when_a_record_or_an_event_comes(mut fixture: Fixture) {
    let input = fixture.topic("in", 1);
    let mut source = fixture.subscriber(&input);
    let start = Instant::now();
    let partitions = loop {
        source.wait(PATIENCE);
        if let Some(SourceEvent::Assigned(partitions)) = source.poll() {
            break partitions;
        }
    };
    assert_quick(start);
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
        assert_quick(start);
    }
    close(source);
}

fn a_source_can_be_dropped_with_pending_events(mut fixture: Fixture) {
    let input = fixture.topic("in", 4);
    fixture.fill(&input, 0, 1000);
    let dropped = |source: KafkaSource| {
        let start = Instant::now();
        drop(source);
        assert_quick(start);
    };
    let spec = |n: i32| {
        let mut spec = fixture.source_spec();
        spec.group = format!("{}-{n}", spec.group);
        spec
    };
    let join = |n: i32| subscribed(&fixture.client, &spec(n), &input);
    // In turn: never joined, joining, an assignment received and not assigned, an assignment not received.
    dropped(fixture.client.source(&spec(0)).unwrap());
    dropped(join(1));
    let mut asked = join(2);
    assert!(matches!(event(&mut asked), SourceEvent::Assigned(_)));
    dropped(asked);
    let mut unread = join(3);
    unread.wait(PATIENCE);
    std::thread::sleep(Duration::from_millis(200));
    dropped(unread);

    // A revocation without an unassign, with held records and a pending query.
    let mut owner = join(4);
    let owned = take_over(&mut owner);
    let records = take(&mut owner, &partition(&input, 0), 10);
    let other = join(4);
    wait_until("revoke", || {
        owner.wait(SLICE);
        matches!(owner.poll(), Some(SourceEvent::Revoked { .. }))
    });
    assert!(owner.committed(&owned, Duration::ZERO).is_pending());
    dropped(owner);
    let all: Vec<i64> = (0..10).collect();
    assert_eq!(offsets(&records), all, "records outlive their source");
    drop(records);
    dropped(other);

    // An abandoned close continues by itself: the group detects that the member leaves long before the end of its
    // session.
    let mut closing = join(5);
    take_over(&mut closing);
    assert!(closing.close(SLICE).is_pending());
    dropped(closing);
    let left = Instant::now();
    let (mut heir, mut inherited) = (join(5), Vec::new());
    settle(&mut [(&mut heir, &mut inherited)], 4);
    assert_quick(left);
    close(heir);
}
