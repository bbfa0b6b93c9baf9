//! Waiting fetches, and errors that end the wait at once.

use super::*;

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
    let (error, bytes, stable) = model.fetched(waiting).expect("an immediate response");
    assert_eq!((error, bytes > 0, stable), (0, true, 1));
}

/// The client has old metadata. The sooner it receives the error, the better.
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
        let mut request = requests::fetch("t", 0, 0, 0, 500, 10_000);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
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
    let (error, bytes, stable) = model.fetched(waiting).expect("a response");
    assert_eq!((error, bytes > 78, stable), (0, true, 2));
}
