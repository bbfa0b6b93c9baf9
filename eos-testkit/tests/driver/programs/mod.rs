//! Whole programs, as a user writes them.
//!
//! Types of an input topic derive only `Deserialize`, and types of an output topic only `Serialize`. The tests read and
//! write these topics as JSON values or as bytes.

use eos_core::{PlainTopic, Topic};
use eos_testkit::TestDriver;

mod anomalies;
mod clicks_by_region;
mod inventory;
mod music_charts;
mod orders_and_payments;
mod page_views;
mod payments;
mod registry;
mod top_articles;

/// The values of all dead letters in this topic that were not read yet.
fn dead_letters(driver: &mut TestDriver, topic: &str) -> Vec<Vec<u8>> {
    let topic: PlainTopic<Option<Vec<u8>>, Option<Vec<u8>>> = Topic::plain(topic);
    let letters = driver.read(&topic).into_iter();
    letters.filter_map(|letter| letter.value).collect()
}
