//! Topics that have changed since the start, in every role that a topic may have.

use super::*;
use crate::{ErrorPolicy, KeyValueStore};
use eos_protocol::state::TopicUuid;
use eos_protocol::{SeenTopic, TopicChange, TopicChanged, TopicRole, TopicWatch};

const OLD: TopicUuid = TopicUuid(1);
const NEW: TopicUuid = TopicUuid(2);
/// The number of partitions of each topic at the start.
const PARTITIONS: u32 = 3;

/// An app with a topic in every role.
fn everything(app: &mut App) {
    app.source(&text("in"))
        .on_error(ErrorPolicy::dead_letter("failed"))
        .map(|value: String| value.to_uppercase())
        .to(&text("out"));
    let rows = Topic::<String, Option<String>>::plain("rows");
    let table = app.table(&rows, &KeyValueStore::plain("rows"));
    app.source(&text("beside"))
        .join(&table, |value, row: String| format!("{value}+{row}"))
        .to(&text("out"));
    app.source(&text("words"))
        .key_by(|word: &String| word.clone())
        .repartition(&text("by-word"))
        .to(&text("out"));
}

const ROLES: [(&str, TopicRole); 8] = [
    ("in", TopicRole::Input),
    ("failed", TopicRole::DeadLetter),
    ("out", TopicRole::Output),
    ("beside", TopicRole::Sibling),
    ("rows", TopicRole::KeyedInput),
    ("words", TopicRole::KeyedInput),
    ("app-by-word-repartition", TopicRole::Repartition),
    ("app-beside-changelog", TopicRole::Changelog),
];

fn seen(id: TopicUuid, partitions: u32) -> Option<SeenTopic> {
    let id = Some(id);
    Some(SeenTopic { id, partitions })
}

fn spec_of_all() -> WorkerSpec {
    let mut app = App::new("app");
    everything(&mut app);
    let topology = app.check().unwrap();
    let count = topology.outputs().len();
    let names = ROLES.map(|(name, _)| TopicName::new(name));
    WorkerSpec {
        output_partitions: vec![PARTITIONS; count],
        output_limits: vec![None; count],
        input_partitions: names
            .iter()
            .map(|name| (name.clone(), PARTITIONS))
            .collect(),
        state: StateSpec {
            topic_ids: names.into_iter().map(|name| (name, OLD)).collect(),
            ..StateSpec::default()
        },
        ..spec(0, Guarantee::ExactlyOnce)
    }
}

/// Returns a worker with an open transaction, and its committed offset.
fn bench() -> (Bench, Option<i64>) {
    let mut bench = Bench::of(spec_of_all(), everything);
    bench.assign(&[0]);
    bench.take(&["a"]);
    let committed = bench.committed(0);
    assert_eq!(committed, Some(1));
    bench.open(&["b", "c"]);
    bench.kafka.calls();
    (bench, committed)
}

impl Bench {
    /// Makes the source report `found` for this topic, and every other topic without a change.
    fn report(&self, topic: &str, found: Option<SeenTopic>) {
        let names = ROLES.map(|(name, _)| name);
        let topics = names.map(|name| match name == topic {
            true => (name.into(), found),
            false => (name.into(), seen(OLD, PARTITIONS)),
        });
        self.receives(SourceEvent::Topics(topics.to_vec()));
    }

    #[track_caller]
    fn assert_stops(&mut self, topic: &str, role: TopicRole, change: TopicChange) {
        let committed = self.committed(0);
        let error = self.end().unwrap_err();
        let WorkerError::TopicChanged(changed) = &error else {
            panic!("{topic}: {error}");
        };
        assert_eq!((changed.topic.as_str(), changed.role), (topic, role));
        assert_eq!(changed.change, change, "{topic}");
        assert_eq!(changed.app.as_str(), "app");
        assert_eq!(
            self.committed(0),
            committed,
            "{topic}: nothing more is committed"
        );
        let calls = self.kafka.calls();
        assert!(calls.contains(&"abort".to_owned()), "{topic}: {calls:?}");
        assert!(!calls.contains(&"commit".to_owned()), "{topic}: {calls:?}");
    }
}

#[test]
fn every_topic_of_the_app_is_watched_in_its_role() {
    let (bench, _) = bench();
    let mut wanted = TopicWatch::new("app".into());
    for (name, role) in ROLES {
        wanted.add(name.into(), role, seen(OLD, PARTITIONS).unwrap());
    }
    assert_eq!(bench.worker.group.topics(), &wanted);
    let mut names: Vec<_> = ROLES.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let source = bench.kafka.broker().source_spec.clone().unwrap();
    let watched: Vec<_> = source.watched.iter().map(TopicName::as_str).collect();
    assert_eq!(watched, names);
}

#[test]
fn a_topic_that_is_created_again_stops_the_worker_whatever_it_is() {
    for (topic, role) in ROLES {
        let (mut bench, _) = bench();
        bench.report(topic, seen(NEW, PARTITIONS));
        let (before, now) = (OLD, NEW);
        bench.assert_stops(topic, role, TopicChange::Recreated { before, now });
    }
}

#[test]
fn a_topic_that_grows_stops_the_worker_unless_each_partition_is_a_task_of_its_own() {
    for (topic, role) in ROLES {
        let (mut bench, committed) = bench();
        let (before, now) = (PARTITIONS, PARTITIONS + 1);
        bench.report(topic, seen(OLD, now));
        if role == TopicRole::Input {
            bench.settle();
            assert!(bench.committed(0) > committed, "it goes on");
            let known = bench.worker.shared.spec.input_partitions.get(&topic.into());
            assert_eq!(known, Some(&now));
            continue;
        }
        bench.assert_stops(topic, role, TopicChange::Grown { before, now });
    }
}

#[test]
fn a_topic_that_is_missing_stops_the_worker_once_that_lasts() {
    for (topic, role) in ROLES {
        let (mut bench, committed) = bench();
        bench.report(topic, None);
        bench.settle();
        assert!(
            bench.committed(0) > committed,
            "{topic}: one broker may lag"
        );
        bench.open(&["d"]);
        bench.kafka.calls();
        bench.clock.pass(Duration::from_secs(5));
        bench.report(topic, None);
        bench.assert_stops(topic, role, TopicChange::Deleted { before: Some(OLD) });
    }
}

/// A changelog is recreated while it is read. No record of the new one gets into a database.
#[test]
fn a_worker_that_gave_up_restores_nothing_more() {
    let (mut bench, _) = bench();
    // Another owner's transaction is open at its end, so it is read until that ends.
    bench.kafka.broker().open_at_end = 1;
    let rows = TopicPartition::new("rows", tp(0).partition);
    bench.assign_these([rows]);
    bench.steps_until(|bench| bench.worker.restorer.reads());

    let changelog = "app-beside-changelog";
    let partition = TopicPartition::new(changelog, tp(0).partition);
    let record = Some((b"x".to_vec(), Some(b"y".to_vec())));
    let log = BTreeMap::from([(partition, vec![record])]);
    bench.kafka.broker().changelogs.extend(log);
    bench.report(changelog, seen(NEW, PARTITIONS));
    let error = bench.end().unwrap_err();
    let of_changelog = |it: &TopicChanged| it.topic.as_str() == changelog;
    let stops = matches!(&error, WorkerError::TopicChanged(it) if of_changelog(it));
    assert!(stops, "{error}");
    assert_eq!(bench.kafka.broker().changelog_records, 0, "it was read");
}
