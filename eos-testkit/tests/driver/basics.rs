//! Records in, records out, clocks, misuse.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_core::{App, KeyValueStore, PlainTopic, Timestamp, Topic};
use eos_protocol::partition_for;
use eos_testkit::{Input, TestDriver};

fn lines() -> PlainTopic<Option<String>, String> {
    Topic::plain("lines")
}

fn shouts() -> PlainTopic<Option<String>, String> {
    Topic::plain("shouts")
}

fn shouting() -> App {
    let mut app = App::new("shout");
    app.source(&lines())
        .map(|line| line.to_uppercase())
        .to(&shouts());
    app
}

/// The text of a panic.
fn panic_of(act: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(act)).unwrap_err();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()))
        .unwrap()
}

#[test]
fn what_is_piped_comes_out() {
    let mut driver = TestDriver::new(shouting());
    assert!(driver.is_empty(&shouts()));
    driver.pipe(&lines(), None::<String>, "a");
    driver.pipe_at(&lines(), "k".to_owned(), "b", Timestamp(5));
    assert_eq!(driver.count(&shouts()), 2);
    let first = driver.read_one(&shouts());
    assert_eq!(first.value, "A");
    assert_eq!(first.timestamp, driver.now());
    let rest = driver.read(&shouts());
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].key.as_deref(), Some("k"));
    assert_eq!(rest[0].timestamp, Timestamp(5));
    assert!(driver.is_empty(&shouts()));
    assert_eq!(driver.read(&shouts()), []);
}

#[test]
fn keys_choose_partitions_as_in_kafka() {
    let mut driver = TestDriver::builder()
        .partitions("lines", 4)
        .partitions("shouts", 4)
        .start(shouting());
    let mut used = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        driver.pipe(&lines(), key.to_owned(), "x");
        let record = driver.read_one(&shouts());
        assert_eq!(record.partition, partition_for(key.as_bytes(), 4).get());
        used.push(record.partition);
    }
    used.sort_unstable();
    used.dedup();
    assert!(used.len() > 1, "{used:?}");
    driver.pipe_input(&lines(), Input::new(None, "x").to_partition(3));
    assert_eq!(driver.read_one(&shouts()).partition, 3);
}

#[test]
fn headers_go_along() {
    let mut driver = TestDriver::new(shouting());
    let record = Input::new(None, "x")
        .header("trace", "7")
        .header("trace", "8");
    driver.pipe_input(&lines(), record);
    let record = driver.read_one(&shouts());
    assert_eq!(record.headers.len(), 2);
    assert_eq!(record.headers.get("trace"), Some(&b"8"[..]));
}

#[test]
fn records_of_any_time_are_taken() {
    let mut driver = TestDriver::builder()
        .start_at(Timestamp(0))
        .start(shouting());
    for time in [0, 4_000_000_000_000, 7] {
        driver.pipe_at(&lines(), None, "x", Timestamp(time));
        assert_eq!(driver.read_one(&shouts()).timestamp, Timestamp(time));
    }
    driver.advance_wall_clock(Duration::from_secs(24 * 3600));
    assert_eq!(driver.now(), Timestamp(24 * 3_600_000));
    assert_eq!(
        driver.stream_time("lines", 0),
        Some(Timestamp(4_000_000_000_000))
    );
    driver.pipe(&lines(), None, "late");
    assert_eq!(driver.read_one(&shouts()).timestamp, driver.now());
}

