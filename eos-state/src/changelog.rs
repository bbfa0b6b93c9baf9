//! What the records of a changelog topic look like.
//!
//! ```text
//! key                              value
//! store id (4 bytes) · key         the value; null deletes the key
//! store id (4 bytes)               of a store of windows: on which terms it keeps them
//! reserved id (4 bytes)            version (1) · seq (8) · nonce (8): a commit record
//! ```
//!
//! Numbers are big-endian. The commit record is the last record of its transaction in each partition
//! that the transaction wrote; its key is fixed, so compaction keeps the last one. A changelog is
//! written by its app alone. A record that is none of these stops the restore, because state made
//! from a part of a changelog is silently wrong.

use eos_protocol::state::{CommitRecord, Family, StoreId};
use eos_protocol::{Nonce, Offset, Seq, TopicPartition};

/// The format of commit records that this version writes, and the newest that it reads.
const COMMIT_RECORD: u8 = 1;

/// Appends the key of a changelog record: the store, then the store's key.
pub fn key(store: StoreId, key: &[u8], out: &mut Vec<u8>) {
    out.extend(store.to_be_bytes());
    out.extend(key);
}

/// The key of a family's commit record.
#[must_use]
pub const fn commit_record_key(family: Family) -> [u8; 4] {
    StoreId::commit_record(family).to_be_bytes()
}

/// The value of a commit record.
#[must_use]
pub fn commit_record_value(record: CommitRecord) -> [u8; 17] {
    let mut value = [COMMIT_RECORD; 17];
    let (_, numbers) = value.split_at_mut(1);
    let (seq, nonce) = numbers.split_at_mut(8);
    seq.copy_from_slice(&record.seq.0.to_be_bytes());
    nonce.copy_from_slice(&record.nonce.0.to_be_bytes());
    value
}

/// What a record of a changelog says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A key has this value.
    Put {
        /// The store.
        store: StoreId,
        /// The store's key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// A key is gone.
    Delete {
        /// The store.
        store: StoreId,
        /// The store's key.
        key: &'a [u8],
    },
    /// A transaction ends here.
    Commit(CommitRecord),
}

/// One partition of a changelog: what its records may be.
#[derive(Debug, Clone)]
pub struct Changelog {
    partition: TopicPartition,
    family: Family,
    stores: Vec<StoreId>,
}

/// A record of a changelog that can't be one of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("changelog {partition}, offset {offset}: {reason}")]
pub struct ChangelogError {
    /// The changelog's partition.
    pub partition: TopicPartition,
    /// The record's offset.
    pub offset: Offset,
    /// What is wrong with it.
    pub reason: BadRecord,
}

/// What is wrong with a record of a changelog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRecord {
    /// It has no store's id.
    #[error(
        "the record's key has {len} bytes and can't name a store: another program wrote to this \
         topic. Revoke its access (only the app may write its changelogs), then delete the topic and the \
         app's offsets together, or give the app another name"
    )]
    NoStore {
        /// How long the key is.
        len: usize,
    },
    /// It is of a store that is not one of this changelog's.
    #[error(
        "the record is of store {store}, which this program does not have ({family} stores: \
         {known}). If a store was removed or renamed, put it back or give the app another name; if \
         not, another program wrote to this topic"
    )]
    UnknownStore {
        /// The id in its key.
        store: StoreId,
        /// Which changelog it is.
        family: Family,
        /// How many stores the changelog has.
        known: usize,
    },
    /// A commit record of a newer format.
    #[error(
        "the commit record has format {version}, this version reads up to {COMMIT_RECORD}: run the \
         newest version that ever ran in this group"
    )]
    Newer {
        /// The format's number.
        version: u8,
    },
    /// A commit record that can't be read.
    #[error(
        "the commit record is damaged ({found}): another program wrote to this topic. Delete the \
         topic and the app's offsets together, or give the app another name"
    )]
    CommitRecord {
        /// What is there in its place.
        found: &'static str,
    },
}

impl Changelog {
    /// A partition of the changelog of a family, with the ids of the stores that may be in it.
    #[must_use]
    pub fn new(partition: TopicPartition, family: Family, mut stores: Vec<StoreId>) -> Self {
        stores.sort_unstable();
        Self {
            partition,
            family,
            stores,
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`ChangelogError`] if it is none of this changelog's.
    pub fn read<'a>(
        &self,
        offset: Offset,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
    ) -> Result<Entry<'a>, ChangelogError> {
        self.entry(key.unwrap_or_default(), value)
            .map_err(|reason| ChangelogError {
                partition: self.partition.clone(),
                offset,
                reason,
            })
    }

    fn entry<'a>(&self, key: &'a [u8], value: Option<&'a [u8]>) -> Result<Entry<'a>, BadRecord> {
        let Some((id, rest)) = key.split_first_chunk::<4>() else {
            return Err(BadRecord::NoStore { len: key.len() });
        };
        let store = StoreId::from_be_bytes(*id);
        if store == StoreId::commit_record(self.family) {
            if !rest.is_empty() {
                let found = "its key is too long";
                return Err(BadRecord::CommitRecord { found });
            }
            return read_commit_record(value).map(Entry::Commit);
        }
        if self.stores.binary_search(&store).is_err() {
            return Err(BadRecord::UnknownStore {
                store,
                family: self.family,
                known: self.stores.len(),
            });
        }
        Ok(match value {
            Some(value) => Entry::Put {
                store,
                key: rest,
                value,
            },
            None => Entry::Delete { store, key: rest },
        })
    }
}

fn read_commit_record(value: Option<&[u8]>) -> Result<CommitRecord, BadRecord> {
    let damaged = |found| BadRecord::CommitRecord { found };
    let value = value.ok_or_else(|| damaged("a tombstone"))?;
    let (version, numbers) = value.split_first().ok_or_else(|| damaged("no bytes"))?;
    match *version {
        COMMIT_RECORD => {}
        0 => return Err(damaged("format 0")),
        version => return Err(BadRecord::Newer { version }),
    }
    let (seq, nonce) = match (numbers.first_chunk(), numbers.last_chunk()) {
        (Some(seq), Some(nonce)) if numbers.len() == 16 => (seq, nonce),
        _ => return Err(damaged("another length")),
    };
    Ok(CommitRecord {
        seq: Seq(u64::from_be_bytes(*seq)),
        nonce: Nonce(u64::from_be_bytes(*nonce)),
    })
}

#[cfg(test)]
#[path = "changelog_test.rs"]
mod tests;
