//! Times from keys and values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eos_core::codec::{CodecError, Decode, Field, Plain};
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, Backoff, ErrorPolicy, PlainTopic, Timestamp, Topic};
use eos_testkit::{TestDriver, crash_everywhere};

/// A value is its time and a text.
fn readings(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name).time_by(|_key: &String, value: &String| {
        let time = value.split(' ').next()?.parse().ok()?;
        Some(Timestamp(time))
    })
}

fn pipe(driver: &mut TestDriver, topic: &str, values: &[&str]) {
    for value in values {
        driver.pipe_at(&readings(topic), "k", *value, Timestamp(9_999_999));
    }
}

#[test]
fn windows_and_outputs_follow_the_time_in_the_value() {
    let counts = Topic::<String, u64>::plain("counts");
    let copies = Topic::<String, String>::plain("copies");
    let late = Topic::<String, String>::plain("late");
    let start = || {
        let mut app = App::new("a");
        let source = app
            .source(&readings("in"))
            .on_error(ErrorPolicy::dead_letter("letters"));
        source.clone().to(&copies);
        source
            .group_by_key()
            .windowed_by(Tumbling::of(Duration::from_millis(100)))
            .late_to(&late)
            .count(&WindowStore::plain("windows"))
            .emit_on_close()
            .without_windows()
            .to(&counts);
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            "in",
            &["10 a", "90 b", "x", "-5 c", "130 d", "20 e", "210 f"],
        );
        let times: Vec<_> = driver
            .read(&copies)
            .into_iter()
            .map(|it| it.timestamp.0)
            .collect();
        let counts = driver.read(&counts).into_iter();
        let counts: Vec<_> = counts.map(|it| (it.value, it.timestamp.0)).collect();
        (
            times,
            counts,
            driver.read_pairs(&late).len(),
            driver.stream_time("in", 0),
        )
    };
    let mut driver = start();
    let (times, counts, late, stream_time) = scenario(&mut driver);
    assert_eq!(times, [10, 90, 130, 20, 210]);
    assert_eq!(counts, [(2, 90), (1, 130)]);
    assert_eq!((late, stream_time), (1, Some(Timestamp(210))));
    let letters = driver.read(&Topic::<String, String>::plain("letters"));
    let letters: Vec<_> = letters
        .iter()
        .map(|it| (it.value.as_str(), it.timestamp.0))
        .collect();
    // A dead letter is the record as it was read.
    assert_eq!(letters, [("x", 9_999_999), ("-5 c", 9_999_999)]);
    let text = {
        let letters = driver.cluster().read("letters", 0);
        String::from_utf8_lossy(
            &letters[0]
                .headers
                .iter()
                .flat_map(|it| it.1.clone().unwrap_or_default())
                .collect::<Vec<_>>(),
        )
        .into_owned()
    };
    assert!(text.contains("time_by"), "{text}");
    crash_everywhere(start, scenario);
}

/// A codec whose registry does not respond to the first requests for a value.
struct Registry {
    down: AtomicU32,
}

impl Decode<String> for Registry {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<String, CodecError> {
        let down = self.down.load(Ordering::Relaxed);
        match down.checked_sub(1) {
            Some(left) => {
                self.down.store(left, Ordering::Relaxed);
                Err(CodecError::unavailable("no schema yet"))
            }
            None => Plain.decode(bytes, field),
        }
    }
}

/// In a replay, the timestamps are the current time. If a record counted with its timestamp, all later records would be
/// late.
#[test]
fn a_record_that_can_not_be_decoded_for_a_while_keeps_its_own_time() {
    for down in 1..6 {
        let (counts, late) = (
            Topic::<String, u64>::plain("counts"),
            Topic::<String, String>::plain("late"),
        );
        let down = AtomicU32::new(down);
        let topic = Topic::<String, String>::with("in", Plain, Registry { down });
        let topic = topic.time_by(|_, value: &String| {
            let time = value.split(' ').next()?.parse().ok()?;
            Some(Timestamp(time))
        });
        let mut app = App::new("a");
        app.source(&topic)
            .on_error(ErrorPolicy::retry(
                9,
                Backoff::fixed(Duration::from_secs(1)),
            ))
            .group_by_key()
            .windowed_by(Tumbling::of(Duration::from_millis(100)))
            .late_to(&late)
            .count(&WindowStore::plain("windows"))
            .to_stream()
            .without_windows()
            .to(&counts);
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, "in", &["10 a", "20 b", "30 c"]);
        let counted = driver
            .read_pairs(&counts)
            .into_iter()
            .map(|(_, count)| count);
        assert_eq!(counted.collect::<Vec<_>>(), [1, 2, 3]);
        assert!(driver.read_pairs(&late).is_empty());
        assert_eq!(driver.stream_time("in", 0), Some(Timestamp(30)));
    }
}

