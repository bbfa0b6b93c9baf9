//! Windows: late records in order, the count of every window, and updates that only rise.

use super::*;
use crate::codec::{Plain, TimeWindowed};
use crate::state::WindowStore;
use crate::windows::Tumbling;

const SIZE: i64 = 10;
const GRACE: i64 = 5;
/// Numbers of the outputs.
const LATE: usize = 0;
const UPDATES: usize = 1;

struct Windows {
    retry: bool,
}

fn time_of(value: &str) -> i64 {
    value.split_once('@').unwrap().1.parse().unwrap()
}

impl Shape for Windows {
    fn spec(&self, disk: &Disk) -> WorkerSpec {
        let mut spec = patient(super::super::state::stateful(disk, 0));
        spec.output_partitions = vec![1, 1, 2];
        spec.output_limits = vec![None, None, None];
        spec
    }

    fn declare(&self, clock: Clock, app: &mut App) {
        let (policy, closure) = trouble(clock, self.retry);
        let size = Duration::from_millis(SIZE.unsigned_abs());
        let windows = Tumbling::of(size).grace(Duration::from_millis(GRACE.unsigned_abs()));
        app.source(&text("in"))
            .on_error(policy)
            .try_map(closure)
            .group_by_key()
            .windowed_by(windows)
            .late_to(&Topic::plain("late"))
            .aggregate(
                &WindowStore::<String, String>::plain("w"),
                String::new,
                |_, value, counted| {
                    let count = counted.rsplit('|').next().and_then(|n| n.parse().ok());
                    let time = time_of(&value);
                    let start = time - time % SIZE;
                    format!("{}|{start}|{}", &value[..2], count.unwrap_or(0_u64) + 1)
                },
            )
            .emit_per_commit()
            .to(&Topic::with("out", TimeWindowed::of(size), Plain));
    }

    fn input(&self, _: &mut Rng, p: i32) -> (TopicPartition, String) {
        (tp(p), format!("p{p}:"))
    }

    fn judge(&self, broker: &Broker) -> Result<(), String> {
        for p in [0, 1] {
            let log = &broker.input[&tp(p)];
            judge_committed(broker, &tp(p))?;
            let of = format!("p{p}");
            let visible = |output: usize| {
                let all = broker.visible.iter();
                all.filter(move |(at, _)| *at == output)
                    .map(|(_, value)| value.clone())
                    .filter(|value| value.starts_with(&of))
                    .collect::<Vec<_>>()
            };
            let (late, counts) = expected(log);
            let found = visible(LATE);
            if found != late {
                return Err(format!("partition {p}: late {found:?}, expected {late:?}"));
            }
            let found = last_counts(&visible(UPDATES))?;
            if found != counts {
                return Err(format!("partition {p}: {found:?}, expected {counts:?}"));
            }
        }
        Ok(())
    }
}

/// Returns the results of one loop over the input: the late records in order, and the count of each window.
fn expected(log: &[String]) -> (Vec<String>, BTreeMap<i64, u64>) {
    let (mut stream_time, mut late, mut windows) = (i64::MIN, Vec::new(), BTreeMap::new());
    for value in log.iter().filter(|value| counts(value)) {
        let time = time_of(value);
        stream_time = stream_time.max(time);
        let start = time - time % SIZE;
        if start + SIZE <= stream_time - GRACE {
            late.push(value.clone());
        } else {
            *windows.entry(start).or_default() += 1;
        }
    }
    (late, windows)
}

/// Returns the last count of each window. Fails unless each count is above the one before.
fn last_counts(updates: &[String]) -> Result<BTreeMap<i64, u64>, String> {
    let mut last = BTreeMap::new();
    for update in updates {
        let mut fields = update.split('|').skip(1);
        let mut next = || fields.next().unwrap_or_default();
        let (start, count) = (next().parse().unwrap(), next().parse().unwrap());
        let before = last.insert(start, count).unwrap_or(0);
        if count <= before {
            return Err(format!("window {start}: {count} after {before}"));
        }
    }
    Ok(last)
}

#[test]
fn windows_are_exact_whatever_goes_wrong() {
    fuzz(&Windows { retry: false });
}

#[test]
fn windows_are_exact_with_retries_too() {
    fuzz(&Windows { retry: true });
}

#[cfg(feature = "failpoints")]
#[test]
fn a_defence_that_is_missing_is_found() {
    for defence in ["rewind", "in_doubt", "next_offset"] {
        finds(&Windows { retry: false }, defence);
    }
}
