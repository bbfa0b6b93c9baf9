//! Deterministic responses, and ids that differ between incarnations.

use super::*;

#[test]
fn the_same_requests_have_the_same_answers() {
    let run = || {
        let mut model = Model::new();
        let (id, epoch) = model.open();
        model.end(id, epoch, false);
        let first = model.join("");
        let joined = model.joined(first);
        model.pass(60_000);
        (joined, model.last_stable(), format!("{:?}", model.broker))
    };
    assert_eq!(run(), run());
}

/// Returns the ids that a broker assigns: its own, a topic's, a member's, a producer's.
fn ids(incarnation: u64) -> (String, String, String, i64) {
    let mut model = Model::with(BrokerOptions {
        incarnation,
        ..BrokerOptions::default()
    });
    let request = MetadataRequest::default().with_topics(None);
    let ticket = model.send(10, request);
    let (cluster, topic) = match model.answer(ticket) {
        Some(ResponseKind::Metadata(it)) => {
            let cluster = it.cluster_id.map(|id| id.to_string()).unwrap_or_default();
            (cluster, it.topics[0].topic_id.to_string())
        }
        other => panic!("{other:?}"),
    };
    let joined = model.join("");
    let (_, _, member) = model.joined(joined).expect("a response");
    (cluster, topic, member, model.init().1)
}

/// A client that outlives a broker on the same port would mistake the next broker for it. An old producer id or member
/// id would belong to another client, and a new topic would pass for the old one.
#[test]
fn ids_of_one_incarnation_are_none_of_another() {
    let first = (
        "eos-embedded-AAAAAAAAA".to_owned(),
        "656f735f-746f-7069-0000-000000000001".to_owned(),
        "tests-6d656d62-6572-0000-0000-000000000002".to_owned(),
        0,
    );
    assert_eq!(ids(0), first, "as ever without one");
    let mut seen = vec![first];
    for incarnation in [1, 2, 1 << 32, 1 << 40, 1 << 63, u64::MAX - 1, u64::MAX] {
        let own = ids(incarnation);
        assert_eq!(own, ids(incarnation), "runs can be repeated");
        assert_eq!(own.0.len(), 22, "as long as Kafka's: {}", own.0);
        assert!((0..i64::MAX / 4).contains(&own.3), "{}", own.3);
        for other in &seen {
            let apart = own.3.abs_diff(other.3) >= 1 << 32;
            let differs = own.0 != other.0 && own.1 != other.1 && own.2 != other.2;
            assert!(differs && apart, "{own:?} {other:?}");
        }
        seen.push(own);
    }
    let chosen = BrokerOptions {
        cluster_id: "mine".into(),
        incarnation: 1,
        ..BrokerOptions::default()
    };
    assert_eq!(Broker::new(chosen).options().cluster_id, "mine");
}