/// In each step, the worker checks the next record of a paused task to find the task with the next turn.
#[test]
fn a_paused_task_reads_the_time_of_its_record_once() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let topic = PlainTopic::<String, String>::named("in").time_by(move |_, value: &String| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(Timestamp(value.parse().ok()?))
    });
    let mut app = App::new("a");
    app.source(&topic)
        .on_error(ErrorPolicy::pause())
        .key_by(|value: &String| value.clone())
        .repartition(&Topic::plain("between"))
        .to(&Topic::plain("out"));
    let mut driver = TestDriver::new(app);
    driver.pipe(&topic, "k", "x");
    assert_eq!(driver.paused().len(), 1);
    let before = calls.load(Ordering::Relaxed);
    assert!(before > 0);
    driver.advance_wall_clock(Duration::from_secs(10));
    assert_eq!(calls.load(Ordering::Relaxed), before);
}

/// The codec of one topic is not available when the worker chooses the next record. A moment later it is.
#[test]
fn topics_stay_in_order_when_a_codec_becomes_available() {
    let time_of = |_: &String, value: &String| {
        let time = value.split(' ').next()?.parse().ok()?;
        Some(Timestamp(time))
    };
    for down in 0..4 {
        let down = AtomicU32::new(down);
        let left = Topic::<String, String>::with("left", Plain, Registry { down });
        let out = Topic::<String, String>::plain("out");
        let mut app = App::new("a");
        let policy = || ErrorPolicy::retry(9, Backoff::fixed(Duration::from_secs(1)));
        let left = app.source(&left.time_by(time_of)).on_error(policy());
        let right = app.source(&readings("right")).on_error(policy());
        left.merge(right).to(&out);
        let mut driver = TestDriver::new(app);
        driver.kill();
        pipe(&mut driver, "left", &["100 a", "200 b"]);
        pipe(&mut driver, "right", &["50 c", "150 d"]);
        driver.restart();
        driver.advance_wall_clock(Duration::from_secs(20));
        pipe(&mut driver, "right", &["250 e"]);
        pipe(&mut driver, "left", &["300 f"]);
        let values: Vec<_> = driver.read_pairs(&out).into_iter().map(|it| it.1).collect();
        assert_eq!(values[..4], ["50 c", "100 a", "150 d", "200 b"]);
    }
}

/// The records are written in another order than that of their times.
#[test]
fn topics_are_merged_by_the_time_in_the_value() {
    let out = Topic::<String, String>::plain("out");
    let mut app = App::new("a");
    let (left, right) = (
        app.source(&readings("left")),
        app.source(&readings("right")),
    );
    left.merge(right).to(&out);
    let mut driver = TestDriver::new(app);
    // The records wait until the process starts again.
    driver.kill();
    pipe(&mut driver, "left", &["10 a", "40 b"]);
    pipe(&mut driver, "right", &["20 c", "50 d"]);
    driver.restart();
    pipe(&mut driver, "left", &["60 e"]);
    let values: Vec<_> = driver.read_pairs(&out).into_iter().map(|it| it.1).collect();
    assert_eq!(values[..4], ["10 a", "20 c", "40 b", "50 d"]);
}

#[test]
fn one_topic_has_one_time() {
    let mut app = App::new("a");
    let topic = readings("in");
    app.source(&topic).for_each(|_, _| ());
    app.source(&topic.clone()).for_each(|_, _| ());
    let described = app.describe().unwrap().to_string();
    assert!(
        described.contains("(topics: [in], time: time_by)"),
        "{described}"
    );
    app.source(&PlainTopic::<String, String>::named("in"))
        .for_each(|_, _| ());
    let error = TestDriver::build(app)
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(
        error.contains("the sources of the topic in have different `time_by` closures"),
        "{error}"
    );
}

/// The worker also calls the closure before it processes a record, to merge topics by time.
#[test]
fn a_panic_of_time_by_is_a_failure_of_its_record() {
    let topic = PlainTopic::<String, String>::named("in")
        .time_by(|_: &String, value: &String| Some(Timestamp(value[..2].parse().ok()?)));
    let out = Topic::<String, String>::plain("out");
    let mut app = App::new("a");
    app.source(&topic)
        .on_error(ErrorPolicy::dead_letter("letters"))
        .to(&out);
    let mut driver = TestDriver::new(app);
    for value in ["10 a", "x", "20 b"] {
        driver.pipe(&topic, "k", value);
    }
    let values = driver.read_pairs(&out).into_iter().map(|it| it.1);
    assert_eq!(values.collect::<Vec<_>>(), ["10 a", "20 b"]);
    let letters = driver.read_pairs(&Topic::<String, String>::plain("letters"));
    assert_eq!(letters, [("k".to_owned(), "x".to_owned())]);
}

#[test]
fn an_erased_topic_keeps_its_time() {
    let out = Topic::<String, String>::plain("out");
    let topic = readings("in").erased();
    let mut app = App::new("a");
    app.source(&topic).to(&out);
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, "in", &["10 a"]);
    assert_eq!(driver.read(&out)[0].timestamp, Timestamp(10));
}
