//! Tests of a single group: its responses and their times.

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;

use super::*;
use crate::broker::Ticket;

fn caller(ticket: u64, version: i16) -> Caller {
    Caller {
        ticket: Ticket(ticket),
        version,
        client_id: "c".into(),
        host: "/h".into(),
    }
}

fn join(member: &str, instance: Option<&str>, protocols: &[&str]) -> Join {
    Join {
        member_id: member.into(),
        instance_id: instance.map(str::to_owned),
        session_timeout: 10_000,
        rebalance_timeout: 30_000,
        protocol_type: "consumer".into(),
        protocols: protocols
            .iter()
            .map(|it| ((*it).to_owned(), Bytes::new()))
            .collect(),
    }
}

fn sync(member: &str, generation: i32, assigned: &[(&str, &'static str)]) -> Sync {
    Sync {
        member_id: member.into(),
        instance_id: None,
        generation,
        protocol_type: None,
        protocol: None,
        assignments: assigned
            .iter()
            .map(|(id, it)| ((*id).to_owned(), Bytes::from_static(it.as_bytes())))
            .collect(),
    }
}

/// The group, the time, and the responses: (ticket, error, generation or assignment).
struct Play {
    group: Group,
    now: i64,
    out: Vec<Answer>,
}

impl Play {
    fn new() -> Play {
        Play {
            group: Group::new(0),
            now: 0,
            out: Vec::new(),
        }
    }

    fn join(&mut self, ticket: u64, join: Join, fresh: &str) {
        let caller = caller(ticket, 3);
        self.group
            .join(join, fresh.into(), caller, self.now, &mut self.out);
        self.group.expire(self.now, &mut self.out);
    }

    fn sync(&mut self, ticket: u64, sync: Sync) {
        self.group
            .sync(sync, caller(ticket, 3), self.now, &mut self.out);
    }

    fn pass(&mut self, milliseconds: i64) {
        self.now += milliseconds;
        self.group.expire(self.now, &mut self.out);
    }

    /// Returns the responses since the last call.
    fn said(&mut self) -> Vec<String> {
        let said = self.out.drain(..).map(|answer| match answer {
            Answer::Join(caller, Ok(it)) => {
                format!(
                    "{} joined {} of {}",
                    caller.ticket.0, it.generation, it.leader
                )
            }
            Answer::Join(caller, Err((error, id))) => {
                format!("{} not joined {id}: {}", caller.ticket.0, error.code())
            }
            Answer::Sync(caller, Ok(it)) => {
                format!(
                    "{} has {}",
                    caller.ticket.0,
                    String::from_utf8_lossy(&it.assignment)
                )
            }
            Answer::Sync(caller, Err(error)) => {
                format!("{} has nothing: {}", caller.ticket.0, error.code())
            }
        });
        said.collect()
    }

    /// Returns a stable group of a and b.
    fn two() -> Play {
        let mut play = Play::new();
        play.join(1, join("", None, &["range"]), "a");
        play.join(2, join("", None, &["range"]), "b");
        play.join(3, join("a", None, &["range"]), "");
        play.sync(4, sync("b", 2, &[]));
        play.sync(5, sync("a", 2, &[("a", "one"), ("b", "two")]));
        let said = play.said();
        let expected = [
            "1 joined 1 of a",
            "3 joined 2 of a",
            "2 joined 2 of a",
            "5 has one",
            "4 has two",
        ];
        assert_eq!(said, expected);
        assert_eq!(play.group.state, GroupState::Stable);
        play
    }
}

#[test]
fn two_members_join_and_are_assigned() {
    Play::two();
}

#[test]
fn every_waiting_member_learns_of_a_rebalance() {
    let mut play = Play::two();
    play.join(6, join("a", None, &["range"]), "");
    play.join(7, join("b", None, &["range"]), "");
    play.sync(8, sync("b", 3, &[]));
    play.join(9, join("", None, &["range"]), "c");
    assert_eq!(
        play.said(),
        ["6 joined 3 of a", "7 joined 3 of a", "8 has nothing: 27"]
    );
    assert_eq!(play.group.state, GroupState::Preparing);
}

/// A client that lost its connection repeats the request on another one. The first request does not wait forever.
#[test]
fn a_member_that_joins_twice_gets_a_response_on_both_connections() {
    let mut play = Play::two();
    play.join(6, join("a", None, &["range"]), "");
    play.join(7, join("a", None, &["range"]), "");
    assert_eq!(play.said(), ["6 not joined a: 27"]);
    play.join(8, join("b", None, &["range"]), "");
    assert_eq!(play.said(), ["7 joined 3 of a", "8 joined 3 of a"]);
    play.sync(9, sync("b", 3, &[]));
    play.sync(10, sync("b", 3, &[]));
    assert_eq!(play.said(), ["9 has nothing: 27"]);
    play.sync(11, sync("a", 3, &[("a", "one"), ("b", "two")]));
    assert_eq!(play.said(), ["11 has one", "10 has two"]);
}

#[test]
fn a_member_that_does_not_rejoin_is_removed_at_the_rebalance_timeout() {
    let mut play = Play::two();
    play.join(6, join("b", None, &["other", "range"]), "");
    // The leader sends heartbeats, but does not join.
    for _ in 0..3 {
        play.pass(9_999);
        let told = play.group.heartbeat("a", None, 2, play.now);
        assert_eq!(told, Err(Error::RebalanceInProgress));
        assert_eq!(play.said(), Vec::<String>::new());
    }
    play.pass(3);
    assert_eq!(play.said(), ["6 joined 3 of b"]);
    assert_eq!(play.group.members.len(), 1);
}

#[test]
fn a_member_whose_request_is_held_does_not_time_out() {
    let mut play = Play::two();
    play.join(6, join("a", None, &["range"]), "");
    play.join(7, join("b", None, &["range"]), "");
    play.sync(8, sync("b", 3, &[]));
    play.said();
    play.group.heartbeat("a", None, 3, 9_000).expect("alive");
    play.pass(15_000);
    assert_eq!(play.group.members.len(), 2, "b waits for its assignment");
    play.pass(4_000);
    assert_eq!(
        play.said(),
        ["8 has nothing: 27"],
        "a was silent for too long"
    );
}

/// Kafka restarts a session whenever it responds to a SyncGroup, even with an error. The client could not send
/// heartbeats while the request was held.
#[test]
fn a_member_whose_request_was_held_is_still_one_when_a_rebalance_ends_that() {
    let mut play = Play::two();
    play.join(6, join("a", None, &["range"]), "");
    play.join(7, join("b", None, &["range"]), "");
    play.sync(8, sync("b", 3, &[]));
    play.said();
    play.pass(9_000);
    play.group.heartbeat("a", None, 3, play.now).expect("alive");
    // This is longer than b's session since its last request.
    play.pass(6_000);
    play.join(9, join("", None, &["range"]), "c");
    assert_eq!(play.said(), ["8 has nothing: 27"]);
    play.pass(3_000);
    play.join(10, join("b", None, &["range"]), "");
    play.join(11, join("a", None, &["range"]), "");
    assert_eq!(
        play.said(),
        ["11 joined 4 of a", "10 joined 4 of a", "9 joined 4 of a"]
    );
}

#[test]
fn a_static_member_takes_its_place_back_without_a_rebalance() {
    let mut play = Play::new();
    play.join(1, join("", Some("i"), &["range"]), "i-1");
    play.sync(2, sync("i-1", 1, &[("i-1", "all")]));
    play.join(3, join("", Some("i"), &["range"]), "i-2");
    // The response to an old client names the old leader, because the new member must not assign again.
    assert_eq!(
        play.said(),
        ["1 joined 1 of i-1", "2 has all", "3 joined 1 of i-1"]
    );
    play.sync(4, sync("i-2", 1, &[]));
    assert_eq!(play.said(), ["4 has all"]);
    let fenced = play.group.heartbeat("i-1", Some("i"), 1, 0);
    assert_eq!(fenced, Err(Error::FencedInstanceId));
}

#[test]
fn a_static_member_that_knows_another_protocol_makes_a_rebalance() {
    let mut play = Play::new();
    play.join(1, join("", Some("i"), &["range", "other"]), "i-1");
    play.sync(2, sync("i-1", 1, &[("i-1", "all")]));
    play.join(3, join("", Some("i"), &["other"]), "i-2");
    assert_eq!(
        play.said(),
        ["1 joined 1 of i-1", "2 has all", "3 joined 2 of i-2"]
    );
}

#[test]
fn static_members_keep_their_place_through_a_rebalance() {
    let mut play = Play::new();
    play.join(1, join("", Some("i"), &["range"]), "i-1");
    play.sync(2, sync("i-1", 1, &[("i-1", "all")]));
    play.join(3, join("", None, &["range"]), "b");
    play.said();
    // The static member sends heartbeats, but never joins. The others proceed with it after their timeout.
    for _ in 0..3 {
        play.pass(9_999);
        let told = play.group.heartbeat("i-1", Some("i"), 1, play.now);
        assert_eq!(told, Err(Error::RebalanceInProgress));
    }
    play.pass(3);
    assert_eq!(play.said(), ["3 joined 2 of b"]);
    assert!(play.group.members.contains_key("i-1"));
}

#[test]
fn leaving_hands_the_lead_on() {
    let mut play = Play::two();
    let leaving = Leaving {
        member_id: "a".into(),
        instance_id: None,
    };
    let left = play.group.leave(&leaving, 0, &mut play.out);
    assert_eq!(left, Ok(()));
    let again = play.group.leave(&leaving, 0, &mut play.out);
    assert_eq!(again, Err(Error::UnknownMemberId));
    play.join(6, join("b", None, &["range"]), "");
    assert_eq!(play.said(), ["6 joined 3 of b"]);
}

#[test]
fn a_deadline_is_named_for_everything_that_is_due() {
    let mut play = Play::new();
    assert_eq!(play.group.next_deadline(), None);
    let asks = join("", None, &["range"]);
    let caller = caller(1, 4);
    play.group.join(asks, "a".into(), caller, 0, &mut play.out);
    assert_eq!(play.said(), ["1 not joined a: 79"]);
    assert_eq!(
        play.group.next_deadline(),
        Some(10_000),
        "the id that was given out"
    );
    play.pass(10_000);
    assert_eq!(play.group.next_deadline(), None);
    assert!(play.group.is_idle());
}