#[test]
fn an_error_is_returned_and_a_restart_processes_its_record_again() {
    let numbers = Topic::<String, u64>::json("numbers");
    let copies = Topic::<String, u64>::json("copies");
    let mut app = App::new("copy");
    app.source(&numbers).to(&copies);
    let mut driver = TestDriver::new(app);
    driver.pipe(&numbers, "a", 1_u64);
    let error = driver
        .try_pipe(&numbers, Input::raw(Some(b"a"), Some(b"poison")))
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("record 1 of numbers-0 could not be processed"),
        "{text}"
    );
    assert_eq!(driver.error().unwrap().to_string(), text);
    let again = panic_of(|| driver.pipe(&numbers, "a", 2_u64));
    assert!(
        again.starts_with("the app ended with an error: "),
        "{again}"
    );
    assert!(again.contains(&text), "{again}");
    let restarted = panic_of(|| driver.restart());
    assert!(restarted.contains(&text), "{restarted}");
    assert_eq!(driver.read_pairs(&copies), [("a".to_owned(), 1)]);
}

#[test]
fn an_app_that_makes_no_sense_is_refused_with_the_runtimes_text() {
    let app = || {
        let mut app = App::new("a");
        app.set("comit.interval.ms", 50);
        app
    };
    let error = TestDriver::build(app()).unwrap_err();
    let text = panic_of(|| drop(TestDriver::new(app())));
    assert!(text.contains(&error.to_string()), "{text}");
}

#[test]
fn misuse_names_the_value_and_the_fix() {
    let other = Topic::<String, String>::plain("other");
    let mut driver = TestDriver::new(shouting());
    let cases: [(&str, String); 10] = [
        (
            "the app does not read other, so nothing can be piped into it. It reads lines",
            panic_of(|| driver.pipe(&other, "a", "b")),
        ),
        (
            "the app does not write to other, so there is nothing to read. It writes to shouts",
            panic_of(|| drop(driver.read(&other))),
        ),
        (
            "the app has no store counts. It has none",
            panic_of(|| drop(driver.store(&KeyValueStore::<String, u64>::plain("counts")))),
        ),
        (
            "shouts has no committed record that is still unread",
            panic_of(|| drop(driver.read_one(&shouts()))),
        ),
        (
            "partition 1 of lines does not exist: the topic has 1",
            panic_of(|| driver.pipe_input(&lines(), Input::new(None, "x").to_partition(1))),
        ),
        (
            "the app does not read line, so there is no stream time. It reads lines",
            panic_of(|| assert_eq!(driver.stream_time("line", 0), None)),
        ),
        (
            "partition 1 of lines does not exist: the topic has 1",
            panic_of(|| assert_eq!(driver.stream_time("lines", 1), None)),
        ),
        (
            "abort(): no transaction is open",
            panic_of(|| driver.abort()),
        ),
        (
            "remove_instance(): it is the only one",
            panic_of(|| driver.remove_instance()),
        ),
        (
            "partitions(\"line\", ..): the app neither reads nor writes such a topic. It has lines, shouts",
            panic_of(|| {
                drop(
                    TestDriver::builder()
                        .partitions("line", 2)
                        .start(shouting()),
                )
            }),
        ),
    ];
    for (expected, text) in cases {
        assert!(text.starts_with(expected), "{text}");
    }
    driver.pipe(&lines(), None, "still there");
    let wrong = Topic::<Option<String>, u64>::plain("shouts");
    let text = panic_of(|| drop(driver.read(&wrong)));
    assert!(
        text.starts_with(
            "the value of record 0 of shouts-0 is not a value of this topic: not an 8-byte integer"
        ),
        "{text}"
    );
}

#[test]
fn an_app_that_feeds_itself_is_ended_with_the_topic() {
    let lines = Topic::<String, String>::plain("lines");
    let mut app = App::new("a");
    let again = app.output(&lines);
    app.source(&lines)
        .for_each(move |ctx, line| ctx.emit(&again, line.key, line.value));
    let warning = app.describe().unwrap().guarantees().to_string();
    assert!(
        warning.contains("warning: closures may write to lines, which the app reads"),
        "{warning}"
    );
    let mut driver = TestDriver::new(app);
    let text = panic_of(|| driver.pipe(&lines, "k", "v"));
    assert!(text.contains("It reads and writes lines"), "{text}");
}
