//! Kafka Streams' user clicks by region: clicks are joined with the region of their user and summed per region.

use eos_core::{App, KeyValueStore, PlainTopic, Topic};

/// The key is the user.
fn clicks() -> PlainTopic<String, u64> {
    Topic::plain("user-clicks")
}

/// The key is the user.
fn regions() -> PlainTopic<String, Option<String>> {
    Topic::plain("user-regions")
}

/// The key is the region.
fn totals() -> PlainTopic<String, u64> {
    Topic::plain("clicks-of-regions")
}

fn app() -> App {
    let mut app = App::new("clicks-by-region-v1");
    let regions = app.table(&regions(), &KeyValueStore::plain("regions"));
    app.source(&clicks())
        .left_join(&regions, |clicks, region| {
            (region.unwrap_or("UNKNOWN".to_owned()), clicks)
        })
        .rekey(|record| record.value)
        .repartition(&Topic::plain("clicks-by-region"))
        .group_by_key()
        .reduce(&KeyValueStore::plain("clicks-of-regions"), |a, b| a + b)
        .to(&totals());
    app
}

mod tests {
    use std::collections::BTreeMap;

    use eos_testkit::{TestDriver, crash_everywhere};

    use super::*;

    const REGIONS: [(&str, &str); 7] = [
        ("alice", "asia"),
        ("bob", "americas"),
        ("chao", "asia"),
        ("dave", "europe"),
        ("alice", "europe"),
        ("eve", "americas"),
        ("fang", "asia"),
    ];
    const CLICKS: [(&str, u64); 8] = [
        ("alice", 13),
        ("bob", 4),
        ("chao", 25),
        ("bob", 19),
        ("dave", 56),
        ("eve", 78),
        ("alice", 40),
        ("fang", 99),
    ];

    fn scenario(driver: &mut TestDriver) {
        for (user, region) in REGIONS {
            driver.pipe(&regions(), user, region.to_owned());
        }
        for (user, count) in CLICKS {
            driver.pipe(&clicks(), user, count);
        }
    }

    /// The records and the results of the example in Kafka Streams.
    #[test]
    fn clicks_sum_up_in_the_region_of_their_user() {
        let mut driver = TestDriver::new(app());
        scenario(&mut driver);
        let expected = [("americas", 101), ("asia", 124), ("europe", 109)];
        let expected = expected.map(|(region, clicks)| (region.to_owned(), clicks));
        assert_eq!(driver.read_map(&totals()), BTreeMap::from(expected));
        driver.pipe(&clicks(), "unknown", 1_u64);
        assert_eq!(
            driver.read_pairs(&totals()),
            [("UNKNOWN".to_owned(), 1)],
            "a user without a region"
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
