//! Another program under the same name: what may change while the state stays.

use eos_protocol::StartError;
use eos_protocol::state::{Family, RestartError};

use super::state::{Disk, stateful};
use super::*;
use crate::{KeyValueStore, Store, Stream, Tumbling, WindowStore};

fn lines(name: &str) -> Topic<String, String> {
    Topic::plain(name)
}

fn count_in(stream: Stream<String, String>, counts: Store<String, u64>, app: &mut App) {
    let out = app.output(&lines("out"));
    stream.with_store(&counts).process(move |ctx, record| {
        let n = ctx
            .store(&counts)
            .update(&record.value, |n| n.unwrap_or(0) + 1)?;
        ctx.emit(&out, record.key, format!("{}={n}", record.value))
    });
}

fn named(app: &mut App, name: &str) -> Store<String, u64> {
    app.store(&KeyValueStore::plain(name))
}

/// What all others are a change of.
fn counting(app: &mut App) {
    let counts = named(app, "counts");
    let source = app.source(&lines("in"));
    count_in(source, counts, app);
}

fn spec_on(disk: &Disk, accepted: Option<&str>) -> WorkerSpec {
    let accepted = accepted.map(|hash| u64::from_str_radix(hash, 16).unwrap());
    WorkerSpec {
        output_partitions: vec![1; 8],
        output_limits: vec![None; 8],
        accepted_layout: accepted.map(eos_protocol::LayoutHash),
        input_partitions: ["in", "more"].map(|topic| (topic.into(), 2)).into(),
        ..stateful(disk, 0)
    }
}

/// The layout of `counting`.
fn old_layout() -> String {
    let mut app = App::new("app");
    counting(&mut app);
    app.check().unwrap().stages()[0].layout().to_string()
}

/// Runs `counting` until two words are counted, then what `declare` makes of it.
fn redeployed(declare: impl FnOnce(&mut App)) -> (Bench, Disk) {
    redeployed_from(counting, declare, None)
}

fn redeployed_from(
    before: impl FnOnce(&mut App),
    declare: impl FnOnce(&mut App),
    accepted: Option<&str>,
) -> (Bench, Disk) {
    let disk = Disk::default();
    let (kafka, clock) = (Fake::default(), Clock::default());
    let worker = new_worker(&kafka, &clock, spec_on(&disk, None), before);
    let mut bench = Bench {
        kafka,
        clock,
        worker,
    };
    bench.feed(0, &["a", "a"]);
    bench.assign(&[0]);
    bench.settle();
    bench.worker = new_worker(
        &bench.kafka,
        &bench.clock,
        spec_on(&disk, accepted),
        declare,
    );
    bench.kafka.calls();
    bench.assign(&[0]);
    (bench, disk)
}

impl Bench {
    /// Goes on with what it has counted. Answers whether it read the changelog for it.
    #[track_caller]
    fn goes_on(mut self) -> bool {
        self.feed(0, &["a"]);
        self.settle();
        assert_eq!(self.visible(), ["a=1", "a=2", "a=3"]);
        let calls = self.kafka.calls();
        calls
            .iter()
            .any(|c| c.starts_with("assign app-in-changelog"))
    }
}

#[test]
fn a_stateless_node_costs_nothing() {
    let (bench, _disk) = redeployed(|app| {
        let counts = named(app, "counts");
        let source = app.source(&lines("in"));
        count_in(source.map(|v| v).filter(|_| true), counts, app);
    });
    assert!(!bench.goes_on());
}

#[test]
fn a_stage_behind_the_others_costs_nothing() {
    let (bench, _disk) = redeployed(|app| {
        counting(app);
        app.source(&lines("more")).to(&lines("copies"));
    });
    assert!(!bench.goes_on());
}

/// Tasks are numbered as their stages are declared, and so are their databases.
#[test]
fn a_stage_before_the_others_costs_a_restore() {
    let (bench, _disk) = redeployed(|app| {
        app.source(&lines("more")).to(&lines("copies"));
        counting(app);
    });
    assert!(bench.goes_on());
    let (bench, _disk) = redeployed_from(
        |app| {
            app.source(&lines("more")).to(&lines("copies"));
            counting(app);
        },
        counting,
        None,
    );
    assert!(bench.goes_on());
}

#[test]
fn a_new_store_begins_empty_beside_the_others() {
    let (bench, _disk) = redeployed(|app| {
        let (counts, fresh) = (named(app, "counts"), named(app, "fresh"));
        let source = app.source(&lines("in")).with_store(&fresh);
        count_in(source, counts, app);
    });
    assert!(bench.goes_on(), "its database is made anew");
}

