//! The control of `a_lost_position_stops_the_app` in eos-testkit. Without the defence, a start at the copy of a lost
//! position loses the records before it. The simulated failover keeps first positions, so no seed finds this.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_core::codec::Plain;
use eos_core::run::FirstStart;
use eos_core::spi::failpoints::Failpoints;
use eos_core::{App, Topic};
use eos_testkit::TestDriver;
use eos_testkit::ledger::ModelLedger;

/// Writes one row, loses the database, and restarts. Returns the rows after one more record, or the error of the
/// restart.
fn rows_after_loss(without: &str) -> Result<Vec<String>, String> {
    let failpoints = Failpoints::parse("", without).map_err(|error| error.to_string())?;
    let _entered = failpoints.enter();
    let ledger = ModelLedger::new("shop");
    let orders: Topic<String, u64, Plain, Plain> = Topic::plain("orders");
    let mut app = App::new("shop");
    app.ledger(&ledger).first_start(FirstStart::Group);
    app.source(&orders).to_place(ledger.place("bookings"));
    let mut driver = TestDriver::new(app);
    driver.ledger(&ledger);
    driver.pipe(&orders, "first", 7_u64);
    // The worker copies its positions every five seconds.
    driver.advance_wall_clock(Duration::from_secs(6));
    driver.kill();
    ledger.fail_over(usize::MAX);
    if let Err(why) = catch_unwind(AssertUnwindSafe(|| driver.restart())) {
        let text = why.downcast_ref::<String>().cloned();
        return Err(text.unwrap_or_default());
    }
    driver.pipe(&orders, "second", 8_u64);
    let rows = ledger.rows::<String, u64>("bookings").into_iter();
    Ok(rows.map(|(key, _)| key).collect())
}

#[test]
fn a_start_at_the_copy_of_a_lost_position_loses_records() {
    let error = rows_after_loss("").unwrap_err();
    assert!(
        error.contains("the ledger has no position of orders-0"),
        "{error}"
    );
    assert_eq!(rows_after_loss("copies_of_positions").unwrap(), ["second"]);
}
