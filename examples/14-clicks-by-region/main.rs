//! Clicks and users by region: a stream that joins a table, and a table that is grouped by its values.
//! `cargo run -p eos-examples --bin 14-clicks-by-region`
//!
//! ```text
//! users ──┬────────→ table ─(by region: repartition)─→ count ─→ users-of-regions
//!         │
//! clicks ─┴─→ join ─(by region: repartition)─→ sum ─→ clicks-of-regions
//! ```
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic users clicks users-of-regions clicks-of-regions
//! eos kafka produce users < examples/14-clicks-by-region/users.txt
//! eos kafka produce clicks < examples/14-clicks-by-region/clicks.txt
//! cargo run -p eos-examples --bin 14-clicks-by-region -- --kafka
//! eos kafka read users-of-regions
//! eos kafka read clicks-of-regions
//! ```
//!
//! A click counts for the region that its user has at the time of the click. When emmy moves, her earlier clicks still
//! count for her old region. Let her move back and click once more: europe gains one click, and americas loses none.
//!
//! ```sh
//! echo 'emmy:europe' | eos kafka produce users
//! echo 'emmy:1' | eos kafka produce clicks
//! eos kafka read clicks-of-regions
//! ```
//!
//! The counts of users follow the table. When emmy moves, one region loses a user and another one gains a user. When
//! alan is deleted, his region has one user fewer. Each change of a row is subtracted and added once, even if you kill
//! the program in between.
//!
//! A region that loses its last user keeps the count 0. The app reads the partitions of `users` in any order, so
//! `users-of-regions` may contain `europe:0` before the next user of europe arrives. To delete empty groups, use
//! `aggregate_or_delete` instead of `count`.

use eos_core::{App, KeyValueStore, PlainTopic, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let users = Input::keyed("users", include_str!("users.txt"));
    let clicks = Input::keyed("clicks", include_str!("clicks.txt"));
    let outputs = ["users-of-regions", "clicks-of-regions"];
    let kafka = Kafka::provide(&[users, clicks], &outputs)?;
    app().run(kafka.bootstrap()).await?;
    Ok(())
}

/// The region of each user.
fn users() -> PlainTopic<String, Option<String>> {
    Topic::plain("users")
}

/// The number of clicks, by user. The sample has numbers as text.
fn clicks() -> PlainTopic<String, String> {
    Topic::plain("clicks")
}

/// A number for each region.
fn by_region(name: &str) -> Topic<String, u64> {
    Topic::json(name)
}

fn app() -> App {
    let mut app = App::new("clicks-by-region-v1");
    let users = app.table(&users(), &KeyValueStore::plain("users"));

    app.source(&clicks())
        .try_map(|clicks| Ok(clicks.parse::<u64>()?))
        // `join` would drop the clicks of users without a region.
        .left_join(&users, |clicks, region| {
            (region.unwrap_or_else(|| "unknown".to_owned()), clicks)
        })
        .rekey(|click| click.value)
        .repartition(&by_region("clicks-by-region"))
        .group_by_key()
        .reduce(&KeyValueStore::plain("clicks-of-regions"), |sum, clicks| {
            sum + clicks
        })
        .to(&by_region("clicks-of-regions"));

    users
        .group_by(&by_region("users-by-region"), |_user, region| {
            (region.clone(), 1)
        })
        .count(&KeyValueStore::plain("users-of-regions"))
        .to(&by_region("users-of-regions"));
    app
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use eos_testkit::TestDriver;

    use super::*;

    fn numbers<const N: usize>(of: [(&str, u64); N]) -> BTreeMap<String, u64> {
        of.into_iter()
            .map(|(region, number)| (region.to_owned(), number))
            .collect()
    }

    fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
        text.lines().filter_map(|line| line.split_once(':'))
    }

    #[test]
    fn clicks_stay_where_they_were_and_users_move() {
        let mut driver = TestDriver::of(app);
        for (user, region) in lines(include_str!("users.txt")) {
            driver.crash_during_next_record();
            match region {
                "" => driver.pipe_tombstone(&users(), user),
                _ => driver.pipe(&users(), user, region.to_owned()),
            }
        }
        let users_of = by_region("users-of-regions");
        assert_eq!(
            driver.read_map(&users_of),
            numbers([("americas", 3), ("europe", 1)])
        );

        driver.crash_and_lose_state();
        for (user, count) in lines(include_str!("clicks.txt")) {
            driver.pipe(&clicks(), user, count);
        }
        let clicks_of = by_region("clicks-of-regions");
        let sums = [("americas", 104), ("europe", 53), ("unknown", 1)];
        assert_eq!(driver.read_map(&clicks_of), numbers(sums));

        driver.pipe(&users(), "emmy", "europe".to_owned());
        assert_eq!(
            driver.read_map(&users_of),
            numbers([("americas", 2), ("europe", 2)])
        );
        assert!(driver.is_empty(&clicks_of));
        driver.pipe(&clicks(), "emmy", "1");
        assert_eq!(driver.read_map(&clicks_of), numbers([("europe", 54)]));
    }
}
