//! Views of stores outside of the workers: interactive queries.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use eos_core::state::{ForeignJoin, OrderedStore, WindowStore};
use eos_core::views::ViewError;
use eos_core::windows::Tumbling;
use eos_core::{App, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_testkit::TestDriver;

fn input() -> PlainTopic<String, u64> {
    Topic::plain("in")
}

fn counts() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("counts")
}

fn sums() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("sums")
}

fn key(name: &str) -> String {
    name.to_owned()
}

/// Counts the records of a key, and sums their values in a store of a closure.
fn app() -> App {
    let mut app = App::new("a");
    let own = app.store(&sums());
    let records = app.source(&input());
    records
        .clone()
        .group_by_key()
        .count(&counts())
        .to(&Topic::plain("out"));
    records.with_store(&own).for_each(move |ctx, record| {
        let sum = ctx.store(&own);
        sum.update(&record.key, |sum| sum.unwrap_or(0) + record.value)
            .map(drop)
    });
    app
}

fn count(driver: &TestDriver, name: &str) -> Option<u64> {
    driver.view(&counts()).unwrap().get(&key(name)).unwrap()
}

#[test]
fn a_view_shows_committed_rows_only_and_does_not_change() {
    let mut driver = TestDriver::new(app());
    driver.pipe(&input(), "ada", 1_u64);
    driver.hold();
    driver.pipe(&input(), "ada", 10_u64);
    driver.pipe(&input(), "bob", 10_u64);
    assert_eq!(
        (count(&driver, "ada"), count(&driver, "bob")),
        (Some(1), None)
    );
    let before = driver.view(&counts()).unwrap();
    let rows = || before.task(0).unwrap().all().collect::<Result<Vec<_>, _>>();
    assert_eq!(rows().unwrap(), [(key("ada"), 1)]);
    driver.abort();
    assert_eq!(
        count(&driver, "ada"),
        Some(1),
        "the transaction was aborted"
    );
    driver.commit();
    assert_eq!(
        (count(&driver, "ada"), count(&driver, "bob")),
        (Some(2), Some(1))
    );
    driver.pipe(&input(), "ada", 100_u64);
    driver.commit();
    assert_eq!(
        rows().unwrap(),
        [(key("ada"), 1)],
        "a snapshot does not change"
    );
    assert_eq!(before.get(&key("ada")).unwrap(), Some(1));
}

/// A view of one store, then commits, then the other store.
#[test]
fn all_stores_of_a_task_are_at_one_transaction() {
    let mut driver = TestDriver::new(app());
    driver.pipe(&input(), "ada", 5_u64);
    let counts = driver.view(&counts()).unwrap();
    assert_eq!(counts.get(&key("ada")).unwrap(), Some(1));
    driver.pipe(&input(), "ada", 6_u64);
    let sums = counts.beside(&sums()).unwrap();
    assert_eq!(sums.get(&key("ada")).unwrap(), Some(5));
    let alone = driver.view(&self::sums()).unwrap();
    assert_eq!(alone.get(&key("ada")).unwrap(), Some(11));
    let offsets = |task: Vec<(eos_core::errors::TopicPartition, i64)>| {
        let offsets = task
            .into_iter()
            .map(|(partition, next)| (partition.to_string(), next));
        offsets.collect::<Vec<_>>()
    };
    let old = offsets(sums.task(0).unwrap().offsets());
    assert_eq!(old, [(key("in-0"), 1)]);
    let new = offsets(alone.task(0).unwrap().offsets());
    // A marker of the first transaction is between the records.
    assert!(new[0].1 > old[0].1, "{new:?}");
}

#[test]
fn a_view_ends_with_its_process_and_a_new_one_has_the_rows() {
    let mut driver = TestDriver::new(app());
    driver.pipe(&input(), "ada", 1_u64);
    let before = driver.view(&counts()).unwrap();
    assert_eq!(before.get(&key("ada")).unwrap(), Some(1));
    driver.crash();
    let error = before.get(&key("ada")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store counts can't be read any more, because the app in this process stops or has ended"
    );
    let ended = before.task(0).unwrap().all().next().transpose();
    assert!(matches!(ended, Err(ViewError::Stopped { .. })), "{ended:?}");
    assert_eq!(count(&driver, "ada"), Some(1));
    driver.crash_and_lose_state();
    assert_eq!(
        count(&driver, "ada"),
        Some(1),
        "restored from the changelog"
    );
    driver.crash_during_next_record();
    driver.pipe(&input(), "ada", 1_u64);
    assert_eq!(count(&driver, "ada"), Some(2));
}

