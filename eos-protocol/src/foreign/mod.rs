//! Foreign-key joins of tables (KIP-213): subscriptions, valid answers, and the formats of rows and messages.
//!
//! A left row names a right row by its *foreign key*. The rows are in different partitions, so the left task sends a
//! *subscription* to the task of the right row. That task keeps it, and sends an *answer*: the right value, now and at each
//! of its updates.
//!
//! **Tokens.** Each subscription has a token, a number of the left task that only grows. An answer counts only if its
//! token is that of the left row. So the answer of a former subscription changes nothing, regardless of the order of
//! answers. Kafka Streams compares hashes of the left value instead (`ResponseJoinProcessorSupplier`).
//!
//! **Known right rows.** A left row keeps the right value of its last answer. If an update of the left row keeps the foreign key,
//! its result needs no answer. Kafka Streams subscribes again at each update.
//!
//! **Order.** The messages from one left task about one foreign key are in one partition, and so are the answers of one right
//! task to one left task. An answer has the right value at the time of its writing. So no result is older than one before.

mod fan_out;
mod left;
mod messages;
mod right;

#[cfg(test)]
mod left_test;

pub use fan_out::{FanOut, Share};
pub use left::{
    COUNTER_KEY, LeftRow, LeftStep, LeftUpdate, Outcome, Reached, Right, Stamp, has_result,
    left_key, resolve, token_of_row, token_row, update_left,
};
pub use messages::{Answer, Message, Subscription};
pub use right::{
    Received, Subscriber, needs_kept, receive, subscriber_key, subscriber_of_key, subscriber_prefix,
};

use crate::Timestamp;

/// The format of all rows and messages, except the cursors and the left rows with a known right row.
const VERSION: u8 = 1;
/// No time.
const NO_TIME: i64 = i64::MIN;

/// The results that a foreign-key join has for left rows without a right row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForeignKind {
    /// None.
    Inner,
    /// One for each left row.
    Left,
}

impl ForeignKind {
    /// The method that declares the join.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Inner => "join_by",
            Self::Left => "left_join_by",
        }
    }
}

/// The reason why bytes are not a valid row or message of a foreign-key join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// Written by a newer version of this library.
    #[error(
        "{what} has format {version}, this version reads up to {newest}: run the newest version that ever used this state"
    )]
    Newer {
        /// The row or message.
        what: &'static str,
        /// The format's number.
        version: u8,
        /// The newest format that this version reads.
        newest: u8,
    },
    /// The bytes are damaged.
    #[error(
        "{what} is damaged ({len} bytes): another program wrote to the topic or changelog. Start under another app name"
    )]
    Damaged {
        /// The row or message.
        what: &'static str,
        /// The number of bytes.
        len: usize,
    },
}

/// Reads the fields of a row or message in order.
struct Fields<'a> {
    what: &'static str,
    len: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads the version first.
    fn of(what: &'static str, bytes: &'a [u8]) -> Result<Self, ForeignError> {
        Ok(Self::up_to(VERSION, what, bytes)?.1)
    }

    /// Reads the version of a format up to `newest` first. Returns it, too.
    fn up_to(newest: u8, what: &'static str, bytes: &'a [u8]) -> Result<(u8, Self), ForeignError> {
        let mut fields = Self::of_key(what, bytes);
        match fields.byte()? {
            0 => Err(fields.damaged()),
            version if version <= newest => Ok((version, fields)),
            version => Err(ForeignError::Newer {
                what,
                version,
                newest,
            }),
        }
    }

    /// Returns the fields of a key. Keys have no version of their own: that of their row counts.
    fn of_key(what: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            what,
            len: bytes.len(),
            rest: bytes,
        }
    }

    fn damaged(&self) -> ForeignError {
        ForeignError::Damaged {
            what: self.what,
            len: self.len,
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ForeignError> {
        let (array, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.damaged())?;
        self.rest = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, ForeignError> {
        self.array().map(|[byte]| byte)
    }

    fn token(&mut self) -> Result<u64, ForeignError> {
        self.array().map(u64::from_be_bytes)
    }

    fn time(&mut self) -> Result<Option<Timestamp>, ForeignError> {
        let time = i64::from_be_bytes(self.array()?);
        Ok((time != NO_TIME).then_some(Timestamp(time)))
    }

    fn bytes(&mut self) -> Result<&'a [u8], ForeignError> {
        let len = u32::from_be_bytes(self.array()?);
        let len = usize::try_from(len).map_err(|_| self.damaged())?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| self.damaged())?;
        self.rest = rest;
        Ok(bytes)
    }

    fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn end(self) -> Result<(), ForeignError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(self.damaged()),
        }
    }
}

fn push_time(into: &mut Vec<u8>, time: Option<Timestamp>) {
    into.extend_from_slice(&time.map_or(NO_TIME, |time| time.0).to_be_bytes());
}

/// Pushes a length in four bytes, and the bytes. Kafka's records are smaller than 2 GiB.
fn push_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&len.to_be_bytes());
    into.extend_from_slice(bytes);
}
