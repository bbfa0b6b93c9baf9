//! Topics that change while the app runs.
//!
//! They are deleted, created again or given partitions. The app stops before further damage, and names the topic.

use eos_core::errors::{TopicChange, TopicRole, WorkerError};
use eos_core::{App, Error, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_testkit::client::Written;
use eos_testkit::{Input, TestDriver};

fn orders() -> PlainTopic<String, String> {
    Topic::plain("orders")
}

fn customers() -> PlainTopic<String, Option<String>> {
    Topic::plain("customers")
}

fn out() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn totals() -> PlainTopic<String, u64> {
    Topic::plain("totals")
}

const CHANGELOG: &str = "a-orders-changelog";

/// Joins orders with their customers.
fn joining() -> App {
    let mut app = App::new("a");
    let table = app.table(&customers(), &KeyValueStore::plain("customers"));
    app.source(&orders())
        .join(&table, |order, customer| format!("{order} of {customer}"))
        .to(&out());
    app
}

/// Counts orders by key.
fn counting() -> App {
    let mut app = App::new("a");
    app.source(&orders())
        .group_by_key()
        .count(&KeyValueStore::plain("counts"))
        .to(&totals());
    app
}

/// Keeps no state.
fn copying() -> App {
    let mut app = App::new("a");
    app.source(&orders()).to(&out());
    app
}

/// The topic, role and change that an app stopped for.
#[track_caller]
fn changed(driver: &TestDriver) -> (String, TopicRole, TopicChange) {
    match driver.error() {
        Some(Error::Worker(WorkerError::TopicChanged(it))) => {
            (it.topic.as_str().to_owned(), it.role, it.change)
        }
        other => panic!("no topic is the reason: {other:?}"),
    }
}

/// Writes a record without the driver, as an upstream producer does.
fn write(driver: &TestDriver, topic: &str, partition: i32, key: &str, value: &str) {
    let record = Written {
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        timestamp: driver.now().0,
        headers: &[],
    };
    driver.cluster().produce(topic, partition, &record).unwrap();
}

fn values(driver: &mut TestDriver) -> Vec<String> {
    driver.read(&out()).into_iter().map(|it| it.value).collect()
}

/// The table is declared first, so it drives the stage, and the orders are read beside it.
#[test]
fn a_joined_topic_that_grows_stops_the_app_before_a_join_drops_a_record() {
    for (topic, role) in [
        ("customers", TopicRole::KeyedInput),
        ("orders", TopicRole::Sibling),
    ] {
        let mut driver = TestDriver::new(joining());
        driver.pipe_at(&customers(), "k1", Some("Anna".to_owned()), Timestamp(1));
        driver.pipe_at(&orders(), "k1", "o1", Timestamp(2));
        driver.grow_topic(topic, 2).unwrap_err();
        let (before, now) = (1, 2);
        let grown = TopicChange::Grown { before, now };
        assert_eq!(changed(&driver), (topic.to_owned(), role, grown));

        // The upstream producer uses both partitions at once, so the row of k2 is in a partition that no task reads.
        write(
            &driver,
            "customers",
            if topic == "customers" { 1 } else { 0 },
            "k2",
            "Bert",
        );
        write(&driver, "orders", 0, "k2", "o2");
        assert_eq!(values(&mut driver), ["o1 of Anna"]);
        let committed = driver.cluster().committed("a", "orders", 0);
        assert_eq!(
            committed,
            Ok(Some(1)),
            "the order without its row is not taken"
        );
    }
}

/// The upstream producer may write before the query. The number of dropped records is bounded.
#[test]
fn a_joined_topic_that_grows_is_noticed_however_quick_its_producer_is() {
    let mut driver = TestDriver::new(joining());
    driver.cluster().grow_topic("customers", 2).unwrap();
    write(&driver, "customers", 1, "k2", "Bert");
    let error = driver
        .try_pipe(&orders(), Input::new("k2", "o2"))
        .unwrap_err();
    let (before, now) = (1, 2);
    let grown = TopicChange::Grown { before, now };
    let found = ("customers".into(), TopicRole::KeyedInput, grown);
    assert_eq!(changed(&driver), found, "{error}");
}

#[test]
fn a_driving_topic_that_grows_stops_an_app_that_keeps_state_by_its_keys() {
    let mut driver = TestDriver::new(counting());
    driver.pipe(&orders(), "k1", "o1");
    driver.grow_topic("orders", 2).unwrap_err();
    let (before, now) = (1, 2);
    let grown = TopicChange::Grown { before, now };
    assert_eq!(
        changed(&driver),
        ("orders".into(), TopicRole::KeyedInput, grown)
    );
    let text = driver.error().unwrap().to_string();
    assert!(text.contains("it had 1, now it has 2"), "{text}");
}

#[test]
fn a_driving_topic_that_grows_gives_an_app_without_state_more_tasks() {
    let mut driver = TestDriver::new(copying());
    driver.pipe(&orders(), "k1", "o1");
    driver.grow_topic("orders", 3).unwrap();
    for partition in 0..3 {
        let record = Input::new("k", format!("p{partition}")).to_partition(partition);
        driver.pipe_input(&orders(), record);
    }
    assert_eq!(values(&mut driver), ["o1", "p0", "p1", "p2"]);
    driver.crash();
    driver.pipe(&orders(), "k1", "o2");
    assert_eq!(values(&mut driver), ["o2"]);
}

#[test]
fn an_output_that_grows_stops_an_instance_that_has_the_old_count() {
    let mut driver = TestDriver::new(copying());
    driver.pipe(&orders(), "k1", "o1");
    driver.grow_topic("out", 2).unwrap_err();
    let (before, now) = (1, 2);
    let grown = TopicChange::Grown { before, now };
    assert_eq!(changed(&driver), ("out".into(), TopicRole::Output, grown));
    // A restart is enough.
    driver.restart();
    driver.pipe(&orders(), "k1", "o2");
    assert_eq!(values(&mut driver), ["o1", "o2"]);
}

#[test]
fn an_output_that_is_created_again_stops_the_app_and_a_restart_continues_in_the_new_one() {
    let mut driver = TestDriver::new(copying());
    driver.pipe(&orders(), "k1", "o1");
    driver.recreate_topic("out").unwrap_err();
    let (topic, role, change) = changed(&driver);
    assert_eq!((&*topic, role), ("out", TopicRole::Output));
    assert!(
        matches!(change, TopicChange::Recreated { .. }),
        "{change:?}"
    );
    driver.restart();
    driver.pipe(&orders(), "k1", "o2");
    assert_eq!(values(&mut driver), ["o2"]);
}

#[test]
fn a_changelog_that_is_created_again_stops_the_app_while_its_state_is_whole() {
    let mut driver = TestDriver::new(counting());
    driver.pipe(&orders(), "k1", "o1");
    driver.recreate_topic(CHANGELOG).unwrap_err();
    let (topic, role, change) = changed(&driver);
    assert_eq!((&*topic, role), (CHANGELOG, TopicRole::Changelog));
    assert!(
        matches!(change, TopicChange::Recreated { .. }),
        "{change:?}"
    );
    let text = driver.error().unwrap().to_string();
    assert!(text.contains("Keep the state directories"), "{text}");
    assert!(
        driver.cluster().read(CHANGELOG, 0).is_empty(),
        "nothing was written to it"
    );
}

#[test]
fn a_topic_that_is_deleted_and_stays_away_stops_the_app() {
    for (topic, role) in [
        ("orders", TopicRole::KeyedInput),
        ("totals", TopicRole::Output),
        (CHANGELOG, TopicRole::Changelog),
    ] {
        let mut driver = TestDriver::new(counting());
        driver.pipe(&orders(), "k1", "o1");
        driver.delete_topic(topic).unwrap_err();
        let (name, found, change) = changed(&driver);
        assert_eq!((&*name, found), (topic, role));
        assert!(
            matches!(change, TopicChange::Deleted { before: Some(_) }),
            "{change:?}"
        );
    }
}

#[test]
fn a_longer_log_under_the_name_of_an_input_is_not_read_from_its_middle() {
    let mut driver = TestDriver::new(copying());
    driver.pipe(&orders(), "k1", "o1");
    driver.cluster().recreate_topic("orders").unwrap();
    for number in 0..5 {
        write(&driver, "orders", 0, "k1", &format!("new {number}"));
    }
    let error = driver
        .try_pipe(&orders(), Input::new("k1", "new 5"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("--delete-offsets --group a --topic orders"),
        "{error}"
    );
    let (topic, role, change) = changed(&driver);
    assert_eq!((&*topic, role), ("orders", TopicRole::Input));
    assert!(
        matches!(change, TopicChange::Recreated { .. }),
        "{change:?}"
    );
    assert_eq!(
        values(&mut driver),
        ["o1"],
        "nothing of the new one was read"
    );
}

#[test]
fn what_changes_while_no_process_runs_is_the_business_of_the_start() {
    let mut driver = TestDriver::new(copying());
    driver.pipe(&orders(), "k1", "o1");
    driver.kill();
    driver.grow_topic("out", 2).unwrap();
    driver.restart();
    driver.pipe(&orders(), "k1", "o2");
    assert_eq!(values(&mut driver), ["o1", "o2"]);
}
