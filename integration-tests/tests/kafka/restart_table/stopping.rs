//! The rows after which the app stops, because it could only continue with lost or doubled records. It stops before its
//! first record, with the fix in the error. If the fix is small, the test applies it, and the app continues.

use anyhow::{Result, bail, ensure};
use eos_core::Error;
use eos_core::errors::{RestartError, WorkerError};
use integration_tests::wait::wait_until;

use super::going_on::{cut_changelog, end_of_changelog, forget};
use super::scene::{Scene, is_error};
use crate::common::{KEEP, PATIENCE, With, says};

/// c > m: the offsets were set back below those of the changelog.
pub(crate) fn offsets_behind(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (older, its_name) = scene.named()?;
    scene.run(&["a"])?;
    let (offset, name) = scene.named()?;
    scene.set_offset(older, &its_name)?;
    let began = scene.stops("OffsetsBehind", &["Set them back"])?;
    // The copy is discarded first, because it is ahead of the committed offsets.
    began.took_first("ahead")?;
    scene.delete_state()?;
    let began = scene.stops("OffsetsBehind", &["count twice"])?;
    began.took_first("no_state")?;
    scene.set_offset(offset, &name)?;
    scene.run(&["a"])?;
    scene.judge()
}

/// c < m: the changelog was deleted, and the app recreated it.
pub(crate) fn changelog_lost(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let changelog = scene.changelog()?;
    scene.case.client.delete_topic(&changelog)?;
    // The start recreates the empty changelog, and changes nothing else.
    let (error, began) = scene.refused()?;
    is_error(
        &error,
        "ChangelogRecreated",
        &[&changelog, "accept.changelog="],
    )?;
    ensure!(began.rows.is_empty(), "the local copy was used: {began:?}");
    let RestartError::ChangelogRecreated { now, .. } = error else {
        bail!("{error}");
    };
    // If the operator declares the empty topic complete, the next check stops the app.
    let app = scene
        .counting("counts")
        .with("accept.changelog", now.to_string());
    let (error, began) = scene.refused_app(app)?;
    is_error(&error, "ChangelogLost", &[&changelog, "Restore it"])?;
    began.took_first("other_identity")
}

/// The front of the changelog was purged, including its last commit record.
pub(crate) fn changelog_purged(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let end = end_of_changelog(scene)?;
    cut_changelog(scene, end)?;
    scene.delete_state()?;
    scene.stops("ChangelogPurged", &["begins at offset"])?;
    Ok(())
}

/// The front of the changelog was purged, but its last commit record exists. A rebuilt copy would lack the rows that
/// were only in the purged part.
pub(crate) fn front_purged(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let end = end_of_changelog(scene)?;
    // After a rebuild, the app knows the end of the changelog.
    scene.delete_state()?;
    scene.run(&["a"])?.took("no_state")?;
    cut_changelog(scene, end)?;
    let kept = scene.keep()?;
    // The app continues with a complete copy, and with a copy that is behind but not below the changelog's start.
    scene.run(&["a"])?.took("exact")?;
    scene.put_back(&kept)?;
    scene.run(&["b"])?.took("replay")?;
    scene.judge()?;
    scene.delete_state()?;
    scene.stops("ChangelogPurged", &["begins at offset", "cleanup.policy"])?;
    Ok(())
}

/// The offset expired, but the state exists.
pub(crate) fn offset_gone(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (offset, name) = scene.named()?;
    forget(scene)?;
    scene.stops("OffsetGone", &["on this host", "count records twice"])?;
    scene.delete_state()?;
    let began = scene.stops("OffsetGone", &["has committed records"])?;
    began.took_only("first_if_empty")?;
    scene.set_offset(offset, &name)?;
    scene.run(&["a"])?.took("no_state")?;
    scene.judge()
}

/// `kafka-consumer-groups.sh --reset-offsets --to-earliest`: the offset has no metadata, and the state is not deleted.
pub(crate) fn offset_reset(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (offset, name) = scene.named()?;
    scene.set_offset(0, "")?;
    let delete = format!("kafka-topics.sh --delete --topic {}", scene.changelog()?);
    scene.stops("OffsetReset", &["on this host", "--reset-offsets", &delete])?;
    scene.delete_state()?;
    let began = scene.stops("OffsetReset", &["has committed records"])?;
    began.took_only("first_if_empty")?;
    scene.set_offset(offset, &name)?;
    scene.run(&["a"])?;
    scene.judge()
}

/// The fix in the error of a reset: the changelog and the state are deleted, too, and all counts begin again.
pub(crate) fn offset_reset_and_state(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    scene.set_offset(0, "")?;
    let changelog = scene.changelog()?;
    scene.case.client.delete_topic(&changelog)?;
    scene.delete_state()?;
    let app = scene.counting("counts");
    let began = scene.run_app(app)?;
    began.took("first")?;
    // The earlier outputs stay.
    let outputs = scene.case.output()?.len();
    ensure!(outputs == 4, "{outputs} outputs:\n{}", began.log.concat());
    Ok(())
}

