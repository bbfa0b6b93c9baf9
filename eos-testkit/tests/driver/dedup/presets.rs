//! The presets, at the boundaries of their windows.

use std::time::Duration;

use eos_core::identity::presets::{self, Preset};
use eos_core::{App, ErrorPolicy, Timestamp};
use eos_testkit::{Input, TestDriver};

use super::{BEGIN, MINUTE, ids, input, output};

const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

fn app(preset: Preset<String, String>) -> App {
    let mut app = App::new("a");
    // The tests go ahead of the machine's clock.
    let preset = preset.configure(|seen| seen.trust_times());
    let source = app.source(&input()).on_error(ErrorPolicy::fail());
    source.dedup_as(preset).only_new().to(&output());
    app
}

fn record(headers: &[(&str, &str)], value: &str, at: i64) -> Input<String, String> {
    let mut record = Input::new("k", value).at(Timestamp(BEGIN + at));
    for (name, value) in headers {
        record = record.header(name, value);
    }
    record
}

/// Checks that a copy is dropped in the last millisecond of the window, and passes right after it.
#[track_caller]
fn check(preset: fn() -> Preset<String, String>, headers: &[(&str, &str)], window: i64) {
    let new = |again: i64| {
        let mut driver = TestDriver::new(app(preset()));
        driver.pipe_input(&input(), record(headers, "first", 0));
        driver.pipe_input(&input(), record(headers, "first", again));
        ids(&mut driver).len()
    };
    assert_eq!(new(window - 1), 1, "within the window");
    assert_eq!(new(window), 2, "after the window");
    // Only the id decides, and no other part of the record.
    let mut driver = TestDriver::new(app(preset()));
    for &(name, _) in headers {
        let mut other = headers.to_vec();
        let changed = other.iter_mut().find(|(it, _)| *it == name).unwrap();
        changed.1 = "other";
        driver.pipe_input(&input(), record(&other, "first", 0));
    }
    driver.pipe_input(&input(), record(headers, "first", 0));
    assert_eq!(ids(&mut driver).len(), headers.len() + 1);
    if !headers.is_empty() {
        let without = record(&[], "first", 1);
        assert!(driver.try_pipe(&input(), without).is_err(), "without an id");
    }
}

/// R36: 4:59 and 5:00.
#[test]
fn sqs_fifo() {
    check(
        || presets::sqs_fifo("seen"),
        &[("MessageDeduplicationId", "1")],
        5 * MINUTE,
    );
    // The same id in two groups.
    let mut driver = TestDriver::new(app(presets::sqs_fifo("seen")));
    for group in ["a", "b", "a"] {
        let record = Input::<String, String>::new(group, "v");
        driver.pipe_input(&input(), record.header("MessageDeduplicationId", "1"));
    }
    assert_eq!(ids(&mut driver).len(), 2);
}

/// R36: an id in the record wins over the hash of the value.
#[test]
fn sqs_fifo_with_content_based_deduplication() {
    let preset = || presets::sqs_fifo("seen").allow_identical_payloads_to_collapse();
    check(preset, &[], 5 * MINUTE);
    let mut driver = TestDriver::new(app(preset()));
    let id = |id| [("MessageDeduplicationId", id)];
    for (headers, value) in [
        (&id("1")[..], "a"),
        (&id("1"), "b"),
        (&id("2"), "a"),
        (&[], "a"),
        (&[], "a"),
    ] {
        driver.pipe_input(&input(), record(headers, value, 0));
    }
    assert_eq!(ids(&mut driver), ["a", "a", "a"]);
}

