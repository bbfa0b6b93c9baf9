//! The coordinators' log, with the steps of each transaction.
//!
//! `__transaction_state` holds each step of each transaction until it is compacted. Its last segment is never
//! compacted. Keys and values are Kafka's `TransactionLogKey` and `TransactionLogValue`
//! (`transaction-coordinator/src/main/resources/common/message`). Version 1 of the value exists since transactions of
//! the second generation (KIP-890). It differs in its encoding, and has tagged fields at the end that are not read.

use crate::history::LoggedTransaction;
use crate::varint;
use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};

use super::Client;
use super::fetch::Isolation;

const TOPIC: &str = "__transaction_state";

impl Client {
    /// Returns the steps of all transactions whose ids begin with `prefix`. The steps of one id are in order.
    ///
    /// # Errors
    /// See [`Client::read_all`]. Also fails if an entry cannot be decoded.
    pub fn transaction_log(&mut self, prefix: &str) -> Result<Vec<LoggedTransaction>> {
        // The brokers create the topic with the first transactional id.
        if !self.metadata(Some(&[TOPIC]))?.topics.contains_key(TOPIC) {
            return Ok(Vec::new());
        }
        let mut steps = Vec::new();
        let mut broken = None;
        self.read_all(TOPIC, Isolation::ReadUncommitted, |_, record| {
            let (Some(key), Some(value)) = (&record.key, &record.value) else {
                return;
            };
            match step(key.clone(), value.clone(), prefix) {
                Ok(step) => steps.extend(step),
                Err(error) => {
                    let place = format!("offset {} of {TOPIC}", record.offset);
                    broken.get_or_insert(error.context(place));
                }
            }
        })?;
        broken.map_or(Ok(steps), Err)
    }
}

/// Returns `None` for an entry that is no transaction, or has another id.
fn step(mut key: Bytes, mut value: Bytes, prefix: &str) -> Result<Option<LoggedTransaction>> {
    if int16(&mut key)? != 0 {
        return Ok(None);
    }
    let length = int16(&mut key)?;
    let transactional_id = text(&mut key, i64::from(length))?;
    if !transactional_id.starts_with(prefix) {
        return Ok(None);
    }
    let compact = match int16(&mut value)? {
        0 => false,
        1 => true,
        other => bail!("an entry of version {other}, only 0 and 1 are read"),
    };
    ensure!(value.remaining() >= 15, "an entry of {} bytes", value.len());
    let (producer_id, producer_epoch) = (value.get_i64(), value.get_i16());
    value.advance(4); // the time-out
    let state = name(value.get_i8())?;
    let partitions = partitions(&mut value, compact)?;
    ensure!(value.remaining() >= 8, "an entry without its time");
    Ok(Some(LoggedTransaction {
        transactional_id,
        producer_id,
        producer_epoch,
        state,
        partitions,
        at: value.get_i64(),
    }))
}

fn name(state: i8) -> Result<&'static str> {
    Ok(match state {
        0 => "Empty",
        1 => "Ongoing",
        2 => "PrepareCommit",
        3 => "PrepareAbort",
        4 => "CompleteCommit",
        5 => "CompleteAbort",
        6 => "Dead",
        7 => "PrepareEpochFence",
        other => bail!("state {other} is unknown"),
    })
}

fn partitions(value: &mut Bytes, compact: bool) -> Result<Vec<(String, i32)>> {
    let mut all = Vec::new();
    for _ in 0..length(value, compact, 4)? {
        let name = length(value, compact, 2)?;
        let topic = text(value, name)?;
        for _ in 0..length(value, compact, 4)? {
            ensure!(value.remaining() >= 4, "a partition is truncated");
            all.push((topic.clone(), value.get_i32()));
        }
        if compact {
            skip_tags(value)?;
        }
    }
    Ok(all)
}

/// Decodes a length. A compact length is a varint of the length plus one. Otherwise, it is a number of `bytes` bytes,
/// with -1 for null.
fn length(value: &mut Bytes, compact: bool, bytes: usize) -> Result<i64> {
    if compact {
        return Ok(unsigned(value)? - 1);
    }
    ensure!(value.remaining() >= bytes, "a length is truncated");
    Ok(value.get_int(bytes))
}

fn skip_tags(value: &mut Bytes) -> Result<()> {
    for _ in 0..unsigned(value)? {
        unsigned(value)?;
        let size = usize::try_from(unsigned(value)?)?;
        ensure!(value.remaining() >= size, "a tagged field is truncated");
        value.advance(size);
    }
    Ok(())
}

fn unsigned(value: &mut Bytes) -> Result<i64> {
    let number = varint::take(value, varint::BYTES_OF_32).context("a number is truncated")?;
    Ok(i64::try_from(number)?)
}

fn int16(bytes: &mut Bytes) -> Result<i16> {
    ensure!(bytes.remaining() >= 2, "an entry of {} bytes", bytes.len());
    Ok(bytes.get_i16())
}

fn text(bytes: &mut Bytes, length: i64) -> Result<String> {
    let length = usize::try_from(length).unwrap_or(0);
    ensure!(bytes.remaining() >= length, "a name is truncated");
    Ok(String::from_utf8_lossy(&bytes.split_to(length)).into_owned())
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;

    fn key(id: &str) -> Bytes {
        let mut key = BytesMut::new();
        key.put_i16(0);
        key.put_i16(id.len() as i16);
        key.put_slice(id.as_bytes());
        key.freeze()
    }

    /// Returns an entry about partitions 3 and 5 of topic `out`.
    fn value(compact: bool) -> Bytes {
        let mut value = BytesMut::new();
        value.put_i16(i16::from(compact));
        value.put_i64(77);
        value.put_i16(4);
        value.put_i32(30_000);
        value.put_i8(2);
        if compact {
            value.put_slice(&[2, 4]);
            value.put_slice(b"out");
            value.put_u8(3);
        } else {
            value.put_i32(1);
            value.put_i16(3);
            value.put_slice(b"out");
            value.put_i32(2);
        }
        value.put_i32(3);
        value.put_i32(5);
        if compact {
            value.put_slice(&[1, 0, 2, 9, 9]); // one tagged field of two bytes
        }
        value.put_i64(1_234);
        value.put_i64(1_200);
        if compact {
            value.put_u8(0);
        }
        value.freeze()
    }

    #[test]
    fn both_versions_of_an_entry_say_the_same() {
        for compact in [false, true] {
            let step = step(key("app-1"), value(compact), "app-").unwrap();
            let expected = LoggedTransaction {
                transactional_id: "app-1".into(),
                producer_id: 77,
                producer_epoch: 4,
                state: "PrepareCommit",
                partitions: vec![("out".into(), 3), ("out".into(), 5)],
                at: 1_234,
            };
            assert_eq!(step, Some(expected));
        }
    }

    #[test]
    fn other_ids_are_left_out_and_what_is_cut_off_is_told() {
        assert_eq!(step(key("other"), value(true), "app-").unwrap(), None);
        for compact in [false, true] {
            let whole = value(compact);
            let short = whole.slice(..whole.len() - 20);
            assert!(step(key("app-1"), short, "").is_err());
        }
    }
}
