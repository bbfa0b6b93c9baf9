//! Sessions and joins.

use super::*;

#[test]
fn a_session_ends_when_its_time_is_over_and_heartbeats_prolong_it() {
    let mut model = Model::new();
    let ticket = model.join("");
    let (error, generation, id) = model.joined(ticket).expect("alone: an immediate response");
    assert_eq!((error, generation), (0, 1));
    // The member has joined, but never sends SyncGroup. The rebalance timeout ends that.
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
    let (_, _, first) = model.joined(ticket).expect("a response");
    let second = model.join("");
    assert_eq!(model.joined(second), None);
    let again = model.join(&first);
    let joined = (model.joined(again), model.joined(second));
    let (one, two) = (joined.0.expect("a response"), joined.1.expect("a response"));
    assert_eq!((one.0, one.1, two.0, two.1), (0, 2, 0, 2));
    // The first member no longer joins. The third member waits only until the first member's session times out.
    let third = model.join("");
    let again = model.join(&two.2);
    model.pass(9_999);
    assert_eq!(model.joined(third), None);
    model.pass(1);
    let (_, generation, _) = model.joined(third).expect("a response");
    assert_eq!(generation, 3);
    assert!(model.joined(again).is_some());
}

#[test]
fn a_new_group_waits_for_more_members_if_configured() {
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
        "a member joined: the group waits once more"
    );
    model.pass(1_000);
    let generations = (
        model.joined(first).map(|it| it.1),
        model.joined(second).map(|it| it.1),
    );
    assert_eq!(generations, (Some(1), Some(1)));
}
