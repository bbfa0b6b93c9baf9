//! The name of a transaction: the metadata of every committed offset.
//!
//! One line of text, versioned, because other tools show it and other versions read it:
//!
//! ```text
//! eos1;<layout>;<width>;<seq>;<nonce>;<plain>;<windowed>;<stream time>
//! eos1;91f0a2b3c4d5e6f7;6;42;00c0ffee00c0ffee;-;-;1700000000000
//! eos2;<layout>;<width>;<seq>;<nonce>;<plain>;<windowed>;<stream time>;<plain topic>;<windowed topic>
//! eos2;91f0a2b3c4d5e6f7;6;42;00c0ffee00c0ffee;42;-;1700000000000;5e6f791f0a2b3c4d;-
//! eos3;<as eos2>;<stores>
//! eos3;91f0a2b3c4d5e6f7;6;42;00c0ffee00c0ffee;42;-;1700000000000;5e6f791f0a2b3c4d;-;balances,visits
//! ```
//!
//! Numbers are decimal, except `layout`, `nonce` and the topics: 16 hexadecimal digits. `-` stands for none.
//! It stays far below the broker's limit (`offset.metadata.max.bytes`, 4,096).
//!
//! Format 2 also names the changelog topics, and format 3 the stores. A task without stores keeps format 1, so that
//! instances of all versions can work on it. If the names have more than 300 bytes together, they are omitted, and the
//! format stays 2. A task with stores can move from an older version to this one, but not
//! back, because the older version refuses its offsets ([`NameError::Newer`]).

use std::fmt;

use crate::ids::{Nonce, Seq, Timestamp};
use crate::state::{PerFamily, StoreNames, TopicDigest};

/// A hash of a stage's inputs: its topics and the driving topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutHash(pub u64);

impl fmt::Display for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The metadata of a committed offset: the name of the transaction that committed it.
///
/// All partitions of a task carry the same name. At a restart it shows the last transaction, even if the offset
/// itself did not move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionName {
    /// The layout of the stage at that commit.
    pub layout: LayoutHash,
    /// The number of partitions of the stage's driving topic when this task first started. A partition with this
    /// number or a higher one appeared later.
    pub width: u32,
    /// The number of the transaction: one more than that of the task's previous transaction.
    pub seq: Seq,
    /// Random per attempt.
    pub nonce: Nonce,
    /// `seq` of the last commit record in the task's partition of the plain stores' changelog.
    pub plain: Option<Seq>,
    /// The same for the windowed stores' changelog.
    pub windowed: Option<Seq>,
    /// The highest record time that the task has seen.
    pub stream_time: Option<Timestamp>,
    /// Digests of the changelogs' topic ids. `None` in format 1, and where the brokers report no ids.
    pub topics: PerFamily<Option<TopicDigest>>,
    /// The names of the task's stores. Empty in formats 1 and 2.
    pub stores: StoreNames,
}

/// The reason why a text is not a transaction name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Written by a newer version of this library.
    #[error("written by a newer format, eos{version}; this version reads up to eos3")]
    Newer {
        /// The format's number.
        version: u32,
    },
    /// The text begins like a name, but is damaged.
    #[error("damaged: {text:?}")]
    Malformed {
        /// The text.
        text: String,
    },
}

impl TransactionName {
    /// The last commit record in the task's partition of each changelog.
    #[must_use]
    pub fn commit_records(&self) -> PerFamily<Option<Seq>> {
        PerFamily {
            plain: self.plain,
            windowed: self.windowed,
        }
    }

    /// Reads a name. Returns `None` for an empty text or a text of another program.
    ///
    /// # Errors
    /// If the text is ours but of a newer format, or damaged.
    pub fn parse(text: &str) -> Result<Option<Self>, NameError> {
        let mut fields = text.split(';');
        let version = fields
            .next()
            .and_then(|f| f.strip_prefix("eos"))
            .and_then(|v| v.parse().ok());
        let name = match version {
            None => return Ok(None),
            Some(version @ 1..=3) => read(fields, version),
            Some(version) => return Err(NameError::Newer { version }),
        };
        name.map(Some).ok_or_else(|| NameError::Malformed {
            text: text.to_owned(),
        })
    }
}

fn read<'a>(mut fields: impl Iterator<Item = &'a str>, version: u32) -> Option<TransactionName> {
    let mut name = TransactionName {
        layout: LayoutHash(hex(fields.next()?)?),
        width: decimal(fields.next()?)?,
        seq: Seq(decimal(fields.next()?)?),
        nonce: Nonce(hex(fields.next()?)?),
        plain: optional(fields.next()?)?.map(Seq),
        windowed: optional(fields.next()?)?.map(Seq),
        stream_time: optional(fields.next()?)?.map(Timestamp),
        topics: PerFamily::default(),
        stores: StoreNames::default(),
    };
    if version > 1 {
        name.topics.plain = digest(fields.next()?)?;
        name.topics.windowed = digest(fields.next()?)?;
    }
    if version > 2 {
        name.stores = StoreNames::parse(fields.next()?)?;
    }
    fields.next().is_none().then_some(name)
}

fn hex(field: &str) -> Option<u64> {
    let plain = field.len() == 16 && field.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(field, 16).ok()).flatten()
}

