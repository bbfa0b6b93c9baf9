//! The headers of a dead letter (KIP-1034).
//!
//! A dead letter is the failed record without changes: its key and value as bytes, its timestamp, its headers. The
//! headers of this module follow. Their names and format are those of Kafka Streams 4.2
//! (`ExceptionHandlerUtils#buildDeadLetterQueueRecord`), so that the same tools read both: text in UTF-8, numbers in
//! decimal. A record that was a dead letter before has these headers twice. Readers use the last ones, but
//! [`calls::origin`](fn@crate::calls::origin) uses the first ones.

use crate::Timestamp;
use crate::ids::{AppId, Offset, TopicPartition};

/// The header with the kind of error.
pub const EXCEPTION: &str = "__streams.errors.exception";
/// The header with the error's message.
pub const MESSAGE: &str = "__streams.errors.message";
/// The header with the stack trace: here, the errors that caused it.
pub const STACKTRACE: &str = "__streams.errors.stacktrace";
/// The header with the source topic.
pub const TOPIC: &str = "__streams.errors.topic";
/// The header with the source partition.
pub const PARTITION: &str = "__streams.errors.partition";
/// The header with the source offset.
pub const OFFSET: &str = "__streams.errors.offset";
/// The header with the app's name. KIP-1034 defines neither this header nor the headers below.
pub const APP: &str = "__eos.errors.app";
/// The header of a replayed record with its original topic, partition and offset, separated by spaces. Its format never
/// changes: another format would get another name.
pub const ORIGIN: &str = "eos-origin";
/// The header with the number of tries.
pub const ATTEMPTS: &str = "__eos.errors.attempts";
/// The header with the time of the last try, in milliseconds since 1970.
pub const TIME: &str = "__eos.errors.time";

/// The failure of a record that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// The record's partition.
    pub partition: &'a TopicPartition,
    /// The record's offset.
    pub offset: Offset,
    /// The kind of error: a class in Java, a type or a code here.
    pub exception: &'a str,
    /// The error's message.
    pub message: &'a str,
    /// The causes of the error.
    pub stacktrace: &'a str,
    /// The app.
    pub app: &'a AppId,
    /// The number of tries.
    pub attempts: u32,
    /// The time of the last try.
    pub time: Timestamp,
}

impl DeadLetter<'_> {
    /// Returns the headers: names and values.
    ///
    /// Cuts message and stack trace to `text` bytes together, the stack trace first. Otherwise a record of nearly the
    /// maximum size would not fit into the dead-letter topic.
    #[must_use]
    pub fn headers(&self, text: usize) -> [(&'static str, Vec<u8>); 9] {
        let message = cut(self.message, text);
        let left = if message.len() < self.message.len() {
            0
        } else {
            text - message.len()
        };
        let stacktrace = cut(self.stacktrace, left);
        [
            (EXCEPTION, self.exception.into()),
            (MESSAGE, message.into()),
            (STACKTRACE, stacktrace.into()),
            (TOPIC, self.partition.topic.as_str().into()),
            (PARTITION, self.partition.partition.to_string().into_bytes()),
            (OFFSET, self.offset.to_string().into_bytes()),
            (APP, self.app.as_str().into()),
            (ATTEMPTS, self.attempts.to_string().into_bytes()),
            (TIME, self.time.0.to_string().into_bytes()),
        ]
    }
}

/// The beginning of the text in at most this number of bytes, in whole characters.
fn cut(text: &str, most: usize) -> &str {
    let fits = |end: &usize| *end <= most;
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(fits).last().unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;

    fn texts(letter: &DeadLetter<'_>, most: usize) -> Vec<(&'static str, String)> {
        let headers = letter.headers(most);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        headers
            .into_iter()
            .map(|(name, value)| (name, text(value)))
            .collect()
    }

    fn expected(message: &str, stacktrace: &str) -> Vec<(&'static str, String)> {
        vec![
            ("__streams.errors.exception", "Failure".into()),
            ("__streams.errors.message", message.into()),
            ("__streams.errors.stacktrace", stacktrace.into()),
            ("__streams.errors.topic", "orders".into()),
            ("__streams.errors.partition", "3".into()),
            ("__streams.errors.offset", "1234567890123".into()),
            ("__eos.errors.app", "shop-v1".into()),
            ("__eos.errors.attempts", "4".into()),
            ("__eos.errors.time", "1700000000000".into()),
        ]
    }

    #[test]
    fn kip_1034_the_headers_are_those_of_kafka_streams() {
        let partition = TopicPartition::new("orders", Partition::new(3).unwrap());
        let letter = DeadLetter {
            partition: &partition,
            offset: Offset::new(1_234_567_890_123).unwrap(),
            exception: "Failure",
            message: "größer",
            stacktrace: "caused by: …",
            app: &"shop-v1".into(),
            attempts: 4,
            time: Timestamp(1_700_000_000_000),
        };
        assert_eq!(texts(&letter, 1000), expected("größer", "caused by: …"));
        // Bytes are cut, characters are not: `ö` and `ß` have two, `…` three.
        assert_eq!(texts(&letter, 8 + 13), expected("größer", "caused by: "));
        assert_eq!(texts(&letter, 4), expected("grö", ""));
        assert_eq!(texts(&letter, 3), expected("gr", ""));
        assert_eq!(texts(&letter, 0), expected("", ""));
    }
}
