//! Kafka Streams' page views by region: views are joined with their user's profile, and counted per region in windows
//! that overlap.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::{Hopping, Windowed};
use eos_core::{App, KeyValueStore, PlainTopic, Topic};
use serde::{Deserialize, Serialize};

const MINUTE: Duration = Duration::from_secs(60);

/// The key is the user, the value is the page.
fn views() -> PlainTopic<String, String> {
    Topic::plain("page-views")
}

#[derive(Serialize, Deserialize)]
struct Profile {
    region: String,
}

/// The key is the user.
fn profiles() -> Topic<String, Option<Profile>> {
    Topic::json("user-profiles")
}

fn views_of_regions() -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
    Topic::with("views-of-regions", TimeWindowed::of(2 * MINUTE), Plain)
}

fn app() -> App {
    let mut app = App::new("page-views-v1");
    let profiles = app.table(&profiles(), &KeyValueStore::json("profiles"));
    app.source(&views())
        .left_join(&profiles, |_page, profile| match profile {
            Some(profile) => profile.region,
            None => "unknown".to_owned(),
        })
        .group_by(String::clone, &Topic::plain("views-by-region"))
        .windowed_by(Hopping::of(2 * MINUTE).every(MINUTE))
        .count(&WindowStore::plain("views-of-regions"))
        .to(&views_of_regions());
    app
}

mod tests {
    use eos_core::Timestamp;
    use eos_testkit::{TestDriver, crash_everywhere};
    use serde_json::{Value, json};

    use super::*;

    fn region(driver: &mut TestDriver, user: &str, region: &str) {
        let value = json!({ "region": region });
        driver.pipe_at(&profiles().values::<Value>(), user, value, Timestamp(0));
    }

    fn view(driver: &mut TestDriver, user: &str, minute: i64) {
        driver.pipe_at(&views(), user, "index", Timestamp(minute * 60_000));
    }

    fn scenario(driver: &mut TestDriver) {
        region(driver, "alice", "europe");
        region(driver, "bob", "asia");
        view(driver, "alice", 0);
        view(driver, "bob", 1);
        view(driver, "alice", 1);
        view(driver, "eve", 2);
    }

    #[test]
    fn views_count_in_each_window_of_their_region() {
        let mut driver = TestDriver::new(app());
        scenario(&mut driver);
        let counts = driver.read_pairs(&views_of_regions()).into_iter();
        let counts: Vec<_> = counts
            .map(|(region, count)| {
                let minute = region.window.start.0 / 60_000;
                format!("{} from minute {minute}: {count}", region.key)
            })
            .collect();
        assert_eq!(
            counts,
            [
                "europe from minute 0: 1",
                "asia from minute 0: 1",
                "asia from minute 1: 1",
                "europe from minute 0: 2",
                "europe from minute 1: 1",
                "unknown from minute 1: 1",
                "unknown from minute 2: 1",
            ]
        );
    }

    #[test]
    fn a_crash_anywhere_changes_nothing() {
        let places = crash_everywhere(
            || TestDriver::new(app()),
            |driver| {
                scenario(driver);
                driver.committed()
            },
        );
        assert!(places > 30, "{places}");
    }
}
