//! The totals of a task's waiting records.

/// The format of rows that this version writes, and the newest that it reads.
const FORMAT: u8 = 1;

/// The totals of the waiting records of a task. They are one row, which commits with the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// The number of the next arrival.
    pub next: u64,
    /// The bytes of all waiting records.
    pub bytes: u64,
}

/// The row of the totals can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the totals of the waiting records have {len} bytes and format {format:?}, not 17 bytes and format {FORMAT}: run the newest \
     version that ever used this state. If it is this one, another program wrote to the changelog: start under another app name"
)]
pub struct WaitingError {
    /// The number of bytes.
    pub len: usize,
    /// The first byte.
    pub format: Option<u8>,
}

impl Waiting {
    /// Takes the number of an arrival, and adds its bytes.
    pub fn add(&mut self, bytes: usize) -> u64 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        number
    }

    /// Removes the bytes of a record that left.
    pub fn remove(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    /// Appends the row: format (1 byte), next arrival (8), bytes (8), big-endian.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.push(FORMAT);
        into.extend_from_slice(&self.next.to_be_bytes());
        into.extend_from_slice(&self.bytes.to_be_bytes());
    }

    /// Reads a row of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`WaitingError`] for a row of another format or length.
    pub fn decode(row: &[u8]) -> Result<Self, WaitingError> {
        let read = || {
            let rest = row.strip_prefix(&[FORMAT])?;
            let (next, bytes) = rest.split_first_chunk()?;
            Some(Self {
                next: u64::from_be_bytes(*next),
                bytes: u64::from_be_bytes(bytes.try_into().ok()?),
            })
        };
        read().ok_or(WaitingError {
            len: row.len(),
            format: row.first().copied(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_back_and_the_format_is_pinned() {
        let mut totals = Waiting::default();
        assert_eq!((totals.add(10), totals.add(5)), (0, 1));
        totals.remove(10);
        totals.remove(7);
        let mut row = Vec::new();
        totals.encode(&mut row);
        assert_eq!(row, *b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0");
        assert_eq!(Waiting::decode(&row), Ok(totals));
        for bad in [&b""[..], b"\x01", &[2; 17], &[1; 16], &[1; 18]] {
            assert!(Waiting::decode(bad).is_err(), "{bad:?}");
        }
    }
}
