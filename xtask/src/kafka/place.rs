//! What is up, as the user's cache remembers it between two commands.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::detached::Detached;
use super::docker;
use super::embedded::Embedded;
use crate::paths;

/// What is up, as kept in the user's cache.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum State {
    Jvms(Detached),
    Containers { nodes: u8 },
    Embedded(Embedded),
}

impl State {
    pub(crate) fn bootstrap(&self) -> String {
        match self {
            State::Jvms(detached) => detached.bootstrap(),
            State::Containers { nodes } => docker::bootstrap(*nodes).to_owned(),
            State::Embedded(embedded) => embedded.bootstrap(),
        }
    }

    pub(crate) fn nodes(&self) -> u8 {
        match self {
            State::Jvms(detached) => detached.layout.nodes.len() as u8,
            State::Containers { nodes } => *nodes,
            State::Embedded(_) => 1,
        }
    }
}

/// The files of this user's cluster.
pub(crate) struct Place {
    pub(crate) lock: PathBuf,
    state: PathBuf,
    pub(crate) data: PathBuf,
}

impl Place {
    pub(crate) fn find() -> Result<Place> {
        let base = paths::cache_dir()?.join("local");
        Ok(Place {
            lock: base.join("lock"),
            state: base.join("state.json"),
            data: base.join("data"),
        })
    }

    pub(crate) fn load(&self) -> Result<Option<State>> {
        let text = match fs::read(&self.state) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(unreadable(&self.state)),
        };
        let state = serde_json::from_slice(&text).with_context(|| unreadable(&self.state))?;
        Ok(Some(state))
    }

    pub(crate) fn save(&self, state: &State) -> Result<()> {
        let text = serde_json::to_string_pretty(state)?;
        // Renamed when whole: a torn state would hide running brokers.
        let fresh = self.state.with_extension("fresh");
        paths::write(&fresh, &text)?;
        fs::rename(&fresh, &self.state).with_context(|| unreadable(&self.state))
    }

    pub(crate) fn forget(&self) -> Result<()> {
        match fs::remove_file(&self.state) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| unreadable(&self.state))
            }
            _ => Ok(()),
        }
    }
}

fn unreadable(state: &Path) -> String {
    format!(
        "the state of the local Kafka in {}: stop its processes by hand and remove the file if this stays",
        state.display()
    )
}
