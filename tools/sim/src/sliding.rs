//! Sliding windows, with updates and with final results.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::state::SlidingStore;
use eos_core::windows::Sliding;
use eos_core::{App, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_protocol::Timestamp;
use eos_protocol::windows::SlidingRow;
use eos_state::due_row;
use eos_testkit::rng::Rng;

pub(super) const SLIDING: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The length and the grace of the windows, and the least delay of late records, in milliseconds.
///
/// A record whose own window is closed, but not the window after it, counts in some windows only, as in Kafka Streams.
/// The golden cases cover this. Here a record is either within the grace, or late by more than the length of a window.
const LENGTH: i64 = 400;
const GRACE: i64 = 6_500;
const LATE: i64 = 20_000;

fn declare(app: &mut App) {
    let [updates, finals] = OUTPUTS.map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let windows = Sliding::of(ms(LENGTH)).grace(ms(GRACE));
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    source
        .clone()
        .group_by_key()
        .windowed_by(windows)
        .count(&SlidingStore::plain("updates"))
        .to_stream()
        .rekey(|it| (it.key.key, shown(it.key.window.start.0, it.value)))
        .to(&updates);
    source
        .group_by_key()
        .windowed_by(windows)
        .count(&SlidingStore::plain("finals"))
        .emit_on_close()
        .rekey(|it| (it.key.key, shown(it.key.window.start.0, it.value)))
        .to(&finals);
}

fn shown(start: i64, count: u64) -> String {
    format!("{start} {count}")
}

/// Returns a record. Most have the current time; some are late, and some are ahead by several windows.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0 => rng.between(LATE, 2 * LATE),
        1..=3 => rng.between(0, 1_800),
        4 => -rng.between(0, 4_000),
        _ => rng.between(0, 200),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

/// Returns whether the window with this start is closed.
fn is_closed(start: i64, stream_time: i64) -> bool {
    start + LENGTH + GRACE < stream_time
}

/// The windows of a key: the count and the highest time of each, by start.
type Windows = BTreeMap<i64, (u64, i64)>;

/// The windows of one partition: one loop over the records.
#[derive(Debug, Default)]
struct Model {
    stream_time: i64,
    /// The times of the records of each key that were not late.
    times: BTreeMap<String, Vec<i64>>,
    windows: BTreeMap<String, Windows>,
    /// The open windows, by start and key.
    open: BTreeMap<(i64, String), (u64, i64)>,
    updates: Vec<Emitted>,
    finals: Vec<Emitted>,
    late: usize,
    made: usize,
}

impl Model {
    fn record(&mut self, it: &Given) {
        let (key, time) = (&it.key, it.timestamp);
        self.stream_time = self.stream_time.max(time);
        let now = self.stream_time;
        // The window behind the record ends no later than the grace allows.
        if time + 1 + LENGTH + GRACE <= now {
            self.late += 1;
        } else {
            self.take(key, time);
        }
        let open = self.open.split_off(&(now - LENGTH - GRACE, String::new()));
        for ((start, key), (count, highest)) in std::mem::replace(&mut self.open, open) {
            self.finals.push((key, shown(start, count), highest));
        }
    }

    /// Updates the windows around a record, the latest first, and makes those that it defines.
    fn take(&mut self, key: &str, time: i64) {
        let now = self.stream_time;
        let times = self.times.entry(key.to_owned()).or_default();
        times.push(time);
        let windows = self.windows.entry(key.to_owned()).or_default();
        let mut changed = Vec::new();
        for (start, (count, highest)) in windows.range_mut(time - LENGTH..=time).rev() {
            if !is_closed(*start, now) {
                (*count, *highest) = (*count + 1, time.max(*highest));
                changed.push(*start);
            }
        }
        let previous = times.iter().copied().filter(|it| *it < time).max();
        let previous = previous.filter(|it| it + 1 + LENGTH >= time);
        let new = [
            previous.map(|it| it + 1),
            Some(time - LENGTH),
            Some(time + 1),
        ];
        for start in new.into_iter().flatten() {
            let within = || {
                times
                    .iter()
                    .filter(|it| (start..=start + LENGTH).contains(*it))
            };
            let Some(highest) = within().max() else {
                continue;
            };
            if windows.contains_key(&start) || is_closed(start, now) {
                continue;
            }
            // The window behind the record before can be the one that ends at this record. Then it is emitted twice, if a
            // window that is near enough shows the record before.
            if start == time - LENGTH
                && previous == Some(start - 1)
                && windows.range(start - LENGTH..start).next().is_some()
            {
                changed.push(start);
            }
            windows.insert(start, (within().count() as u64, *highest));
            changed.push(start);
            self.made += 1;
        }
        for start in changed {
            let (count, highest) = windows.get(&start).copied().unwrap_or_default();
            self.updates
                .push((key.to_owned(), shown(start, count), highest));
            self.open.insert((start, key.to_owned()), (count, highest));
        }
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        loops::given(left, INPUT, partition).for_each(|it| model.record(it));
        found.saw("records came too late for their windows", model.late);
        found.saw("records made sliding windows", model.made);
        let [updates, finals] = OUTPUTS;
        for (output, expected) in [(updates, &model.updates), (finals, &model.finals)] {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
        for it in loops::open_databases(left, partition) {
            let rows = it.contents.iter();
            let rows = rows.filter_map(|(key, row)| due_row(key, row));
            let mut held = BTreeMap::new();
            for (key, _, row) in rows {
                let row = SlidingRow::decode(row).map_err(|error| error.to_string())?;
                // A closed window stays as long as a record may need it.
                let open = row.between(Timestamp(i64::MIN), Timestamp(i64::MAX));
                let open = open.filter(|it| !is_closed(it.first.0, model.stream_time));
                for window in open {
                    let key = String::from_utf8_lossy(key).into_owned();
                    let count = (&*window.result).try_into().map_or(0, u64::from_be_bytes);
                    held.insert((window.first.0, key), (count, window.last.0));
                }
            }
            if held != model.open {
                verdicts.push(format!(
                    "VIOLATED state_windows: the database of task {} holds {held:?}, not {:?}",
                    it.task, model.open
                ));
            }
        }
    }
    Ok(verdicts)
}