#[test]
fn a_key_of_another_process_is_refused_with_its_partition() {
    let builder = TestDriver::builder()
        .partitions("in", 4)
        .partitions("out", 4);
    let mut driver = builder.instances(2).start(app());
    let names: Vec<String> = (0..20).map(|n| format!("user-{n}")).collect();
    for name in &names {
        driver.pipe(&input(), name.as_str(), 1_u64);
    }
    let views = [0, 1].map(|at| driver.view_in(at, &counts()).unwrap());
    let mut all: Vec<i32> = views.iter().flat_map(|view| view.partitions()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    for name in &names {
        let of = eos_protocol::partition_for(name.as_bytes(), 4).get();
        let (here, there): (Vec<_>, Vec<_>) = views
            .iter()
            .partition(|view| view.partitions().contains(&of));
        assert_eq!(here[0].get(name).unwrap(), Some(1), "{name}");
        match there[0].get(name).unwrap_err() {
            ViewError::Elsewhere {
                partition,
                here,
                store,
            } => {
                assert_eq!(
                    (partition, &here, &*store),
                    (of, &there[0].partitions(), "counts")
                );
            }
            other => panic!("{other}"),
        }
    }
    let rows = views.iter().flat_map(|view| view.tasks().unwrap());
    let rows: usize = rows.map(|task| task.all().count()).sum();
    assert_eq!(rows, names.len());
    let error = views[0].task(4).unwrap_err();
    let text = "the store counts has no partition 4, because its topics have 4";
    assert_eq!(error.to_string(), text);

    // The tasks of the second process move to the first one.
    let moved = views[1].partitions()[0];
    driver.remove_instance();
    let ended = views[1].task(moved).unwrap().all().next().transpose();
    assert!(matches!(ended, Err(ViewError::Stopped { .. })), "{ended:?}");
    assert_eq!(driver.view(&counts()).unwrap().partitions(), [0, 1, 2, 3]);
    assert!(names.iter().all(|name| count(&driver, name) == Some(1)));

    // Some tasks move to a third process, and the earlier view ends.
    let before = driver.view(&counts()).unwrap();
    let tasks = before.tasks().unwrap();
    driver.add_instance();
    let left = driver.view(&counts()).unwrap().partitions();
    assert_eq!(left.len(), 2);
    for task in tasks {
        let read = task.all().next().transpose();
        match left.contains(&task.partition()) {
            true => assert!(read.is_ok()),
            false => assert!(matches!(read, Err(ViewError::Moved { .. })), "{read:?}"),
        }
    }
}

#[test]
fn a_topic_with_its_own_partitioner_decides_about_its_keys() {
    let topic =
        || input().partition_by("by length", |key, partitions| key.len() as u32 % partitions);
    let mut app = App::new("a");
    app.source(&topic())
        .group_by_key()
        .count(&counts())
        .to(&Topic::plain("out"));
    let mut driver = TestDriver::builder().partitions("in", 3).start(app);
    driver.pipe(&topic(), "four", 1_u64);
    driver.pipe(&topic(), "three", 1_u64);
    let view = driver.view(&counts()).unwrap();
    assert_eq!(view.get(&key("four")).unwrap(), Some(1));
    assert_eq!(view.get(&key("three")).unwrap(), Some(1));
    assert_eq!(
        view.task(4 % 3).unwrap().get(&key("four")).unwrap(),
        Some(1)
    );
}

/// A view that looks into a wrong partition would show no row.
#[test]
fn a_key_whose_partition_is_unknown_is_refused() {
    let by_value = KeyValueStore::<u64, String>::plain("by-value");
    let mut app = App::new("a");
    let store = app.store(&by_value);
    app.source(&input())
        .with_store(&store)
        .for_each(move |ctx, record| ctx.store(&store).put(&record.value, &record.key));
    let mut driver = TestDriver::builder().partitions("in", 2).start(app);
    driver.pipe(&input(), "ada", 7_u64);
    let view = driver.view(&by_value).unwrap();
    let error = view.get(&7).unwrap_err();
    assert!(matches!(error, ViewError::NoPlace { .. }), "{error}");
    let task = view.task_of(&key("ada")).unwrap();
    assert_eq!(task.get(&7).unwrap().as_deref(), Some("ada"));
    let error = view.task_of(&7_u64).unwrap_err();
    assert!(matches!(error, ViewError::NoPlace { .. }), "{error}");
    assert_eq!(driver.view(&store).unwrap().name(), "by-value");
}

#[test]
fn a_store_that_the_app_does_not_have_is_refused() {
    let driver = TestDriver::new(app());
    let unknown = driver.view(&KeyValueStore::<String, u64>::plain("count"));
    let text = unknown.unwrap_err().to_string();
    assert_eq!(text, "the app has no store count. It has sums, counts");
    let other = driver.view(&KeyValueStore::<String, String>::plain("counts"));
    assert!(
        matches!(other, Err(ViewError::OtherTypes { .. })),
        "{other:?}"
    );
    let windows = driver.view(&WindowStore::<String, u64>::plain("counts"));
    assert!(
        matches!(windows, Err(ViewError::OtherTypes { .. })),
        "{windows:?}"
    );
    let ordered = driver.view(&OrderedStore::<String, u64>::plain("sums"));
    assert!(
        matches!(ordered, Err(ViewError::OtherTypes { .. })),
        "{ordered:?}"
    );
    let foreign = App::new("b").store(&sums());
    let foreign = driver.view(&foreign);
    assert!(matches!(foreign, Err(ViewError::OtherApp)), "{foreign:?}");
}

#[test]
fn tables_have_times_and_stores_of_closures_have_none() {
    let (users, names) = (
        Topic::<String, Option<String>>::plain("users"),
        KeyValueStore::<String, String>::plain("names"),
    );
    let mut app = app();
    let rows = app.table(&users, &names).rows();
    let mut driver = TestDriver::builder().start_at(Timestamp(1_000)).start(app);
    driver.pipe_at(&users, "a", Some(key("Ada")), Timestamp(900));
    driver.pipe_at(&input(), "a", 5_u64, Timestamp(800));
    driver.pipe_at(&input(), "a", 5_u64, Timestamp(700));
    let ada = key("a");
    let names = driver.view(&rows).unwrap().get_with_time(&ada).unwrap();
    assert_eq!(names, Some((key("Ada"), Some(Timestamp(900)))));
    let counted = driver.view(&counts()).unwrap().get_with_time(&ada).unwrap();
    assert_eq!(counted, Some((2, Some(Timestamp(800)))));
    let summed = driver.view(&sums()).unwrap().get_with_time(&ada).unwrap();
    assert_eq!(summed, Some((10, None)));
    driver.pipe_tombstone(&users, "a");
    assert_eq!(driver.view(&rows).unwrap().get(&ada).unwrap(), None);
}

#[test]
fn ordered_stores_have_ranges_prefixes_and_many_pages() {
    let visits = OrderedStore::<(String, u64), u64>::plain("visits");
    let mut app = App::new("a");
    let store = app.store(&visits);
    app.source(&input())
        .with_store(&store)
        .for_each(move |ctx, record| {
            let visits = ctx.store(&store);
            (0..record.value).try_for_each(|n| visits.put(&(record.key.clone(), n), &n))
        });
    let mut driver = TestDriver::new(app);
    driver.pipe(&input(), "ada", 1_000_u64);
    driver.pipe(&input(), "bob", 3_u64);
    let task = driver.view(&visits).unwrap().task_of(&key("bob")).unwrap();
    type Rows = Vec<((String, u64), u64)>;
    let of = |rows: Result<Rows, ViewError>| {
        rows.unwrap()
            .into_iter()
            .map(|(_, n)| n)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(task.prefix(&key("ada")).collect()),
        (0..1_000).collect::<Vec<_>>()
    );
    let reversed = task.prefix(&key("ada")).reverse().collect();
    assert_eq!(of(reversed), (0..1_000).rev().collect::<Vec<_>>());
    let range = task.range((key("ada"), 998)..(key("bob"), 2));
    assert_eq!(of(range.collect()), [998, 999, 0, 1]);
    assert_eq!(task.all().count(), 1_003);
    assert_eq!(task.get(&(key("bob"), 2)).unwrap(), Some(2));
}

#[test]
fn windows_are_read_by_start_and_expired_ones_are_not_there() {
    let minutes = Tumbling::of(Duration::from_secs(60));
    let store = WindowStore::<String, u64>::plain("per-minute");
    let mut app = App::new("a");
    app.source(&input())
        .group_by_key()
        .windowed_by(minutes)
        .count(&store)
        .to_stream()
        .ignore();
    let mut driver = TestDriver::builder()
        .start_at(Timestamp(3_600_000))
        .start(app);
    let minute = |n: i64| Timestamp(n * 60_000);
    let ada = key("ada");
    let reads = |driver: &TestDriver| {
        let view = driver.view(&store).unwrap();
        let fetched = view.fetch(&ada, (0..4).map(minute)).unwrap();
        let all = view
            .task(0)
            .unwrap()
            .all(..)
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let all: Vec<_> = all
            .into_iter()
            .map(|(start, _, count)| (start, count))
            .collect();
        assert_eq!(fetched, all);
        all
    };
    driver.pipe_at(&input(), "ada", 1_u64, Timestamp(60_001));
    driver.pipe_at(&input(), "ada", 1_u64, Timestamp(61_000));
    assert_eq!(reads(&driver), [(minute(1), 2)]);
    let timed = driver
        .view(&store)
        .unwrap()
        .get_with_time(&ada, minute(1))
        .unwrap();
    assert_eq!(timed, Some((2, Some(Timestamp(61_000)))));
    let before = driver.view(&store).unwrap();
    assert_eq!(before.get(&ada, minute(1)).unwrap(), Some(2));
    // The first minute is over. The database deletes it later, and the view must not wait for that.
    driver.pipe_at(&input(), "bob", 1_u64, Timestamp(125_000));
    assert_eq!(
        driver.view(&store).unwrap().get(&ada, minute(1)).unwrap(),
        None
    );
    let view = driver.view(&store).unwrap();
    let all: Vec<_> = view
        .task(0)
        .unwrap()
        .all(..)
        .map(|row| row.unwrap().0)
        .collect();
    assert_eq!(all, [minute(2)]);
    assert_eq!(
        before.get(&ada, minute(1)).unwrap(),
        Some(2),
        "its snapshot is older"
    );
}

#[test]
fn rows_that_expire_are_gone_at_the_committed_stream_time() {
    let codes = KeyValueStore::<String, u64>::plain("codes").expire_after(Duration::from_secs(10));
    let mut app = App::new("a");
    let store = app.store(&codes);
    app.source(&input())
        .with_store(&store)
        .for_each(move |ctx, record| ctx.store(&store).put(&record.key, &record.value));
    let mut driver = TestDriver::builder()
        .start_at(Timestamp(3_600_000))
        .start(app);
    driver.pipe_at(&input(), "ada", 1_u64, Timestamp(1_000));
    driver.pipe_at(&input(), "bob", 2_u64, Timestamp(10_999));
    let names = |driver: &TestDriver| {
        let task = driver.view(&codes).unwrap().task(0).unwrap();
        let rows = task.all().map(|row| row.unwrap().0);
        rows.collect::<Vec<_>>()
    };
    assert_eq!(names(&driver), ["ada", "bob"]);
    driver.pipe_at(&input(), "cy", 3_u64, Timestamp(11_000));
    assert_eq!(names(&driver), ["bob", "cy"]);
    let view = driver.view(&codes).unwrap();
    assert_eq!(view.get(&key("ada")).unwrap(), None);
    assert_eq!(view.get(&key("bob")).unwrap(), Some(2));
}

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn at_least_waits_for_the_commit_of_a_record_and_is_woken_by_it() {
    let mut driver = TestDriver::new(app());
    driver.hold();
    let view = driver.view(&counts()).unwrap();
    let patience = Duration::from_secs(5);
    let mut wait = pin!(view.at_least("in", 0, 0, patience));
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    driver.pipe(&input(), "ada", 1_u64);
    assert!(
        wait.as_mut().poll(&mut context).is_pending(),
        "it is not committed"
    );
    let before = woken.0.load(Ordering::Relaxed);
    driver.commit();
    assert!(
        woken.0.load(Ordering::Relaxed) > before,
        "no task polls it again"
    );
    match wait.as_mut().poll(&mut context) {
        Poll::Ready(view) => assert_eq!(view.unwrap().get(&key("ada")).unwrap(), Some(1)),
        Poll::Pending => panic!("it is committed"),
    }
    let now = pin!(view.at_least("in", 0, 0, Duration::ZERO)).poll(&mut context);
    assert!(matches!(now, Poll::Ready(Ok(_))), "{now:?}");
}

#[test]
fn at_least_ends_at_its_deadline_with_the_offsets() {
    let mut driver = TestDriver::new(app());
    driver.pipe(&input(), "ada", 1_u64);
    let view = driver.view(&counts()).unwrap();
    let mut wait = pin!(view.at_least("in", 0, 5, Duration::from_secs(2)));
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    driver.advance_wall_clock(Duration::from_millis(1_900));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    driver.advance_wall_clock(Duration::from_millis(200));
    assert!(
        woken.0.load(Ordering::Relaxed) > 0,
        "no task polls it again"
    );
    let Poll::Ready(Err(error)) = wait.as_mut().poll(&mut context) else {
        panic!("its time is over");
    };
    let text = error.to_string();
    assert!(
        text.contains("partition 0 of the store counts did not reach offset 5 of in within"),
        "{text}"
    );
    assert!(text.contains("its next offset is 1"), "{text}");

    let poll = |topic: &str, partition| {
        pin!(view.at_least(topic, partition, 0, Duration::from_secs(2)))
            .poll(&mut Context::from_waker(Waker::noop()))
    };
    let other = poll("inn", 0);
    assert!(
        matches!(other, Poll::Ready(Err(ViewError::NotAnInput { .. }))),
        "{other:?}"
    );
    let other = poll("in", 3);
    assert!(
        matches!(other, Poll::Ready(Err(ViewError::NoSuchPartition { .. }))),
        "{other:?}"
    );
}

#[test]
fn a_wait_ends_when_the_app_stops() {
    let mut driver = TestDriver::new(app());
    driver.pipe(&input(), "ada", 1_u64);
    let view = driver.view(&counts()).unwrap();
    let mut wait = pin!(view.at_least("in", 0, 5, Duration::from_secs(60)));
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    driver.kill();
    assert!(woken.0.load(Ordering::Relaxed) > 0);
    let ended = wait.as_mut().poll(&mut context);
    assert!(
        matches!(ended, Poll::Ready(Err(ViewError::Stopped { .. }))),
        "{ended:?}"
    );
}

#[test]
fn a_table_that_is_only_viewed_ends_in_ignore() {
    let rows = Topic::<String, Option<u64>>::plain("in");
    let mut app = App::new("a");
    app.table(&rows, &sums()).ignore();
    let mut driver = TestDriver::new(app);
    driver.pipe(&rows, "ada", 1_u64);
    driver.crash_and_lose_state();
    driver.pipe(&rows, "ada", 2_u64);
    driver.pipe(&rows, "bob", 3_u64);
    driver.pipe_tombstone(&rows, "bob");
    let view = driver.view(&sums()).unwrap();
    assert_eq!(view.get(&key("ada")).unwrap(), Some(2));
    assert_eq!(view.get(&key("bob")).unwrap(), None);
}

/// A join by a foreign key has several stores of one name.
#[test]
fn a_store_name_is_listed_once() {
    let mut app = App::new("a");
    let orders = app.table(
        &Topic::<String, Option<String>>::plain("orders"),
        &KeyValueStore::plain("orders"),
    );
    let customers = app.table(
        &Topic::<String, Option<String>>::plain("customers"),
        &KeyValueStore::plain("customers"),
    );
    orders
        .join_by(
            &customers,
            &ForeignJoin::plain("orders-customers"),
            |customer| Some(customer.clone()),
            |_, name| name.clone(),
        )
        .to(&Topic::plain("names"));
    let driver = TestDriver::new(app);
    let error = driver.view(&counts()).unwrap_err().to_string();
    let (_, names) = error.split_once("It has ").unwrap();
    let mut names: Vec<_> = names.split(", ").collect();
    names.sort_unstable();
    assert_eq!(names, ["customers", "orders", "orders-customers"]);
}
