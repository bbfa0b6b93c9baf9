use super::*;

const OLD: TopicUuid = TopicUuid(1);
const NEW: TopicUuid = TopicUuid(2);

const ROLES: [TopicRole; 7] = [
    TopicRole::Input,
    TopicRole::DeadLetter,
    TopicRole::Output,
    TopicRole::Sibling,
    TopicRole::KeyedInput,
    TopicRole::Repartition,
    TopicRole::Changelog,
];

fn at(seconds: u64) -> Now {
    Now(Duration::from_secs(seconds))
}

fn seen(id: Option<TopicUuid>, partitions: u32) -> SeenTopic {
    SeenTopic { id, partitions }
}

/// An app with one topic of three partitions.
fn watch(role: TopicRole, id: Option<TopicUuid>) -> TopicWatch {
    let mut watch = TopicWatch::new("app".into());
    watch.add("t".into(), role, seen(id, 3));
    watch
}

fn report(found: Option<SeenTopic>) -> [(TopicName, Option<SeenTopic>); 1] {
    [("t".into(), found)]
}

impl TopicWatch {
    fn change(&mut self, now: u64, found: Option<SeenTopic>) -> Option<TopicChange> {
        let changed = self.compare(at(now), &report(found)).err()?;
        assert_eq!((changed.app.as_str(), changed.topic.as_str()), ("app", "t"));
        Some(changed.change)
    }
}

#[test]
fn the_same_topic_is_no_reason_to_stop() {
    for role in ROLES {
        let mut watch = watch(role, Some(OLD));
        for now in [0, 10, 1000] {
            let same = watch.compare(at(now), &report(Some(seen(Some(OLD), 3))));
            assert_eq!(same, Ok(Vec::new()), "{role:?}");
        }
    }
}

#[test]
fn another_id_stops_the_app_at_once_for_every_kind_of_topic() {
    for role in ROLES {
        // With fewer, equal and more partitions: only the id counts.
        for partitions in [2, 3, 4] {
            let found = Some(seen(Some(NEW), partitions));
            let changed = watch(role, Some(OLD)).compare(at(0), &report(found));
            let (before, now) = (OLD, NEW);
            let change = TopicChange::Recreated { before, now };
            let (app, topic) = ("app".into(), "t".into());
            let wanted = TopicChanged {
                app,
                in_ledger: false,
                topic,
                role,
                change,
            };
            assert_eq!(changed, Err(wanted));
        }
    }
}

#[test]
fn a_broker_without_ids_reports_no_other_topic() {
    for role in ROLES {
        let mut with = watch(role, Some(OLD));
        assert_eq!(with.change(0, Some(seen(None, 3))), None);
        let mut without = watch(role, None);
        assert_eq!(without.change(0, Some(seen(None, 3))), None);
    }
}

#[test]
fn the_first_id_that_a_broker_reports_is_the_one_that_counts() {
    let mut watch = watch(TopicRole::Output, None);
    assert_eq!(watch.change(0, Some(seen(Some(OLD), 3))), None);
    assert_eq!(watch.change(1, Some(seen(None, 3))), None, "it is kept");
    let (before, now) = (OLD, NEW);
    let found = Some(seen(Some(NEW), 3));
    assert_eq!(
        watch.change(2, found),
        Some(TopicChange::Recreated { before, now })
    );
}

#[test]
fn more_partitions_stop_the_app_unless_each_is_a_task_of_its_own() {
    for role in ROLES {
        let (before, now) = (3, 4);
        let mut watch = watch(role, Some(OLD));
        let found = watch.compare(at(0), &report(Some(seen(Some(OLD), 4))));
        if role != TopicRole::Input {
            let change = found.unwrap_err().change;
            assert_eq!(change, TopicChange::Grown { before, now }, "{role:?}");
            continue;
        }
        let topic = "t".into();
        let grown = TopicGrown { topic, before, now };
        assert_eq!(found, Ok(vec![grown]));
        let again = watch.compare(at(1), &report(Some(seen(Some(OLD), 4))));
        assert_eq!(again, Ok(Vec::new()), "it is known now");
    }
}

#[test]
fn a_topic_is_gone_only_if_it_stays_away() {
    for role in ROLES {
        let mut watch = watch(role, Some(OLD));
        assert_eq!(watch.change(100, None), None, "one broker may lag");
        assert_eq!(watch.change(104, None), None, "not long enough");
        let gone = TopicChange::Deleted { before: Some(OLD) };
        assert_eq!(watch.change(105, None), Some(gone), "{role:?}");
    }
}

