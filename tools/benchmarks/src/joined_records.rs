//! The inputs of joins: the records of the right topic, their keys and their times.

use std::time::Duration;

use crate::numbers::{event_ms, mixed};
use crate::work::Work;

/// The rows of the table that a stream is joined with. All are older than the stream, and each of its records has one.
pub(crate) const ROWS: u64 = 50_000;

/// The rows of the table that a foreign key names.
pub(crate) const FOREIGN_ROWS: u64 = 10_000;

/// Returns whether a record is in the right topic.
pub(crate) fn is_right(seq: u64, work: Work) -> bool {
    match work {
        Work::StreamTable => seq < ROWS,
        Work::Inner | Work::Left | Work::TableTable => seq % 2 == 1,
        Work::Foreign => seq % 20 == 19,
        Work::Orders => seq < FOREIGN_ROWS,
        Work::HotKey | Work::ColdKeys => seq % 10 == 9,
        _ => false,
    }
}

/// Returns the number of different keys of the left topic, if the work needs another one than usual.
pub(crate) fn keys(work: Work) -> Option<u64> {
    match work {
        Work::StreamTable => Some(ROWS),
        // A window of half a minute has 270,000 records of the left topic.
        Work::HotKey => Some(2),
        _ => None,
    }
}

/// Returns the maximum number of records of an input.
pub(crate) fn most_records(work: Work) -> u64 {
    if work == Work::Orders {
        ORDERS
    } else {
        u64::MAX
    }
}

/// Returns the time of a record in milliseconds since the base of event times. Tables get their rows in order, because
/// Kafka Streams logs each row that is out of order.
pub(crate) fn time_ms(seq: u64, work: Work) -> i64 {
    let in_order = |seq: u64| i64::try_from(seq / 10).unwrap_or(i64::MAX);
    match work {
        Work::StreamTable if seq < ROWS => 0,
        Work::StreamTable => 1 + in_order(seq - ROWS),
        Work::TableTable | Work::Foreign | Work::Orders => in_order(seq),
        _ => event_ms(seq),
    }
}

/// The number of orders with different keys, a power of two.
const ORDERS: u64 = 1 << 23;

/// Returns another number below [`ORDERS`] for each number below it. Each step is reversible: a number is mixed with its upper
/// bits, or multiplied by an odd number.
fn shuffled(seq: u64) -> u64 {
    let mask = ORDERS - 1;
    let number = seq & mask;
    let number = (number ^ (number >> 12)).wrapping_mul(0x5bd1_e995) & mask;
    let number = (number ^ (number >> 11)).wrapping_mul(0x27d4_eb2f) & mask;
    number ^ (number >> 12)
}

/// Returns the number of the key of a table's row, if it is not random.
pub(crate) fn number_of_row(seq: u64, work: Work) -> Option<u64> {
    match work {
        Work::StreamTable => (seq < ROWS).then_some(seq),
        Work::Orders => Some(shuffled(seq)),
        _ => None,
    }
}

/// Changes the key of a record of the right topic, which was made like one of the left topic.
pub(crate) fn change_right_key(key: &mut Vec<u8>, seq: u64, work: Work) {
    use std::io::Write;
    let row = match work {
        Work::Foreign => mixed(seq),
        // All customers come first, each once.
        Work::Orders => seq,
        // No record has a partner.
        Work::HotKey | Work::ColdKeys => return key.insert(0, b'v'),
        _ => return,
    };
    key.clear();
    // Writing to a vector does not fail.
    let _ = write!(key, "{:04}", row % FOREIGN_ROWS);
}

/// Returns a duration in milliseconds.
pub(crate) fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::records::Input;

    #[test]
    fn each_order_has_its_own_key() {
        let mut seen = vec![false; usize::try_from(ORDERS).unwrap()];
        for seq in 0..ORDERS {
            let key = usize::try_from(shuffled(seq)).unwrap();
            assert!(!std::mem::replace(&mut seen[key], true), "{seq}");
        }
    }

    #[test]
    fn customers_come_first_and_each_row_is_written_once() {
        let mut input = Input::of(Work::Orders, 1);
        let (mut customers, mut orders) = (HashSet::new(), HashSet::new());
        for seq in 0..100_000 {
            input.set(seq);
            if is_right(seq, Work::Orders) {
                assert!(customers.insert(input.key.clone()), "{seq}");
            } else {
                let customer = input.key.get(input.key.len() - 4..).unwrap();
                assert!(customers.contains(customer), "{seq}");
                assert!(orders.insert(input.key.clone()), "{seq}");
            }
        }
        assert_eq!(customers.len() as u64, FOREIGN_ROWS);
    }
}
