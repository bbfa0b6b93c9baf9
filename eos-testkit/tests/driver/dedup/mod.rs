//! Deduplication, with a crash at every effect: the fixtures of all modules.

mod changes;
mod generations;
mod presets;
mod selection;
mod size;
mod time_embedded;
mod within;

use std::time::Duration;

use eos_core::identity::{Dedup, SeenIds};
use eos_core::{App, ErrorPolicy, PlainTopic, Stream, Timestamp, Topic};
use eos_testkit::TestDriver;

/// The time at which the clock of a test begins.
const BEGIN: i64 = 1_704_067_200_000;
const MINUTE: i64 = 60_000;

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn repeated() -> PlainTopic<String, String> {
    Topic::plain("repeated")
}

fn old() -> PlainTopic<String, String> {
    Topic::plain("old")
}

fn five_minutes() -> SeenIds<String> {
    SeenIds::fixed("seen", minutes(5))
}

/// The id is the value.
fn app_with(
    seen: &SeenIds<String>,
    policy: ErrorPolicy,
    change: impl FnOnce(Dedup<String, String>) -> Stream<String, String>,
) -> App {
    let mut app = App::new("a");
    change(app.source(&input()).on_error(policy).dedup(seen)).to(&output());
    app
}

fn app(seen: &SeenIds<String>) -> App {
    app_with(seen, ErrorPolicy::fail(), |dedup| {
        dedup.duplicates_to(&repeated()).by(String::clone)
    })
}

/// Pipes key, id and time in milliseconds after the begin.
fn pipe(driver: &mut TestDriver, records: &[(&str, &str, i64)]) {
    for (key, id, at) in records {
        driver.pipe_at(&input(), *key, *id, Timestamp(BEGIN + at));
    }
}

/// The new records of a topic: keys and ids.
fn read(driver: &mut TestDriver, topic: &PlainTopic<String, String>) -> Vec<(String, String)> {
    driver.read_pairs(topic)
}

fn own(records: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(key, id): &(&str, &str)| ((*key).to_owned(), (*id).to_owned());
    records.iter().map(own).collect()
}

fn ids(driver: &mut TestDriver) -> Vec<String> {
    let records = read(driver, &output()).into_iter();
    records.map(|(_, id)| id).collect()
}
