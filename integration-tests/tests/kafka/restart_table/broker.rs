//! Data loss of a broker. A partition of a changelog is empty after a restart, as after an unclean election. The topic
//! keeps its id.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use eos_core::errors::RestartError;
use kafka_launcher::Cluster;

use super::scene::Scene;
use crate::common::says;

/// Log end < position, and c < m: with a copy on this host and without.
pub(crate) fn loses_changelogs(cluster: &mut Cluster) -> Result<()> {
    let bootstrap = cluster.bootstrap().to_owned();
    let mut with = Scene::new(&bootstrap, "shorter")?;
    let mut without = Scene::new(&bootstrap, "lost-by-the-broker")?;
    for scene in [&mut with, &mut without] {
        scene.run(&["a", "b"])?;
        // After a restore, the app knows the end of the changelog at once. Otherwise it learns the end after seconds.
        scene.delete_state()?;
        scene.run(&["a"])?;
    }
    without.delete_state()?;
    let names = [with.changelog()?, without.changelog()?];
    cluster.stop_node(1)?;
    for name in &names {
        let cut = empty(cluster.dir(), &format!("{name}-0"))?;
        ensure!(cut == 1, "{cut} directories of {name}");
    }
    cluster.start_node(1)?;

    let (error, _) = with.refused()?;
    ensure!(
        matches!(error, RestartError::ChangelogShorter { .. }),
        "{error}"
    );
    says(
        &error,
        &[&names[0], "ends at offset 0", "last complete copy: keep it"],
    )?;
    let (error, began) = without.refused()?;
    ensure!(
        matches!(error, RestartError::ChangelogLost { .. }),
        "{error}"
    );
    began.took_first("no_state")
}

/// Empties the directories of this name, except for the topic's id. Returns their number.
fn empty(root: &Path, name: &str) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if entry.file_name() != name {
            count += empty(&entry.path(), name)?;
            continue;
        }
        count += 1;
        for file in fs::read_dir(entry.path())? {
            let file = file?;
            if file.file_name() != "partition.metadata" {
                fs::remove_file(file.path())?;
            }
        }
    }
    Ok(count)
}