/// A store under another name is another one: what the old one holds would be left behind unnoticed.
#[test]
fn a_renamed_store_is_refused() {
    let (mut bench, _disk) = redeployed(|app| {
        let counts = named(app, "count");
        let source = app.source(&lines("in"));
        count_in(source, counts, app);
    });
    let error = bench.end().unwrap_err();
    assert!(matches!(error, WorkerError::Changelog(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("If a store was removed or renamed, put it back"),
        "{error}"
    );
}

/// Its name is the same, and it is another store: its keys are elsewhere.
#[test]
fn a_store_that_became_a_windowed_one_is_refused() {
    let (mut bench, _disk) = redeployed(|app| {
        let windows = Tumbling::of(Duration::from_secs(1));
        app.source(&lines("in"))
            .group_by_key()
            .windowed_by(windows)
            .count(&WindowStore::plain("counts"))
            .to_stream()
            .process(|_, _| {});
    });
    let error = bench.end().unwrap_err();
    let gone = matches!(
        &error,
        WorkerError::Start(StartError::StoresGone {
            family: Family::Plain,
            ..
        })
    );
    assert!(gone, "{error}");
}

#[test]
fn a_stage_that_lost_its_stores_is_refused() {
    let (mut bench, _disk) = redeployed(|app| app.source(&lines("in")).to(&lines("out")));
    let error = bench.end().unwrap_err();
    let gone = matches!(&error, WorkerError::Start(StartError::StoresGone { .. }));
    assert!(gone, "{error}");
}

/// A topic more in the stage is another layout; accepted once, the state stays.
#[test]
fn a_topic_that_joins_the_stage_is_refused_until_it_is_accepted() {
    let joined = |app: &mut App| {
        let counts = named(app, "counts");
        let source = app.source(&lines("in"));
        let more = app.source(&lines("more"));
        count_in(source.merge_by_time(more), counts, app);
    };
    let (mut bench, _disk) = redeployed(joined);
    let error = bench.end().unwrap_err();
    let WorkerError::Start(StartError::LayoutChanged { found, .. }) = error else {
        panic!("{error}");
    };
    let (bench, _disk) = redeployed_from(counting, joined, Some(&found.to_string()));
    assert!(bench.goes_on(), "its inputs are others: read anew");
}

#[test]
fn a_topic_that_leaves_the_stage_is_refused_until_it_is_accepted() {
    let joined = |app: &mut App| {
        let counts = named(app, "counts");
        let source = app.source(&lines("in"));
        let more = app.source(&lines("more"));
        count_in(source.merge_by_time(more), counts, app);
    };
    let (mut bench, _disk) = redeployed_from(joined, counting, None);
    let error = bench.end().unwrap_err();
    let WorkerError::Start(StartError::LayoutChanged { found, .. }) = error else {
        panic!("{error}");
    };
    let (bench, _disk) = redeployed_from(joined, counting, Some(&found.to_string()));
    assert!(bench.goes_on(), "its inputs are others: read anew");
}

/// The changelog is named after the topic that drives: behind another one its state is not found.
#[test]
fn a_topic_that_drives_from_now_on_is_refused_even_if_it_is_accepted() {
    let driven = |app: &mut App| {
        let counts = named(app, "counts");
        let more = app.source(&lines("more"));
        let source = app.source(&lines("in"));
        count_in(more.merge_by_time(source), counts, app);
    };
    let accepted = old_layout();
    let (mut bench, _disk) = redeployed_from(counting, driven, Some(&accepted));
    let more = TopicPartition::new("more", tp(0).partition);
    bench
        .kafka
        .event("app-i-0-consumer", SourceEvent::Assigned(vec![more]));
    let error = bench.end().unwrap_err();
    let lost = matches!(
        &error,
        WorkerError::Restart(e) if matches!(**e, RestartError::ChangelogLost { .. })
    );
    assert!(lost, "{error}");
    let error = error.to_string();
    assert!(error.contains("declare another one first?"), "{error}");
}

/// Two stages with state of their own have a changelog each: one of them would be left behind.
#[test]
fn two_stages_that_become_one_are_refused() {
    let more = TopicPartition::new("more", tp(0).partition);
    let apart = |app: &mut App| {
        counting(app);
        let others = named(app, "others");
        let source = app.source(&lines("more"));
        count_in(source, others, app);
    };
    let joined = |app: &mut App| {
        let (counts, others) = (named(app, "counts"), named(app, "others"));
        let source = app.source(&lines("in")).with_store(&others);
        let more = app.source(&lines("more")).with_store(&others);
        count_in(source, counts, app);
        more.process(|_, _| {});
    };
    let accepted = old_layout();
    for accepted in [None, Some(&accepted[..])] {
        let disk = Disk::default();
        let (kafka, clock) = (Fake::default(), Clock::default());
        let worker = new_worker(&kafka, &clock, spec_on(&disk, None), apart);
        let mut bench = Bench {
            kafka,
            clock,
            worker,
        };
        bench.feed(0, &["a"]);
        bench
            .kafka
            .broker()
            .input
            .insert(more.clone(), vec!["b".into()]);
        let both = SourceEvent::Assigned(vec![tp(0), more.clone()]);
        bench.kafka.event("app-i-0-consumer", both);
        bench.settle();
        let counted = bench.visible();
        assert_eq!(counted.len(), 2, "{counted:?}");
        bench.worker = new_worker(&bench.kafka, &bench.clock, spec_on(&disk, accepted), joined);
        bench.assign(&[0]);
        let error = bench.end().unwrap_err();
        let refused = matches!(
            &error,
            WorkerError::Start(StartError::LayoutChanged { .. } | StartError::Disagree { .. })
        );
        assert!(refused, "{error}");
    }
}
