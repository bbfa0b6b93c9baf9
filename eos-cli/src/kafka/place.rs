//! The state of each checkout's cluster, kept in the user's cache between two commands.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kafka_launcher::{Detached, VERSION, docker, paths};
use serde::{Deserialize, Serialize};

use super::embedded::Embedded;

const STATE: &str = "state.json";

/// The cluster that is up, as kept in the user's cache.
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

    /// Returns the kind of the cluster, as text for people.
    pub(crate) fn kind(&self) -> String {
        match self {
            State::Jvms(_) => format!("Kafka {VERSION}"),
            State::Containers { .. } => format!("Kafka {VERSION} in Docker"),
            State::Embedded(_) => "the embedded broker".to_owned(),
        }
    }

    /// Returns whether any of its processes runs. Containers count as running, because they end by themselves only with
    /// Docker.
    fn is_alive(&self) -> bool {
        match self {
            State::Jvms(detached) => detached.nodes().any(|(_, process)| process.is_some()),
            State::Containers { .. } => true,
            State::Embedded(embedded) => embedded.is_alive(),
        }
    }

    pub(crate) fn nodes(&self) -> u8 {
        match self {
            State::Jvms(detached) => detached.nodes().count() as u8,
            State::Containers { nodes } => *nodes,
            State::Embedded(_) => 1,
        }
    }
}

/// The content of a state file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The checkout that started the cluster.
    checkout: PathBuf,
    state: State,
}

/// The running cluster of another checkout of the same user.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) checkout: PathBuf,
    pub(crate) state: State,
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {}, which {} started",
            self.state.kind(),
            self.state.bootstrap(),
            owner(&self.checkout)
        )
    }
}

/// The files of this checkout's cluster.
pub(crate) struct Place {
    /// One lock for all checkouts: two clusters that start at the same time would choose the same port.
    pub(crate) lock: PathBuf,
    base: PathBuf,
    checkout: PathBuf,
    state: PathBuf,
    pub(crate) data: PathBuf,
}

/// Returns the owner of a cluster, as text. Programs outside of any checkout share one cluster, whose checkout path is
/// empty.
fn owner(checkout: &Path) -> String {
    match checkout.as_os_str().is_empty() {
        true => "this user's `eos` outside of a checkout".to_owned(),
        false => format!("the checkout in {}", checkout.display()),
    }
}

impl Place {
    /// Returns the owner of this place, as text.
    pub(crate) fn owner(&self) -> String {
        owner(&self.checkout)
    }

    pub(crate) fn find() -> Result<Place> {
        let base = paths::cache_dir()?.join("local");
        Ok(Place::of(base, paths::checkout().unwrap_or(Path::new(""))))
    }

    fn of(base: PathBuf, checkout: &Path) -> Place {
        let own = base.join(format!(
            "{:08x}",
            crc32c::crc32c(checkout.as_os_str().as_encoded_bytes())
        ));
        Place {
            lock: base.join("lock"),
            checkout: checkout.to_owned(),
            state: own.join(STATE),
            data: own.join("data"),
            base,
        }
    }

    pub(crate) fn load(&self) -> Result<Option<State>> {
        Ok(load(&self.state)?.map(|kept| kept.state))
    }

    /// Returns the running clusters of other checkouts. Skips a state file that cannot be read.
    pub(crate) fn others(&self) -> Vec<Other> {
        let entries = fs::read_dir(&self.base).into_iter().flatten().flatten();
        let states = entries.map(|entry| entry.path().join(STATE));
        let others = states.filter(|state| *state != self.state);
        let others = others.filter_map(|state| load(&state).ok().flatten());
        let mut others: Vec<_> = others
            .map(|Kept { checkout, state }| Other { checkout, state })
            .filter(|other| other.state.is_alive())
            .collect();
        others.sort_by(|a, b| a.checkout.cmp(&b.checkout));
        others
    }

    pub(crate) fn save(&self, state: &State) -> Result<()> {
        #[derive(Serialize)]
        struct Kept<'a> {
            checkout: &'a Path,
            state: &'a State,
        }
        let checkout = &self.checkout;
        let text = serde_json::to_string_pretty(&Kept { checkout, state })?;
        // Renamed once it is complete, because a torn state would hide running brokers.
        let fresh = self.state.with_extension("fresh");
        if let Some(parent) = fresh.parent() {
            fs::create_dir_all(parent).with_context(|| unreadable(&self.state))?;
        }
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

fn load(path: &Path) -> Result<Option<Kept>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(unreadable(path)),
    };
    let kept = serde_json::from_slice(&text).with_context(|| unreadable(path))?;
    Ok(Some(kept))
}

fn unreadable(state: &Path) -> String {
    format!(
        "the state of the local Kafka in {}: stop its processes by hand and remove the file if this stays",
        state.display()
    )
}
