//! Members of the classic protocol.

use std::time::{Duration, Instant};

use eos_client::{GroupMetadata, GroupProtocol, Source, SourceEvent};
use eos_protocol::TopicName;

use super::support::{
    Fixture, OUTLASTS, assert_quick, classic, close, event, settle, subscribed, take_over,
    wait_until,
};
use crate::KafkaSource;

fn static_member(
    fixture: &Fixture,
    topic: &TopicName,
    name: &str,
    session: Duration,
) -> KafkaSource {
    let mut spec = fixture.source_spec();
    let id = format!("{}-{name}", spec.group);
    spec.protocol = classic(Some(id), session);
    subscribed(&fixture.client, &spec, topic)
}

#[test]
fn a_static_member_that_restarts_keeps_its_partitions_unnoticed() {
    let Some(mut fixture) = Fixture::new("static") else {
        return;
    };
    let input = fixture.topic("in", 4);
    // Each restart comes before its end.
    let make = |name| static_member(&fixture, &input, name, OUTLASTS);
    let (mut a, mut b) = (make("a"), make("b"));
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    settle(&mut [(&mut a, &mut of_a), (&mut b, &mut of_b)], 4);
    let generation = b.member().unwrap().generation_id();

    // Closed properly, and dropped without a close: both keep their partitions.
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
        let now = b.member().unwrap().generation_id();
        assert_eq!(now, generation, "no rebalance");
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
    // Far longer than the test takes.
    let session = Duration::from_secs(120);
    let make = |name| static_member(&fixture, &input, name, session);
    let (mut a, mut b) = (make("a"), make("b"));
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    settle(&mut [(&mut a, &mut of_a), (&mut b, &mut of_b)], 2);

    let start = Instant::now();
    a.unsubscribe().unwrap();
    let SourceEvent::Revoked { partitions, lost } = event(&mut a) else {
        panic!()
    };
    assert_eq!((partitions.clone(), lost), (of_a.clone(), false));
    // It is still a member: the last transaction can commit.
    assert!(a.member().unwrap().generation_id() >= 0);
    a.unassign(&partitions).unwrap();
    // A static member that begins to close before it has sent its LeaveGroup never sends it. The worker waits for the
    // same sign.
    wait_until("LeaveGroup", || a.member().unwrap().member_id().is_empty());
    close(a);
    let inherited = take_over(&mut b);
    assert_eq!(inherited, of_a);
    assert_quick(start);
    close(b);
}

#[test]
fn a_member_learns_of_a_rebalance_with_its_next_heartbeat() {
    let Some(mut fixture) = Fixture::new("heartbeat") else {
        return;
    };
    let input = fixture.topic("in", 2);
    let second_joins = |nth: u32, heartbeat_ms: u64| {
        let mut spec = fixture.source_spec();
        spec.group = format!("{}-{nth}", spec.group);
        spec.protocol = GroupProtocol::Classic {
            instance_id: None,
            session_timeout: OUTLASTS,
            heartbeat_interval: Duration::from_millis(heartbeat_ms),
        };
        let join = || subscribed(&fixture.client, &spec, &input);
        let mut first = join();
        let mut of_first = take_over(&mut first);
        let start = Instant::now();
        let (mut second, mut of_second) = (join(), Vec::new());
        let members = &mut [(&mut first, &mut of_first), (&mut second, &mut of_second)];
        settle(members, 2);
        let took = start.elapsed();
        close(first);
        close(second);
        took
    };
    // A stall makes one of the joins slow, not all of them. With a wrong interval, neither would be twice as fast as
    // the other.
    let often = (0..3).map(|nth| second_joins(nth, 500)).min().unwrap();
    // A stall may also delay a join until just before a heartbeat.
    let mut seldom: Vec<Duration> = Vec::new();
    while seldom.len() < 3 && seldom.last().is_none_or(|seldom| often * 2 >= *seldom) {
        seldom.push(second_joins(3 + seldom.len() as u32, 10_000));
    }
    let slower = seldom.last().is_some_and(|seldom| often * 2 < *seldom);
    assert!(slower, "{often:?} {seldom:?}");
}