/// R37: the window of a queue is 20 seconds to 7 days.
#[test]
fn service_bus() {
    let ten_minutes = Duration::from_secs(600);
    let preset = move |window| presets::service_bus::<String, String>("seen", window);
    for (window, is_valid) in [
        (Duration::from_secs(19), false),
        (Duration::from_secs(20), true),
        (ten_minutes, true),
        (Duration::from_secs(7 * 86_400), true),
        (Duration::from_secs(7 * 86_400 + 1), false),
    ] {
        let described = app(preset(window)).describe();
        assert_eq!(described.is_ok(), is_valid, "{window:?}");
        if let Err(error) = described {
            let error = error.to_string();
            let reason = "but the preset accepts 20s to 604800s";
            assert!(error.contains(reason), "{error}");
        }
    }
    check(
        || presets::service_bus("seen", Duration::from_secs(20)),
        &[("MessageId", "1")],
        20_000,
    );
    check(
        || presets::service_bus("seen", Duration::from_secs(7 * 86_400)),
        &[("MessageId", "1")],
        7 * DAY,
    );
}

/// R38: 1:59 and 2:00.
#[test]
fn jetstream() {
    check(
        || presets::jetstream("seen"),
        &[("Nats-Msg-Id", "1")],
        2 * MINUTE,
    );
}

/// R43: messages that are published twice to Pub/Sub.
#[test]
fn pubsub() {
    check(
        || presets::pubsub("seen", "event-id"),
        &[("event-id", "1")],
        10 * MINUTE,
    );
}

/// R44.
#[test]
fn rabbitmq() {
    check(
        || presets::rabbitmq("seen", Duration::from_secs(3_600)),
        &[("message-id", "1")],
        HOUR,
    );
}

/// R59: an event comes again for three days.
#[test]
fn stripe() {
    check(
        || presets::stripe_event("seen", |event: &String| event.clone()),
        &[],
        7 * DAY,
    );
    check(
        || presets::stripe_key("seen"),
        &[("Idempotency-Key", "1")],
        DAY,
    );
}

/// R58: a notification comes again for four days.
#[test]
fn paypal_ipn() {
    let preset = || {
        presets::paypal_ipn("seen", |ipn: &String| {
            let (transaction, status) = ipn.split_once(' ').unwrap_or((ipn, "Completed"));
            (transaction.to_owned(), status.to_owned())
        })
    };
    check(preset, &[], 4 * DAY + HOUR);
    let mut driver = TestDriver::new(app(preset()));
    for ipn in ["1 Pending", "1 Completed", "1 Pending"] {
        driver.pipe_input(&input(), record(&[], ipn, 0));
    }
    driver.pipe_input(&input(), record(&[], "1 Completed", 4 * DAY - MINUTE));
    assert_eq!(ids(&mut driver), ["1 Pending", "1 Completed"]);
}

#[test]
fn outbox_id() {
    check(|| presets::outbox_id("seen"), &[("id", "1")], 7 * DAY);
}

#[test]
fn cloud_events() {
    check(
        || presets::cloud_events("seen", Duration::from_secs(3_600)),
        &[("ce_source", "/orders"), ("ce_id", "1")],
        HOUR,
    );
}

/// A broker accepts a message whose id it may have forgotten; a payment must not count twice.
#[test]
fn records_that_are_too_old_pass_where_a_broker_would_accept_them() {
    let old = |preset, header: &str| {
        let mut driver = TestDriver::new(app(preset));
        driver.pipe_input(&input(), record(&[(header, "1")], "now", 10 * DAY));
        driver
            .try_pipe(&input(), record(&[(header, "2")], "old", 0))
            .is_ok()
    };
    assert!(old(presets::sqs_fifo("seen"), "MessageDeduplicationId"));
    assert!(old(presets::jetstream("seen"), "Nats-Msg-Id"));
    assert!(old(presets::pubsub("seen", "id"), "id"));
    let hour = Duration::from_secs(3_600);
    assert!(old(presets::service_bus("seen", hour), "MessageId"));
    assert!(old(presets::rabbitmq("seen", hour), "message-id"));
    assert!(!old(presets::outbox_id("seen"), "id"));
    assert!(!old(presets::stripe_key("seen"), "Idempotency-Key"));
}
