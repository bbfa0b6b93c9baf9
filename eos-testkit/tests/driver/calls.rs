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
        {
            let mut seen = self.0.lock().unwrap();
            seen.running -= 1;
            seen.ended.push(value.clone());
        }
        match &value[..] {
            "bad" => Err("bad".into()),
            "never" => pending().await,
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
