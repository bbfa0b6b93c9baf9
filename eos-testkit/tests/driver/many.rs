//! Drivers are cheap.

use std::time::{Duration, Instant};

use eos_core::{App, KeyValueStore, Topic};
use eos_testkit::TestDriver;

#[test]
fn a_thousand_drivers_take_seconds() {
    let begun = Instant::now();
    let lines = Topic::<String, String>::plain("lines");
    let totals = Topic::<String, u64>::plain("totals");
    for number in 0..1_000 {
        let mut app = App::new("many");
        app.source(&lines)
            .group_by_key()
            .count(&KeyValueStore::plain("counts"))
            .to(&totals);
        let mut driver = TestDriver::new(app);
        driver.pipe(&lines, "a", number.to_string());
        driver.pipe(&lines, "a", "again");
        driver.crash();
        driver.pipe(&lines, "a", "and again");
        let counts = driver.read_pairs(&totals).into_iter();
        assert_eq!(
            counts.map(|(_, count)| count).collect::<Vec<_>>(),
            [1, 2, 3]
        );
    }
    let took = begun.elapsed();
    println!("1,000 drivers, 3 records and a crash each: {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}
