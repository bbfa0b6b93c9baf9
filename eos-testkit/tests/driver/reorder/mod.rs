//! Records in order of time or number, with a crash at every effect.

mod by_number;
mod declarations;
mod room;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eos_core::reorder::{OnGap, Reorder, Reordered};
use eos_core::state::{ReorderStore, WindowStore};
use eos_core::timers::Clock;
use eos_core::windows::Tumbling;
use eos_core::{
    App, ErrorPolicy, Failure, KeyValueStore, PlainTopic, Record, Stream, Timestamp, Topic,
    ValuesCtx,
};
use eos_testkit::rng::Rng;
use eos_testkit::{Input, TestDriver, crash_everywhere};

/// The time at which the clock of a test begins.
const BEGIN: i64 = 1_704_067_200_000;

type Texts = PlainTopic<String, String>;
type Order = Reordered<String, String>;

fn topic(name: &str) -> Texts {
    Topic::plain(name)
}

fn input() -> Texts {
    topic("in")
}

fn output() -> Texts {
    topic("out")
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn waiting() -> ReorderStore<String, String> {
    ReorderStore::plain("waiting")
}

fn app_with(
    policy: ErrorPolicy,
    order: impl FnOnce(Stream<String, String>) -> Order,
    behind: impl FnOnce(Order) -> Stream<String, String>,
) -> App {
    let mut app = App::new("a");
    let source = app.source(&input()).on_error(policy);
    behind(order(source)).to(&output());
    app
}

fn by_time(stream: Stream<String, String>) -> Order {
    stream.reorder_by_time(ms(100), &waiting())
}

/// The number is the value up to a space.
#[expect(clippy::ptr_arg, reason = "passed as a closure of values")]
fn number(value: &String) -> u64 {
    let number = value.split(' ').next();
    number.and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn settings(on_gap: OnGap) -> Reorder {
    Reorder::max_gap(5)
        .max_wait(ms(100), Clock::Stream)
        .on_gap(on_gap)
}

fn by_number(on_gap: OnGap) -> impl Fn(Stream<String, String>) -> Order {
    move |stream| stream.reorder_by(number, settings(on_gap), &waiting())
}

/// Pipes values of the key `k` with their times in milliseconds after the begin.
fn pipe(driver: &mut TestDriver, records: &[(&str, i64)]) {
    for (value, at) in records {
        driver.pipe_at(&input(), "k", *value, Timestamp(BEGIN + at));
    }
}

fn read(driver: &mut TestDriver, name: &str) -> Vec<String> {
    let records = driver.read_pairs(&topic(name)).into_iter();
    records.map(|(_, value)| value).collect()
}

fn out(driver: &mut TestDriver) -> Vec<String> {
    read(driver, "out")
}

fn failing(driver: &mut TestDriver, value: &str, at: i64) -> String {
    let record = Input::<String, String>::new("k", value).at(Timestamp(BEGIN + at));
    driver.try_pipe(&input(), record).unwrap_err().to_string()
}

/// Counts records in windows of 10 ms with this grace, in milliseconds.
fn counted(stream: Stream<String, String>, grace: u64) {
    stream
        .group_by_key()
        .windowed_by(Tumbling::of(ms(10)).grace(ms(grace)))
        .count(&WindowStore::plain("counts"))
        .to_stream()
        .without_windows()
        .map(|count| count.to_string())
        .to(&output());
}

#[test]
fn records_come_out_by_time_and_arrival() {
    let start = || TestDriver::new(app_with(ErrorPolicy::fail(), by_time, Order::ordered));
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[("c", 50), ("a", 10), ("b1", 20), ("b2", 20), ("d", 110)],
        );
        let before = out(driver);
        driver.rebalance();
        // At exactly 100 ms behind, a record is in order.
        pipe(driver, &[("b3", 20), ("e", 120), ("b4", 20), ("f", 400)]);
        (before, out(driver))
    };
    let mut driver = start();
    let (before, after) = scenario(&mut driver);
    assert_eq!(before, ["a"]);
    assert_eq!(after, ["b1", "b2", "b3", "b4", "c", "d", "e"]);
    assert_eq!(driver.store(&waiting()).len(), 1, "f waits");
    let places = crash_everywhere(start, scenario);
    assert!(places > 30, "{places}");
}

#[test]
fn a_record_keeps_its_key_time_and_headers_while_it_waits() {
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), by_time, Order::ordered));
    let record = Input::<String, String>::new("x", "a").at(Timestamp(BEGIN));
    driver.pipe_input(&input(), record.header("h", b"1").header("h", b"2"));
    driver.crash();
    pipe(&mut driver, &[("b", 100)]);
    let found = driver.read(&output());
    let found = &found[..];
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].key[..], &found[0].value[..]), ("x", "a"));
    assert_eq!(found[0].timestamp, Timestamp(BEGIN));
    let headers: Vec<_> = found[0].headers.iter().map(|it| it.value()).collect();
    assert_eq!(headers, [Some(&b"1"[..]), Some(&b"2"[..])]);
}