/// The offsets were moved and kept their metadata.
pub(crate) fn offsets_moved(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (offset, name) = scene.named()?;
    scene.set_offset(offset - 1, &name)?;
    scene.stops("OffsetsMoved", &["kept their metadata"])?;
    scene.set_offset(offset, &name)?;
    scene.run(&["a"])?.took("exact")?;
    scene.judge()
}

/// The offsets are from another attempt than the changelog. One of them is from a backup.
pub(crate) fn other_history(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (offset, name) = scene.named()?;
    let mut fields: Vec<&str> = name.split(';').collect();
    fields[4] = "00000000c0ffee00";
    scene.set_offset(offset, &fields.join(";"))?;
    let began = scene.stops("OtherHistory", &["from a backup", "00000000c0ffee00"])?;
    began.took_first("other_attempt")?;
    scene.set_offset(offset, &name)?;
    scene.run(&["a"])?;
    scene.judge()
}

/// The input was recreated, and the group's old offset was restored by hand.
pub(crate) fn input_recreated(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (offset, name) = scene.named()?;
    remake_input(scene, 1)?;
    scene.send(&["a", "a", "a"])?;
    scene.set_offset(offset, &name)?;
    scene.stops("InputRecreated", &["deleted and created again"])?;
    Ok(())
}

/// The number of input partitions has changed, and the changelog was recreated to match.
pub(crate) fn partitions_changed(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let (offset, name) = scene.named()?;
    let changelog = scene.changelog()?;
    scene.case.client.delete_topic(&changelog)?;
    remake_input(scene, 2)?;
    scene.set_offset(offset, &name)?;
    scene.stops("PartitionsChanged", &["had 1 partitions", "now it has 2"])?;
    Ok(())
}

fn remake_input(scene: &mut Scene, partitions: i32) -> Result<()> {
    let input = scene.case.input.clone();
    let client = &mut scene.case.client;
    client.delete_topic(&input)?;
    client.create_topic(&input, partitions, 1, &KEEP)?;
    // The brokers delete the group's offsets of the topic a moment later.
    wait_until(PATIENCE, "the group has no offset", || {
        Ok(scene.case.committed()?.is_none())
    })
}

/// The restore takes longer than tombstones are kept.
pub(crate) fn too_slow(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let changelog = scene.changelog()?;
    let client = &mut scene.case.client;
    client.configure_topic(&changelog, "delete.retention.ms", "0")?;
    scene.delete_state()?;
    scene.stops("TooSlow", &["Raise delete.retention.ms"])?;
    let client = &mut scene.case.client;
    client.configure_topic(&changelog, "delete.retention.ms", "86400000")?;
    scene.run(&["a"])?;
    scene.judge()
}

/// The store was renamed. The changelog's records of the old name belong to no store.
pub(crate) fn store_renamed(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let app = scene.counting("other-counts");
    let error = scene.case.failure_of(app)?;
    ensure!(
        matches!(&error, Error::Worker(WorkerError::OtherStore { .. })),
        "{error}"
    );
    says(&error, &["was renamed to other-counts, rename it back"])?;
    // The app deleted nothing before. With the old name, it reads no record of the changelog.
    scene.log();
    scene.run(&["a"])?.took("exact")?;
    scene.delete_state()?;
    let app = scene.counting("other-counts");
    let error = scene.case.failure_of(app)?;
    ensure!(
        matches!(&error, Error::Worker(WorkerError::OtherStore { .. })),
        "{error}"
    );
    says(&error, &["was renamed to other-counts, rename it back"])?;
    scene.run(&["a"])?;
    scene.judge()
}

/// A position and a layout that a newer version wrote.
pub(crate) fn newer_state(scene: &mut Scene) -> Result<()> {
    scene.run(&["a", "b"])?;
    let kept = scene.keep()?;
    edit(scene, b"\0\0\0\0position", |bytes| {
        let end = bytes.len() - 8;
        let (body, sum) = bytes.split_at_mut(end);
        body[0] += 1;
        sum.copy_from_slice(&fnv(body).to_be_bytes());
    })?;
    refused_as_newer(scene, "start the version that wrote it")?;
    scene.put_back(&kept)?;
    edit(scene, b"\0\0\0\0format", |bytes| bytes[3] += 1)?;
    refused_as_newer(scene, "newer")?;
    // The other fix that the error names.
    scene.delete_state()?;
    scene.run(&["a"])?.took("no_state")?;
    scene.judge()
}

fn refused_as_newer(scene: &mut Scene, fix: &str) -> Result<()> {
    let app = scene.counting("counts");
    let error = scene.case.failure_of(app)?;
    ensure!(
        matches!(&error, Error::Worker(WorkerError::Home { .. })),
        "{error}"
    );
    says(&error, &[fix, "tasks/0_0/db"])
}

/// Changes a bookkeeping value of the database.
fn edit(scene: &Scene, key: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let db = rocksdb::DB::open(&rocksdb::Options::default(), scene.database()?)?;
    let mut value = db.get(key)?.unwrap_or_default();
    ensure!(!value.is_empty(), "{key:?} is not there");
    change(&mut value);
    db.put(key, value)?;
    Ok(db.flush()?)
}

/// FNV-1a, 64 bit.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
