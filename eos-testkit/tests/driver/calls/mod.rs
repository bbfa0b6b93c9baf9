//! Asynchronous calls, with a crash at every effect.

mod failures;
mod timers;

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use eos_core::calls::{Call, CallId};
use eos_core::{App, Backoff, Calls, ErrorPolicy, Failure, Guarantee, PlainTopic, Topic};
use eos_testkit::client::Written;
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn dead() -> PlainTopic<String, String> {
    Topic::plain("dead")
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Ends after this number of polls.
async fn polls(mut n: usize) {
    poll_fn(|_| {
        n = n.saturating_sub(1);
        match n {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
}

/// A service that logs its calls, and the values in the order in which calls begin and end.
#[derive(Debug, Clone, Default)]
struct Service(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The values by id.
    ids: BTreeMap<CallId, BTreeSet<String>>,
    begun: Vec<String>,
    ended: Vec<String>,
    running: usize,
    most: usize,
    /// The number of records that the steps in front of the calls have processed.
    admitted: usize,
    /// The most admitted records whose calls have not ended.
    most_ahead: usize,
    /// Whether a call of a `stuck` value has begun a second time.
    is_repeated: bool,
}

impl Service {
    /// Counts a record that is admitted.
    fn admits(&self, value: String) -> String {
        let mut seen = self.0.lock().unwrap();
        seen.admitted += 1;
        seen.most_ahead = seen.most_ahead.max(seen.admitted - seen.ended.len());
        value
    }

    /// Waits until a call of any `stuck` value begins a second time. The driver alone can't end such a call: only the
    /// repetition of a call does.
    async fn until_one_is_repeated(&self, value: &str) {
        {
            let mut seen = self.0.lock().unwrap();
            let begun = seen.begun.iter().filter(|it| *it == value).count();
            seen.is_repeated = seen.is_repeated || begun > 1;
        }
        poll_fn(|_| match self.seen(|it| it.is_repeated) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Serves a call after the number of polls that follows a colon in the value, as in `a:3`. Fails for `bad`, and
    /// panics for `panic`.
    async fn serve(self, call: Call<String, String>) -> Result<String, Failure> {
        let value = call.value.clone();
        {
            let mut seen = self.0.lock().unwrap();
            seen.ids.entry(call.id).or_default().insert(value.clone());
            seen.begun.push(value.clone());
            seen.running += 1;
            seen.most = seen.most.max(seen.running);
        }
        let n = value.split(':').nth(1).and_then(|n| n.parse().ok());
        polls(n.unwrap_or(1)).await;
        if value == "never" {
            return pending().await;
        }
        if value.starts_with("stuck") {
            self.until_one_is_repeated(&value).await;
        }
        {
            let mut seen = self.0.lock().unwrap();
            seen.running -= 1;
            seen.ended.push(value.clone());
        }
        match &value[..] {
            "bad" => Err("bad".into()),
            "panic" => panic!("at the disco"),
            _ => Ok(value.to_uppercase()),
        }
    }

    fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.lock().unwrap())
    }
}

fn app_with(service: &Service, calls: Calls, policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    let service = service.clone();
    app.source(&input())
        .on_error(policy)
        .map_async_record("serve", calls, move |call| service.clone().serve(call))
        .to(&output());
    app
}

fn app(service: &Service) -> App {
    app_with(service, Calls::at_once(4), ErrorPolicy::fail())
}

fn records(values: &[&str]) -> Vec<Input<String, String>> {
    let values = values.iter().zip(0..);
    values
        .map(|(value, n)| Input::new(format!("k{n}"), *value))
        .collect()
}

fn of_key(key: &str, values: impl IntoIterator<Item = String>) -> Vec<Input<String, String>> {
    let values = values.into_iter();
    values.map(|value| Input::new(key, value)).collect()
}

fn values(driver: &mut TestDriver) -> Vec<String> {
    let records = driver.read_pairs(&output()).into_iter();
    records.map(|(_, value)| value).collect()
}

#[test]
fn records_leave_in_order_although_calls_end_in_another() {
    let service = Service::default();
    let mut driver = TestDriver::new(app(&service));
    driver.pipe_all(&input(), records(&["a:9", "b:5", "c:1", "d:3", "e:1"]));
    assert_eq!(values(&mut driver), ["A:9", "B:5", "C:1", "D:3", "E:1"]);
    assert_eq!(service.seen(|it| it.ended[0].clone()), "c:1");
    assert_eq!(service.seen(|it| it.most), 4);
}

#[test]
fn a_crash_at_any_effect_repeats_calls_under_the_same_id() {
    let calls = Calls::at_once(2).retry(2, Backoff::fixed(seconds(1)));
    let given = records(&["a:4", "b", "bad", "c:2", "panic", "d:3", "e"]);
    let all = Service::default();
    let service = all.clone();
    let places = crash_everywhere(
        || TestDriver::new(app_with(&service, calls, ErrorPolicy::dead_letter("dead"))),
        |driver| {
            driver.pipe_all(&input(), given.clone());
            // Headers of dead letters have the time.
            let dead = driver.read_pairs(&dead());
            (values(driver), dead)
        },
    );
    assert!(places > 10, "{places}");
    all.seen(|it| {
        assert_eq!(it.ids.len(), 7, "one id for each record");
        assert!(it.ids.values().all(|values| values.len() == 1), "{it:?}");
        assert!(it.begun.len() > 7 * usize::try_from(places).unwrap());
    });
}

#[test]
fn calls_of_one_key_run_one_after_another_beside_those_of_others() {
    let service = Service::default();
    let mut driver = TestDriver::new(app(&service));
    let of = |key: &str, value: &str| Input::new(key, value);
    driver.pipe_all(
        &input(),
        [
            of("k", "a:9"),
            of("k", "b:1"),
            of("l", "c:3"),
            of("k", "d:1"),
        ],
    );
    assert_eq!(values(&mut driver), ["A:9", "B:1", "C:3", "D:1"]);
    assert_eq!(
        service.seen(|it| it.begun.clone()),
        ["a:9", "c:3", "b:1", "d:1"]
    );
    assert_eq!(
        service.seen(|it| it.ended.clone()),
        ["c:3", "a:9", "b:1", "d:1"]
    );
}

#[test]
fn ten_thousand_records_of_one_key_are_called_in_order_and_admitted_in_part() {
    let service = Service::default();
    let (admitted, served) = (service.clone(), service.clone());
    let mut app = App::new("a");
    app.source(&input())
        // The steps in front of the calls run when a record is admitted.
        .map(move |value| admitted.admits(value))
        .map_async_record("serve", Calls::at_once(4), move |call| {
            served.clone().serve(call)
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    let given: Vec<String> = (0..10_000).map(|n| format!("v{n}")).collect();
    driver.pipe_all(&input(), of_key("hot", given.clone()));
    let upper: Vec<String> = given.iter().map(|it| it.to_uppercase()).collect();
    assert_eq!(values(&mut driver), upper);
    service.seen(|it| {
        assert_eq!(it.begun, given);
        assert_eq!(it.most, 1);
        assert_eq!(it.admitted, 10_000);
        // 4 * 4 records are admitted. Some of them may have a result already when the last one is admitted.
        let ahead = it.most_ahead;
        assert!((12..=16).contains(&ahead), "{ahead} records");
    });
}

#[test]
fn no_more_calls_run_than_allowed_and_four_times_as_many_records_wait() {
    let service = Service::default();
    let mut driver = TestDriver::builder().hold().start(app(&service));
    // The first call never ends, so no record leaves.
    let given = ["never"; 1]
        .into_iter()
        .chain(["x:3"; 40])
        .map(str::to_owned);
    let given: Vec<String> = given.collect();
    let given = records(&given.iter().map(|it| &it[..]).collect::<Vec<_>>());
    let piped = catch_unwind(AssertUnwindSafe(|| {
        driver.pipe_all(&input(), given);
    }));
    assert!(piped.is_err(), "the driver stands still");
    service.seen(|it| {
        assert_eq!(it.begun.len(), 16, "4 * 4 records are admitted");
        assert_eq!(it.most, 4);
    });
}

/// Writes a record as an upstream producer does. The app does not run.
fn write(driver: &TestDriver, partition: i32, value: &str) {
    let record = Written {
        timestamp: driver.now().0,
        key: Some(value.as_bytes()),
        value: Some(value.as_bytes()),
        headers: &[],
    };
    driver.cluster().produce("in", partition, &record).unwrap();
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values
}

/// The number of calls of `stuck` values that have begun.
fn stuck_calls(seen: &Seen) -> usize {
    let begun = seen.begun.iter();
    begun.filter(|it| it.starts_with("stuck")).count()
}

/// Each partition has a call that runs when one partition moves. The calls end only because the new owner calls again.
#[test]
fn an_abort_and_a_rebalance_call_again_under_the_same_ids() {
    let service = Service::default();
    let builder = TestDriver::builder().partitions("in", 2);
    let mut driver = builder.start(app(&service));
    driver.hold();
    let of = |partition: i32, value: &str| Input::new(value, value).to_partition(partition);
    driver.pipe_all(&input(), [of(0, "a:3"), of(1, "b")]);
    driver.abort();
    driver.release();
    assert_eq!(sorted(values(&mut driver)), ["A:3", "B"]);
    assert!(driver.metrics().unwrap().totals.calls_repeated >= 2);
    write(&driver, 0, "stuck 0");
    write(&driver, 1, "stuck 1");
    driver.add_instance();
    assert!(service.seen(stuck_calls) > 2, "a running call has moved");
    driver.remove_instance();
    driver.pipe_all(&input(), [of(0, "e")]);
    assert_eq!(
        sorted(values(&mut driver)),
        ["E", "STUCK 0", "STUCK 1"],
        "each result once"
    );
    service.seen(|it| {
        assert_eq!(it.ids.len(), 5);
        assert!(it.ids.values().all(|values| values.len() == 1));
    });
}

#[test]
fn state_behind_calls_counts_each_record_once() {
    let counts = eos_core::KeyValueStore::<String, u64>::plain("counts");
    let scenario = |driver: &mut TestDriver| {
        let values = ["a:5", "b", "c:2", "d", "e:3", "f"];
        driver.pipe_all(&input(), of_key("k", values.map(str::to_owned)));
        driver.pipe_all(&input(), records(&values));
        driver.committed()
    };
    let app = move || {
        let service = Service::default();
        let mut app = App::new("a");
        app.source(&input())
            .map_async_record("serve", Calls::at_once(4), move |call| {
                service.clone().serve(call)
            })
            .group_by_key()
            .count(&counts)
            .to(&Topic::plain("counts"));
        app
    };
    let places = crash_everywhere(|| TestDriver::new(app()), scenario);
    assert!(places > 20, "{places}");
}

#[test]
fn calls_keep_the_order_of_two_merged_topics() {
    let (left, right) = (
        PlainTopic::<String, String>::named("left"),
        PlainTopic::<String, String>::named("right"),
    );
    let app = || {
        let service = Service::default();
        let mut app = App::new("a");
        let both = app.source(&left).merge(app.source(&right));
        both.map_async_record("serve", Calls::at_once(2), move |call| {
            service.clone().serve(call)
        })
        .to(&output());
        app
    };
    let scenario = |driver: &mut TestDriver| {
        let at = |value: &str, ms| Input::new("k", value).at(eos_core::Timestamp(ms));
        driver.kill();
        driver.pipe_all(&left, [at("a:4", 10), at("c", 30), at("e", 50)]);
        driver.pipe_all(&right, [at("b", 20), at("d:3", 40)]);
        driver.restart();
        values(driver)
    };
    let expected = ["A:4", "B", "C", "D:3", "E"];
    assert_eq!(scenario(&mut TestDriver::new(app())), expected);
    let places = crash_everywhere(|| TestDriver::new(app()), scenario);
    assert!(places > 5, "{places}");
}

#[test]
fn mistakes_are_refused_when_the_app_is_built() {
    let service = |value: String| async move { Ok::<_, Failure>(value) };
    let error = |declare: &dyn Fn(&mut App)| {
        let mut app = App::new("a");
        declare(&mut app);
        app.describe().unwrap_err().to_string()
    };
    let calls = Calls::at_once(4);
    let text = error(&|app| {
        let first = app.source(&input()).map_async("one", calls, service);
        first.map_async("two", calls, service).to(&output());
    });
    assert!(
        text.contains("one stage has the calls one and two"),
        "{text}"
    );
    let text = error(&|app| {
        let stream = app.source(&input());
        stream.clone().to(&Topic::plain("copy"));
        stream.map_async("one", calls, service).to(&output());
    });
    assert!(
        text.contains("a stream is cloned before the calls one"),
        "{text}"
    );
    let text = error(&|app| {
        let stream = app.source(&input());
        let stream = stream.process_values(|ctx, record| ctx.forward(record.value));
        stream.map_async("one", calls, service).to(&output());
    });
    assert!(
        text.contains("`process_values` comes before the calls one"),
        "{text}"
    );
    let text = error(&|app| {
        let (short, long) = app.source(&input()).branch(|value| value.len() < 4);
        long.ignore();
        short.map_async("one", calls, service).to(&output());
    });
    assert!(
        text.contains("`branch` comes before the calls one"),
        "{text}"
    );
    let text = error(&|app| {
        let (a, b) = (app.source(&input()), app.source(&Topic::plain("other")));
        a.map_async("one", calls, service).to(&output());
        b.map_async("one", calls, service).to(&output());
    });
    assert!(text.contains("two `map_async` are called one"), "{text}");
    let text = error(&|app| {
        let stream = app.source(&input());
        let stream = stream.map_async("one", calls, service);
        let policy = ErrorPolicy::dead_letter("input-dlq").in_sequence("parked");
        stream.to(&output());
        app.on_error(policy);
    });
    assert!(
        text.contains("the calls one of `map_async` and the sequenced dead letters"),
        "{text}"
    );
    let text = error(&|app| {
        app.guarantee(Guarantee::AtMostOnce);
        let stream = app.source(&input());
        stream.map_async("one", calls, service).to(&output());
    });
    assert!(
        text.contains("the calls one of `map_async` start before the offsets"),
        "{text}"
    );
    let text = error(&|app| {
        let none = Calls::at_once(0).time_out(Duration::ZERO);
        app.source(&input())
            .map_async("", none, service)
            .to(&output());
    });
    assert!(text.contains("0 calls at once are not possible"), "{text}");
    assert!(
        text.contains("\"\" is not a valid name for calls"),
        "{text}"
    );
}

#[test]
fn a_second_source_of_the_topic_takes_the_place_of_a_clone() {
    let service = Service::default();
    let served = service.clone();
    let mut app = App::new("a");
    app.source(&input()).to(&Topic::plain("copy"));
    app.source(&input())
        .map_async_record("serve", Calls::at_once(4), move |call| {
            served.clone().serve(call)
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe_all(&input(), records(&["a:4", "b"]));
    assert_eq!(values(&mut driver), ["A:4", "B"]);
    let copies = driver.read_pairs(&Topic::<String, String>::plain("copy"));
    assert_eq!(copies.len(), 2);
}

/// The first stop finds records in the open transaction, the second one finds running calls.
#[test]
fn a_stop_commits_what_has_left_and_drops_the_calls_under_way() {
    let service = Service::default();
    let builder = TestDriver::builder().partitions("in", 2).instances(2);
    let mut driver = builder.start_of({
        let service = service.clone();
        move || app(&service)
    });
    let of = |partition: i32, value: &str| Input::new(value, value).to_partition(partition);
    driver.hold();
    driver.pipe_all(&input(), [of(0, "a:3"), of(1, "b")]);
    assert!(driver.is_empty(&output()), "the transactions are open");
    driver.remove_instance();
    driver.release();
    assert_eq!(sorted(values(&mut driver)), ["A:3", "B"]);
    service.seen(|it| assert_eq!(it.begun.len(), 2, "no call is repeated: {it:?}"));

    driver.add_instance();
    let piped = catch_unwind(AssertUnwindSafe(|| {
        driver.pipe_all(&input(), [of(0, "stuck 0"), of(1, "stuck 1")]);
    }));
    assert!(piped.is_err(), "the driver stands still");
    assert_eq!(service.seen(stuck_calls), 2);
    driver.remove_instance();
    assert_eq!(service.seen(stuck_calls), 3, "one call is dropped");
    driver.pipe_all(&input(), [of(0, "c"), of(1, "d")]);
    assert_eq!(
        sorted(values(&mut driver)),
        ["C", "D", "STUCK 0", "STUCK 1"],
        "each result once"
    );
    service.seen(|it| {
        assert_eq!(it.ids.len(), 6);
        assert!(it.ids.values().all(|values| values.len() == 1));
    });
}
