//! The three guarantees. The tests run the same app, and check which records a crash may repeat or lose.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eos_core::identity::{HighWatermarks, SeenIds, Sequence, Versions};
use eos_core::reorder::{OnGap, Reorder};
use eos_core::state::{ReorderStore, WindowStore};
use eos_core::timers::Clock;
use eos_core::windows::Tumbling;
use eos_core::{
    App, Backoff, ErrorPolicy, Failure, Guarantee, KeyValueStore, PlainTopic, Stream, Timer,
    Timestamp, Topic,
};
use eos_testkit::{Input, TestDriver, crash_everywhere};

const ALL: [Guarantee; 3] = [
    Guarantee::ExactlyOnce,
    Guarantee::AtLeastOnce,
    Guarantee::AtMostOnce,
];

fn clicks() -> PlainTopic<String, String> {
    Topic::plain("clicks")
}

fn totals() -> PlainTopic<String, u64> {
    Topic::plain("totals")
}

fn copies() -> PlainTopic<String, String> {
    Topic::plain("copies")
}

fn counts() -> KeyValueStore<String, u64> {
    KeyValueStore::plain("counts")
}

fn counting(guarantee: Guarantee) -> App {
    let mut app = App::new("clicks-v1");
    app.guarantee(guarantee);
    app.source(&clicks())
        .group_by_key()
        .count(&counts())
        .to(&totals());
    app
}

fn copying(guarantee: Guarantee) -> App {
    let mut app = App::new("copy-v1");
    app.guarantee(guarantee);
    app.source(&clicks()).to(&copies());
    app
}

/// Six records in bursts, so that a crash finds some of them taken and others not.
fn pipe(driver: &mut TestDriver) {
    let burst = |values: [&str; 3]| values.map(|value| ("a".to_owned(), value.to_owned()));
    driver.pipe_all(&clicks(), burst(["0", "1", "2"]));
    driver.pipe_all(&clicks(), burst(["3", "4", "5"]));
}

fn copied(driver: &mut TestDriver) -> Vec<String> {
    let pairs = driver.read_pairs(&copies()).into_iter();
    pairs.map(|(_, value)| value).collect()
}

fn count(driver: &TestDriver) -> u64 {
    driver.store(&counts()).get("a").copied().unwrap_or(0)
}

/// Runs a scenario with a crash at each effect. Returns the number of crashes.
fn at_each_effect(app: fn() -> App, check: impl Fn(&mut TestDriver, u64)) -> u64 {
    let mut driver = TestDriver::new(app());
    let begun = driver.effects();
    pipe(&mut driver);
    let effects = driver.effects() - begun;
    for effect in 1..=effects {
        let mut driver = TestDriver::new(app());
        driver.crash_at_effect(effect);
        pipe(&mut driver);
        // A cycle of effects may be shorter after a crash.
        assert!(driver.crashes() > 0, "effect {effect} of {effects}");
        check(&mut driver, effect);
    }
    effects
}

#[test]
fn without_a_crash_all_guarantees_have_one_result() {
    for guarantee in ALL {
        let mut driver = TestDriver::new(copying(guarantee));
        pipe(&mut driver);
        assert_eq!(copied(&mut driver), ["0", "1", "2", "3", "4", "5"]);
    }
}

#[test]
fn a_rebalance_repeats_and_loses_nothing_at_most_once() {
    let mut driver = TestDriver::builder()
        .partitions("clicks", 3)
        .start(copying(Guarantee::AtMostOnce));
    driver.add_instance();
    pipe(&mut driver);
    driver.remove_instance();
    driver.pipe(&clicks(), "b", "6");
    driver.rebalance();
    driver.pipe(&clicks(), "c", "7");
    driver.advance_wall_clock(Duration::from_secs(2));
    let mut found = copied(&mut driver);
    found.sort();
    assert_eq!(found, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn at_most_once_a_crash_at_any_effect_repeats_no_record() {
    let lost = AtomicUsize::new(0);
    let effects = at_each_effect(
        || copying(Guarantee::AtMostOnce),
        |driver, effect| {
            driver.pipe(&clicks(), "a", "6");
            let found = copied(driver);
            let mut once = found.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), found.len(), "effect {effect}: {found:?}");
            assert!(
                found.contains(&"6".to_owned()),
                "effect {effect}: {found:?}"
            );
            // A crash loses at most the claimed records: one burst.
            assert!(found.len() >= 4, "effect {effect}: {found:?}");
            lost.fetch_add(7 - found.len(), Ordering::Relaxed);
        },
    );
    assert!(effects > 4);
    assert!(
        lost.into_inner() > 0,
        "no crash came between offset and output"
    );
}

