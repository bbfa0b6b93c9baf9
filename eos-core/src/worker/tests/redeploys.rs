//! Another program under the same name: the changes after which the state stays valid.

use eos_protocol::state::{Family, RestartError};
use eos_protocol::{Partition, StartError};
use eos_state::StoreBackend;

use super::state::{Disk, stateful};
use super::*;
use crate::PlainTopic;
use crate::state::WindowStore;
use crate::windows::Tumbling;
use crate::worker::UnknownStore;
use crate::{KeyValueStore, Store, Stream};

fn lines(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name)
}

fn count_in(
    stream: Stream<String, String>,
    counts: Store<KeyValueStore<String, u64>>,
    app: &mut App,
) {
    let out = app.output(&lines("out"));
    stream.with_store(&counts).for_each(move |ctx, record| {
        let n = ctx
            .store(&counts)
            .update(&record.value, |n| n.unwrap_or(0) + 1)?;
        ctx.emit(&out, record.key, format!("{}={n}", record.value))
    });
}

fn named(app: &mut App, name: &str) -> Store<KeyValueStore<String, u64>> {
    app.store(&KeyValueStore::plain(name))
}

/// The program that all others change.
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
        input_partitions: ["in", "more", "added"]
            .map(|topic| (topic.into(), 2))
            .into(),
        ..stateful(disk, 0)
    }
}

/// The layout of `counting`.
fn old_layout() -> String {
    let mut app = App::new("app");
    counting(&mut app);
    app.check().unwrap().stages()[0].layout().to_string()
}

/// Runs `counting` until two words are counted, and then the program of `declare`.
fn redeployed(declare: impl FnOnce(&mut App)) -> (Bench, Disk) {
    redeployed_from(counting, declare, None)
}

fn redeployed_from(
    before: impl FnOnce(&mut App),
    declare: impl FnOnce(&mut App),
    accepted: Option<&str>,
) -> (Bench, Disk) {
    let disk = Disk::default();
    let mut bench = Bench::of(spec_on(&disk, None), before);
    bench.assign(&[0]);
    bench.take(&["a", "a"]);
    bench.replace(spec_on(&disk, accepted), declare);
    bench.kafka.calls();
    bench.assign(&[0]);
    (bench, disk)
}

type Declare<'a> = &'a dyn Fn(&mut App);

impl Bench {
    /// Starts the previous program again.
    fn put_back(&mut self, disk: &Disk, declare: impl FnOnce(&mut App)) {
        self.replace(spec_on(disk, None), declare);
        self.kafka.calls();
        self.assign(&[0]);
    }

