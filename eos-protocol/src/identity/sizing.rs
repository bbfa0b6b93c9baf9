//! The size of a deduplication store.

use std::fmt;
use std::time::Duration;

use super::SeenKind;
use crate::windows::Expiry;

/// The bytes of a row on disk without its scope, id and value: the overhead of RocksDB for an entry, the store, the
/// bucket and the lengths, without the data that the entries of a block share.
const ENTRY: f64 = 6.0;
/// The bytes of an entry in the index of a table, per row.
const INDEX: f64 = 0.1;
/// The bits of a filter per row.
const FILTER: f64 = 10.0;
/// The bytes of a row in the changelog without its scope, id and value: lengths, store, bucket and kind.
const CHANGELOG: f64 = 22.0;
/// The length of a day, in seconds.
const DAY: f64 = 86_400.0;

/// The size of a deduplication store at a constant rate of new ids. All numbers are estimates for one replica of the whole
/// app: its tasks share them.
///
/// An id has 16 bytes, as a UUID in canonical text form has in the store, and its key has 8, unless
/// [`id_bytes`](Self::id_bytes) and [`key_bytes`](Self::key_bytes) set other lengths. `Display` shows all numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizing {
    ids_per_second: f64,
    /// `None` if ids do not expire: the numbers are those of one day.
    expiry: Option<Expiry>,
    /// The bytes of a value.
    value: f64,
    id: f64,
    key: f64,
    reads: u32,
}

impl Sizing {
    /// The size of a store of this kind. `None` if its ids do not expire.
    #[must_use]
    pub fn new(kind: SeenKind, expiry: Option<Expiry>, ids_per_second: f64) -> Self {
        let (value, reads) = kind.cost();
        Self {
            ids_per_second,
            expiry,
            value: value.into(),
            id: 16.0,
            key: 8.0,
            reads,
        }
    }

    /// Sets the length of an id, in bytes. The canonical text of a UUID has 16 in the store, and ids of more than 28 bytes
    /// have 16 as well.
    #[must_use]
    pub fn id_bytes(self, bytes: u32) -> Self {
        let id = if bytes > 28 { 16 } else { bytes };
        Self {
            id: id.into(),
            ..self
        }
    }

    /// Sets the length of a record's key and tenant, in bytes. With `per_partition`, 4.
    #[must_use]
    pub fn key_bytes(self, bytes: u32) -> Self {
        Self {
            key: bytes.into(),
            ..self
        }
    }

    /// Returns the time for which an id is kept. `None` if it never expires.
    #[must_use]
    pub fn kept(&self) -> Option<Duration> {
        self.expiry.map(|expiry| expiry.retention())
    }

    /// The highest number of rows in the database: the rate of new ids times [`kept`](Self::kept). Without an expiry, the
    /// number of new rows in a day.
    #[must_use]
    pub fn rows(&self) -> f64 {
        let seconds = self
            .expiry
            .map_or(DAY, |expiry| expiry.retention().as_secs_f64());
        self.ids_per_second * seconds
    }

    /// The bytes on disk once RocksDB has compacted its tables. Without an expiry, those of a day.
    ///
    /// While compactions lag behind, as in a restore or on an overloaded machine, the disk has up to two and a half times as much.
    #[must_use]
    pub fn disk_bytes(&self) -> f64 {
        self.rows() * self.row_bytes()
    }

    /// The bytes of a row on disk.
    #[must_use]
    pub fn row_bytes(&self) -> f64 {
        ENTRY + INDEX + FILTER / 8.0 + self.key + self.id + self.value
    }

    /// The bytes in the changelog topic, for each replica of it. Without an expiry, those of a day.
    #[must_use]
    pub fn changelog_bytes(&self) -> f64 {
        // The changelog is cut in steps of a sixteenth of the retention.
        let steps = self.expiry.map_or(1.0, |_| 17.0 / 16.0);
        self.rows() * steps * (CHANGELOG + self.key + self.id + self.value)
    }

    /// The bytes of the filters, which show that no row has a new id. The filters should fit into the block cache, a
    /// part of `state.memory.bytes`. Otherwise a new id costs reads of the disk.
    #[must_use]
    pub fn filter_bytes(&self) -> f64 {
        self.rows() * FILTER / 8.0
    }

    /// The rows that are read for a new id.
    #[must_use]
    pub fn reads_per_new_id(&self) -> u32 {
        self.reads
    }
}

impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = match self.kept() {
            Some(kept) => {
                write!(f, "kept for {kept:?}: ")?;
                ""
            }
            None => " per day",
        };
        write!(
            f,
            "{:.0} rows{day}, {} on disk, {} in each replica of the changelog, {} of filters, {} reads per new id",
            self.rows(),
            Bytes(self.disk_bytes()),
            Bytes(self.changelog_bytes()),
            Bytes(self.filter_bytes()),
            self.reads,
        )
    }
}

/// Bytes with a unit.
struct Bytes(f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut number, mut units) = (self.0, ["B", "kB", "MB", "GB", "TB"].into_iter());
        let mut unit = units.next().unwrap_or_default();
        for next in units {
            if number < 1_000.0 {
                break;
            }
            (number, unit) = (number / 1_000.0, next);
        }
        write!(f, "{number:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{SeenWindow, TimedIds};

    const MINUTES: Duration = Duration::from_secs(300);
    const WEEK: Duration = Duration::from_secs(7 * 86_400);

    /// The numbers of docs/deduplication.md.
    #[test]
    fn the_numbers_of_the_documentation_are_right() {
        let sizing = |kind, expiry| Sizing::new(kind, expiry, 1_000.0);
        let disk = |kind, expiry| Bytes(sizing(kind, expiry).disk_bytes()).to_string();
        for (window, fixed, sliding, timed) in [
            (MINUTES, "27 MB", "33 MB", "13 MB"),
            (WEEK, "32 GB", "39 GB", "25 GB"),
        ] {
            let expiry = SeenWindow::fixed(window).expiry();
            assert_eq!(disk(SeenKind::Fixed, Some(expiry)), fixed);
            assert_eq!(disk(SeenKind::Sliding, Some(expiry)), sliding);
            let expiry = TimedIds::remembered_for(window).expiry();
            assert_eq!(disk(SeenKind::TimeEmbedded, Some(expiry)), timed);
        }
        assert_eq!(disk(SeenKind::Ever, None), "3 GB");
    }

    #[test]
    fn a_size_is_printed_with_its_units() {
        let expiry = SeenWindow::fixed(MINUTES).expiry();
        let sizing = Sizing::new(SeenKind::Fixed, Some(expiry), 1_000.0);
        assert_eq!(
            sizing.to_string(),
            "kept for 750s: 750000 rows, 27 MB on disk, 40 MB in each replica of the changelog, 938 kB of filters, 5 reads \
             per new id"
        );
        // A UUID's text is packed, and a longer id is hashed.
        assert_eq!(sizing.id_bytes(36).disk_bytes(), sizing.disk_bytes());
        assert!(sizing.id_bytes(28).disk_bytes() > sizing.disk_bytes());
        assert!(sizing.key_bytes(4).disk_bytes() < sizing.disk_bytes());
        let ever = Sizing::new(SeenKind::Ever, None, 1.0);
        assert_eq!((ever.kept(), ever.rows()), (None, 86_400.0));
        assert!(
            ever.to_string().starts_with("86400 rows per day, 3 MB"),
            "{ever}"
        );
    }
}
