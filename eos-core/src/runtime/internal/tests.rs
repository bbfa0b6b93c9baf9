use std::sync::Arc;

use eos_protocol::{CallSite, StageId, code};

use super::*;
use crate::client::{BrokerLimits, ClientError, Verification};
use crate::{App, KeyValueStore, PlainTopic, Topic};

fn text(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name)
}

fn facts(counts: &[(&str, u32)]) -> ClusterFacts {
    let topic = |partitions| TopicFacts {
        partitions,
        ..TopicFacts::default()
    };
    let topics = counts
        .iter()
        .map(|&(name, n)| (name.into(), Some(topic(n))));
    ClusterFacts {
        cluster_id: None,
        topics: topics.collect(),
        others: Vec::new(),
        verification: Verification::On,
        limits: BrokerLimits::default(),
    }
}

fn planned(topology: &Topology, counts: &[(&str, u32)]) -> Vec<(String, u32, String)> {
    let plan = plan(topology, &facts(counts)).into_iter();
    plan.map(|i| (i.name.to_string(), i.partitions, i.like.to_string()))
        .collect()
}

fn built(declare: impl FnOnce(&mut App)) -> Arc<Topology> {
    let mut app = App::new("a");
    declare(&mut app);
    app.check().unwrap()
}

fn row(name: &str, partitions: u32, like: &str) -> (String, u32, String) {
    (name.into(), partitions, like.into())
}

#[test]
fn a_repartition_is_as_wide_as_its_widest_source_and_a_changelog_as_its_driver() {
    let topology = built(|app| {
        let counts = KeyValueStore::<String, u64>::plain("counts");
        let words = app.source(&text("lines")).union(app.source(&text("notes")));
        words
            .key_by(|line: &String| line.clone())
            .repartition(&text("words"))
            .key_by(|word: &String| word.clone())
            .repartition(&text("again"))
            .group_by_key()
            .count(&counts)
            .to(&Topic::plain("out"));
    });
    let expected = [
        row("a-words-repartition", 8, "notes"),
        row("a-again-repartition", 8, "notes"),
        row("a-again-repartition-changelog", 8, "a-again-repartition"),
    ];
    assert_eq!(planned(&topology, &[("lines", 6), ("notes", 8)]), expected);
    assert!(
        planned(&topology, &[("lines", 6)]).is_empty(),
        "not known yet"
    );
}

#[test]
fn the_settings_of_each_kind_are_what_exactness_rests_on() {
    let internal = |purpose| Internal {
        name: "t".into(),
        purpose,
        partitions: 2,
        like: "in".into(),
    };
    let created = |purpose| {
        let topic = internal(purpose).to_create();
        assert_eq!((topic.name.as_str(), topic.partitions), ("t", 2));
        let settings = topic.settings.iter().map(|(k, v)| format!("{k}={v}"));
        settings.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        created(Purpose::Repartition),
        "cleanup.policy=delete retention.ms=-1 retention.bytes=-1 message.timestamp.type=CreateTime"
    );
    assert_eq!(
        created(Purpose::Changelog(StageId(0), Family::Plain)),
        "cleanup.policy=compact"
    );
    assert_eq!(
        created(Purpose::Changelog(StageId(0), Family::Windowed)),
        "cleanup.policy=compact,delete retention.ms=-1 retention.bytes=-1"
    );
}

fn windowed() -> Internal {
    Internal {
        name: "a-in-windowed-changelog".into(),
        purpose: Purpose::Changelog(StageId(0), Family::Windowed),
        partitions: 6,
        like: "in".into(),
    }
}

fn found(partitions: u32, settings: &[(&str, &str)]) -> TopicFacts {
    let settings = settings.iter().map(|&(k, v)| (k.into(), v.into()));
    TopicFacts {
        partitions,
        settings: Some(settings.collect()),
        ..TopicFacts::default()
    }
}

#[test]
fn a_correct_topic_fits_and_so_do_unreadable_settings() {
    let fits = [
        ("cleanup.policy", "delete, compact"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("segment.bytes", "1"),
    ];
    assert_eq!(windowed().unfit(&found(6, &fits)), None);
    let silent = TopicFacts {
        partitions: 6,
        ..TopicFacts::default()
    };
    assert_eq!(windowed().unfit(&silent), None);
}

#[test]
fn a_wrong_topic_is_reported_with_both_values_and_the_commands() {
    let wrong = [
        ("cleanup.policy", "compact"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "-1"),
    ];
    let unfit = windowed().unfit(&found(1, &wrong)).unwrap();
    assert_eq!(
        told(&[unfit], "h:1"),
        "the windowed changelog a-in-windowed-changelog has the wrong settings: it has 1 partition \
         and must have 6, as many as in; cleanup.policy is compact and must be compact,delete; \
         retention.ms is 604800000 and must be -1. Correct them: kafka-configs.sh \
         --bootstrap-server h:1 --alter --entity-type topics --entity-name a-in-windowed-changelog \
         --add-config cleanup.policy=[compact,delete],retention.ms=-1. If in got another number of \
         partitions, the state of its keys is in other partitions: run the app under a new name, \
         which starts with empty state. If the topic is still empty, delete it, and the app \
         creates it: kafka-topics.sh --delete --bootstrap-server h:1 --topic \
         a-in-windowed-changelog"
    );
    let repartition = Internal {
        purpose: Purpose::Repartition,
        name: "a-words-repartition".into(),
        ..windowed()
    };
    let unfit = repartition.unfit(&found(8, &[])).unwrap();
    assert_eq!(
        told(&[unfit], "h:1"),
        "the repartition topic a-words-repartition has the wrong settings: it has 8 partitions and \
         must have 6, as many as in. Let the app read the topic to its end, then stop the app and \
         delete the topic. The app creates it again: kafka-topics.sh --delete --bootstrap-server \
         h:1 --topic a-words-repartition"
    );
}

#[test]
fn a_topic_that_can_not_be_created_is_reported_with_the_missing_right_and_the_command() {
    let uncreated = |code| {
        let source = ClientError::new(CallSite::CreateTopics, code, "because");
        told_uncreated(&[UncreatedTopic::new(&windowed(), source)], "h:1")
    };
    let create = "kafka-topics.sh --create --bootstrap-server h:1 --topic a-in-windowed-changelog \
                  --partitions 6 --config cleanup.policy=compact,delete --config retention.ms=-1 \
                  --config retention.bytes=-1";
    assert_eq!(
        uncreated(code::TOPIC_AUTHORIZATION_FAILED),
        format!(
            "the windowed changelog a-in-windowed-changelog is missing, and the app can't create \
             it (creating topics: because (code 29)). Permit the app to create it: kafka-acls.sh \
             --bootstrap-server h:1 --add --allow-principal User:<app's> --operation Create \
             --topic a-in-windowed-changelog; or create it yourself: {create}"
        )
    );
    let policy_violation = 44;
    assert_eq!(
        uncreated(policy_violation),
        format!(
            "the windowed changelog a-in-windowed-changelog is missing, and the app can't create \
             it (creating topics: because (code 44)). Remove the cause, or create the topic \
             yourself: {create}"
        )
    );
}
