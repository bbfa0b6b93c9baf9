//! Page views per minute: time windows, and a topic for late records.
//! `cargo run -p eos-examples --bin 07-page-views`
//!
//! ```text
//! page-views ─(by page: repartition)─→ windows of a minute ─→ page-views-per-minute
//!                                             └─ too late ──→ late-page-views
//! ```
//!
//! Windows follow the timestamps of the records, not the clock. A minute accepts views until the app reads a
//! record that is ten seconds later than the end of that minute. Later views go to another topic, unchanged.
//! Both topics commit in one transaction with the offsets, the counts and the stream time. Kill this program at
//! any moment: no closed minute opens again.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic page-views page-views-per-minute late-page-views
//! eos kafka produce --no-keys page-views < examples/07-page-views/views.txt
//! cargo run -p eos-examples --bin 07-page-views -- --kafka
//! eos kafka read page-views-per-minute
//! ```
//!
//! Keys and counts are bytes in Kafka Streams' format: the page and 8 bytes of time, and 8 bytes of a number.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};

const MINUTE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let views = Input::values("page-views", include_str!("views.txt"));
    let kafka = Kafka::provide(&[views], &["page-views-per-minute", "late-page-views"])?;

    // A view is `<user> <page>`.
    let views = Topic::<Option<String>, String>::plain("page-views");
    let pages = Topic::<String, String>::plain("pages");
    let late = Topic::<String, String>::plain("late-page-views");
    let per_minute = Topic::with("page-views-per-minute", TimeWindowed::of(MINUTE), Plain);

    let mut app = App::new("page-views-v1");
    app.source(&views)
        .key_by(|view| page_of(view).to_owned())
        .repartition(&pages)
        .group_by_key()
        .windowed_by(Tumbling::of(MINUTE).grace(GRACE))
        .late_to(&late)
        .count(&WindowStore::plain("views"))
        .to(&per_minute);

    app.run(kafka.bootstrap()).await?;
    Ok(())
}

/// What stands behind the user; the home page if nothing does.
fn page_of(view: &str) -> &str {
    view.split_whitespace().nth(1).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stands_behind_the_user() {
        assert_eq!(page_of("ada /books"), "/books");
        assert_eq!(page_of("ada"), "/");
    }
}
