//! The creation of topics.

use eos_client::{Client, ClientError, NewTopic, Result};
use eos_protocol::{CallSite, TopicName};

use super::support::{Fixture, PATIENCE, until};

fn new_topic(name: &str, partitions: u32, settings: &[(&str, &str)]) -> NewTopic {
    let pair = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    NewTopic {
        name: name.into(),
        partitions,
        settings: settings.iter().map(pair).collect(),
    }
}

#[test]
fn topics_are_made_as_they_should_be_and_one_that_is_there_is_left_alone() {
    let Some(mut fixture) = Fixture::new("create") else {
        return;
    };
    let there = fixture.topic("there", 2);
    let compacted = format!("{there}-changelog");
    let settings = [("cleanup.policy", "compact,delete"), ("retention.ms", "-1")];
    let wanted = [
        new_topic(&compacted, 3, &settings),
        new_topic(there.as_str(), 5, &settings),
    ];
    for _ in 0..2 {
        let answers = fixture.client.create_topics(&wanted, PATIENCE).unwrap();
        let compacted: TopicName = compacted.as_str().into();
        assert_eq!(
            answers,
            [(compacted.clone(), Ok(())), (there.clone(), Ok(()))]
        );
        let asked = [compacted.clone(), there.clone()];
        // The controller responds before all brokers know the topic.
        let facts = until("the topic", || {
            let facts = fixture.client.facts(&asked, PATIENCE).unwrap();
            facts.topic(&compacted).is_some().then_some(facts)
        });
        let made = facts.topic(&compacted).unwrap();
        assert_eq!(made.partitions, 3);
        assert_eq!(made.setting("cleanup.policy"), Some("compact,delete"));
        assert_eq!(made.setting("retention.ms"), Some("-1"));
        assert_eq!(facts.topic(&there).unwrap().partitions, 2, "as it was");
    }
    assert_eq!(fixture.client.create_topics(&[], PATIENCE), Ok(Vec::new()));
}

#[test]
fn refusals_of_brokers_are_reported_per_topic() {
    let Some(fixture) = Fixture::new("refused") else {
        return;
    };
    let name = |suffix: &str| format!("{}-{suffix}", fixture.group());
    let good = new_topic(&name("good"), 1, &[]);
    let bad = new_topic(&name("bad"), 1, &[("cleanup.policy", "sometimes")]);
    let answers = fixture
        .client
        .create_topics(&[bad, good], PATIENCE)
        .unwrap();
    let [(_, bad), (_, good)] = &answers[..] else {
        panic!("{answers:?}");
    };
    let refused: &Result<(), ClientError> = bad;
    let refused = refused.as_ref().unwrap_err();
    assert_eq!(refused.call, CallSite::CreateTopics);
    assert!(refused.text.contains("sometimes"), "{refused}");
    assert_eq!(*good, Ok(()));

    let nul = new_topic("a\0b", 1, &[]);
    let error = fixture.client.create_topics(&[nul], PATIENCE).unwrap_err();
    assert!(error.text.contains("NUL"), "{error}");
}
