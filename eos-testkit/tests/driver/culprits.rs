//! Due items whose outputs abort their transactions.

use std::time::Duration;

use eos_core::{App, ErrorPolicy, PlainTopic, Timer, Timestamp, Topic};
use eos_testkit::{Input, TestDriver};

const MINUTE: i64 = 60_000;

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn first() -> Timer<String> {
    Timer::event_time("first")
}

/// Two steps with a timer each. A record's value is the minutes until the moments of its key, or no number. The brokers
/// refuse the output of the second moment of keys that begin with `bad`, and of records with the value `large`.
fn app(policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    let (first, second) = (
        app.timer(&first()),
        app.timer(&Timer::<String>::event_time("second")),
    );
    app.source(&input())
        .on_error(policy)
        .on_timer(&first, |ctx, due| ctx.forward(due.key, "first".to_owned()))
        .process_values(move |ctx, record| {
            if let Ok(after) = record.value.parse::<i64>() {
                let at = ctx.timestamp().map_or(0, |time| time.0) + after * MINUTE;
                ctx.timer(&first).set(record.key, Timestamp(at))?;
            }
            ctx.forward(record.value)
        })
        .on_timer(&second, |ctx, due| {
            let text = if due.key.starts_with("bad") {
                large()
            } else {
                "second".to_owned()
            };
            ctx.forward(due.key, text)
        })
        .process(move |ctx, record| {
            if let Ok(after) = record.value.parse::<i64>() {
                let at = record.timestamp.map_or(0, |time| time.0) + after * MINUTE;
                ctx.timer(&second).set(&record.key, Timestamp(at + 1))?;
            }
            match &*record.value {
                "large" => ctx.forward(record.key, large()),
                _ => ctx.forward_record(record),
            }
        })
        .to(&output());
    app
}

fn large() -> String {
    "x".repeat(3_000)
}

/// Starts an app and then lowers the limit of its output. The worker only knows the limit from its start, so the
/// brokers reject its records.
fn start(app: App) -> TestDriver {
    let driver = TestDriver::new(app);
    let set = driver
        .cluster()
        .broker(|broker| broker.configure_topic("out", "max.message.bytes", "2000"));
    set.unwrap();
    driver
}

fn records(records: &[(&str, &str, i64)]) -> Vec<Input<String, String>> {
    let record =
        |(key, value, at): &(&str, &str, i64)| Input::new(*key, *value).at(Timestamp(at * MINUTE));
    records.iter().map(record).collect()
}

fn own(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(own).collect()
}

/// H2 of the design.
#[test]
fn a_moment_whose_output_is_refused_is_found_among_others() {
    let mut driver = start(app(ErrorPolicy::skip()));
    let input_records = [
        ("a", "9", 0),
        ("bad", "9", 0),
        ("c", "9", 0),
        ("d", "", 20),
        ("e", "", 21),
    ];
    driver.pipe_all(&input(), records(&input_records));
    let out = [
        ("a", "9"),
        ("bad", "9"),
        ("c", "9"),
        ("d", ""),
        ("a", "first"),
        ("bad", "first"),
        ("c", "first"),
        ("a", "second"),
        ("c", "second"),
        ("e", ""),
    ];
    assert_eq!(driver.read_pairs(&output()), own(&out));
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

/// H1 of the design: the moment comes in the unit of the record, and its output aborts the transaction. The first
/// moment of the key and the record are innocent.
#[test]
fn a_record_is_not_skipped_for_a_moment_of_its_key_whose_output_is_refused() {
    let mut driver = start(app(ErrorPolicy::skip()));
    let input_records = [
        ("a", "", 0),
        ("bad", "9", 0),
        ("b", "", 1),
        ("bad", "x", 20),
        ("c", "", 21),
    ];
    driver.pipe_all(&input(), records(&input_records));
    let out = [
        ("a", ""),
        ("bad", "9"),
        ("b", ""),
        ("bad", "first"),
        ("bad", "x"),
        ("c", ""),
    ];
    assert_eq!(driver.read_pairs(&output()), own(&out));
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
    assert!(driver.timers(&first()).is_empty());
}

/// The other way round: the record is at fault, and the moments of its key are not lost with it.
#[test]
fn a_record_whose_output_is_refused_costs_no_moment_of_its_key() {
    let mut driver = start(app(ErrorPolicy::skip()));
    let input_records = [
        ("a", "9", 0),
        ("b", "", 1),
        ("a", "large", 20),
        ("c", "", 21),
        ("d", "", 22),
    ];
    driver.pipe_all(&input(), records(&input_records));
    let out = [
        ("a", "9"),
        ("b", ""),
        ("a", "first"),
        ("a", "second"),
        ("c", ""),
        ("d", ""),
    ];
    assert_eq!(driver.read_pairs(&output()), own(&out));
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

#[test]
fn a_moment_in_the_unit_of_a_record_leaves_its_own_dead_letter() {
    let mut driver = start(app(ErrorPolicy::dead_letter("dlq")));
    driver.pipe_all(&input(), records(&[("bad", "9", 0), ("bad", "x", 20)]));
    let out = [("bad", "9"), ("bad", "first"), ("bad", "x")];
    assert_eq!(driver.read_pairs(&output()), own(&out));
    let letters = driver.read(&Topic::<String, Option<String>>::plain("dlq"));
    assert_eq!(letters.len(), 1);
    let due = letters[0].headers.get("eos-due").map(<[u8]>::to_vec);
    assert_eq!(due, Some(format!("second {}", 9 * MINUTE + 1).into_bytes()));
}

#[test]
fn without_a_policy_the_error_names_the_moment_and_not_the_record() {
    let mut driver = start(app(ErrorPolicy::fail()));
    driver.pipe_input(&input(), records(&[("bad", "9", 0)]).remove(0));
    let later = records(&[("bad", "x", 20)]).remove(0);
    let error = driver.try_pipe(&input(), later).unwrap_err().to_string();
    assert!(
        error.contains("timer second") && error.contains("\"bad\""),
        "{error}"
    );
}

/// After an abort other items may come first: a record sets a moment of the machine's clock that is earlier than the
/// one that aborts. The search for the culprit must not take it for this one.
#[test]
fn a_moment_that_aborts_is_not_taken_for_an_earlier_one_that_comes_in_between() {
    for early in 0..12 {
        let timer = Timer::<String>::wall_clock("timer");
        let mut app = App::new("a");
        let handle = app.timer(&timer);
        app.source(&input())
            .on_error(ErrorPolicy::skip())
            .on_timer(&handle, |ctx, due| {
                let text = if due.key == "bad" {
                    large()
                } else {
                    "due".to_owned()
                };
                ctx.forward(due.key, text)
            })
            .process(move |ctx, record| match &*record.value {
                "later" => ctx
                    .timer(&handle)
                    .set_in(&record.key, Duration::from_secs(5)),
                "early" => ctx.timer(&handle).set(&record.key, Timestamp(0)),
                _ => Ok(()),
            })
            .to(&output());
        let mut driver = start(app);
        driver.pipe(&input(), "bad", "later");
        driver.kill();
        driver.advance_wall_clock(Duration::from_secs(10));
        for n in 0..12 {
            let value = if n == early { "early" } else { "" };
            let record = Input::<String, String>::new(format!("k{n:02}"), value);
            driver.try_pipe(&input(), record).unwrap();
        }
        driver.restart();
        driver.advance_wall_clock(Duration::from_secs(1));
        let due = [(format!("k{early:02}"), "due".to_owned())];
        assert_eq!(driver.read_pairs(&output()), due, "record {early} sets it");
        assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
        assert!(driver.timers(&timer).is_empty());
    }
}
