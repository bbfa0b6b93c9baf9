//! Orders and their shipments: two streams joined by key and time, with results for records without a partner.
//! `cargo run -p eos-examples --bin 15-orders-shipments`
//!
//! ```text
//! orders ────┬─→ join within a day ─┬─ order and shipment ─→ shipped
//! shipments ─┘                      └─ one without other ──→ shipped, when its day is over
//! ```
//!
//! An order is joined with the shipments of its key up to a day later. An order without a shipment, or a shipment
//! without an order, has one result of its own, after no partner can arrive any more. Kafka Streams emits such results
//! earlier, and a pair may follow.
//!
//! With `close_when_idle`, stream time follows the clock while no records arrive, so the results of the last orders are
//! emitted, too. Kill the program at any moment: no result is lost or repeated, and no record has both a result of its
//! own and a pair.
//!
//! By default, the example starts its own broker, and a day lasts five seconds. With `--kafka`, a day lasts 24 hours, even with
//! the broker of `eos kafka up --embedded`. `shipped` then has the pairs of o1 and o3 at once, and the shipment of o9, which has no
//! order, after a few seconds. The results of o2 and o4, which have no shipment, appear a day later.
//!
//! After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic orders shipments shipped
//! eos kafka produce orders < examples/15-orders-shipments/orders.txt
//! eos kafka produce shipments < examples/15-orders-shipments/shipments.txt
//! cargo run -p eos-examples --bin 15-orders-shipments -- --kafka
//! eos kafka read shipped
//! ```

use std::time::Duration;

use eos_core::state::JoinStore;
use eos_core::windows::Within;
use eos_core::{App, PlainTopic, Sides, Topic};
use eos_examples::{Input, Kafka, log_to_stderr};

const DAY: Duration = Duration::from_secs(24 * 3_600);
const SOON: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let orders = Input::keyed("orders", include_str!("orders.txt"));
    let shipments = Input::keyed("shipments", include_str!("shipments.txt"));
    let kafka = Kafka::provide(&[orders, shipments], &["shipped"])?;
    let day = if kafka.is_embedded() { SOON } else { DAY };
    app(day).run(kafka.bootstrap()).await?;
    Ok(())
}

/// The key is the order's number. The value is the ordered item or the parcel.
fn topic(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name)
}

fn app(day: Duration) -> App {
    let mut app = App::new("orders-shipments-v1");
    let orders = app.source(&topic("orders")).close_when_idle(SECOND);
    let shipments = app.source(&topic("shipments"));
    // The clocks of the two systems differ by less than a second.
    let within = Within::of(SECOND).after(day);
    orders
        .outer_join_within(
            shipments,
            within,
            &JoinStore::plain("orders-shipments"),
            |sides| match sides {
                Sides::Both(order, shipment) => format!("{order}: sent in {shipment}"),
                Sides::Left(order) => format!("{order}: not sent"),
                Sides::Right(shipment) => format!("{shipment}: without an order"),
            },
        )
        .to(&topic("shipped"));
    app
}

#[cfg(test)]
mod tests {
    use eos_testkit::TestDriver;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shipped(driver: &mut TestDriver) -> Vec<String> {
        let pairs = driver.read_pairs(&topic("shipped")).into_iter();
        let mut lines: Vec<_> = pairs.map(|(key, value)| format!("{key} {value}")).collect();
        lines.sort();
        lines
    }

    #[test]
    fn what_has_no_partner_goes_out_alone_once() {
        let mut driver = TestDriver::of(|| app(LONG));
        for (name, lines) in [
            ("orders", include_str!("orders.txt")),
            ("shipments", include_str!("shipments.txt")),
        ] {
            for (key, value) in lines.lines().filter_map(|line| line.split_once(':')) {
                driver.crash_during_next_record();
                driver.pipe(&topic(name), key, value);
            }
        }
        let pairs = [
            "o1 punched cards: sent in parcel 17",
            "o3 a nanosecond of wire: sent in parcel 18",
            "o3 a nanosecond of wire: sent in parcel 19",
        ];
        assert_eq!(shipped(&mut driver), pairs);

        driver.crash_and_lose_state();
        driver.advance_wall_clock(LONG / 2);
        // A shipment may arrive much later than its order.
        driver.pipe(&topic("shipments"), "o4", "parcel 21");
        assert_eq!(
            shipped(&mut driver),
            [
                "o4 a tape without end: sent in parcel 21",
                // Its order would have arrived by then.
                "o9 parcel 20: without an order"
            ]
        );
        driver.advance_wall_clock(LONG);
        driver.crash();
        driver.advance_wall_clock(LONG);
        assert_eq!(shipped(&mut driver), ["o2 chalk: not sent"]);
    }
}
