//! Orders of a topic as rows of PostgreSQL: each order is booked once, and its units leave the stock once.
//!
//! Processes are killed, join and leave, and one freezes for longer than its session and its transactions. The server
//! restarts without a shutdown, and sessions with open transactions are ended. In another run, the server is lost
//! twice, and a standby is promoted each time. The judge is the program `shop_judge`. It reads the topic, and the rows
//! through `psql`. During the run, each look at the database must see all rows of an order or none.

use std::time::Instant;

use anyhow::{Result, ensure};
use integration_tests::fate::{Fate, Faults};
use integration_tests::faults::is_full;
use kafka_launcher::for_tests;

use super::scene::{PROCESSES, seed};
use super::shop::{Plan, Shop, orders};

struct Size {
    orders: usize,
    /// Orders per second.
    rate: u64,
    kills: u32,
    plan: Plan,
}

fn size() -> Size {
    match is_full() {
        true => Size {
            orders: 200_000,
            rate: 1_250,
            kills: 30,
            plan: Plan {
                restarts: &[250, 600, 850],
                ends: 20,
                ends_writers: true,
                failovers: &[],
            },
        },
        false => Size {
            orders: 20_000,
            rate: 400,
            kills: 10,
            plan: Plan {
                restarts: &[250],
                ends: 6,
                ends_writers: true,
                failovers: &[],
            },
        },
    }
}

/// Returns the size of a run with failovers.
fn size_with_failovers() -> Size {
    let plan = Plan {
        failovers: &[350, 700],
        ..size().plan
    };
    let plan = Plan {
        restarts: &[],
        ends: plan.ends / 2,
        ..plan
    };
    match is_full() {
        true => Size {
            orders: 100_000,
            kills: 15,
            plan,
            ..size()
        },
        false => Size {
            orders: 8_000,
            kills: 4,
            plan,
            ..size()
        },
    }
}

#[test]
fn each_order_is_booked_once_despite_kills_and_restarts() -> Result<()> {
    each_order_is_booked_once("orders", size())
}

/// A synchronous standby has each confirmed commit. An asynchronous one has lost some, with their positions, so the app
/// writes their rows again.
#[test]
fn each_order_is_booked_once_despite_kills_and_failovers() -> Result<()> {
    each_order_is_booked_once("failovers", size_with_failovers())
}

fn each_order_is_booked_once(name: &str, size: Size) -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let since = Instant::now();
    let mut shop = Shop::open(size.plan)?;
    let mut scene = shop.scene(kafka.bootstrap(), name, "")?;
    let mut fate = Fate::new(Faults::KillsAndMoves, size.kills, seed())?;
    let orders = orders(size.orders, None)?;
    let verdict = shop.play(&mut scene, &orders, size.rate, &mut fate)?;
    let checked = fate.check(&scene.fleet, PROCESSES);
    scene.told(checked)?;
    let struck = shop.check()?;
    let held = (scene.fleet).count_lines(|line| line.contains(": ended the session eos/"))?;
    let failed =
        (scene.fleet).count_lines(|line| line.contains("a call of the transaction failed"))?;
    eprintln!(
        "{verdict}; {} kills, a zombie, {struck}, {failed} failed calls of transactions, {held} sessions that held a \
         position ended by a successor, {:.1?}",
        fate.killed(),
        since.elapsed()
    );
    ensure!(
        verdict.bookings == size.orders && verdict.letters == 0,
        "{verdict}"
    );
    Ok(())
}
