//! Everything that is committed, to compare one run with another.

use std::collections::BTreeMap;

use eos_core::spi::stepped::live_rows;
use eos_state::StoreBackend;

use super::TestDriver;

/// A committed record as bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RawRecord {
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its time, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its headers.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Headers of dead letters that say when and how often, which a crash changes.
const VARYING: [&str; 2] = ["__eos.errors.attempts", "__eos.errors.time"];

/// The rows of a store, as bytes.
type RawRows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything that an app has committed: two drivers that went through the same have the same, whatever died
/// meanwhile. Made by [`TestDriver::committed`].
///
/// Offsets are not in it: markers of transactions take some, aborted ones too. Nor are the headers of dead letters that
/// say when and how often a record was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The records of each partition of the topics that the app writes to, those of its own left out.
    pub outputs: BTreeMap<(String, i32), Vec<RawRecord>>,
    /// What the stores hold, by task and store. Windows that are over are left out.
    pub stores: BTreeMap<String, RawRows>,
}

impl TestDriver {
    /// Everything that is committed, read or not: for [`crash_everywhere`](crate::crash_everywhere), and to
    /// compare two drivers.
    #[must_use]
    pub fn committed(&self) -> Committed {
        let mut outputs = BTreeMap::new();
        for topic in self.app.outputs() {
            let topic = topic.as_str();
            for partition in 0..self.cluster.partitions(topic) {
                let records = self.cluster.read(topic, partition).into_iter();
                let records = records.map(|record| RawRecord {
                    key: record.key.map(Into::into),
                    value: record.value.map(Into::into),
                    timestamp: record.timestamp,
                    headers: (record.headers.into_iter())
                        .filter(|(name, _)| !VARYING.contains(&&name[..]))
                        .map(|(name, value)| (name, value.map(Into::into)))
                        .collect(),
                });
                outputs.insert((topic.to_owned(), partition), records.collect());
            }
        }
        let mut stores = BTreeMap::new();
        for (home, database) in self.databases() {
            for id in database.stores().unwrap_or_default() {
                let rows = live_rows(&database, id).unwrap_or_default();
                if rows.is_empty() {
                    continue;
                }
                let rows: RawRows = rows.into_iter().collect();
                stores.insert(format!("{} {id}", home.task), rows);
            }
        }
        Committed { outputs, stores }
    }
}