#[test]
fn a_report_in_between_that_shows_it_starts_the_time_again() {
    let mut watch = watch(TopicRole::Output, Some(OLD));
    let whole = Some(seen(Some(OLD), 3));
    assert_eq!(watch.change(0, None), None);
    assert_eq!(watch.change(4, whole), None);
    assert_eq!(watch.change(8, None), None);
    assert_eq!(watch.change(12, None), None);
    assert!(watch.change(13, None).is_some());
}

#[test]
fn a_report_without_the_topic_neither_shows_it_nor_lacks_it() {
    let mut watch = watch(TopicRole::Output, Some(OLD));
    for now in [0, 10, 20] {
        assert_eq!(watch.compare(at(now), &[]), Ok(Vec::new()));
    }
    assert_eq!(watch.change(30, None), None);
    assert_eq!(watch.compare(at(32), &[]), Ok(Vec::new()));
    assert!(watch.change(35, None).is_some());
    let other = [("other".into(), None)];
    assert_eq!(watch.compare(at(99), &other), Ok(Vec::new()));
}

#[test]
fn fewer_partitions_are_a_broker_that_lags_unless_it_lasts() {
    for id in [Some(OLD), None] {
        let (before, now) = (3, 2);
        let mut watch = watch(TopicRole::Output, id);
        assert_eq!(watch.change(0, Some(seen(id, 2))), None);
        let shrunk = TopicChange::Shrunk { before, now };
        assert_eq!(watch.change(5, Some(seen(id, 2))), Some(shrunk));
    }
    // A lagging broker reports the old size of a grown topic.
    let mut watch = watch(TopicRole::Input, Some(OLD));
    assert_eq!(watch.change(0, Some(seen(Some(OLD), 4))), None);
    assert_eq!(watch.change(1, Some(seen(Some(OLD), 3))), None);
    assert_eq!(watch.change(9, Some(seen(Some(OLD), 4))), None);
}

#[test]
fn of_several_roles_the_strictest_counts() {
    let mut watch = watch(TopicRole::Input, Some(OLD));
    watch.add("t".into(), TopicRole::Output, seen(Some(OLD), 3));
    watch.add("t".into(), TopicRole::Input, seen(Some(OLD), 3));
    assert_eq!(watch.names(), ["t".into()]);
    let changed = watch.compare(at(0), &report(Some(seen(Some(OLD), 4))));
    assert_eq!(changed.unwrap_err().role, TopicRole::Output);
}

#[test]
fn an_error_names_the_topic_its_role_both_states_and_what_to_do() {
    let text = |role, change| {
        let (app, topic) = ("app".into(), "t".into());
        let changed = TopicChanged {
            app,
            in_ledger: false,
            topic,
            role,
            change,
        };
        changed.to_string()
    };
    let (before, now) = (OLD, NEW);
    let recreated = TopicChange::Recreated { before, now };
    let (before, now) = (3, 4);
    let grown = TopicChange::Grown { before, now };
    let (before, now) = (4, 3);
    let shrunk = TopicChange::Shrunk { before, now };
    let deleted = TopicChange::Deleted { before: Some(OLD) };
    for role in ROLES {
        for change in [recreated, grown, shrunk, deleted] {
            let text = text(role, change);
            assert!(text.starts_with(&format!("the {role} t ")), "{text}");
            assert!(text.contains("tart"), "{text}");
            let parts = match change {
                TopicChange::Recreated { .. } => {
                    ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"]
                }
                TopicChange::Deleted { .. } => ["AAAAAAAAAAAAAAAAAAAAAQ", "A topic was deleted"],
                TopicChange::Grown { .. } => ["it had 3", "now it has 4"],
                TopicChange::Shrunk { .. } => ["it had 4 partitions", "now it has 3"],
            };
            for part in parts {
                assert!(text.contains(part), "{part:?} is not in: {text}");
            }
        }
    }
    let input = text(TopicRole::Input, recreated);
    let command = "kafka-consumer-groups.sh --delete-offsets --group app --topic t)";
    assert!(input.contains(command), "{input}");
    let changelog = text(TopicRole::Changelog, recreated);
    assert!(
        changelog.contains("Keep the state directories"),
        "{changelog}"
    );
}

#[test]
fn an_app_with_a_ledger_deletes_positions_there() {
    let watch = watch(TopicRole::Input, Some(OLD));
    let changed = watch
        .in_ledger(true)
        .compare(at(0), &report(Some(seen(Some(NEW), 3))));
    let text = changed.unwrap_err().to_string();
    assert!(
        text.contains("the committed positions stay as they are"),
        "{text}"
    );
    assert!(
        text.contains("delete the positions of the app app for t in the ledger"),
        "{text}"
    );
    assert!(!text.contains("kafka-consumer-groups"), "{text}");
}