/// The record that ended the wait may be of another topic.
#[test]
fn a_record_keeps_its_topic_and_offset_while_it_waits() {
    let mut found = Vec::new();
    for order in [|it| by_time(it), |it| by_number(OnGap::PassOn)(it)] as [fn(_) -> Order; 2] {
        let mut app = App::new("a");
        let both = app.source(&input()).merge(app.source(&topic("in2")));
        order(both)
            .pass_late()
            .ordered()
            .process(|ctx, record| {
                let at = (ctx.topic(), ctx.offset(), ctx.source().timestamp);
                ctx.forward(record.key, format!("{} {at:?}", record.value))
            })
            .to(&output());
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, &[("0", 0)]);
        for (value, at) in [("2", 2), ("3", 3)] {
            driver.pipe_at(&topic("in2"), "k", value, Timestamp(BEGIN + at));
        }
        pipe(&mut driver, &[("1", 1), ("9", 500)]);
        let mut records = out(&mut driver);
        records.truncate(4);
        found.push(records);
    }
    assert_eq!(found[0], found[1]);
    let places = found[0].iter().map(|it| it.split_once('(').unwrap().1);
    let places: Vec<&str> = places
        .map(|it| it.split(", Some").next().unwrap())
        .collect();
    assert_eq!(
        places,
        [
            "\"in\", Offset(0)",
            "\"in\", Offset(1)",
            "\"in2\", Offset(0)",
            "\"in2\", Offset(1)"
        ]
    );
    assert!(found[0][2].contains(&(BEGIN + 2).to_string()), "{found:?}");
}

#[test]
fn a_late_record_fails_or_goes_elsewhere_or_passes() {
    let records = [("a", 0), ("b", 200), ("late", 99), ("c", 300)];
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), by_time, Order::ordered));
    pipe(&mut driver, &records[..2]);
    let text = failing(&mut driver, "late", 99);
    assert!(
        text.contains("is 101ms behind stream time, and records wait for 100ms (store waiting)"),
        "{text}"
    );
    let late = |change: fn(Order) -> Order| {
        let app = app_with(ErrorPolicy::fail(), by_time, |it| change(it).ordered());
        let mut driver = TestDriver::new(app);
        pipe(&mut driver, &records);
        assert_eq!(driver.metrics().unwrap().totals.late_records, 1);
        driver
    };
    assert_eq!(out(&mut late(Order::pass_late)), ["a", "late", "b"]);
    assert_eq!(out(&mut late(Order::drop_late)), ["a", "b"]);
    let mut driver = late(|it| it.late_to(&topic("late")));
    assert_eq!(out(&mut driver), ["a", "b"]);
    assert_eq!(read(&mut driver, "late"), ["late"]);
}

#[test]
fn a_record_without_a_time_fails() {
    let mut driver = TestDriver::new(app_with(ErrorPolicy::fail(), by_time, Order::ordered));
    let record = Input::<String, String>::new("k", "a").at(Timestamp(-1));
    let text = driver.try_pipe(&input(), record).unwrap_err().to_string();
    assert!(text.contains("the record has no timestamp"), "{text}");
}

/// A record of the far future would wait until its time. The time may be that of the input record, or one that a step
/// in front has set.
#[test]
fn a_record_of_the_far_future_fails() {
    let far = 2 * 3_600_000;
    let app = || {
        let mut app = App::new("a");
        let source = app
            .source(&input())
            .on_error(ErrorPolicy::dead_letter("letters"));
        let timed = source.process_values(move |ctx, record| {
            let ahead = if record.value == "set" { far } else { 0 };
            let time = record.timestamp.map(|it| Timestamp(it.0 + ahead));
            ctx.forward_record(record.at(time.unwrap_or_default()))
        });
        by_time(timed).ordered().to(&output());
        app
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(
            driver,
            &[
                ("far", far),
                ("b", 20),
                ("set", 30),
                ("a", 10),
                ("end", 500),
            ],
        );
        (read(driver, "letters"), out(driver))
    };
    let (letters, ordered) = scenario(&mut TestDriver::new(app()));
    assert_eq!(letters, ["far", "set"]);
    assert_eq!(ordered, ["a", "b"]);
    crash_everywhere(|| TestDriver::new(app()), scenario);
}

