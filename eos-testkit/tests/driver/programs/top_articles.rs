//! Kafka Streams' top articles: the most viewed articles of each industry and hour.

use std::cmp::Reverse;
use std::time::Duration;

use eos_core::codec::{Json, Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::{Tumbling, Windowed};
use eos_core::{App, Topic};
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3600);
/// The maximum number of articles in a list.
const MOST: usize = 2;

/// Passes through a repartition topic, so it is both serialized and deserialized.
#[derive(Serialize, Deserialize)]
struct View {
    page: String,
    industry: String,
    is_article: bool,
}

/// The key is the user.
fn views() -> Topic<String, View> {
    Topic::json("page-views")
}

/// An article and its views.
type Viewed = (String, u64);

fn top_articles() -> Topic<Windowed<String>, Vec<Viewed>, TimeWindowed, Json> {
    Topic::with("top-articles", TimeWindowed::of(HOUR), Json)
}

fn app() -> App {
    let mut app = App::new("top-articles-v1");
    app.source(&views())
        .filter(|view| view.is_article)
        .group_by(
            |view| (view.industry.clone(), view.page.clone()),
            &Topic::with("views-by-article", Json, Json),
        )
        .windowed_by(Tumbling::of(HOUR))
        .count(&WindowStore::with("views-of-articles", Json, Plain))
        // These are the final counts of an hour, so no list has to subtract a count.
        .emit_on_close()
        .without_windows()
        .rekey(|record| {
            let (industry, page) = record.key;
            (industry, (page, record.value))
        })
        .repartition(&Topic::json("counts-by-industry"))
        .group_by_key()
        .windowed_by(Tumbling::of(HOUR).grace(HOUR))
        .aggregate(
            &WindowStore::<String, Vec<Viewed>>::json("top-articles"),
            Vec::new,
            |_industry, viewed, mut top| {
                top.push(viewed);
                top.sort_by_key(|(page, views)| (Reverse(*views), page.clone()));
                top.truncate(MOST);
                top
            },
        )
        .to(&top_articles());
    app
}

mod tests {
    use std::collections::BTreeMap;

    use eos_core::Timestamp;
    use eos_testkit::TestDriver;
    use serde_json::{Value, json};

    use super::*;

    fn view(driver: &mut TestDriver, industry: &str, page: &str, is_article: bool, minute: i64) {
        let value = json!({"page": page, "industry": industry, "is_article": is_article});
        let time = Timestamp(minute * 60_000);
        driver.pipe_at(&views().values::<Value>(), "a user", value, time);
    }

    #[test]
    fn the_most_viewed_articles_of_each_hour() {
        let mut driver = TestDriver::builder()
            .partitions("page-views", 1)
            .start(app());
        for minute in 0..3 {
            view(&mut driver, "news", "elections", true, minute);
            view(&mut driver, "news", "front page", false, minute);
        }
        view(&mut driver, "news", "weather", true, 10);
        view(&mut driver, "news", "sports", true, 20);
        view(&mut driver, "news", "sports", true, 21);
        view(&mut driver, "cars", "engines", true, 30);
        assert!(driver.is_empty(&top_articles()), "the hour is not over");
        // The first view of the next hour.
        view(&mut driver, "news", "sports", true, 60);
        let lists: BTreeMap<_, _> = driver.read_map(&top_articles());
        let lists: Vec<_> = lists
            .into_iter()
            .map(|(industry, top)| (industry.key, industry.window.start.0, top))
            .collect();
        let viewed = |page: &str, views| (page.to_owned(), views);
        assert_eq!(
            lists,
            [
                ("cars".to_owned(), 0, vec![viewed("engines", 1)]),
                (
                    "news".to_owned(),
                    0,
                    vec![viewed("elections", 3), viewed("sports", 2)]
                ),
            ]
        );
    }
}
