//! The rows after which the task continues.
//!
//! Its state is used as it is, replayed to the end of the changelog, or rebuilt.

use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, ensure};
use eos_core::errors::RestartError;
use eos_core::spi::failpoints::Failpoints;
use kafka_wire::{End, TransactionalProducer};

use super::scene::Scene;

/// The task reads no record of the changelog, for any size of its state.
pub(crate) fn exact(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?;
    let began = scene.run(&["a", "c"])?;
    began.took("exact")?;
    began.says("exact=true")?;
    began.says("state restored")?;
    ensure!(began.records() == 0, "it read: {:?}", began.log);
    scene.judge()
}

/// j < k: another owner has advanced. Here it is an earlier process of the same host.
pub(crate) fn replay(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?;
    let older = scene.keep()?;
    scene.run(&["a", "c"])?;
    scene.put_back(&older)?;
    let began = scene.run(&["a", "b", "c"])?;
    began.took("replay")?;
    ensure!(began.records() > 0, "it read nothing: {:?}", began.log);
    scene.judge()
}

/// An interrupted restore continues at its position.
pub(crate) fn interrupted(scene: &mut Scene) -> Result<()> {
    // Long keys, because with the least memory the restore writes loads of a mebibyte.
    let keys: Vec<String> = (0..3_000)
        .map(|n| format!("{n:05}{}", "k".repeat(1_000)))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    scene.run(&keys)?;
    scene.delete_state()?;
    // The restore fails at its second load. The first one is on disk.
    let faults = Failpoints::parse("restore_k=error@hit:2", "")?;
    let entered = faults.enter();
    let mut app = scene.counting("counts");
    app.set("state.memory.bytes", 8 << 20);
    let error = scene.case.failure_of(app)?;
    drop(entered);
    ensure!(faults.fired().len() == 1, "{error}: {:?}", scene.log());
    scene.log();
    let began = scene.run(&["a", keys[0], keys[2_999]])?;
    began.took("replay")?;
    began.says("local=\"restoring\"")?;
    let records = began.records();
    ensure!(records < 3_000, "it read all {records} records again");
    scene.judge()
}

pub(crate) fn no_state(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?;
    scene.delete_state()?;
    scene.run(&["a", "c"])?.took("no_state")?;
    scene.judge()
}

/// The database contains an attempt that did not commit. It was applied before its EndTxn, which happens only without
/// the defence.
pub(crate) fn other_attempt(scene: &mut Scene) -> Result<()> {
    ahead_of_its_commit(scene)?;
    let wrong = scene.keep()?;
    // Another host processes the same records again.
    scene.delete_databases()?;
    scene.run(&[])?.took("no_state")?;
    scene.put_back(&wrong)?;
    let began = scene.run(&["a", "c"])?;
    began.discarded("other_attempt")?;
    scene.judge()
}

/// The same copy, before another owner has processed the records again.
pub(crate) fn ahead(scene: &mut Scene) -> Result<()> {
    ahead_of_its_commit(scene)?;
    let began = scene.run(&["c"])?;
    began.discarded("ahead")?;
    scene.judge()
}

/// Leaves a database with a transaction that was aborted.
fn ahead_of_its_commit(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?;
    scene.send(&["a"])?;
    scene.crash("pre_commit=crash@record:1", "apply_after_commit")
}

/// The stage has one more store.
pub(crate) fn other_identity(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?;
    let app = scene.counting_with_another_store();
    scene.send(&["a", "c"])?;
    let began = scene.run_app(app)?;
    began.discarded("other_identity")?;
    began.says("its stores have fingerprint")?;
    scene.judge()
}

/// The copy is older than half of `delete.retention.ms`. Tombstones that it missed may be deleted.
pub(crate) fn too_old(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?;
    let older = scene.keep()?;
    scene.run(&["a", "c"])?;
    let changelog = scene.changelog()?;
    let client = &mut scene.case.client;
    client.configure_topic(&changelog, "delete.retention.ms", "20000")?;
    thread::sleep(Duration::from_secs(10));
    scene.put_back(&older)?;
    let began = scene.run(&["a", "c"])?;
    began.discarded("too_old")?;
    scene.judge()
}

/// The offset of the copy is below the start of the changelog of its windows, which was trimmed.
pub(crate) fn trimmed(scene: &mut Scene) -> Result<()> {
    let run = |scene: &mut Scene, keys: &[&str]| {
        scene.send(keys)?;
        let app = scene.counting_by_windows();
        scene.run_app(app)
    };
    run(scene, &["a", "b", "a"])?;
    let older = scene.keep()?;
    // Counts all keys again, so that the changelog has their counts after the trimmed part.
    let from = end_of_changelog(scene)?;
    run(scene, &["a", "b"])?;
    let changelog = scene.changelog()?;
    scene.case.client.delete_records(&changelog, 0, from)?;
    scene.put_back(&older)?;
    let began = run(scene, &["a", "c"])?;
    began.discarded("trimmed")?;
    scene.judge_output()
}

