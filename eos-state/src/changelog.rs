//! The format of a changelog topic's records.
//!
//! ```text
//! key                              value
//! store id (4 bytes) · key         the value; null deletes the key
//! store id (4 bytes)               of a windowed store: its retention terms
//! reserved id (4 bytes)            version (1) · seq (8) · nonce (8): a commit record
//! ```
//!
//! A record that was written without a transaction (at least once) has a header `eos-attempt`: the value of a commit
//! record, which names the attempt that wrote it.
//!
//! Numbers are big-endian. The commit record is the last record of its transaction in each partition that the
//! transaction wrote. Its key is fixed, so compaction keeps the last one. Only the app itself writes to its
//! changelog. A record in another format stops the restore, because state made from a part of a changelog is silently
//! wrong.

use eos_protocol::state::{CommitRecord, Family, StoreId};
use eos_protocol::{Nonce, Offset, Seq, TopicPartition};

/// The format of commit records that this version writes, and the newest that it reads.
const COMMIT_RECORD: u8 = 1;

/// The name of the header that names the attempt.
pub const ATTEMPT: &str = "eos-attempt";

/// Appends the key of a changelog record: the store, then the store's key.
pub fn key(store: StoreId, key: &[u8], out: &mut Vec<u8>) {
    out.extend(store.to_be_bytes());
    out.extend(key);
}

/// Returns the key of a family's commit record.
#[must_use]
pub const fn commit_record_key(family: Family) -> [u8; 4] {
    StoreId::commit_record(family).to_be_bytes()
}

/// Returns the value of a commit record.
#[must_use]
pub fn commit_record_value(record: CommitRecord) -> [u8; 17] {
    let mut value = [COMMIT_RECORD; 17];
    let (_, numbers) = value.split_at_mut(1);
    let (seq, nonce) = numbers.split_at_mut(8);
    seq.copy_from_slice(&record.seq.0.to_be_bytes());
    nonce.copy_from_slice(&record.nonce.0.to_be_bytes());
    value
}

/// The content of a changelog record.
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
    /// A key is deleted.
    Delete {
        /// The store.
        store: StoreId,
        /// The store's key.
        key: &'a [u8],
    },
    /// A transaction ends here.
    Commit(CommitRecord),
}

/// One partition of a changelog, with its valid stores.
#[derive(Debug, Clone)]
pub struct Changelog {
    partition: TopicPartition,
    family: Family,
    stores: Vec<StoreId>,
}

/// A record that does not belong in its changelog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("changelog {partition}, offset {offset}: {reason}")]
pub struct ChangelogError {
    /// The changelog's partition.
    pub partition: TopicPartition,
    /// The record's offset.
    pub offset: Offset,
    /// The cause.
    pub reason: BadRecord,
}

/// The reason why a record does not belong in its changelog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRecord {
    /// Its key has no store id.
    #[error(
        "the record's key has {len} bytes and can't name a store: another program wrote to this \
         topic. Revoke its access (only the app may write its changelogs), then delete the topic and the \
         app's offsets together, or give the app another name"
    )]
    NoStore {
        /// The length of the key, in bytes.
        len: usize,
    },
    /// Its store does not belong to this changelog.
    #[error(
        "the record is of store {store}, which this program does not have ({family} stores: \
         {known}). If a store was removed or renamed, put it back or give the app another name; if \
         not, another program wrote to this topic"
    )]
    UnknownStore {
        /// The id in its key.
        store: StoreId,
        /// The family of the changelog.
        family: Family,
        /// The number of stores in the changelog.
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
        /// A description of the actual content.
        found: &'static str,
    },
}

impl Changelog {
    /// Returns a partition of a family's changelog, with the ids of its stores.
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
    /// [`ChangelogError`] if the record does not belong in this changelog.
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

    /// Reads the header that names the attempt of a record.
    ///
    /// # Errors
    /// [`ChangelogError`] if the header is damaged, or of a newer format.
    pub fn attempt(
        &self,
        offset: Offset,
        header: Option<&[u8]>,
    ) -> Result<CommitRecord, ChangelogError> {
        read_commit_record(header).map_err(|reason| ChangelogError {
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
