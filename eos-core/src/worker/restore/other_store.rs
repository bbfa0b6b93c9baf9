//! State of renamed, removed or reformatted stores, and steps that were added over existing rows.

use eos_protocol::TaskId;
use eos_protocol::foreign::has_result;
use eos_protocol::state::{Family, Local, OwnRows, RestartError, StoreId, StoreNames};
use eos_state::changelog::BadRecord;
use eos_state::{Direction, KeyRange, StoreBackend, TaskStore};

use super::{Restoring, store_failed};
use crate::client::Client;
use crate::store::StoreSpec;
use crate::worker::error::{UnknownStore, WorkerError};
use crate::worker::shared::Shared;

/// The names of a task's stores.
#[derive(Debug)]
pub(super) struct Names {
    /// The stores of this program, with their families.
    here: Vec<(Family, Box<str>)>,
    /// The names in the committed offsets. Empty if the offsets have none.
    kept: StoreNames,
}

impl Names {
    pub(super) fn of(stores: &[&StoreSpec], kept: StoreNames) -> Self {
        let named = stores.iter().map(|s| (s.id.family(), Box::from(&*s.name)));
        Self {
            here: named.collect(),
            kept,
        }
    }

    /// Returns whether the committed offsets show that a step with this name is new.
    fn lacks(&self, name: &str) -> bool {
        self.kept.lacks(name)
    }

    fn of_unknown(&self, store: StoreId) -> UnknownStore {
        if let Some(name) = self.of_other_format(store) {
            return UnknownStore::OtherFormat { name };
        }
        let Some(name) = self.kept.of_id(store) else {
            return UnknownStore::Unnamed;
        };
        if self.here.iter().any(|(_, here)| name == &**here) {
            let name = name.to_owned();
            return UnknownStore::OtherKind { name };
        }
        let is_new = |(_, here): &&(Family, Box<str>)| !self.kept.iter().any(|it| it == &**here);
        let new = self.here.iter().filter(is_new);
        UnknownStore::Gone {
            name: name.to_owned(),
            new: new.map(|(_, name)| name.clone().into_string()).collect(),
        }
    }

    /// Returns the store that would have this id in the other format.
    fn of_other_format(&self, store: StoreId) -> Option<String> {
        let has = |(family, name): &&(Family, Box<str>)| {
            let raw = match family {
                Family::Plain => StoreId::plain(name),
                Family::Windowed => StoreId::windowed(name),
            };
            let others = [raw, StoreId::stamped(*family, name), StoreId::due(name)];
            others.contains(&store) || store.is_seen(name) || store.own_rows(name).is_some()
        };
        let found = self.here.iter().find(has);
        found.map(|(_, name)| name.clone().into_string())
    }
}

impl<C: Client> Restoring<C> {
    /// Rejects a database with stores that this program does not have. The check comes before the database is discarded
    /// for another reason, because the changelog would be rejected in the same way. The database is unchanged once the
    /// program has the store again.
    ///
    /// A database of another origin is not checked, but discarded.
    pub(super) fn check_stores(
        &self,
        local: Local<'_>,
        backend: &dyn StoreBackend,
    ) -> Result<(), WorkerError> {
        let Local::Position(position) = local else {
            return Ok(());
        };
        let difference = position.identity.difference(&self.identity);
        if difference.is_some_and(|difference| difference.is_foreign()) {
            return Ok(());
        }
        // Unreadable stores are discarded, or found when they are needed.
        let held = backend.stores().unwrap_or_default();
        let known = |store: &StoreId| self.stores.iter().any(|(id, _)| id == store);
        match held.into_iter().find(|store| !known(store)) {
            Some(store) => Err(WorkerError::OtherStore {
                task: self.task,
                place: "the local database".to_owned(),
                known: self.names.of_unknown(store),
                store,
            }),
            None => Ok(()),
        }
    }
}

impl<C: Client> Restoring<C> {
    /// Rejects a step that has to see each row of its table if it is new and the table has rows. The committed offsets name
    /// the steps of the program that wrote them.
    pub(super) fn check_followers(
        &self,
        shared: &Shared<C>,
        store: &TaskStore,
    ) -> Result<(), WorkerError> {
        let topology = &shared.topology;
        let Some(stage) = topology.stage(self.task.stage) else {
            return Ok(());
        };
        let is_new = |step: &str| self.names.lacks(step);
        let added = topology.added_late(stage, is_new, |spec| {
            // A join by foreign key also keeps rows of its own, without a result.
            let has_others = spec.id.own_rows(&spec.name) == Some(OwnRows::ForeignLeft);
            let mut rows = store.scan(spec.id, &KeyRange::all(), Direction::Forward)?;
            while let Some((key, row)) = rows.next()? {
                if !has_others || has_result(key, row) {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        match added.map_err(|source| store_failed(self.task, source))? {
            Some((step, rows)) => Err(WorkerError::Restart(Box::new(RestartError::AddedLate {
                task: self.task,
                step,
                rows: rows.to_string(),
            }))),
            None => Ok(()),
        }
    }
}

/// Replaces a changelog's error about an unknown store with one that names the store, if the name is known.
pub(super) fn with_name(task: TaskId, names: &Names, error: WorkerError) -> WorkerError {
    let WorkerError::Changelog(found) = &error else {
        return error;
    };
    let BadRecord::UnknownStore { store, .. } = found.reason else {
        return error;
    };
    match names.of_unknown(store) {
        UnknownStore::Unnamed => error,
        known => WorkerError::OtherStore {
            task,
            place: format!(
                "offset {} of the changelog {}",
                found.offset, found.partition
            ),
            store,
            known,
        },
    }
}
