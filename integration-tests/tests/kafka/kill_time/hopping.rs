//! Final results of windows that overlap. Each is emitted once, in the order of window and key.

use std::time::Instant;

use anyhow::{Result, ensure};
use integration_tests::faults::is_full;
use kafka_launcher::for_tests;

use super::results::window;
use super::scene::{Load, PROCESSES, Scene, fate, now, seed};
use super::windows::Windows;

const PARTITIONS: i32 = 6;
const WINDOWS: Windows = Windows {
    size: 6_000,
    advance: 2_000,
    grace: 500,
};

fn load() -> Load {
    let small = Load {
        records: 4_000,
        keys: 50,
        step: 10,
        disorder: 400,
        after: 60_000,
        rate: 500,
        kills: 6,
    };
    match is_full() {
        true => Load {
            records: 80_000,
            keys: 500,
            step: 2,
            rate: 2_000,
            kills: 26,
            ..small
        },
        false => small,
    }
}

#[test]
fn each_window_is_emitted_once_despite_kills() -> Result<()> {
    let _alone = super::alone();
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let (load, since) = (load(), Instant::now());
    // The workers spend about a third of the time between two results, where a kill must lose and repeat nothing.
    let pause = if is_full() { 1_000 } else { 10_000 };
    let settings = [
        ("SIZE_MS", WINDOWS.size.to_string()),
        ("ADVANCE_MS", WINDOWS.advance.to_string()),
        ("GRACE_MS", WINDOWS.grace.to_string()),
        ("PAUSE_US", pause.to_string()),
    ];
    let mut scene = Scene::new(kafka.bootstrap(), "hopping", PARTITIONS, &settings)?;
    let records = load.records(seed(), PARTITIONS, now()?);
    let mut fate = fate(load.kills)?;
    let fed = scene.feed(&records, load.rate, &mut fate);
    scene.told(fed)?;
    let expected = WINDOWS.closed(&records);
    ensure!(expected.len() > load.records / 10, "too few windows");
    let judged = scene.judge(&expected, window);
    scene.told(judged)?;
    fate.check(&scene.fleet, PROCESSES)?;
    eprintln!(
        "{} records, {} faults, {} windows, {:.1?}",
        records.len(),
        fate.count(),
        expected.len(),
        since.elapsed()
    );
    Ok(())
}