#[test]
fn at_least_once_a_crash_at_any_effect_may_count_twice_and_loses_nothing() {
    let repeated = AtomicUsize::new(0);
    at_each_effect(
        || counting(Guarantee::AtLeastOnce),
        |driver, effect| {
            let found = count(driver);
            assert!((6..=9).contains(&found), "effect {effect}: {found}");
            repeated.fetch_add(usize::from(found > 6), Ordering::Relaxed);
            // The changelog must contain at least the content of the database.
            driver.crash_and_lose_state();
            let rebuilt = count(driver);
            assert!(rebuilt >= found, "effect {effect}: {rebuilt} after {found}");
            driver.pipe(&clicks(), "a", "6");
            assert_eq!(count(driver), rebuilt + 1, "effect {effect}");
            let outputs = driver.read_pairs(&totals());
            assert!(outputs.len() >= 7, "effect {effect}: {outputs:?}");
        },
    );
    // A kept database is not ahead of its offsets, so only a lost one repeats counts.
    let repeated = repeated.into_inner();
    assert_eq!(repeated, 0);
}

#[test]
fn at_least_once_a_database_that_is_lost_in_the_crash_may_be_ahead_of_the_offsets() {
    let ahead = AtomicUsize::new(0);
    crash_everywhere(
        || TestDriver::new(counting(Guarantee::AtLeastOnce)),
        |driver| {
            pipe(driver);
            let found = count(driver);
            ahead.fetch_add(usize::from(found > 6), Ordering::Relaxed);
            let outputs = driver.read_pairs(&totals()).len();
            ((6..=9).contains(&found), outputs >= 6)
        },
    );
    assert!(
        ahead.into_inner() > 0,
        "no crash came between changelog and offsets"
    );
}

/// Emits the final count of each key in windows of 10 ms.
fn closing() -> App {
    let mut app = App::new("windows-v1");
    app.guarantee(Guarantee::AtLeastOnce);
    app.source(&clicks())
        .group_by_key()
        .windowed_by(Tumbling::of(Duration::from_millis(10)))
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .without_windows()
        .to(&totals());
    app
}

/// Copies each record. A number is the moment of its key, at which the timer writes another record.
fn ringing() -> App {
    let mut app = App::new("timers-v1");
    app.guarantee(Guarantee::AtLeastOnce);
    let bell = app.timer(&Timer::<String>::event_time("bell"));
    app.source(&clicks())
        .on_timer(&bell, |ctx, due| {
            ctx.forward(due.key, format!("due at {}", due.at.0))
        })
        .process(move |ctx, record| {
            if let Ok(at) = record.value.parse::<i64>() {
                ctx.timer(&bell).set(&record.key, Timestamp(at))?;
            }
            ctx.forward(record.key, record.value)
        })
        .to(&copies());
    app
}

/// Pipes key, value and time of records that share a transaction.
fn pipe_timed(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    let timed = |(key, value, at): &(&str, &str, i64)| {
        Input::<String, String>::new(*key, *value).at(Timestamp(*at))
    };
    driver.pipe_all(&clicks(), records.iter().map(timed));
}

/// Runs the scenario, which returns the missing outputs, with a crash at each effect. `repeated` are the outputs that
/// it found more than once.
fn loses_nothing<T: Debug + PartialEq>(
    app: fn() -> App,
    scenario: impl Fn(&mut TestDriver) -> Vec<T>,
    repeated: &AtomicUsize,
) {
    let missing = scenario(&mut TestDriver::new(app()));
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(repeated.load(Ordering::Relaxed), 0, "no crash at an effect");
    let places = crash_everywhere(|| TestDriver::new(app()), scenario);
    assert!(places > 20, "{places}");
    assert!(
        repeated.load(Ordering::Relaxed) > 0,
        "no crash came between output and offsets"
    );
}