/// §9 C1: a jump of stream time makes all waiting records due. None of them is expired, also not by a crash between
/// the transactions that release them.
#[test]
fn a_jump_of_time_releases_all_that_wait() {
    let start = || TestDriver::new(app_with(ErrorPolicy::fail(), by_time, Order::ordered));
    let scenario = |driver: &mut TestDriver| {
        let early: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
        let of = |value: &str, at: i64| {
            Input::<String, String>::new("k", value).at(Timestamp(BEGIN + at))
        };
        driver.pipe_all(
            &input(),
            early
                .iter()
                .rev()
                .map(|it| of(it, it.parse::<i64>().unwrap() - 14 * 3_600_000))
                .collect::<Vec<_>>(),
        );
        pipe(driver, &[("jump", 0)]);
        out(driver)
    };
    let expected: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
    assert_eq!(scenario(&mut start()), expected);
    crash_everywhere(start, scenario);
}

/// If a waiting record fails, neither the record that advanced time nor the others are lost.
#[test]
fn a_waiting_record_that_fails_goes_to_the_policy_alone() {
    let bad = |value: String| match value.contains("bad") {
        true => Err(Failure::from("bad value")),
        false => Ok(value),
    };
    let start = move |policy: ErrorPolicy, order: fn(Stream<String, String>) -> Order| {
        TestDriver::new(app_with(policy, order, move |it| it.ordered().try_map(bad)))
    };
    let timed = [("2", 20), ("1 bad", 10), ("3", 30), ("4", 300)];
    let mut driver = start(ErrorPolicy::skip(), by_time);
    pipe(&mut driver, &timed);
    assert_eq!(out(&mut driver), ["2", "3"]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
    crash_everywhere(
        || start(ErrorPolicy::skip(), by_time),
        |driver| {
            pipe(driver, &timed);
            out(driver)
        },
    );

    let mut driver = start(ErrorPolicy::fail(), by_time);
    pipe(&mut driver, &timed[..3]);
    let text = failing(&mut driver, "4", 300);
    assert!(
        text.contains("a record that waited in the store waiting until")
            && text.contains("bad value"),
        "{text}"
    );

    // The dead letter is the waiting record, with its own origin.
    let mut driver = start(ErrorPolicy::dead_letter("letters"), by_time);
    pipe(&mut driver, &timed);
    let letters = driver.read(&topic("letters"));
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].key[..], &letters[0].value[..]), ("k", "1 bad"));
    assert_eq!(letters[0].timestamp, Timestamp(BEGIN + 10));
    let header = |name: &str| {
        let found = letters[0].headers.get(name).unwrap_or_default();
        String::from_utf8_lossy(found).into_owned()
    };
    let origin = ["topic", "offset"].map(|it| header(&format!("__streams.errors.{it}")));
    assert_eq!(origin, ["in", "1"], "{:?}", letters[0].headers);

    // By number: 2 waits for 1, and fails when 1 comes. Both 1 and 3 pass.
    let numbered = |it| by_number(OnGap::PassOn)(it);
    let records = [("2 bad", 0), ("3", 1), ("0", 2), ("1", 3), ("4", 4)];
    let mut driver = start(ErrorPolicy::skip(), numbered);
    pipe(&mut driver, &records);
    assert_eq!(out(&mut driver), ["0", "1", "3", "4"]);
    crash_everywhere(
        || start(ErrorPolicy::skip(), numbered),
        |driver| {
            pipe(driver, &records);
            out(driver)
        },
    );
}

/// §2.9: with any order within the wait, the final state is that of the sorted input, also with a crash.
#[test]
fn a_hundred_shuffles_end_in_one_state() {
    const KEYS: [&str; 3] = ["k", "l", "m"];
    let text = || KeyValueStore::<String, String>::plain("text");
    let start = |by: u32| {
        let mut app = App::new("a");
        let source = app.source(&input());
        let ordered = match by {
            0 => by_time(source).ordered(),
            _ => {
                let settings = Reorder::max_gap(100).max_wait(ms(100_000), Clock::Stream);
                let settings = settings.on_gap(OnGap::Fail);
                source.reorder_by(number, settings, &waiting()).ordered()
            }
        };
        ordered
            .group_by_key()
            .reduce(&text(), |before, next| chained(&before, &next))
            .to(&output());
        TestDriver::new(app)
    };
    let run = |by: u32, records: &[(i64, i64, &str)], crash: Option<u64>| {
        let mut driver = start(by);
        let begun = driver.effects();
        if let Some(effect) = crash {
            driver.crash_at_effect(effect);
        }
        let of = |(at, n, key): &(i64, i64, &str)| {
            Input::<String, String>::new(*key, format!("{n} {key}")).at(Timestamp(BEGIN + at))
        };
        driver.pipe_all(&input(), records.iter().map(of));
        // It ends the waits of the others.
        let end = Input::<String, String>::new("end", "0 end").at(Timestamp(BEGIN + 10_000));
        driver.pipe_input(&input(), end);
        let mut rows = driver.store(&text()).into_map();
        rows.remove("end");
        (rows, driver.effects() - begun, driver.crashes())
    };
    let expected = KEYS.map(|key| {
        let values = (0..40).map(|n| format!("{n} {key}"));
        let state = values.reduce(|before, next| chained(&before, &next));
        (key.to_owned(), state.unwrap())
    });
    let expected = BTreeMap::from(expected);
    let sorted: Vec<_> = (0..40)
        .flat_map(|n| KEYS.map(|key| (n * 7, n, key)))
        .collect();
    for by in [0, 1] {
        let (state, effects, _) = run(by, &sorted, None);
        assert_eq!(state, expected, "{by}: sorted");
        let half = usize::try_from(effects).unwrap() / 2;
        for seed in 0..100_u64 {
            let mut rng = Rng::new(seed);
            let mut records = sorted.clone();
            // A record that is put behind another one by less than the wait is at most this late.
            records.sort_by_cached_key(|(at, ..)| at + rng.between(0, 95));
            // A shuffle has at least as many effects as the sorted input.
            let crash = seed.is_multiple_of(4).then(|| 1 + rng.below(half) as u64);
            let (state, _, crashes) = run(by, &records, crash);
            assert_eq!(state, expected, "{by}: seed {seed}, crash {crash:?}");
            assert_eq!(crashes, u32::from(crash.is_some()), "{by}: seed {seed}");
        }
    }
}

