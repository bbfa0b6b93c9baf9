//! Records of the inputs.

use super::topics::INPUT;
use eos_testkit::rng::Rng;

/// The behaviour of the app's closure for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is processed normally.
    Good,
    /// It fails, and succeeds at a retry.
    Flaky,
    /// It takes so long that the records before it are committed first.
    Slow,
    /// It fails at every try.
    Bad,
    /// It panics at every try.
    Panics,
    /// It is not valid text.
    Unreadable,
}

impl Kind {
    pub(super) fn drawn(rng: &mut Rng) -> Kind {
        match rng.below(480) {
            0..=23 => Kind::Flaky,
            // Rare, because every task waits this long.
            24 | 25 => Kind::Slow,
            26..=37 => Kind::Bad,
            38..=41 => Kind::Panics,
            42..=45 => Kind::Unreadable,
            _ => Kind::Good,
        }
    }

    /// Returns whether the app counts the record and emits results.
    pub(super) fn counts(self) -> bool {
        matches!(self, Kind::Good | Kind::Flaky | Kind::Slow)
    }

    fn word(self) -> &'static [u8] {
        match self {
            Kind::Good => b"",
            Kind::Flaky => b" flaky",
            Kind::Slow => b" slow",
            Kind::Bad => b" bad",
            Kind::Panics => b" panics",
            Kind::Unreadable => b" \xff",
        }
    }

    /// Returns the value of a record.
    pub(crate) fn value(self, seq: u64, digit: usize) -> Vec<u8> {
        [format!("{seq} {digit}").as_bytes(), self.word()].concat()
    }
}

/// A record's topic, and its properties beside its key and number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) topic: &'static str,
    pub(crate) timestamp: i64,
    /// It deletes the row of its key.
    pub(crate) tombstone: bool,
    pub(crate) kind: Kind,
}

impl Draft {
    /// Returns a good record with the current time.
    pub(super) fn plain(now: i64) -> Draft {
        Draft {
            topic: INPUT,
            timestamp: now,
            tombstone: false,
            kind: Kind::Good,
        }
    }
}

/// A record of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) seq: u64,
    pub(crate) topic: &'static str,
    pub(crate) key: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    /// Whether it deletes the row of its key.
    pub(crate) tombstone: bool,
    /// The behaviour of the app's closure.
    pub(crate) kind: Kind,
    /// The committed offset of the sibling topic when this record arrived. Records below it are processed
    /// before this one.
    pub(crate) behind: i64,
    /// The time of the cluster when this record arrived.
    pub(crate) arrived: i64,
}
