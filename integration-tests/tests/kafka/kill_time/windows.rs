//! Expected counts in windows, computed by one loop over the input.

use std::collections::BTreeMap;

use super::results::{Results, Row};
use super::scene::Input;

/// Windows of this size, one every `advance` milliseconds, which accept records for `grace` milliseconds longer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) size: i64,
    pub(super) advance: i64,
    pub(super) grace: i64,
}

impl Windows {
    pub(super) fn tumbling(size: i64, grace: i64) -> Windows {
        Windows {
            size,
            advance: size,
            grace,
        }
    }

    /// Returns the stream time at which a window with this start closes.
    pub(super) fn closes_at(&self, start: i64) -> i64 {
        start + self.size + self.grace
    }

    /// Returns the counts of the windows that the records of their partitions close.
    pub(super) fn closed(&self, records: &[Input]) -> Results {
        let mut stream_times = BTreeMap::<i32, i64>::new();
        for input in records {
            let stream_time = stream_times.entry(input.partition).or_insert(input.time);
            *stream_time = input.time.max(*stream_time);
        }
        let mut counted = self.all(records);
        for (partition, rows) in &mut counted.0 {
            rows.retain(|row| self.closes_at(row.start) <= stream_times[partition]);
        }
        counted
    }

    /// Returns the counts of all windows.
    pub(super) fn all(&self, records: &[Input]) -> Results {
        let mut counts = BTreeMap::<(i32, i64, &str), (u64, i64)>::new();
        for input in records {
            let mut start = input.time.div_euclid(self.advance) * self.advance;
            while start + self.size > input.time {
                let window = (input.partition, start, input.key.as_str());
                let (count, time) = counts.entry(window).or_insert((0, input.time));
                *count += 1;
                *time = input.time.max(*time);
                start -= self.advance;
            }
        }
        let mut results = Results::default();
        for ((partition, start, key), (count, time)) in counts {
            results.0.entry(partition).or_default().push(Row {
                end: start,
                key: key.to_owned(),
                start,
                count,
                time,
            });
        }
        results
    }
}
