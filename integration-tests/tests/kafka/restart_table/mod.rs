//! Every row of the restart table (`eos_protocol::state::decide`), reached by a real app on a real Kafka and on the
//! embedded broker.
//!
//! A test stops the app. Then it copies, replaces or deletes the state directory, sets or deletes the group's offsets,
//! recreates topics, or removes a broker's data. It checks that the next start took the expected row. Afterwards all
//! counts must be exact, or no record was counted and the error names the fix.
//!
//! `cargo test -p integration-tests --test kafka restart_table:: -- --nocapture` runs the tests. `EOS_CASE=trimmed`
//! runs the cases whose name contains `trimmed`.

mod broker;
mod going_on;
pub(crate) mod scene;
mod stopping;

use std::time::Instant;

use kafka_launcher::{ClusterOptions, own_for_tests};

use crate::common::log;
use anyhow::{Context, Result, ensure};
use eos_broker::EmbeddedKafka;
use integration_tests::counted;
use integration_tests::faults::{Row, record};
use integration_tests::sweep::each;
use scene::Scene;

type One = (&'static str, fn(&mut Scene) -> Result<()>);

const ROWS: [One; 27] = [
    ("too-old", going_on::too_old),
    ("exact", going_on::exact),
    ("replay", going_on::replay),
    ("interrupted", going_on::interrupted),
    ("no-state", going_on::no_state),
    ("other-attempt", going_on::other_attempt),
    ("ahead", going_on::ahead),
    ("other-identity", going_on::other_identity),
    ("trimmed", going_on::trimmed),
    ("windows-over", going_on::trimmed_windows_over),
    ("first", going_on::first),
    ("first-if-empty", going_on::first_if_empty),
    ("unknown-changes", going_on::unknown_changes),
    ("offsets-behind", stopping::offsets_behind),
    ("changelog-lost", stopping::changelog_lost),
    ("changelog-purged", stopping::changelog_purged),
    ("front-purged", stopping::front_purged),
    ("offset-gone", stopping::offset_gone),
    ("offset-reset", stopping::offset_reset),
    ("reset-with-state", stopping::offset_reset_and_state),
    ("offsets-moved", stopping::offsets_moved),
    ("other-history", stopping::other_history),
    ("input-recreated", stopping::input_recreated),
    ("partitions-changed", stopping::partitions_changed),
    ("too-slow", stopping::too_slow),
    ("store-renamed", stopping::store_renamed),
    ("newer-state", stopping::newer_state),
];
/// The number of cases that run at the same time. They mostly wait for a group.
const AT_ONCE: usize = 4;

#[test]
fn every_row_of_the_restart_table_is_taken_where_it_should_be() -> Result<()> {
    let Some(mut cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let since = Instant::now();
    let (mut count, mut failed) = take_rows(cluster.bootstrap())?;
    if wanted("broker") {
        let outcome = broker::loses_changelogs(&mut cluster);
        failed.extend(outcome.err().map(|error| format!("the broker: {error:?}")));
        count += 2;
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    record(&Row {
        point: "8 state".into(),
        case: "every row of the restart table".into(),
        cases: count as u64,
        fired: count as u64,
        verdict: "each took its row; what went on is exact, what stopped counted nothing".into(),
        seconds: since.elapsed().as_secs_f64(),
        command: "cargo test -p integration-tests --test kafka restart_table::".into(),
    })
}

/// Runs all rows except those that need the disk of a broker. The embedded broker has no disk.
#[test]
fn the_embedded_broker_leads_to_the_same_rows() -> Result<()> {
    let kafka = EmbeddedKafka::start()?;
    let (_, failed) = take_rows(&kafka.bootstrap())?;
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

fn wanted(name: &str) -> bool {
    std::env::var("EOS_CASE").map_or(true, |part| name.contains(&part))
}

/// Runs every scenario on one broker. Returns the number of scenarios, and the failures.
fn take_rows(bootstrap: &str) -> Result<(usize, Vec<String>)> {
    log::init();
    // Compiles the programs before the scenarios start, because that takes long.
    counted::program()?;
    scene::program()?;
    let rows: Vec<One> = ROWS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let done = each(&rows, AT_ONCE, |(name, scenario)| {
        let mut scene = Scene::new(bootstrap, name)?;
        let outcome = scenario(&mut scene);
        outcome.with_context(|| format!("{name}: its log:\n{}", scene.log().concat()))
    });
    let mut failed = Vec::new();
    for ((name, _), one) in rows.iter().zip(done) {
        let word = if one.answer.is_ok() { "ok" } else { "FAILED" };
        eprintln!("{name} ... {word} ({:.1?})", one.took);
        failed.extend(one.answer.err().map(|error| format!("{name}: {error:?}")));
    }
    Ok((rows.len(), failed))
}
