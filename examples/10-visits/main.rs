//! Page views grouped into visits, and the most viewed pages of each hour. Both topics get final results only.
//! `cargo run -p eos-examples --bin 10-visits`
//!
//! ```text
//! page-views ─→ sessions per user ─ no view for the gap ─→ visits
//!     └─(by page: repartition)─→ count per page and hour ─(one key: repartition)─→ all counts per hour ─→ top-pages
//! ```
//!
//! A visit is final when stream time passes its last view and the gap. With `close_when_idle`, stream time advances
//! with the clock while no views arrive, so the last visits become final, too. The app writes each visit once: kill the
//! program at any moment, and no visit is lost or repeated.
//!
//! The counts of pages are updates, not final results. A partition closes a window only when it gets a later record, so
//! its final results could be late for the hour of all pages. An hour is final when a view arrives two minutes after
//! its end, or later.
//!
//! With the embedded broker, a visit ends after five seconds without a view.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic page-views visits top-pages
//! eos kafka produce page-views < examples/10-visits/views.txt
//! cargo run -p eos-examples --bin 10-visits -- --kafka
//! eos kafka read visits
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::codec::{Json, Plain, TimeWindowed};
use eos_core::state::{SessionStore, WindowStore};
use eos_core::windows::{Session, Tumbling, Windowed};
use eos_core::{App, PlainTopic, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};

const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);
const SOON: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3_600);
const GRACE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let views = Input::keyed("page-views", include_str!("views.txt"));
    let kafka = Kafka::provide(&[views], &["visits", "top-pages"])?;
    let gap = if kafka.is_embedded() {
        SOON
    } else {
        HALF_AN_HOUR
    };
    app(gap).run(kafka.bootstrap()).await?;
    Ok(())
}

/// The key is the user, the value the page.
fn page_views() -> PlainTopic<String, String> {
    Topic::plain("page-views")
}

/// The key is the user, the value all pages of the visit.
fn visits() -> PlainTopic<String, String> {
    Topic::plain("visits")
}

/// Views and page, the most viewed page first.
type Top = Vec<(u64, String)>;

/// The views of each page.
type Counts = BTreeMap<String, u64>;

/// The key is "all" and the hour.
fn top_pages() -> Topic<Windowed<String>, Top, TimeWindowed, Json> {
    Topic::with("top-pages", TimeWindowed::of(HOUR), Json)
}

fn app(gap: Duration) -> App {
    let mut app = App::new("visits-v1");
    let views = app.source(&page_views());
    views
        .clone()
        .close_when_idle(Duration::from_secs(1))
        .group_by_key()
        .windowed_by(Session::gap(gap))
        .reduce(&SessionStore::plain("visits"), |pages, page| {
            format!("{pages} {page}")
        })
        .emit_on_close()
        .without_windows()
        .to(&visits());

    views
        .key_by(String::clone)
        .repartition(&Topic::plain("pages"))
        .group_by_key()
        .windowed_by(Tumbling::of(HOUR).grace(GRACE))
        .count(&WindowStore::plain("views"))
        .to_stream()
        // All pages of an hour go to one task.
        .rekey(|count| ("all".to_owned(), (count.key.key, count.value)))
        .repartition(&Topic::with("hours", Plain, Json))
        .group_by_key()
        .windowed_by(Tumbling::of(HOUR).grace(2 * GRACE))
        .aggregate(&hours(), Counts::new, |_, (page, views), mut counts| {
            counts.insert(page, views);
            counts
        })
        .emit_on_close()
        .map(top)
        .to(&top_pages());
    app
}

fn hours() -> WindowStore<String, Counts> {
    WindowStore::with("hours", Plain, Json)
}

/// The ten most viewed pages.
fn top(counts: Counts) -> Top {
    let pages = counts.into_iter().map(|(page, views)| (views, page));
    let mut top: Top = pages.collect();
    top.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    top.truncate(10);
    top
}

#[cfg(test)]
mod tests {
    use eos_core::Timestamp;
    use eos_testkit::TestDriver;

    use super::*;

    fn view(driver: &mut TestDriver, user: &str, page: &str, minute: i64) {
        driver.pipe_at(&page_views(), user, page, Timestamp(minute * 60_000));
    }

    #[test]
    fn each_visit_is_written_once_despite_crashes() {
        let mut driver = TestDriver::of(|| app(HALF_AN_HOUR));
        view(&mut driver, "ada", "/books", 0);
        view(&mut driver, "alan", "/", 10);
        view(&mut driver, "ada", "/cart", 25);
        driver.crash_during_next_record();
        view(&mut driver, "alan", "/books", 45);
        driver.crash_and_lose_state();
        assert_eq!(
            driver.read_pairs(&visits()),
            [("alan".to_owned(), "/".to_owned())]
        );

        // No view arrives for an hour.
        for _ in 0..60 {
            driver.advance_wall_clock(Duration::from_secs(60));
        }
        let last = [("ada", "/books /cart"), ("alan", "/books")];
        let last = last.map(|(user, pages)| (user.to_owned(), pages.to_owned()));
        assert_eq!(driver.read_pairs(&visits()), last);
    }

    #[test]
    fn the_top_pages_of_an_hour_are_final() {
        let mut driver = TestDriver::of(|| app(HALF_AN_HOUR));
        for (page, minute) in [("/a", 1), ("/b", 20), ("/b", 40), ("/c", 59), ("/a", 61)] {
            view(&mut driver, "ada", page, minute);
        }
        assert!(driver.is_empty(&top_pages()));
        // One view is enough to close the first hour of all pages.
        view(&mut driver, "ada", "/a", 62);
        let top = driver.read_one(&top_pages());
        assert_eq!(top.key.window.start, Timestamp(0));
        let pages = [(2, "/b"), (1, "/a"), (1, "/c")];
        assert_eq!(top.value, pages.map(|(n, page)| (n, page.to_owned())));
    }
}
