//! Asynchronous calls, with a crash at every effect.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use eos_core::calls::{Call, CallId};
use eos_core::{App, Backoff, Calls, ErrorPolicy, Failure, PlainTopic, Topic};
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
}

impl Service {
    /// Serves a call after as many polls as the value says behind a colon: `a:3`. Fails for `bad`, panics for `panic`.
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
    let mut driver = TestDriver::new(app(&service));
    let given: Vec<String> = (0..10_000).map(|n| format!("v{n}")).collect();
    driver.pipe_all(&input(), of_key("hot", given.clone()));
    let upper: Vec<String> = given.iter().map(|it| it.to_uppercase()).collect();
    assert_eq!(values(&mut driver), upper);
    service.seen(|it| {
        assert_eq!(it.begun, given);
        assert_eq!(it.most, 1);
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
    let piped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        driver.pipe_all(&input(), given);
    }));
    assert!(piped.is_err(), "the driver stands still");
    service.seen(|it| {
        assert_eq!(it.begun.len(), 16, "4 * 4 records are admitted");
        assert_eq!(it.most, 4);
    });
}

#[test]
fn a_call_that_takes_too_long_is_tried_again_and_then_fails_its_record() {
    let service = Service::default();
    let calls = Calls::at_once(4)
        .time_out(seconds(5))
        .retry(2, Backoff::fixed(seconds(1)));
    let app = app_with(&service, calls, ErrorPolicy::dead_letter("dead"));
    let mut driver = TestDriver::new(app);
    let before = driver.cluster().now();
    driver.pipe_all(&input(), records(&["a", "never", "b"]));
    assert_eq!(values(&mut driver), ["A", "B"]);
    let letters = driver.read(&dead());
    assert_eq!(letters.len(), 1);
    let header =
        |name: &str| String::from_utf8_lossy(letters[0].headers.get(name).unwrap()).into_owned();
    assert_eq!(
        header("__streams.errors.message"),
        "the call serve failed after 3 tries: it had no result after 5s"
    );
    assert_eq!(header("__streams.errors.exception"), "TimeOut");
    let took = driver.cluster().now() - before;
    assert!(
        (17_000..18_000).contains(&took),
        "{took} ms for 3 tries of 5 s and 2 waits of 1 s"
    );
    assert_eq!(service.seen(|it| it.ids.len()), 3);
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.calls_timed_out, totals.calls_repeated), (3, 2));
}

#[test]
fn without_a_time_out_a_call_that_never_ends_stops_its_task() {
    let service = Service::default();
    let mut driver = TestDriver::new(app(&service));
    let piped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        driver.pipe_all(&input(), records(&["a", "never", "b"]));
    }));
    let text = *piped.unwrap_err().downcast::<String>().unwrap();
    assert!(
        text.contains("from offset 1 on, committed up to 0") || text.contains("committed up to 1"),
        "{text}"
    );
    assert_eq!(
        service.seen(|it| it.ended.clone()),
        ["a", "b"],
        "b does not wait"
    );
}

#[test]
fn each_policy_decides_about_a_failed_call_at_the_turn_of_its_record() {
    for bad in ["bad", "panic"] {
        let given = || records(&["a:3", bad, "b"]);
        let service = Service::default();
        let skip = app_with(&service, Calls::at_once(4), ErrorPolicy::skip());
        let mut driver = TestDriver::new(skip);
        driver.pipe_all(&input(), given());
        assert_eq!(values(&mut driver), ["A:3", "B"]);
        assert_eq!(driver.metrics().unwrap().totals.skipped, 1);

        let letters = ErrorPolicy::dead_letter("dead");
        let mut driver = TestDriver::new(app_with(&service, Calls::at_once(4), letters));
        driver.pipe_all(&input(), given());
        assert_eq!(values(&mut driver), ["A:3", "B"]);
        assert_eq!(
            driver.read_pairs(&dead()),
            [("k1".to_owned(), bad.to_owned())]
        );

        let fail = app_with(&service, Calls::at_once(4), ErrorPolicy::fail());
        let mut driver = TestDriver::new(fail);
        let error = driver.try_pipe(&input(), Input::new("k", bad)).unwrap_err();
        assert!(
            error.to_string().contains("the call serve failed: "),
            "{error}"
        );
        assert!(driver.is_empty(&output()));
    }
}

#[test]
fn fail_commits_the_records_before_the_failed_one() {
    let service = Service::default();
    let mut driver = TestDriver::new(app(&service));
    let piped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        driver.pipe_all(&input(), records(&["a:9", "bad", "b"]));
    }));
    assert!(piped.is_err());
    assert_eq!(values(&mut driver), ["A:9"]);
}

/// A service that fails for a value until it is called this number of times.
fn flaky(
    fails: usize,
) -> (
    Arc<AtomicUsize>,
    impl Fn(String) -> Flaky + Send + Sync + 'static,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let serve = move |value: String| -> Flaky {
        let n = counted.fetch_add(usize::from(value == "flaky"), Ordering::SeqCst);
        Box::pin(async move {
            match value == "flaky" && n < fails {
                true => Err(Failure::from("busy")),
                false => Ok(value),
            }
        })
    };
    (calls, serve)
}

type Flaky = std::pin::Pin<Box<dyn Future<Output = Result<String, Failure>> + Send>>;