/// Adds a value to a state that depends on the order of all values.
fn chained(before: &str, next: &str) -> String {
    format!("{:08x} {next}", fnv(before))
}

fn fnv(text: &str) -> u32 {
    let hash = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, hash)
}

/// A table beside the order has the policy `fail`. This policy does not decide about the waiting records of the
/// other source.
#[test]
fn the_source_of_a_waiting_record_decides_about_it() {
    let start = || {
        let mut app = App::new("a");
        let prices = Topic::<String, Option<String>>::plain("prices");
        let prices = app.table(&prices, &KeyValueStore::plain("prices"));
        let source = app.source(&input());
        let source = source.on_error(ErrorPolicy::dead_letter("letters"));
        let ordered = by_number(OnGap::DeadLetter)(source).drop_late().ordered();
        let joined = ordered.left_join(&prices, |value, price: Option<String>| {
            format!("{value}{}", price.unwrap_or_default())
        });
        joined.to(&output());
        TestDriver::new(app)
    };
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &[("2", 0), ("0", 1), ("3 tick", 500), ("4", 501)]);
        (out(driver), read(driver, "letters"))
    };
    let (passed, letters) = scenario(&mut start());
    assert_eq!(
        (passed.join(" "), letters.join(" ")),
        ("0 3 tick 4".into(), "2".into())
    );
    crash_everywhere(start, scenario);
}

/// A record that is too far ahead is accepted if it ends a wait of its store. A due timer is no such wait.
#[test]
fn a_due_timer_makes_no_room_for_a_record_that_is_too_far_ahead() {
    let mut app = App::new("a");
    let bell = app.timer(&eos_core::Timer::<String>::event_time("bell"));
    let source = app.source(&input());
    let source = source.on_error(ErrorPolicy::dead_letter("letters"));
    let rings = source
        .on_timer(&bell, |ctx, due| ctx.forward(due.key, "ring".to_owned()))
        .process_values(
            move |ctx: &ValuesCtx<'_, String>, record: Record<&String, String>| {
                ctx.timer(&bell).set(record.key, Timestamp(BEGIN + 1))?;
                ctx.forward(record.value)
            },
        );
    let ordered = by_number(OnGap::DeadLetter)(rings).drop_late().ordered();
    ordered.to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&input(), "l", "0", Timestamp(BEGIN));
    pipe(&mut driver, &[("9", 10)]);
    assert_eq!(read(&mut driver, "letters"), ["9"], "it is too far ahead");
}

#[test]
fn another_order_over_waiting_records_does_not_start() {
    let version = Arc::new(AtomicU32::new(0));
    let next = Arc::clone(&version);
    let mut driver = TestDriver::of(move || match next.load(Ordering::Relaxed) {
        0 => app_with(ErrorPolicy::fail(), by_time, Order::ordered),
        _ => app_with(
            ErrorPolicy::fail(),
            by_number(OnGap::PassOn),
            Order::ordered,
        ),
    });
    pipe(&mut driver, &[("1", 0)]);
    version.store(1, Ordering::Relaxed);
    let restarted = catch_unwind(AssertUnwindSafe(|| driver.crash()));
    assert!(restarted.is_err());
    let text = driver.error().unwrap().to_string();
    assert!(
        text.contains("The store waiting belonged to `reorder_by_time`"),
        "{text}"
    );
}
