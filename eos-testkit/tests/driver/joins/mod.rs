//! Joins of two streams, with a crash at every effect. The golden cases compare their results with Kafka Streams.

mod alone;
mod behind;
mod changes;
mod golden;
mod pairs;

use std::time::Duration;

use eos_core::state::JoinStore;
use eos_core::windows::{JoinedStreams, Sides, Within};
use eos_core::{App, ErrorPolicy, PlainTopic, Stream, Timestamp, Topic};
use eos_testkit::TestDriver;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn orders() -> PlainTopic<String, String> {
    Topic::plain("orders")
}

fn shipments() -> PlainTopic<String, String> {
    Topic::plain("shipments")
}

fn results() -> PlainTopic<String, String> {
    Topic::plain("results")
}

fn late() -> PlainTopic<String, String> {
    Topic::plain("late")
}

fn late_right() -> PlainTopic<String, String> {
    Topic::plain("late-right")
}

fn store() -> JoinStore<String, String, String> {
    JoinStore::plain("orders-shipments")
}

/// The kinds of joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Outer,
}

const KINDS: [Kind; 3] = [Kind::Inner, Kind::Left, Kind::Outer];

/// Three milliseconds before, ten after, five of grace.
fn within() -> Within {
    Within::of(MS(3)).after(MS(10)).grace(MS(5))
}

/// Joins two streams. A result alone has `-` for the other side.
fn join(
    kind: Kind,
    left: Stream<String, String>,
    right: Stream<String, String>,
    within: Within,
) -> JoinedStreams<String, String, String, String> {
    match kind {
        Kind::Inner => left.join_within(right, within, &store(), |l, r| format!("{l}+{r}")),
        Kind::Left => left.left_join_within(right, within, &store(), |l, r| match r {
            Some(r) => format!("{l}+{r}"),
            None => format!("{l}+-"),
        }),
        Kind::Outer => left.outer_join_within(right, within, &store(), |sides| match sides {
            Sides::Both(l, r) => format!("{l}+{r}"),
            Sides::Left(l) => format!("{l}+-"),
            Sides::Right(r) => format!("-+{r}"),
        }),
    }
}

fn app(kind: Kind, within: Within) -> App {
    app_with(kind, within, ErrorPolicy::fail())
}

fn app_with(kind: Kind, within: Within, policy: ErrorPolicy) -> App {
    let mut app = App::new("a");
    app.on_error(policy);
    let (left, right) = (app.source(&orders()), app.source(&shipments()));
    join(kind, left, right, within)
        .late_to(&late())
        .late_right_to(&late_right())
        .to(&results());
    app
}

/// Pipes records: the side (`<` or `>`) and the value, the key and the time.
fn pipe(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    for (value, key, time) in records {
        match value.strip_prefix('<') {
            Some(value) => driver.pipe_at(&orders(), *key, value, Timestamp(*time)),
            None => driver.pipe_at(&shipments(), *key, &value[1..], Timestamp(*time)),
        }
    }
}

fn shown(driver: &mut TestDriver, topic: &PlainTopic<String, String>) -> Vec<String> {
    let records = driver.read(topic).into_iter();
    records
        .map(|it| format!("{} {} @{}", it.key, it.value, it.timestamp.0))
        .collect()
}

/// The new results.
fn read(driver: &mut TestDriver) -> Vec<String> {
    shown(driver, &results())
}
