//! The inputs of joins: the records of the right topic, their keys and their times.

use std::time::Duration;

use crate::numbers::{event_ms, mixed};
use crate::work::Work;

/// The rows of the table that a stream is joined with. All are older than the stream, and each of its records has one.
pub(crate) const ROWS: u64 = 50_000;

/// The rows of the table that a foreign key names.
const FOREIGN_ROWS: u64 = 10_000;

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

/// The number of orders with different keys. It is a prime, so each number below it has another multiple.
const ORDERS: u64 = 7_999_993;

/// Returns the number of the key of a table's row, if it is not random.
pub(crate) fn number_of_row(seq: u64, work: Work) -> Option<u64> {
    match work {
        Work::StreamTable => (seq < ROWS).then_some(seq),
        // The order of the keys looks random, but each key occurs once.
        Work::Orders => Some(seq * 6_364_137 % ORDERS),
        _ => None,
    }
}

/// Changes the key of a record of the right topic, which was made like one of the left topic.
pub(crate) fn change_right_key(key: &mut Vec<u8>, seq: u64, work: Work) {
    use std::io::Write;
    match work {
        Work::Foreign | Work::Orders => {
            let row = if work == Work::Orders {
                seq
            } else {
                mixed(seq)
            };
            key.clear();
            // Writing to a vector does not fail.
            let _ = write!(key, "{:04}", row % FOREIGN_ROWS);
        }
        // No record has a partner.
        Work::HotKey | Work::ColdKeys => key.insert(0, b'v'),
        _ => {}
    }
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
