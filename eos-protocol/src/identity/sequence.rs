//! High watermarks of sequences, and versions of values.

/// The format of rows that this version writes, and the newest that it reads.
const FORMAT: u8 = 1;

/// A place in the sequence of a producer: its epoch and the number within it. The order is epoch first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The incarnation of the producer.
    pub epoch: u64,
    /// The number of the record in this epoch.
    pub number: u128,
}

/// The place of a record relative to the high watermark of its producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// The first record of a producer or of an epoch. It may have any number.
    First,
    /// The number follows the high watermark.
    Next,
    /// Numbers between the high watermark and the record are missing.
    Gap {
        /// The number of missing records.
        missing: u128,
    },
    /// The number is not above the high watermark.
    Repeated,
    /// The epoch is lower than that of the high watermark.
    Stale,
}

impl Follows {
    /// Returns whether the record is above the high watermark, which it then replaces.
    #[must_use]
    pub const fn is_above(self) -> bool {
        matches!(self, Self::First | Self::Next | Self::Gap { .. })
    }
}

impl Mark {
    /// Compares a record with the high watermark of its producer, if it has one.
    #[must_use]
    pub fn follows(self, watermark: Option<Self>) -> Follows {
        let Some(last) = watermark else {
            return Follows::First;
        };
        if self.epoch != last.epoch {
            return match self.epoch > last.epoch {
                true => Follows::First,
                false => Follows::Stale,
            };
        }
        match self.number.checked_sub(last.number) {
            None | Some(0) => Follows::Repeated,
            Some(1) => Follows::Next,
            Some(ahead) => Follows::Gap { missing: ahead - 1 },
        }
    }

    /// Appends epoch (8 bytes) and number (16 bytes), big-endian, to the name of a producer.
    pub fn identify(self, producer: &mut Vec<u8>) {
        producer.extend_from_slice(&self.epoch.to_be_bytes());
        producer.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Appends the row: format (1 byte), epoch (8), number (16), big-endian.
    pub fn encode(self, into: &mut Vec<u8>) {
        into.push(FORMAT);
        into.extend_from_slice(&self.epoch.to_be_bytes());
        into.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Reads a row of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`RowError`] for a row of a newer format or of another length.
    pub fn decode(row: &[u8]) -> Result<Self, RowError> {
        let bytes: [u8; 24] = content(row)?;
        let (epoch, number) = bytes.split_at(8);
        let number = number.try_into().unwrap_or_default();
        Ok(Self {
            epoch: u64::from_be_bytes(epoch.try_into().unwrap_or_default()),
            number: u128::from_be_bytes(number),
        })
    }
}

/// The version of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u128);

impl Version {
    /// Appends the row: format (1 byte), version (16), big-endian.
    pub fn encode(self, into: &mut Vec<u8>) {
        into.push(FORMAT);
        into.extend_from_slice(&self.0.to_be_bytes());
    }

    /// Reads a row of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`RowError`] for a row of a newer format or of another length.
    pub fn decode(row: &[u8]) -> Result<Self, RowError> {
        content(row).map(|bytes| Self(u128::from_be_bytes(bytes)))
    }
}

/// A row of high watermarks or versions can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The row is empty.
    #[error(
        "the row is empty: another program wrote to the changelog. Start under another app name"
    )]
    Empty,
    /// Another version of eos wrote it.
    #[error(
        "the row has format {0}, but this version reads format {FORMAT}: run the newest version that ever used this state"
    )]
    Format(u8),
    /// The row has another length than its format.
    #[error(
        "the row has {found} bytes, not {expected}: another program wrote to the changelog. Start under another app name"
    )]
    Length {
        /// The number of bytes.
        found: usize,
        /// The number of bytes of the format.
        expected: usize,
    },
}

/// Returns the bytes behind the format.
fn content<const N: usize>(row: &[u8]) -> Result<[u8; N], RowError> {
    let (format, rest) = row.split_first().ok_or(RowError::Empty)?;
    if *format != FORMAT {
        return Err(RowError::Format(*format));
    }
    rest.try_into().map_err(|_| RowError::Length {
        found: row.len(),
        expected: N + 1,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mark(epoch: u64, number: u128) -> Mark {
        Mark { epoch, number }
    }

    #[test]
    fn numbers_are_compared_within_an_epoch() {
        let last = Some(mark(3, 7));
        for (epoch, number, expected) in [
            (3, 8, Follows::Next),
            (3, 9, Follows::Gap { missing: 1 }),
            (3, 7, Follows::Repeated),
            (3, 0, Follows::Repeated),
            (2, 8, Follows::Stale),
            (2, u128::MAX, Follows::Stale),
            (4, 0, Follows::First),
            (4, 100, Follows::First),
        ] {
            assert_eq!(
                mark(epoch, number).follows(last),
                expected,
                "{epoch} {number}"
            );
        }
        assert_eq!(mark(9, 100).follows(None), Follows::First, "not 0");
    }

    #[test]
    fn gaps_may_be_longer_than_two_to_the_64() {
        let missing = u128::from(u64::MAX) + 2;
        let far = mark(0, missing + 1).follows(Some(mark(0, 0)));
        assert_eq!(far, Follows::Gap { missing });
        let farthest = mark(0, u128::MAX).follows(Some(mark(0, 0)));
        let missing = u128::MAX - 1;
        assert_eq!(farthest, Follows::Gap { missing });
        assert_eq!(
            mark(0, u128::MAX).follows(Some(mark(0, u128::MAX))),
            Follows::Repeated
        );
    }

    #[test]
    fn formats_are_pinned() {
        let mut row = Vec::new();
        mark(2, 3).encode(&mut row);
        assert_eq!(
            row,
            *b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03"
        );
        row.clear();
        Version(4).encode(&mut row);
        assert_eq!(row, *b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04");
    }

    #[test]
    fn unreadable_rows_are_errors() {
        assert_eq!(Mark::decode(b""), Err(RowError::Empty));
        assert_eq!(Mark::decode(&[2; 25]), Err(RowError::Format(2)));
        let (found, expected) = (24, 25);
        assert_eq!(
            Mark::decode(&[1; 24]),
            Err(RowError::Length { found, expected })
        );
        let (found, expected) = (25, 17);
        assert_eq!(
            Version::decode(&[1; 25]),
            Err(RowError::Length { found, expected })
        );
    }

    proptest! {
        #[test]
        fn rows_are_read_back(epoch: u64, number: u128) {
            let (mut row, mut version) = (Vec::new(), Vec::new());
            mark(epoch, number).encode(&mut row);
            prop_assert_eq!(Mark::decode(&row), Ok(mark(epoch, number)));
            Version(number).encode(&mut version);
            prop_assert_eq!(Version::decode(&version), Ok(Version(number)));
        }

        /// Above the watermark means later in the order of epochs and numbers, so each place is accepted once and the
        /// watermark never moves back.
        #[test]
        fn exactly_higher_places_are_above(
            places in proptest::collection::vec((0_u64..3, 0_u128..6), 0..40),
        ) {
            let mut last: Option<Mark> = None;
            for (epoch, number) in places {
                let place = mark(epoch, number);
                let follows = place.follows(last);
                prop_assert_eq!(follows.is_above(), last.is_none_or(|last| place > last));
                prop_assert_eq!(follows == Follows::Stale, last.is_some_and(|last| epoch < last.epoch));
                if let (Follows::Gap { missing }, Some(last)) = (follows, last) {
                    prop_assert_eq!(last.number + missing + 1, number);
                }
                if follows.is_above() {
                    last = Some(place);
                }
            }
        }
    }
}
