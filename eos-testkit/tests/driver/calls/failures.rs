//! Calls that fail or take too long, and failures around calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eos_core::{App, Backoff, Calls, ErrorPolicy, Failure};
use eos_testkit::{Input, TestDriver};

use super::{Service, app, app_with, dead, input, of_key, output, records, seconds, values};

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

/// A value whose clone panics for `panic`.
#[derive(Debug)]
struct Fragile(String);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(self.0 != "panic", "no copies");
        Self(self.0.clone())
    }
}

/// Each try has a copy of the value.
#[test]
fn a_clone_that_panics_fails_its_record_only() {
    let start = |policy: ErrorPolicy| {
        let mut app = App::new("a");
        app.source(&input())
            .on_error(policy)
            .map(Fragile)
            .map_async("serve", Calls::at_once(4), |value: Fragile| async move {
                Ok(value.0.to_uppercase())
            })
            .to(&output());
        TestDriver::new(app)
    };
    let mut driver = start(ErrorPolicy::dead_letter("dead"));
    driver.pipe_all(&input(), records(&["a", "panic", "b"]));
    assert_eq!(values(&mut driver), ["A", "B"]);
    let letters = driver.read_pairs(&dead());
    assert_eq!(letters, [("k1".to_owned(), "panic".to_owned())]);
    let mut driver = start(ErrorPolicy::fail());
    let error = driver
        .try_pipe(&input(), Input::new("k", "panic"))
        .unwrap_err();
    assert!(error.to_string().contains("no copies"), "{error}");
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

/// A record that fails in front of its call keeps its place among the calls of its key while it is tried again.
#[test]
fn a_retry_in_front_of_the_call_keeps_the_order_of_its_key() {
    let service = Service::default();
    let (served, tries) = (service.clone(), AtomicUsize::new(0));
    let mut app = App::new("a");
    app.source(&input())
        .on_error(ErrorPolicy::retry(3, Backoff::fixed(seconds(1))))
        .try_map(move |value: String| {
            let fails = value == "first" && tries.fetch_add(1, Ordering::SeqCst) < 2;
            if fails {
                Err(Failure::from("in front"))
            } else {
                Ok(value)
            }
        })
        .map_async_record("serve", Calls::at_once(4), move |call| {
            served.clone().serve(call)
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    let mut given = of_key("k", ["first", "second", "third"].map(str::to_owned));
    given.extend(of_key("l", ["other".to_owned()]));
    driver.pipe_all(&input(), given);
    assert_eq!(values(&mut driver), ["FIRST", "SECOND", "THIRD", "OTHER"]);
    let begun = service.seen(|it| it.begun.clone());
    assert_eq!(begun, ["other", "first", "second", "third"]);
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