    /// Checks that the counts continue. Returns whether the worker read the changelog for this.
    #[track_caller]
    fn goes_on(mut self) -> bool {
        self.feed(0, &["a"]);
        self.settle();
        assert_eq!(self.visible(), ["a=1", "a=2", "a=3"]);
        self.calls_begin_with("assign app-in-changelog")
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
fn a_stage_without_state_costs_nothing() {
    fn behind(app: &mut App) {
        counting(app);
        app.source(&lines("more")).to(&lines("copies"));
    }
    fn before(app: &mut App) {
        app.source(&lines("more")).to(&lines("copies"));
        counting(app);
    }
    for with_it in [behind, before] {
        let (bench, _disk) = redeployed(with_it);
        assert!(!bench.goes_on(), "it came");
        let (bench, _disk) = redeployed_from(with_it, counting, None);
        assert!(!bench.goes_on(), "it went");
    }
}

/// Tasks with state are numbered as their stages are declared, and so are their databases.
#[test]
fn a_stage_with_state_before_the_others_costs_a_restore() {
    let (bench, disk) = redeployed(|app| {
        let more = named(app, "more");
        let source = app.source(&lines("more")).with_store(&more);
        source.for_each(move |ctx, record| ctx.store(&more).put(&record.value, &1));
        counting(app);
    });
    // The task of the new stage finds the database of the other task, whose number it now has.
    let more = TopicPartition::new("more", Partition::ZERO);
    bench.feed_to(more.clone(), &["x"]);
    bench.assign_these([more]);
    assert!(bench.goes_on());
    let databases = disk.databases.lock().unwrap();
    let driven_by = databases.values().map(|database| {
        let position = database.position().unwrap();
        position.identity.topics[0].name.to_string()
    });
    assert_eq!(driven_by.collect::<Vec<_>>(), ["more", "in"]);
}

#[test]
fn a_new_store_begins_empty_beside_the_others() {
    let (bench, _disk) = redeployed(|app| {
        let (counts, fresh) = (named(app, "counts"), named(app, "fresh"));
        let source = app.source(&lines("in")).with_store(&fresh);
        count_in(source, counts, app);
    });
    assert!(bench.goes_on(), "its database is recreated");
}

/// A store under another name is another store. The content of the old one would be left behind without notice.
#[test]
fn a_renamed_store_is_refused() {
    for wiped in [false, true] {
        let renamed = |app: &mut App| {
            let counts = named(app, "count");
            let source = app.source(&lines("in"));
            count_in(source, counts, app);
        };
        let (mut bench, disk) = redeployed(renamed);
        if wiped {
            disk.wipe();
        }
        let error = bench.end().unwrap_err();
        let WorkerError::OtherStore { place, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(place == "the local database", !wiped, "{place}");
        let says = [
            "keys of the store counts, which this program does not have; the store count is new",
            "If the store counts was renamed to count, rename it back",
        ];
        for part in says {
            assert!(error.to_string().contains(part), "{error}");
        }
        // The database is unchanged, as the error states.
        bench.put_back(&disk, counting);
        assert_eq!(bench.goes_on(), wiped);
    }
}

/// The store has the same name but other values: those of an operator begin with a time.
#[test]
fn a_closures_store_that_became_an_operators_is_refused() {
    let of_an_operator = |app: &mut App| {
        let out = app.output(&lines("out"));
        app.source(&lines("in"))
            .group_by_key()
            .count(&KeyValueStore::plain("counts"))
            .to_stream()
            .for_each(move |ctx, row| ctx.emit(&out, row.key, row.value.to_string()));
    };
    let windows_of_a_closure = |app: &mut App| {
        let store = WindowStore::<String, u64>::plain("seen").retention(Duration::from_secs(1));
        let seen = app.store(&store);
        let out = app.output(&lines("out"));
        let source = app.source(&lines("in")).with_store(&seen);
        source.for_each(move |ctx, record| {
            let window = eos_protocol::Timestamp(0);
            ctx.store(&seen).put(&record.value, window, &1)?;
            ctx.emit(&out, record.key, record.value)
        });
    };
    let windows_of_an_operator = |app: &mut App| {
        let out = app.output(&lines("out"));
        app.source(&lines("in"))
            .group_by_key()
            .windowed_by(Tumbling::of(Duration::from_secs(1)))
            .count(&WindowStore::plain("seen"))
            .to_stream()
            .for_each(move |ctx, row| ctx.emit(&out, row.key.key, row.value.to_string()));
    };
    for wiped in [false, true] {
        let pairs: [(Declare<'_>, Declare<'_>, &str); 4] = [
            (&counting, &of_an_operator, "belonged to a closure"),
            (&of_an_operator, &counting, "belonged to an operator"),
            (
                &windows_of_a_closure,
                &windows_of_an_operator,
                "belonged to a closure",
            ),
            (
                &windows_of_an_operator,
                &windows_of_a_closure,
                "belonged to an operator",
            ),
        ];
        for (before, after, says) in pairs {
            let (mut bench, disk) = redeployed_from(before, after, None);
            if wiped {
                disk.wipe();
            }
            let error = bench.end().unwrap_err();
            let text = error.to_string();
            let known = matches!(
                error,
                WorkerError::OtherStore {
                    known: UnknownStore::OtherFormat { .. },
                    ..
                }
            );
            assert!(known && text.contains(says), "{text}");
            assert!(text.contains("Return the name to the "), "{text}");
            bench.put_back(&disk, before);
            let visible = bench.visible().len();
            bench.take(&["a"]);
            assert_eq!(bench.visible().len(), visible + 1);
        }
    }
}

/// The store has the same name, but is another one: its keys are elsewhere. If the program has both kinds of stores
/// before and after, the keys identify the change, and it does not count as a change of the values' format.
#[test]
fn a_store_of_windows_that_became_a_plain_one_is_refused() {
    let with = |app: &mut App, is_windowed: bool| {
        let windows =
            |name: &str| WindowStore::<String, u64>::plain(name).retention(Duration::from_secs(1));
        let kept = app.store(&windows("kept"));
        let source = app.source(&lines("in")).with_store(&kept);
        let window = eos_protocol::Timestamp(0);
        let out = app.output(&lines("out"));
        if is_windowed {
            let seen = app.store(&windows("seen"));
            source.with_store(&seen).for_each(move |ctx, record| {
                ctx.store(&kept).put(&record.value, window, &1)?;
                ctx.store(&seen).put(&record.value, window, &1)?;
                ctx.emit(&out, record.key, record.value)
            });
        } else {
            let seen = named(app, "seen");
            source.with_store(&seen).for_each(move |ctx, record| {
                ctx.store(&kept).put(&record.value, window, &1)?;
                ctx.store(&seen).put(&record.value, &1)?;
                ctx.emit(&out, record.key, record.value)
            });
        }
    };
    let (mut bench, _disk) = redeployed_from(|app| with(app, true), |app| with(app, false), None);
    let error = bench.end().unwrap_err();
    let text = error.to_string();
    let says = "the windowed store seen, which this program declares as a plain store";
    assert!(text.contains(says), "{text}");
    assert!(text.contains("Make seen a windowed store again"), "{text}");
}

#[test]
fn a_store_that_became_a_windowed_one_is_refused() {
    let (mut bench, _disk) = redeployed(|app| {
        let windows = Tumbling::of(Duration::from_secs(1));
        app.source(&lines("in"))
            .group_by_key()
            .windowed_by(windows)
            .count(&WindowStore::plain("counts"))
            .to_stream()
            .for_each(|_, _| {});
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

/// A further topic in the stage is another layout. Once it is accepted, the state stays.
#[test]
fn a_topic_that_joins_the_stage_is_refused_until_it_is_accepted() {
    assert_accepted_once(&counting, &joined);
}

#[test]
fn a_topic_that_leaves_the_stage_is_refused_until_it_is_accepted() {
    assert_accepted_once(&joined, &counting);
}

/// An app that reads both topics in one stage.
fn joined(app: &mut App) {
    let counts = named(app, "counts");
    let source = app.source(&lines("in"));
    let more = app.source(&lines("more"));
    count_in(source.merge(more), counts, app);
}

#[track_caller]
fn assert_accepted_once(before: Declare<'_>, after: Declare<'_>) {
    let (mut bench, _disk) = redeployed_from(before, after, None);
    let error = bench.end().unwrap_err();
    let WorkerError::Start(StartError::LayoutChanged { found, .. }) = error else {
        panic!("{error}");
    };
    let (bench, _disk) = redeployed_from(before, after, Some(&found.to_string()));
    assert!(
        bench.goes_on(),
        "its inputs are others: read from the start"
    );
}

/// The changelog is named after the first topic in alphabetical order. If another topic is first, the state is not
/// found.
#[test]
fn a_topic_that_names_the_stage_from_now_on_is_refused_even_if_it_is_accepted() {
    let driven = |app: &mut App| {
        let counts = named(app, "counts");
        let added = app.source(&lines("added"));
        let source = app.source(&lines("in"));
        count_in(added.merge(source), counts, app);
    };
    let accepted = old_layout();
    let (mut bench, _disk) = redeployed_from(counting, driven, Some(&accepted));
    let added = TopicPartition::new("added", tp(0).partition);
    bench.assign_these([added]);
    let error = bench.end().unwrap_err();
    let lost = matches!(
        &error,
        WorkerError::Restart(e) if matches!(**e, RestartError::ChangelogLost { .. })
    );
    assert!(lost, "{error}");
    let error = error.to_string();
    assert!(
        error.contains("name the stage after the old one"),
        "{error}"
    );
}

/// The order of declarations does not affect the state.
#[test]
fn a_topic_that_drives_from_now_on_keeps_the_state_of_its_stage_once_it_is_accepted() {
    let driven = |app: &mut App| {
        let counts = named(app, "counts");
        let more = app.source(&lines("more"));
        let source = app.source(&lines("in"));
        count_in(more.merge(source), counts, app);
    };
    let accepted = old_layout();
    let (bench, _disk) = redeployed_from(counting, driven, Some(&accepted));
    let more = TopicPartition::new("more", tp(0).partition);
    bench.assign_these([more]);
    assert!(bench.goes_on(), "its state is found");
}

/// As the error states, the name keeps the changelog, and the state with it.
#[test]
fn a_stage_that_keeps_its_name_keeps_its_state_behind_another_topic() {
    let driven = |app: &mut App| {
        let counts = named(app, "counts");
        let added = app.source(&lines("added")).stage("in");
        let source = app.source(&lines("in"));
        count_in(added.merge(source), counts, app);
    };
    let accepted = old_layout();
    let (bench, _disk) = redeployed_from(counting, driven, Some(&accepted));
    let added = TopicPartition::new("added", tp(0).partition);
    bench.assign_these([added]);
    assert!(bench.goes_on(), "its state is found");
}

/// Two stages with their own state have a changelog each. One of them would be left behind.
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
        more.for_each(|_, _| {});
    };
    let accepted = old_layout();
    for accepted in [None, Some(&accepted[..])] {
        let disk = Disk::default();
        let mut bench = Bench::of(spec_on(&disk, None), apart);
        bench.feed(0, &["a"]);
        bench.feed_to(more.clone(), &["b"]);
        bench.assign_these([tp(0), more.clone()]);
        bench.settle();
        let counted = bench.visible();
        assert_eq!(counted.len(), 2, "{counted:?}");
        bench.replace(spec_on(&disk, accepted), joined);
        bench.assign(&[0]);
        let error = bench.end().unwrap_err();
        let refused = matches!(
            &error,
            WorkerError::Start(StartError::LayoutChanged { .. } | StartError::Disagree { .. })
        );
        assert!(refused, "{error}");
    }
}
