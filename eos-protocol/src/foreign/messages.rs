//! The messages between the tasks of a foreign-key join.

use super::{Fields, ForeignError, VERSION};
use crate::{Partition, Timestamp};

/// The timestamp of an answer about a right row without a time.
const EPOCH: Timestamp = Timestamp(0);

const UNSUBSCRIBE: u8 = 0;
const SUBSCRIBE: u8 = 1;
const SUBSCRIBE_TO_NONE: u8 = 2;

/// A subscription or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Forget the left row.
    Unsubscribe,
    /// Keep the left row, and answer.
    Subscribe {
        /// Whether to answer even without a right row.
        to_none: bool,
    },
}

/// A message from a left task to the task of the right row. The key of its record is the foreign key.
///
/// ```text
/// version (1 byte) · message (1) · token (8) · left partition (4) · left key
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The request to the right task.
    pub message: Message,
    /// The token of the subscription, or of the one that ends.
    pub token: u64,
    /// The partition of the left task.
    pub partition: Partition,
    /// The encoded key of the left row.
    pub key: Vec<u8>,
}

impl Subscription {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let message = match self.message {
            Message::Unsubscribe => UNSUBSCRIBE,
            Message::Subscribe { to_none: false } => SUBSCRIBE,
            Message::Subscribe { to_none: true } => SUBSCRIBE_TO_NONE,
        };
        let mut bytes = vec![VERSION, message];
        bytes.extend_from_slice(&self.token.to_be_bytes());
        bytes.extend_from_slice(&self.partition.get().to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(bytes: &[u8]) -> Result<Self, ForeignError> {
        let mut fields = Fields::of("a subscription of a foreign-key join", bytes)?;
        let message = match fields.byte()? {
            UNSUBSCRIBE => Message::Unsubscribe,
            SUBSCRIBE => Message::Subscribe { to_none: false },
            SUBSCRIBE_TO_NONE => Message::Subscribe { to_none: true },
            _ => return Err(fields.damaged()),
        };
        let token = fields.token()?;
        let partition = Partition::new(i32::from_be_bytes(fields.array()?));
        Ok(Self {
            message,
            token,
            partition: partition.map_err(|_| fields.damaged())?,
            key: fields.rest().to_vec(),
        })
    }
}

/// A message from a right task to a left task. The key of its record is that of the left row, and the time is that of the
/// right row.
///
/// ```text
/// version (1 byte) · whether there is a value (1) · token (8) · value
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The token of the subscription.
    pub token: u64,
    /// The encoded right value, if there is a right row.
    pub value: Option<&'a [u8]>,
}

impl<'a> Answer<'a> {
    /// Returns the timestamp of the record of an answer. The producer would stamp a record without one with the present time.
    #[must_use]
    pub fn timestamp(time: Option<Timestamp>) -> Timestamp {
        time.unwrap_or(EPOCH)
    }

    /// Returns the time of the right row from the [timestamp](Self::timestamp) of its answer. `None` for timestamps up to 1 ms,
    /// which stand for a row without a time.
    #[must_use]
    pub fn time(timestamp: Option<Timestamp>) -> Option<Timestamp> {
        // The producer sends 0 as 1, because librdkafka reads 0 as the present time.
        timestamp.filter(|time| time.0 > EPOCH.0 + 1)
    }

    /// Replaces the content of `bytes` with those of the message.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&[VERSION, u8::from(self.value.is_some())]);
        bytes.extend_from_slice(&self.token.to_be_bytes());
        bytes.extend_from_slice(self.value.unwrap_or_default());
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, ForeignError> {
        let mut fields = Fields::of("an answer of a foreign-key join", bytes)?;
        let has_value = fields.byte()?;
        let token = fields.token()?;
        let value = match has_value {
            1 => Some(fields.rest()),
            0 => {
                fields.end()?;
                None
            }
            _ => return Err(fields.damaged()),
        };
        Ok(Self { token, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(message: Message) -> Subscription {
        Subscription {
            message,
            token: 7,
            partition: Partition::new(3).unwrap(),
            key: b"k".to_vec(),
        }
    }

    #[test]
    fn formats_are_pinned() {
        let bytes = subscription(Message::Subscribe { to_none: true }).encode();
        assert_eq!(bytes, *b"\x01\x02\0\0\0\0\0\0\0\x07\0\0\0\x03k");
        let mut bytes = Vec::new();
        Answer {
            token: 7,
            value: Some(b"v"),
        }
        .encode(&mut bytes);
        assert_eq!(bytes, *b"\x01\x01\0\0\0\0\0\0\0\x07v");
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in [
            Message::Unsubscribe,
            Message::Subscribe { to_none: false },
            Message::Subscribe { to_none: true },
        ] {
            let written = subscription(message);
            assert_eq!(Subscription::decode(&written.encode()), Ok(written));
        }
        // An empty value is not a missing one.
        for value in [None, Some(&b""[..]), Some(b"v")] {
            let (written, mut bytes) = (Answer { token: 1, value }, Vec::new());
            written.encode(&mut bytes);
            assert_eq!(Answer::decode(&bytes), Ok(written));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\0\0",
            b"\x01\x09\0\0\0\0\0\0\0\x07\0\0\0\x03k",
        ] {
            let damaged = matches!(
                Subscription::decode(bytes),
                Err(ForeignError::Damaged { .. })
            );
            assert!(damaged, "{bytes:?}");
            let damaged = matches!(Answer::decode(bytes), Err(ForeignError::Damaged { .. }));
            assert!(damaged, "{bytes:?}");
        }
        let no_value_and_bytes = b"\x01\0\0\0\0\0\0\0\0\x07v";
        assert!(Answer::decode(no_value_and_bytes).is_err());
        let newer = Subscription::decode(&[2]).unwrap_err();
        assert!(matches!(newer, ForeignError::Newer { version: 2, .. }));
        assert!(newer.to_string().contains("run the newest version"));
    }
}