fn decimal<T: std::str::FromStr>(field: &str) -> Option<T> {
    // `parse` takes a leading plus, which `eos` never writes.
    if field.starts_with('+') {
        None
    } else {
        field.parse().ok()
    }
}

fn digest(field: &str) -> Option<Option<TopicDigest>> {
    match field {
        "-" => Some(None),
        digits => hex(digits).map(|digest| Some(TopicDigest(digest))),
    }
}

fn optional<T: std::str::FromStr>(field: &str) -> Option<Option<T>> {
    if field == "-" {
        Some(None)
    } else {
        decimal(field).map(Some)
    }
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Or<T>(Option<T>);
        impl<T: fmt::Display> fmt::Display for Or<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match &self.0 {
                    Some(value) => value.fmt(f),
                    None => f.write_str("-"),
                }
            }
        }
        let PerFamily { plain, windowed } = self.topics;
        let version = match plain.or(windowed) {
            _ if !self.stores.is_empty() => 3,
            Some(_) => 2,
            None => 1,
        };
        write!(
            f,
            "eos{version};{};{};{};{:016x};{};{};{}",
            self.layout,
            self.width,
            self.seq.0,
            self.nonce.0,
            Or(self.plain.map(|s| s.0)),
            Or(self.windowed.map(|s| s.0)),
            Or(self.stream_time.map(|t| t.0)),
        )?;
        if version == 1 {
            return Ok(());
        }
        let digits = |topic: TopicDigest| format!("{:016x}", topic.0);
        write!(f, ";{};{}", Or(plain.map(digits)), Or(windowed.map(digits)))?;
        if version == 3 {
            write!(f, ";{}", self.stores)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> TransactionName {
        TransactionName {
            layout: LayoutHash(0x91f0_a2b3_c4d5_e6f7),
            width: 6,
            seq: Seq(42),
            nonce: Nonce(0xc0ff_ee00),
            plain: Some(Seq(41)),
            windowed: None,
            stream_time: Some(Timestamp(-1)),
            topics: PerFamily::default(),
            stores: StoreNames::default(),
        }
    }

    #[test]
    fn the_text_of_version_3_is_pinned() {
        let name = TransactionName {
            stores: StoreNames::of(["visits", "balances"]),
            ..sample()
        };
        let text = "eos3;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1;-;-;balances,visits";
        assert_eq!(name.to_string(), text);
        assert_eq!(TransactionName::parse(text), Ok(Some(name)));
    }

    #[test]
    fn the_text_of_version_2_is_pinned() {
        let name = TransactionName {
            topics: PerFamily {
                plain: Some(TopicDigest(0x5e6f)),
                windowed: None,
            },
            ..sample()
        };
        let text = "eos2;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1;0000000000005e6f;-";
        assert_eq!(name.to_string(), text);
        assert_eq!(TransactionName::parse(text), Ok(Some(name)));
    }

    #[test]
    fn the_text_of_version_1_is_pinned() {
        let text = "eos1;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1";
        assert_eq!(sample().to_string(), text);
        assert_eq!(TransactionName::parse(text), Ok(Some(sample())));
    }

    #[test]
    fn what_others_wrote_is_not_ours() {
        for text in ["", "hello", "{\"a\":1}", "AQAAAZ", "eosine", "eos;1;2"] {
            assert_eq!(TransactionName::parse(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn a_newer_format_is_distinguished_from_damage() {
        assert_eq!(
            TransactionName::parse("eos4;x"),
            Err(NameError::Newer { version: 4 })
        );
        for text in [
            "eos1",
            "eos1;",
            "eos1;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-",
            "eos1;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1;9",
            "eos1;+1f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-",
            "eos2;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1",
            "eos2;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1;5e6f;-",
            "eos3;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1;-;-",
            "eos3;91f0a2b3c4d5e6f7;6;42;00000000c0ffee00;41;-;-1;-;-;a,,b",
        ] {
            let error = TransactionName::parse(text).unwrap_err();
            assert_eq!(error, NameError::Malformed { text: text.into() });
        }
    }

    proptest! {
        #[test]
        fn every_name_reads_back(
            layout: u64, width: u32, seq: u64, nonce: u64,
            plain: Option<u64>, windowed: Option<u64>, time: Option<i64>,
            topics: (Option<u64>, Option<u64>),
            stores in proptest::collection::vec("[a-zA-Z0-9._-]{1,100}", 0..60),
        ) {
            let name = TransactionName {
                layout: LayoutHash(layout), width, seq: Seq(seq), nonce: Nonce(nonce),
                plain: plain.map(Seq), windowed: windowed.map(Seq), stream_time: time.map(Timestamp),
                topics: PerFamily {
                    plain: topics.0.map(TopicDigest), windowed: topics.1.map(TopicDigest),
                },
                stores: StoreNames::of(stores.iter().map(String::as_str)),
            };
            let text = name.to_string();
            prop_assert!(text.len() < 500);
            prop_assert_eq!(TransactionName::parse(&text), Ok(Some(name)));
        }

        #[test]
        fn no_text_panics(text in "(eos[123];)?[-;,0-9a-fx+]{0,80}") {
            let _ = TransactionName::parse(&text);
        }
    }
}
