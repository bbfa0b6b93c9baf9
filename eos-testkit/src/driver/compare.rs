//! A snapshot of committed data, to compare two runs.

use std::collections::BTreeMap;
use std::fmt;

use eos_core::spi::stepped::live_rows;
use eos_state::StoreBackend;

use super::TestDriver;

/// A committed record as bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
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

/// As `key:value at timestamp`, with escaped bytes.
impl fmt::Debug for RawRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Option<Vec<u8>>| match bytes {
            Some(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            None => "null".to_owned(),
        };
        let (key, value) = (text(&self.key), text(&self.value));
        write!(f, "{key}:{value} at {}", self.timestamp)?;
        for (name, value) in &self.headers {
            write!(f, " {name}={}", text(value))?;
        }
        Ok(())
    }
}

/// Headers of dead letters with times and counts, which a crash changes.
const VARYING: [&str; 2] = ["__eos.errors.attempts", "__eos.errors.time"];

/// The rows of a store, as bytes.
type RawRows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The committed data of an app. Two drivers with the same input have the same data, even if processes died. Created
/// by [`TestDriver::committed`].
///
/// It does not contain offsets: transaction markers take some, also those of aborted transactions. It does not
/// contain the headers of dead letters with the time and the number of tries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The records of each partition of the topics that the app writes to, except its own topics.
    pub outputs: BTreeMap<(String, i32), Vec<RawRecord>>,
    /// The content of the stores, by task and store, except expired windows.
    pub stores: BTreeMap<String, RawRows>,
}

impl TestDriver {
    /// All committed data, read or not: for [`crash_everywhere`](crate::crash_everywhere), and to compare two
    /// drivers.
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
