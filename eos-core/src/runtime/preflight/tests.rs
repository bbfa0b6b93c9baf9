use super::*;
use crate::{App, KeyValueStore, Topic};

fn facts(counts: &[(&str, Option<u32>)], verification: Verification) -> ClusterFacts {
    let topic = |partitions| TopicFacts {
        partitions,
        ..TopicFacts::default()
    };
    let topics = counts.iter().map(|&(t, n)| (t.into(), n.map(topic)));
    ClusterFacts {
        cluster_id: None,
        topics: topics.collect(),
        others: Vec::new(),
        verification,
        limits: BrokerLimits::default(),
    }
}

#[test]
fn why_the_cluster_could_not_be_asked_is_told_apart() {
    let text = |call, code| {
        let error = ClientError::new(call, code, "because");
        cause(error, "h:1", Origin::Code, Duration::from_secs(15)).to_string()
    };
    for (call, code, start) in [
        (
            CallSite::Facts,
            code::LOCAL_AUTHENTICATION,
            "the brokers at h:1 did not authenticate",
        ),
        (CallSite::Facts, code::LOCAL_SSL, "no TLS connection to h:1"),
        (
            CallSite::Create,
            code::LOCAL_INVALID_ARG,
            "the Kafka client rejects its configuration",
        ),
        (
            CallSite::Facts,
            code::TOPIC_AUTHORIZATION_FAILED,
            "the brokers at h:1 refuse to describe the cluster or its topics",
        ),
        (
            CallSite::Facts,
            code::LOCAL_TIMED_OUT,
            "no Kafka broker responded: because. Tried h:1 (in the program) for 15 s. Is it \
             running, and are host and port right? `eos kafka up` starts one and prints its address",
        ),
    ] {
        let text = text(call, code);
        assert!(
            text.starts_with(start) && text.contains("because"),
            "{text}"
        );
    }
}

#[test]
fn time_outs_that_brokers_would_refuse_are_told_with_both_values() {
    let ms = |ms| Some(Duration::from_millis(ms));
    let limits = BrokerLimits {
        max_transaction_timeout: ms(900_000),
        min_session_timeout: ms(6000),
        max_session_timeout: ms(1_800_000),
    };
    let check = |set: &[(&str, u64)]| {
        let mut settings = Settings::new("a");
        for (key, value) in set {
            settings.set(key, value);
        }
        let settings = settings.resolve([]).unwrap();
        allowed(&limits, &settings).map_err(|e| e.to_string())
    };
    assert_eq!(check(&[]), Ok(()));
    let error = check(&[("transaction.timeout.ms", 900_001)]).unwrap_err();
    assert!(error.starts_with(
        "transaction.timeout.ms = 900001 must not be more than the brokers' transaction.max.timeout.ms = 900000"
    ), "{error}");
    let error = check(&[("session.timeout.ms", 5999)]).unwrap_err();
    assert!(error.starts_with(
        "session.timeout.ms = 5999 must not be less than the brokers' group.min.session.timeout.ms = 6000"
    ), "{error}");
    let long = [
        ("session.timeout.ms", 1_800_001),
        ("max.poll.interval.ms", 2_000_000),
    ];
    assert!(
        check(&long)
            .unwrap_err()
            .contains("group.max.session.timeout.ms")
    );
    let unknown = BrokerLimits::default();
    assert!(allowed(&unknown, &Settings::new("a")).is_ok());
}

fn topology() -> std::sync::Arc<Topology> {
    let mut app = App::new("a");
    app.source(&Topic::<String, String>::plain("in"))
        .to(&Topic::plain("out"));
    app.check().unwrap()
}

fn check(facts: &ClusterFacts, guarantee: Guarantee) -> Result<Partitions, String> {
    let (topology, bootstrap) = (topology(), "h:1");
    check_existing(facts, &topology, guarantee, bootstrap)
        .and_then(|()| fit(facts, &topology, bootstrap))
        .map_err(|e| e.to_string())
}