#[test]
fn retries_of_the_source_repeat_the_call_of_the_first_record_only() {
    let (calls, serve) = flaky(2);
    let others = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&others);
    let mut app = App::new("a");
    app.source(&input())
        .on_error(ErrorPolicy::retry(3, Backoff::fixed(seconds(1))))
        .map_async("serve", Calls::at_once(4), move |value| {
            counted.fetch_add(usize::from(value != "flaky"), Ordering::SeqCst);
            serve(value)
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe_all(&input(), records(&["a", "flaky", "b", "c"]));
    assert_eq!(values(&mut driver), ["a", "flaky", "b", "c"]);
    assert_eq!(
        (calls.load(Ordering::SeqCst), others.load(Ordering::SeqCst)),
        (3, 3)
    );
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.retried, totals.calls_repeated), (2, 2));
}

#[test]
fn a_failure_behind_the_call_repeats_the_call() {
    let service = Service::default();
    let (tries, served) = (Arc::new(AtomicUsize::new(0)), service.clone());
    let mut app = App::new("a");
    app.source(&input())
        .on_error(ErrorPolicy::retry(3, Backoff::fixed(seconds(1))))
        .map_async_record("serve", Calls::at_once(4), move |call| {
            served.clone().serve(call)
        })
        .try_map(move |value| match &value[..] {
            "B" if tries.fetch_add(1, Ordering::SeqCst) < 2 => Err(Failure::from("not yet")),
            _ => Ok(value),
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe_all(&input(), records(&["a", "b", "c"]));
    assert_eq!(values(&mut driver), ["A", "B", "C"]);
    let mut begun = service.seen(|it| it.begun.clone());
    begun.sort();
    assert_eq!(begun, ["a", "b", "b", "b", "c"]);
    assert_eq!(service.seen(|it| it.ids.len()), 3);
}

#[test]
fn a_failure_in_front_of_the_call_is_decided_at_the_turn_of_the_record() {
    let service = Service::default();
    let served = service.clone();
    let mut app = App::new("a");
    app.source(&input())
        .on_error(ErrorPolicy::dead_letter("dead"))
        .try_map(|value: String| match &value[..] {
            "bad" => Err(Failure::from("in front")),
            "panic" => panic!("in front"),
            _ => Ok(value),
        })
        .flat_map(|value| match &value[..] {
            "two" => vec!["two:9".to_owned(), "two:1".to_owned()],
            "none" => Vec::new(),
            _ => vec![value],
        })
        .map_async_record("serve", Calls::at_once(4), move |call| {
            served.clone().serve(call)
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe_all(
        &input(),
        records(&["a:5", "bad", "two", "none", "panic", "b"]),
    );
    assert_eq!(values(&mut driver), ["A:5", "TWO:9", "TWO:1", "B"]);
    let letters = driver.read_pairs(&dead()).into_iter();
    let letters: Vec<String> = letters.map(|(_, value)| value).collect();
    assert_eq!(letters, ["bad", "panic"]);
    assert_eq!(
        service.seen(|it| it.ids.len()),
        4,
        "each call of one record has its own id"
    );
    assert_eq!(driver.metrics().unwrap().totals.records_in, 6);
}

#[test]
fn an_abort_and_a_rebalance_call_again_under_the_same_ids() {
    let service = Service::default();
    let mut driver = TestDriver::new(app(&service));
    driver.hold();
    driver.pipe_all(&input(), records(&["a:3", "b"]));
    driver.abort();
    driver.pipe_all(&input(), records(&["c:3", "d"]));
    driver.rebalance();
    driver.release();
    driver.pipe_all(&input(), records(&["e"]));
    assert_eq!(values(&mut driver), ["A:3", "B", "C:3", "D", "E"]);
    service.seen(|it| {
        assert_eq!(it.ids.len(), 5);
        assert!(it.ids.values().all(|values| values.len() == 1));
        assert!(it.begun.len() > 5, "{:?}", it.begun);
    });
    assert!(driver.metrics().unwrap().totals.calls_repeated >= 2);
}

#[test]
fn a_replayed_dead_letter_has_the_id_of_the_record_that_failed() {
    let service = Service::default();
    let app = app_with(
        &service,
        Calls::at_once(4),
        ErrorPolicy::dead_letter("dead"),
    );
    let mut driver = TestDriver::new(app);
    driver.pipe_all(&input(), records(&["a", "bad"]));
    let letter = driver.read(&dead()).remove(0);
    let mut again = Input::new(letter.key, "mended");
    for header in letter.headers.iter() {
        again = again.header(header.name(), header.value().unwrap());
    }
    driver.pipe_input(&input(), again.clone());
    assert_eq!(values(&mut driver), ["A", "MENDED"]);
    service.seen(|it| {
        assert_eq!(it.ids.len(), 2);
        let both = BTreeSet::from(["bad".to_owned(), "mended".to_owned()]);
        assert!(it.ids.values().any(|values| *values == both), "{it:?}");
    });
    driver.pipe_input(&input(), again.header("eos-replay-generation", "1"));
    assert_eq!(
        service.seen(|it| it.ids.len()),
        3,
        "another replay is another call"
    );
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
        let none = Calls::at_once(0).time_out(Duration::ZERO);
        app.source(&input())
            .map_async("", none, service)
            .to(&output());
    });
    assert!(text.contains("0 calls at once are not possible"), "{text}");
    assert!(text.contains("\"\" is not a valid name of calls"), "{text}");
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

#[test]
fn a_stop_commits_what_has_left_and_drops_the_calls_under_way() {
    let service = Service::default();
    let mut driver = TestDriver::builder().instances(2).start_of({
        let service = service.clone();
        move || app(&service)
    });
    driver.pipe_all(&input(), records(&["a:3", "b", "c:5", "d"]));
    driver.remove_instance();
    driver.pipe_all(&input(), records(&["e", "f"]));
    let mut found = values(&mut driver);
    found.sort();
    assert_eq!(found, ["A:3", "B", "C:5", "D", "E", "F"]);
}