/// The output of a closed window is acknowledged before the changelog has the cursor behind the window. In the other
/// order, a crash would lose the result.
#[test]
fn at_least_once_a_crash_at_any_effect_loses_no_result_of_a_closed_window() {
    // Key, the time of the last record in the window, and count.
    let expected = [
        ("a", 3, 2),
        ("b", 2, 1),
        ("a", 12, 1),
        ("b", 13, 1),
        ("c", 40, 1),
    ];
    let repeated = AtomicUsize::new(0);
    let scenario = |driver: &mut TestDriver| {
        pipe_timed(driver, &[("a", "", 1), ("b", "", 2), ("a", "", 3)]);
        driver.crash_and_lose_state();
        pipe_timed(driver, &[("a", "", 12), ("b", "", 13)]);
        pipe_timed(driver, &[("c", "", 40)]);
        pipe_timed(driver, &[("d", "", 60)]);
        let found = driver.read(&totals());
        let more = found.len().saturating_sub(expected.len());
        repeated.fetch_add(more, Ordering::Relaxed);
        // The one crash may count a record twice.
        let is_in = |(key, at, count): &(&str, i64, u64)| {
            let of_window = found.iter().filter(|it| it.key == *key);
            let mut of_window = of_window.filter(|it| it.timestamp.0 == *at);
            of_window.any(|it| (*count..=2 * count).contains(&it.value))
        };
        let missing = expected.into_iter().filter(|it| !is_in(it));
        missing.collect::<Vec<_>>()
    };
    loses_nothing(closing, scenario, &repeated);
}

/// The output of a timer is acknowledged before the changelog has lost its moment.
#[test]
fn at_least_once_a_crash_at_any_effect_loses_no_output_of_a_timer() {
    let expected = [
        ("a", "10"),
        ("b", "15"),
        ("c", "x"),
        ("d", "20"),
        ("e", "x"),
        ("f", "x"),
        ("a", "due at 10"),
        ("b", "due at 15"),
        // The moment of `d` is set and fires in one transaction.
        ("d", "due at 20"),
    ];
    let repeated = AtomicUsize::new(0);
    let scenario = |driver: &mut TestDriver| {
        pipe_timed(driver, &[("a", "10", 1), ("b", "15", 2)]);
        driver.crash_and_lose_state();
        pipe_timed(driver, &[("c", "x", 12), ("d", "20", 13), ("e", "x", 30)]);
        pipe_timed(driver, &[("f", "x", 31)]);
        let found = driver.read_pairs(&copies());
        let more = found.len().saturating_sub(expected.len());
        repeated.fetch_add(more, Ordering::Relaxed);
        let is_in = |(key, value): &(&str, &str)| {
            let mut found = found.iter();
            found.any(|(its_key, its_value)| its_key == key && its_value == value)
        };
        let missing = expected.into_iter().filter(|it| !is_in(it));
        missing.collect::<Vec<_>>()
    };
    loses_nothing(ringing, scenario, &repeated);
}

/// The app under the guarantee that is set when its process starts.
fn switching() -> (TestDriver, impl Fn(&mut TestDriver, Guarantee)) {
    let at = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&at);
    let app = move || counting(ALL[current.load(Ordering::Relaxed)]);
    let driver = TestDriver::of(app);
    let switch = move |driver: &mut TestDriver, to: Guarantee| {
        let to = ALL.iter().position(|one| *one == to).unwrap();
        at.store(to, Ordering::Relaxed);
        // One instance after the other, as in a rolling upgrade.
        driver.add_instance();
        driver.remove_instance();
    };
    (driver, switch)
}

#[test]
fn a_switch_of_the_guarantee_is_a_rolling_upgrade() {
    let (mut driver, switch) = switching();
    let mut expected = 0;
    for guarantee in [
        Guarantee::ExactlyOnce,
        Guarantee::AtLeastOnce,
        Guarantee::ExactlyOnce,
        Guarantee::AtLeastOnce,
    ] {
        switch(&mut driver, guarantee);
        pipe(&mut driver);
        expected += 6;
        assert_eq!(count(&driver), expected, "{guarantee:?}");
        driver.crash();
        assert_eq!(count(&driver), expected, "{guarantee:?}, restarted");
        driver.crash_and_lose_state();
        assert_eq!(count(&driver), expected, "{guarantee:?}, rebuilt");
    }
}

