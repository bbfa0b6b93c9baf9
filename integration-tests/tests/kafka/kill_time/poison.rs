//! One percent of the orders violates a constraint. Each order becomes either rows or a dead letter.
//!
//! An invalid order would raise the stock. If only one of its two rows were committed, the sums would differ.

use std::time::Instant;

use anyhow::{Result, ensure};
use integration_tests::fate::Fate;
use integration_tests::faults::is_full;
use kafka_launcher::for_tests;

use super::scene::{PROCESSES, fate};
use super::shop::{Plan, Shop, orders};

/// One of this number of orders is invalid.
const BAD: usize = 100;

struct Size {
    orders: usize,
    /// Orders per second.
    rate: u64,
    kills: u32,
    ends: usize,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            orders: 100_000,
            rate: 1_250,
            kills: 16,
            ends: 10,
        },
        false => Size {
            orders: 6_000,
            rate: 500,
            kills: 3,
            ends: 2,
        },
    }
}

#[test]
fn refused_orders_are_dead_letters_and_leave_no_row() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (size, since) = (size(), Instant::now());
    let mut shop = Shop::open(Plan {
        restarts: &[],
        ends: size.ends,
        // The app writes its rows just before the commit.
        ends_writers: false,
        failovers: &[],
    })?;
    let mut scene = shop.scene(kafka.bootstrap(), "poison", "dead_letter")?;
    let mut fate: Fate = fate(size.kills)?;
    let orders = orders(size.orders, Some(BAD))?;
    let bad = orders.iter().filter(|it| it.value.contains("-7")).count();
    let verdict = shop.play(&mut scene, &orders, size.rate, &mut fate)?;
    let checked = fate.check(&scene.fleet, PROCESSES);
    scene.told(checked)?;
    let struck = shop.check()?;
    eprintln!(
        "{verdict}; {} kills, {struck}, {:.1?}",
        fate.killed(),
        since.elapsed()
    );
    ensure!(
        bad > 0 && verdict.letters == bad && verdict.bookings + bad == size.orders,
        "{bad} bad orders: {verdict}"
    );
    Ok(())
}
