//! What a cluster says of itself, and what is said when there is none.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use eos_protocol::{CallSite, ErrorClass};

use super::support::{Fixture, PATIENCE, client_of};
use crate::client::{Client, Verification};

#[test]
fn topics_are_counted_and_a_missing_one_is_not_created() {
    let Some(mut fixture) = Fixture::new("facts") else {
        return;
    };
    let there = fixture.topic("there", 3);
    let missing = format!("{there}-missing").as_str().into();
    let asked = [there.clone(), missing, there.clone()];
    for _ in 0..2 {
        let facts = fixture.client.facts(&asked, PATIENCE).unwrap();
        let [first, second, third] = &asked;
        let expected = [
            (first.clone(), Some(3)),
            (second.clone(), None),
            (third.clone(), Some(3)),
        ];
        assert_eq!(facts.partitions, expected);
        assert_eq!(facts.verification, Verification::On);
        assert!(facts.cluster_id.is_some_and(|id| !id.is_empty()));
    }
}

#[test]
fn without_a_broker_the_error_says_what_was_tried_for_how_long_and_what_came() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let within = Duration::from_millis(1500);
    let start = Instant::now();
    let error = client_of(&address).facts(&[], within).unwrap_err();
    assert!(
        start.elapsed() < within + Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        (error.call, error.class()),
        (CallSite::Facts, ErrorClass::Retriable),
        "{error}"
    );
    for part in [address.as_str(), "1.", "refused"] {
        assert!(error.text.contains(part), "{part:?} is missing: {error}");
    }
}

#[test]
fn a_port_on_which_something_else_listens_fails_in_time_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = Instant::now();
    let error = client_of(&address)
        .facts(&[], Duration::from_secs(1))
        .unwrap_err();
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    assert!(error.text.contains(&address), "{error}");
}