/// As [`trimmed`], but all windows of the copy are closed. So it lacks no row that is still read.
pub(crate) fn trimmed_windows_over(scene: &mut Scene) -> Result<()> {
    const HOURS: i64 = 3_600_000;
    // Brokers delete records that are a week old by their clock.
    let began = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())? - 10 * HOURS;
    let run = |scene: &mut Scene, hours: i64, keys: &[&str]| {
        scene.send_at(began + hours * HOURS, keys)?;
        let app = scene.counting_by_windows();
        scene.run_app(app)
    };
    run(scene, 0, &["a", "b", "a"])?;
    let older = scene.keep()?;
    run(scene, 3, &["a", "b"])?;
    let from = end_of_changelog(scene)?;
    run(scene, 6, &["a", "b"])?;
    let changelog = scene.changelog()?;
    scene.case.client.delete_records(&changelog, 0, from)?;
    scene.put_back(&older)?;
    let began = run(scene, 6, &["a", "c"])?;
    began.took("replay")?;
    ensure!(
        !began
            .log
            .iter()
            .any(|line| line.contains("discarding local state")),
        "its database was deleted: {:?}",
        began.log
    );
    scene.judge_output()
}

pub(crate) fn end_of_changelog(scene: &mut Scene) -> Result<i64> {
    let changelog = scene.changelog()?;
    let ends = scene
        .case
        .client
        .end_offsets(&changelog, kafka_wire::Isolation::ReadUncommitted)?;
    Ok(ends[0])
}

/// Deletes the front of the changelog. For this, the cleanup policy is changed for a moment.
pub(crate) fn cut_changelog(scene: &mut Scene, before: i64) -> Result<()> {
    let changelog = scene.changelog()?;
    let client = &mut scene.case.client;
    client.configure_topic(&changelog, "cleanup.policy", "compact,delete")?;
    client.configure_topic(&changelog, "retention.ms", "-1")?;
    client.delete_records(&changelog, 0, before)?;
    client.configure_topic(&changelog, "cleanup.policy", "compact")
}

/// There is no committed offset and no state.
pub(crate) fn first(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b", "a"])?.took("first")?;
    scene.judge()
}

/// An aborted transaction left records in the changelog, which no `read_committed` reader sees.
pub(crate) fn first_if_empty(scene: &mut Scene) -> Result<()> {
    scene.run(&[])?.took("first")?;
    forget(scene)?;
    scene.delete_state()?;
    let (changelog, bootstrap) = (scene.changelog()?, scene.case.bootstrap.clone());
    let id = format!("{}-dead", scene.case.app);
    let mut dead = TransactionalProducer::new(&bootstrap, &id, Duration::from_secs(30))?;
    dead.send(&changelog, 0, &[("k", "of a transaction that is aborted")])?;
    dead.end(End::Abort)?;
    let began = scene.run(&["a", "b", "a"])?;
    began.took("first_if_empty")?;
    scene.judge()
}

/// The local state has commit records that the metadata of the committed offsets does not know. It is from another
/// history.
pub(crate) fn unknown_changes(scene: &mut Scene) -> Result<()> {
    scene.run(&["a"])?;
    scene.run(&["b"])?;
    // The metadata of a later transaction that names an earlier commit record than the existing one.
    let (offset, name) = scene.named()?;
    let mut fields: Vec<String> = name.split(';').map(str::to_owned).collect();
    let seq: u64 = fields[3].parse()?;
    fields[3] = (seq + 5).to_string();
    fields[5] = (seq - 1).to_string();
    scene.set_offset(offset, &fields.join(";"))?;
    let (error, began) = scene.refused()?;
    ensure!(
        began
            .rows
            .iter()
            .all(|row| row == "unknown_changes" || row == "no_state"),
        "{:?}",
        began.rows
    );
    ensure!(began.rows[0] == "unknown_changes", "{:?}", began.rows);
    ensure!(
        matches!(error, RestartError::OffsetsBehind { .. }),
        "{error}"
    );
    // The fix that the error names: the offsets are set back.
    scene.set_offset(offset, &name)?;
    scene.run(&["a"])?;
    scene.judge()
}

/// Deletes the group's offset, as its expiry does.
pub(crate) fn forget(scene: &mut Scene) -> Result<()> {
    let (app, input) = (scene.case.app.clone(), scene.case.input.clone());
    scene.case.client.delete_offset(&app, &input, 0)
}
