//! Records as text, as in `kafka produce` and `kafka read`.

mod follower;

use std::fmt::Write;
use std::io::BufRead;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::{Producer, Record, partitioner};

pub use follower::Follower;

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// `key:value`. The key ends at the first colon. An empty key is null.
    BeforeColon,
    /// The whole line is the value. There are no keys.
    None,
}

/// What each record of [`produce`] has beside its line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'e> {
    /// Names and values of the headers.
    pub headers: &'e [(&'e str, &'e [u8])],
    /// The timestamp in milliseconds since 1970. `None` is the time of the machine's clock.
    pub timestamp: Option<i64>,
}

/// Produces each line as a record, and flushes. Each key goes to the partition that Java's partitioner selects. Returns
/// the number of acknowledged records.
///
/// # Errors
/// If the topic does not exist or a line cannot be parsed. The lines before it are still produced.
pub fn produce(
    producer: &mut Producer,
    topic: &str,
    lines: impl BufRead,
    keys: Keys,
    extras: Extras<'_>,
) -> Result<u64> {
    let sent = send(producer, topic, lines, keys, extras);
    producer.flush()?;
    sent.with_context(|| format!("{} records before it are sent", producer.acknowledged()))?;
    Ok(producer.acknowledged())
}

fn send(
    producer: &mut Producer,
    topic: &str,
    lines: impl BufRead,
    keys: Keys,
    extras: Extras<'_>,
) -> Result<()> {
    let partitions = producer.partitions(topic)?;
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line.with_context(|| format!("line {number}"))?;
        if line.is_empty() {
            continue;
        }
        let (key, value) = parse(&line, keys).with_context(|| format!("line {number}"))?;
        let key = key.map(str::as_bytes);
        let partition = key.map_or(number % partitions, |key| {
            partitioner::partition(key, partitions)
        });
        let time = match extras.timestamp {
            Some(time) => time,
            None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64,
        };
        let value = value.map(str::as_bytes);
        producer.send(topic, partition, key, value, extras.headers, time)?;
    }
    Ok(())
}

/// The key and the value of a line. `None` is Kafka's null.
type KeyAndValue<'l> = (Option<&'l str>, Option<&'l str>);

/// Parses the key and the value of a line. An empty value after the colon is a tombstone.
fn parse(line: &str, keys: Keys) -> Result<KeyAndValue<'_>> {
    if keys == Keys::None {
        return Ok((None, Some(line)));
    }
    // JSON contains colons. A split at the first one would return a strange key and a broken value.
    if line.starts_with(['{', '[', '"']) {
        bail!(
            "{line:?} begins like JSON where a key should be: write `key:{line}`, `:{line}` for no \
             key, or give --no-keys for lines that are values only"
        );
    }
    let Some((key, value)) = line.split_once(':') else {
        bail!(
            "{line:?} has no colon: write `key:value`, `:value` for no key, `key:` for a tombstone, or \
             give --no-keys for lines that are values only"
        );
    };
    Ok((non_empty(key), non_empty(value)))
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns `partition@offset key:value`, and a line for each header. `with_time` adds the timestamp in milliseconds behind
/// the offset. `null` is Kafka's null. Text that looks like it is quoted.
pub fn render(partition: i32, record: &Record, with_time: bool) -> String {
    let key = one_line(record.key.as_deref());
    let value = one_line(record.value.as_deref());
    let time = with_time.then(|| format!(" {}", record.timestamp));
    let time = time.unwrap_or_default();
    let mut lines = format!("{partition}@{}{time} {key}:{value}", record.offset);
    for (name, value) in &record.headers {
        // Writing to a `String` never fails.
        let _ = write!(lines, "\n    {name}: {}", one_line(value.as_deref()));
    }
    lines
}

/// Returns any bytes as text on one line.
fn one_line(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "null".to_owned();
    };
    let mut line = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    // Quotes also text that already has quotes, so that no two records look the same.
    if line.trim_matches(['"', '\\']) == "null" {
        format!("{line:?}")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_line_is_a_key_and_a_value() {
        let parse = |line| parse(line, Keys::BeforeColon).unwrap();
        assert_eq!(parse("pen:5"), (Some("pen"), Some("5")));
        // Only the first colon separates, because the value may be JSON.
        assert_eq!(parse(r#"a:{"b":1}"#), (Some("a"), Some(r#"{"b":1}"#)));
        assert_eq!(parse(":5"), (None, Some("5")));
        assert_eq!(parse("pen:"), (Some("pen"), None));
    }

    #[test]
    fn a_line_without_keys_is_a_value() {
        let value = r#"{"b":1}"#;
        assert_eq!(parse(value, Keys::None).unwrap(), (None, Some(value)));
    }

    #[test]
    fn what_is_no_key_and_value_says_what_to_write() {
        let error = |line| parse(line, Keys::BeforeColon).unwrap_err().to_string();
        assert!(error(r#"{"b":1}"#).contains("--no-keys"));
        let text = error("pen");
        assert!(
            text.contains("\"pen\" has no colon: write `key:value`"),
            "{text}"
        );
    }

    #[test]
    fn a_record_is_a_line_and_one_for_each_header() {
        let record = Record {
            offset: 7,
            timestamp: 0,
            key: None,
            value: Some(Bytes::from_static("zwei\nZeilen".as_bytes())),
            headers: vec![("why".into(), Some(Bytes::from_static(b"no number")))],
            producer_id: -1,
            transactional: false,
        };
        assert_eq!(
            render(3, &record, false),
            "3@7 null:zwei\\nZeilen\n    why: no number"
        );
    }

    #[test]
    fn a_null_is_told_from_texts_that_look_like_it() {
        assert_eq!(one_line(None), "null");
        assert_eq!(one_line(Some(b"null")), r#""null""#);
        assert_eq!(one_line(Some(br#""null""#)), r#""\"null\"""#);
        assert_eq!(one_line(Some(b"")), "");
        assert_eq!(one_line(Some(br#"{"a":null}"#)), r#"{"a":null}"#);
    }
}