#[test]
fn a_missing_topic_is_reported_before_other_checks() {
    let f = facts(&[("in", Some(6)), ("out", None)], Verification::Off);
    let error = check(&f, Guarantee::ExactlyOnce).unwrap_err();
    assert!(
        error.starts_with("the output topic out is missing"),
        "{error}"
    );
}

#[test]
fn unverified_transactions_are_refused_where_there_are_any() {
    let f = facts(&[("in", Some(6)), ("out", Some(3))], Verification::Off);
    assert!(
        check(&f, Guarantee::ExactlyOnce)
            .unwrap_err()
            .contains("Kafka is older than 3.6")
    );
    assert!(check(&f, Guarantee::AtLeastOnce).is_ok());
    let f = ClusterFacts {
        verification: Verification::Unknown,
        ..f
    };
    let partitions = check(&f, Guarantee::ExactlyOnce).unwrap();
    assert_eq!(partitions.outputs, [3]);
    assert_eq!(partitions.inputs.get(&"in".into()), Some(&6));
}

#[test]
fn unsafe_replication_is_reported() {
    let told = |replication, least: Option<&str>| {
        let settings = least.map(|n| [("min.insync.replicas".to_owned(), n.to_owned())].into());
        risk(&TopicFacts {
            replication,
            settings,
            ..TopicFacts::default()
        })
        .unwrap_or_default()
    };
    assert_eq!(told(3, Some("2")), "");
    assert_eq!(told(3, None), "", "unknown");
    assert!(told(3, Some("1")).contains("set min.insync.replicas=2"));
    assert!(told(1, Some("1")).contains("only one replica"));
    assert!(told(1, None).contains("only one replica"));
    assert!(told(2, Some("3")).contains("no record can be written"));
}

#[test]
fn a_global_topic_that_is_not_compacted_is_reported() {
    let risk = |policy: Option<&str>| {
        let settings = policy.map(|it| [("cleanup.policy".to_owned(), it.to_owned())].into());
        global_risk(&TopicFacts {
            settings,
            ..TopicFacts::default()
        })
        .unwrap_or_default()
    };
    assert!(risk(Some("delete")).contains("set cleanup.policy=compact"));
    assert_eq!(risk(Some("compact")), "");
    assert_eq!(risk(Some("compact,delete")), "");
    assert_eq!(risk(None), "", "unknown");
}

/// Declares a stage that merges two topics, named in this order.
fn joined(app: &mut App, names: [&str; 2]) {
    let [one, other] = names.map(|name| app.source(&Topic::<String, String>::plain(name)));
    one.merge(other)
        .group_by_key()
        .count(&KeyValueStore::plain("counts"))
        .to(&Topic::plain("out"));
}