/// A record that waits for its retry is not claimed. Once the wait is over, it is.
#[test]
fn at_most_once_a_failed_record_is_tried_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tries);
    let mut app = App::new("a");
    app.guarantee(Guarantee::AtMostOnce);
    let retry = ErrorPolicy::retry(5, Backoff::fixed(Duration::from_secs(1)));
    app.source(&clicks())
        .on_error(retry)
        .try_map(move |value| match seen.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(Failure::from("down")),
            _ => Ok(value),
        })
        .to(&copies());
    let mut driver = TestDriver::new(app);
    driver.pipe(&clicks(), "k", "1");
    driver.pipe(&clicks(), "k", "2");
    assert_eq!(copied(&mut driver), ["1", "2"]);
    assert_eq!(tries.load(Ordering::Relaxed), 5);
}

#[track_caller]
fn refused(app: &App) -> String {
    app.describe().unwrap_err().to_string()
}

#[test]
fn state_at_most_once_is_a_build_error_that_names_the_step_and_the_fix() {
    let error = refused(&counting(Guarantee::AtMostOnce));
    assert!(
        error.starts_with("the step `count` keeps state in counts"),
        "{error}"
    );
    assert!(error.contains("Use Guarantee::AtLeastOnce or Guarantee::ExactlyOnce"));
    assert!(TestDriver::build(counting(Guarantee::AtMostOnce)).is_err());
}

#[test]
fn deduplication_needs_exactly_once() {
    let app = |guarantee| {
        let mut app = App::new("a");
        app.guarantee(guarantee);
        let seen = SeenIds::<String>::fixed("seen", Duration::from_secs(60));
        let dedup = app.source(&clicks()).dedup(&seen);
        dedup
            .duplicates_to(&Topic::plain("repeated"))
            .by(String::clone)
            .to(&copies());
        app
    };
    for (guarantee, text) in [
        (
            Guarantee::AtLeastOnce,
            "the step `dedup` remembers records in seen",
        ),
        (
            Guarantee::AtMostOnce,
            "the step `dedup` keeps state in seen",
        ),
    ] {
        let error = refused(&app(guarantee));
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn sequences_versions_and_orders_need_exactly_once() {
    type Step = fn(Stream<String, String>) -> Stream<String, String>;
    #[expect(clippy::ptr_arg, reason = "passed as a closure of values")]
    fn number(value: &String) -> u64 {
        value.len() as u64
    }
    fn waiting() -> ReorderStore<String, String> {
        ReorderStore::plain("rows")
    }
    let steps: [(&str, Step); 4] = [
        ("newest", |it| {
            it.newest(&Versions::new("rows"), number).accepted()
        }),
        ("dedup_by_sequence", |it| {
            let sequence = |value: &String| Sequence {
                producer: Some(value.clone()),
                epoch: 0,
                number: 0,
            };
            it.dedup_by_sequence(&HighWatermarks::new("rows"), sequence)
                .accepted()
        }),
        ("reorder_by_time", |it| {
            it.reorder_by_time(Duration::from_secs(1), &waiting())
                .ordered()
        }),
        ("reorder_by", |it| {
            let order = Reorder::max_gap(2)
                .max_wait(Duration::from_secs(1), Clock::Stream)
                .on_gap(OnGap::PassOn);
            it.reorder_by(number, order, &waiting()).ordered()
        }),
    ];
    for (name, step) in steps {
        let mut app = App::new("a");
        app.guarantee(Guarantee::AtLeastOnce);
        step(app.source(&clicks())).to(&copies());
        let error = refused(&app);
        let text = format!("the step `{name}` remembers records in rows");
        assert!(error.starts_with(&text), "{error}");
    }
    let mut app = App::new("a");
    app.guarantee(Guarantee::AtLeastOnce);
    app.on_error(ErrorPolicy::dead_letter("letters").in_sequence("parked"));
    app.source(&clicks()).to(&copies());
    let error = refused(&app);
    assert!(
        error.starts_with("the step `in_sequence` remembers records in parked"),
        "{error}"
    );
}

#[test]
fn describe_says_that_counts_may_repeat() {
    let mut driver = BTreeMap::new();
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let description = counting(guarantee).describe().unwrap();
        driver.insert(guarantee.name(), description.guarantees().to_string());
    }
    assert!(driver["at least once"].contains(
        "changes of counts are acknowledged before the offset commits and survive a restart, and a crash \
         in between counts the records twice"
    ));
    assert!(!driver["exactly once"].contains("twice"));
}
