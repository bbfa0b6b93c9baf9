//! The rows of the right side: the subscribers of each foreign key.

use super::{Fields, ForeignError, Message, VERSION, push_bytes};
use crate::Partition;

const WHAT: &str = "a subscriber of a foreign-key join";

/// A left row that subscribes to a right row.
///
/// ```text
/// length (4 bytes) · foreign key · left key        version (1) · token (8) · left partition (4)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    /// The token of its subscription.
    pub token: u64,
    /// The partition of its task.
    pub partition: Partition,
}

impl Subscriber {
    /// The bytes of the row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![VERSION];
        row.extend_from_slice(&self.token.to_be_bytes());
        row.extend_from_slice(&self.partition.get().to_be_bytes());
        row
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(row: &[u8]) -> Result<Self, ForeignError> {
        let mut fields = Fields::of(WHAT, row)?;
        let token = fields.token()?;
        let partition = Partition::new(i32::from_be_bytes(fields.array()?));
        let partition = partition.map_err(|_| fields.damaged())?;
        fields.end()?;
        Ok(Self { token, partition })
    }
}

/// The effect of a message from a left task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is older than the subscription that is kept, and changes nothing.
    Stale,
    /// The subscriber is kept, and has an answer.
    Subscribed,
    /// The subscriber is deleted, if there is one.
    Unsubscribed,
}

/// Decides about a message of a left task with this token. A later subscription of a row has a higher token. An older
/// message only arrives as a replayed dead letter. If it counted, the answers would have its token, and the left task
/// would ignore all of them.
///
/// Each left task counts its own tokens. If the left key is in two tasks, because another partitioner wrote it, the
/// last subscriber gets the answers, and the other task cannot end its subscription.
#[must_use]
pub fn receive(kept: Option<Subscriber>, message: Message, from: Subscriber) -> Received {
    let is_own = |kept: &Subscriber| kept.partition == from.partition;
    match message {
        _ if kept.is_some_and(|it| is_own(&it) && it.token > from.token) => Received::Stale,
        Message::Unsubscribe if kept.is_some_and(|it| !is_own(&it)) => Received::Stale,
        Message::Subscribe { .. } => Received::Subscribed,
        Message::Unsubscribe => Received::Unsubscribed,
    }
}

/// Returns whether [`receive`] needs the kept subscriber. Messages of a left row arrive in the order of their tokens,
/// unless they are replayed. So a subscription that is not replayed is never stale.
#[must_use]
pub fn needs_kept(message: Message, is_replayed: bool) -> bool {
    match message {
        Message::Subscribe { .. } => is_replayed,
        Message::Unsubscribe => true,
    }
}

/// Returns the beginning of the keys of a foreign key's subscribers. The length keeps `a` apart from `ab`.
#[must_use]
pub fn subscriber_prefix(foreign: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + foreign.len());
    push_bytes(&mut key, foreign);
    key
}

/// Returns the key of a subscriber.
#[must_use]
pub fn subscriber_key(foreign: &[u8], left: &[u8]) -> Vec<u8> {
    let mut key = subscriber_prefix(foreign);
    key.extend_from_slice(left);
    key
}

/// Returns the foreign key and the left key of a subscriber's key.
///
/// # Errors
/// If the bytes are damaged.
pub fn subscriber_of_key(key: &[u8]) -> Result<(&[u8], &[u8]), ForeignError> {
    let mut fields = Fields::of_key(WHAT, key);
    let foreign = fields.bytes()?;
    Ok((foreign, fields.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_pinned() {
        let subscriber = Subscriber {
            token: 7,
            partition: Partition::new(3).unwrap(),
        };
        let row = subscriber.encode();
        assert_eq!(row, *b"\x01\0\0\0\0\0\0\0\x07\0\0\0\x03");
        assert_eq!(Subscriber::decode(&row), Ok(subscriber));
        assert_eq!(subscriber_key(b"f", b"k"), *b"\0\0\0\x01fk");
    }

    #[test]
    fn a_message_that_comes_late_does_not_end_a_later_subscription() {
        let kept_in = |token, partition| {
            let partition = Partition::new(partition).unwrap();
            Some(Subscriber { token, partition })
        };
        let kept = |token| kept_in(token, 3);
        let (begin, end) = (Message::Subscribe { to_none: true }, Message::Unsubscribe);
        for (kept, message, expected) in [
            (None, begin, Received::Subscribed),
            (None, end, Received::Unsubscribed),
            (kept(4), begin, Received::Subscribed),
            (kept(4), end, Received::Unsubscribed),
            // A repetition has another answer.
            (kept(5), begin, Received::Subscribed),
            (kept(5), end, Received::Unsubscribed),
            (kept(6), begin, Received::Stale),
            (kept(6), end, Received::Stale),
        ] {
            let from = kept_in(5, 3).unwrap();
            assert_eq!(
                receive(kept, message, from),
                expected,
                "{kept:?} {message:?}"
            );
        }
        // Tokens of another task mean nothing here.
        for (message, expected) in [(begin, Received::Subscribed), (end, Received::Stale)] {
            for token in [4, 6] {
                let from = kept_in(5, 3).unwrap();
                assert_eq!(receive(kept_in(token, 2), message, from), expected);
            }
        }
    }

    #[test]
    fn messages_that_do_not_need_the_kept_subscriber_ignore_it() {
        let of = |token, partition| Subscriber {
            token,
            partition: Partition::new(partition).unwrap(),
        };
        let messages = [true, false].map(|to_none| Message::Subscribe { to_none });
        for message in messages.into_iter().chain([Message::Unsubscribe]) {
            assert!(needs_kept(message, true));
            if needs_kept(message, false) {
                continue;
            }
            // Without a replay, the kept token of the same task is not higher.
            for kept in [of(4, 3), of(5, 3), of(4, 2), of(6, 2)] {
                let decided = receive(Some(kept), message, of(5, 3));
                assert_eq!(decided, receive(None, message, of(5, 3)), "{kept:?}");
            }
        }
    }

    #[test]
    fn subscribers_of_one_key_are_not_those_of_a_longer_one() {
        let key = subscriber_key(b"ab", b"c");
        assert!(!key.starts_with(&subscriber_prefix(b"a")));
        assert_eq!(subscriber_of_key(&key), Ok((&b"ab"[..], &b"c"[..])));
        // A length that lies.
        assert!(subscriber_of_key(b"\0\0\0\x09ab").is_err());
        assert!(Subscriber::decode(b"\x01\0\0\0\0\0\0\0\x07\xff\xff\xff\xff").is_err());
    }
}