#[test]
fn a_stage_that_would_leave_its_state_behind_is_refused() {
    let check = |declare: fn(&mut App), there: &[&str]| {
        let mut app = App::new("a");
        declare(&mut app);
        let topology = app.check().unwrap();
        let mut facts = facts(&[("mobile", Some(1)), ("web", Some(1))], Verification::On);
        facts.topics.extend(there.iter().map(|&name| {
            let topic = TopicFacts {
                partitions: 1,
                ..TopicFacts::default()
            };
            (name.into(), Some(topic))
        }));
        facts.others = there.iter().map(|&name| name.into()).collect();
        under_their_names(&facts, &topology).map_err(|e| e.to_string())
    };
    let one: fn(&mut App) = |app| joined(app, ["web", "mobile"]);
    let other: fn(&mut App) = |app| joined(app, ["mobile", "web"]);
    for declare in [one, other] {
        assert_eq!(check(declare, &[]), Ok(()), "a first start");
        let same = ["a-mobile-changelog", "a-web-changelog"];
        assert_eq!(check(declare, &same), Ok(()), "its changelog is there");
        // An earlier version, in which a topic was declared first, or the only one.
        assert_eq!(
            check(declare, &["a-web-changelog", "b-web-changelog"])
                .unwrap_err()
                .replace("mobile, web", "web, mobile"),
            "the stage that reads web, mobile would begin with empty state: its changelog \
             a-mobile-changelog does not exist, but a-web-changelog exists, perhaps from an \
             earlier version of the app. To resume with that state, add `.stage(\"web\")` after a \
             source of the stage. If no app needs the state in it, delete that topic"
        );
    }
    let named: fn(&mut App) = |app| {
        app.source(&Topic::<String, String>::plain("web"))
            .stage("visits")
            .group_by_key()
            .count(&KeyValueStore::plain("counts"))
            .to(&Topic::plain("out"));
    };
    let error = check(named, &["a-web-changelog"]).unwrap_err();
    assert!(
        error.contains("its changelog a-visits-changelog does not exist"),
        "{error}"
    );
    let both: fn(&mut App) = |app| {
        joined(app, ["web", "mobile"]);
        app.source(&Topic::<String, String>::plain("web"))
            .group_by_key()
            .windowed_by(crate::windows::Tumbling::of(Duration::from_secs(60)))
            .count(&crate::state::WindowStore::plain("windows"))
            .to_stream()
            .ignore();
    };
    // One stage had the windows, and another one had the counts.
    let error = check(both, &["a-web-windowed-changelog", "a-mobile-changelog"]).unwrap_err();
    assert!(
        error.contains("A stage cannot take over the state of two"),
        "{error}"
    );
    let error = check(both, &["a-web-windowed-changelog", "a-web-changelog"]).unwrap_err();
    assert!(error.contains("add `.stage(\"web\")`"), "{error}");
    let taken: fn(&mut App) = |app| {
        for (topic, name) in [("web", "visits"), ("mobile", "web")] {
            app.source(&Topic::<String, String>::plain(topic))
                .stage(name)
                .group_by_key()
                .count(&KeyValueStore::plain(topic))
                .to(&Topic::plain("out"));
        }
    };
    assert_eq!(
        check(taken, &["a-web-changelog"]),
        Ok(()),
        "it is another stage's"
    );
}

#[test]
fn unequal_inputs_fail_after_unfit_internal_topics() {
    let mut app = App::new("a");
    joined(&mut app, ["mobile", "web"]);
    let topology = app.check().unwrap();
    let check = |mobile, web, changelog| {
        let counts = [
            ("web", Some(web)),
            ("mobile", Some(mobile)),
            ("out", Some(1)),
            ("a-mobile-changelog", changelog),
        ];
        let facts = facts(&counts, Verification::On);
        check_existing(&facts, &topology, Guarantee::ExactlyOnce, "h:1")
    };
    check(2, 2, None).unwrap();
    check(2, 2, Some(2)).unwrap();
    for changelog in [None, Some(2)] {
        let error = check(2, 4, changelog).unwrap_err();
        assert!(matches!(error, PreflightError::Widths { .. }), "{error}");
    }
    // The changelog shows that the first topic of the stage grew.
    let error = check(4, 2, Some(2)).unwrap_err();
    assert!(matches!(error, PreflightError::Unfit { .. }), "{error}");
}

#[test]
fn the_error_of_unequal_counts_has_a_command_for_each_smaller_topic() {
    let topics = [("orders", 6), ("customers", 12), ("refunds", 6)];
    let names: Vec<TopicName> = topics.iter().map(|(name, _)| (*name).into()).collect();
    let counts = topics
        .iter()
        .map(|&(name, count)| (name.into(), count))
        .collect();
    let stages = eos_protocol::stages(&names, &[(0, 1), (1, 2)]);
    let reason = check_widths(&stages[0], &counts).unwrap_err();
    let bootstrap = "h:1".to_owned();
    let error = PreflightError::Widths { reason, bootstrap };
    assert_eq!(
        error.to_string(),
        "the topics that one task reads together have different partition counts: orders has 6, customers has 12, refunds \
         has 6. A task reads the same partition number of each topic, so different tasks would read the records of one key. \
         Give each topic 12 partitions. If a topic is empty, add partitions: `kafka-topics.sh --alter --bootstrap-server h:1 \
         --topic orders --partitions 12`, `kafka-topics.sh --alter --bootstrap-server h:1 --topic refunds --partitions 12`. If \
         it has records, copy them into a new topic, because their keys would move to other partitions. If the app only \
         merges the streams, replace `merge` with `union`, which accepts different counts"
    );
}
