//! A scenario with a crash at each of its effects.

use std::fmt::Debug;

use super::TestDriver;

/// Runs a scenario once, and then again with a crash at each effect in turn: on both sides of each call to the Kafka
/// client and of each write to a database, once with the local state kept and once with it lost. The scenario's
/// result has to be the same each time. Returns the number of crash places.
///
/// ```
/// use eos_core::{App, KeyValueStore, Topic};
/// use eos_testkit::{TestDriver, crash_everywhere};
///
/// let clicks = Topic::<String, String>::plain("clicks");
/// let totals = Topic::<String, u64>::plain("totals");
/// let start = || {
///     let mut app = App::new("clicks-v1");
///     app.source(&clicks).group_by_key().count(&KeyValueStore::plain("counts")).to(&totals);
///     TestDriver::new(app)
/// };
/// let places = crash_everywhere(start, |driver| {
///     driver.pipe(&clicks, "ada", "/home");
///     driver.pipe(&clicks, "ada", "/books");
///     driver.committed()
/// });
/// assert!(places > 20);
/// ```
///
/// As a result, [`TestDriver::committed`] compares all outputs and stores. If several partitions lead to one, or
/// results are emitted once per commit, return a value that does not depend on the order, such as a
/// [`read_map`](TestDriver::read_map).
///
/// # Panics
/// If a result differs: the text names the place. If a scenario is not the same each time, so that a place is never
/// reached.
#[track_caller]
pub fn crash_everywhere<T: PartialEq + Debug>(
    start: impl Fn() -> TestDriver,
    scenario: impl Fn(&mut TestDriver) -> T,
) -> u64 {
    let mut driver = start();
    let begun = driver.effects();
    let expected = scenario(&mut driver);
    let effects = driver.effects() - begun;
    let crashes = driver.crashes();
    for effect in 1..=effects {
        for loses in [false, true] {
            let mut driver = start();
            driver.crash_at_effect(effect);
            driver.loses_state = loses;
            let answer = scenario(&mut driver);
            assert!(
                driver.crashes() > crashes,
                "effect {effect} of {effects} was not reached: the scenario is not the same each time"
            );
            let state = if loses { ", its state lost," } else { "" };
            assert!(
                answer == expected,
                "a crash{state} at effect {effect} of {effects}, {}, changes the result\n without: \
                 {expected:?}\n    with: {answer:?}\n   first: {}",
                driver.last_crash(),
                first_difference(&format!("{expected:?}"), &format!("{answer:?}")),
            );
        }
    }
    effects
}

/// Returns the texts around the first place where they differ.
fn first_difference(without: &str, with: &str) -> String {
    const AROUND: usize = 30;
    let same = without.chars().zip(with.chars());
    let same = same.take_while(|(a, b)| a == b).count();
    let around = |text: &str| -> String {
        let from = same.saturating_sub(AROUND);
        text.chars().skip(from).take(2 * AROUND).collect()
    };
    format!("`{}` and `{}`", around(without), around(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown_with_its_surroundings() {
        let text = |time: u32| format!("{} at {time} {}", "a".repeat(50), "b".repeat(50));
        let found = first_difference(&text(775), &text(780));
        let (without, with) = found.split_once(" and ").unwrap();
        assert!(
            without.contains("at 775 b") && with.contains("at 780 b"),
            "{found}"
        );
        assert_eq!(without.len(), 62);
        assert_eq!(first_difference("é1", "é"), "`é1` and `é`");
    }
}
