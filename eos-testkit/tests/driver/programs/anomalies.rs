//! Kafka Streams' anomaly detection: users with at least three clicks in a minute.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::{Tumbling, Windowed};
use eos_core::{App, PlainTopic, Topic};

const MINUTE: Duration = Duration::from_secs(60);

/// The value is the user.
fn clicks() -> PlainTopic<Option<String>, String> {
    Topic::plain("user-clicks")
}

fn anomalous_users() -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
    Topic::with("anomalous-users", TimeWindowed::of(MINUTE), Plain)
}

fn app() -> App {
    let mut app = App::new("anomalies-v1");
    app.source(&clicks())
        .group_by(String::clone, &Topic::plain("clicks-by-user"))
        .windowed_by(Tumbling::of(MINUTE))
        .count(&WindowStore::plain("clicks-of-users"))
        .to_stream()
        .filter(|clicks| *clicks >= 3)
        .to(&anomalous_users());
    app
}

mod tests {
    use eos_core::Timestamp;
    use eos_testkit::TestDriver;

    use super::*;

    #[test]
    fn three_clicks_in_a_minute_are_an_anomaly() {
        let mut driver = TestDriver::new(app());
        let clicked = [
            (1, "alice"),
            (2, "alice"),
            (3, "bob"),
            (4, "alice"),
            (59, "alice"),
            // Two minutes have two of his clicks each.
            (62, "bob"),
            (63, "bob"),
        ];
        for (second, user) in clicked {
            let time = Timestamp(second * 1000);
            driver.pipe_at(&clicks(), None::<String>, user, time);
        }
        let found = driver.read_pairs(&anomalous_users()).into_iter();
        let found: Vec<_> = found
            .map(|(user, clicks)| (user.key, user.window.start.0, clicks))
            .collect();
        assert_eq!(
            found,
            [("alice".to_owned(), 0, 3), ("alice".to_owned(), 0, 4)]
        );
    }
}
