//! Final results of windows, and final results of longer windows after them.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::state::WindowStore;
use eos_core::windows::{Hopping, Tumbling, Windowed};
use eos_core::{App, Record, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_testkit::rng::Rng;

pub(super) const ON_CLOSE: Case = Case {
    changelog: Some("sim-in-windowed-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// Size, distance and grace of the first windows and of the longer ones, in milliseconds. Windows of both rarely have the
/// same start.
const SMALL: [i64; 3] = [1_500, 499, 500];
const LARGE: [i64; 3] = [4_999, 4_999, 2_000];

fn declare(app: &mut App) {
    let [small_out, large_out] = OUTPUTS.map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let [size, advance, grace] = SMALL.map(ms);
    let [large, _, large_grace] = LARGE.map(ms);
    let small = app
        .source(&Topic::<String, String>::plain(INPUT))
        .group_by_key()
        .windowed_by(Hopping::of(size).every(advance).grace(grace))
        .count(&WindowStore::plain("small"))
        .emit_on_close();
    small.clone().rekey(shown).to(&small_out);
    small
        .without_windows()
        .group_by_key()
        .windowed_by(Tumbling::of(large).grace(large_grace))
        .reduce(&WindowStore::plain("large"), |a, b| a + b)
        .emit_on_close()
        .rekey(shown)
        .to(&large_out);
}

fn shown(record: Record<Windowed<String>, u64>) -> (String, String) {
    let start = record.key.window.start.0;
    (record.key.key, format!("{start} {}", record.value))
}

/// Returns a record. Most have the current time; some are late, and some are ahead by several windows.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0..=2 => rng.between(0, 4_000),
        3 => -rng.between(0, 9_000),
        _ => rng.between(0, 300),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

/// The results of open windows, by start and key: the value and the highest time.
type Results = BTreeMap<(i64, String), (u64, i64)>;

/// The windows of one partition: one loop over the records.
#[derive(Debug, Default)]
struct Model {
    stream_time: i64,
    /// The results of the small and of the large windows.
    open: [Results; 2],
    /// The emitted results of both.
    out: [Vec<Emitted>; 2],
    late: usize,
    at_once: usize,
}

impl Model {
    fn record(&mut self, it: &Given) {
        self.stream_time = self.stream_time.max(it.timestamp);
        self.late += usize::from(!self.add(0, self.stream_time, &it.key, (1, it.timestamp)));
        let mut closed = 0;
        while let Some((moment, level)) = self.first().filter(|(at, _)| *at <= self.stream_time) {
            let Some(((start, key), (value, time))) = self.open[level].pop_first() else {
                break;
            };
            let shown = format!("{start} {value}");
            self.out[level].push((key.clone(), shown, time));
            if level == 0 {
                self.add(1, moment, &key, (value, time));
            }
            closed += 1;
        }
        self.at_once += usize::from(closed > 4);
    }

    /// Adds a value to the open windows of its time. Returns false if there is none.
    fn add(&mut self, level: usize, now: i64, key: &str, (value, time): (u64, i64)) -> bool {
        let [size, advance, grace] = [SMALL, LARGE][level];
        let last = time - time.rem_euclid(advance);
        let starts = (0..).map(|n| last - n * advance);
        let starts = starts.take_while(|start| *start >= 0 && start + size > time);
        let mut any = false;
        for start in starts.filter(|start| start + size + grace > now) {
            let result = self.open[level].entry((start, key.to_owned()));
            let result = result.or_insert((0, i64::MIN));
            *result = (result.0 + value, result.1.max(time));
            any = true;
        }
        any
    }

    /// Returns the first moment at which a window closes, and its level.
    fn first(&self) -> Option<(i64, usize)> {
        let first = |level: usize| {
            let ((start, _), _) = self.open[level].first_key_value()?;
            let [size, _, grace] = [SMALL, LARGE][level];
            Some((start + size + grace, level))
        };
        [first(0), first(1)].into_iter().flatten().min()
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        loops::given(left, INPUT, partition).for_each(|it| model.record(it));
        found.saw("records came too late for their windows", model.late);
        found.saw("a record closed several windows", model.at_once);
        for (output, expected) in OUTPUTS.into_iter().zip(&model.out) {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
        // Rows of windows that are closed may still be in the database. A copy does not distinguish the stores.
        let open = model.open.iter().flatten();
        let open = open.filter(|((start, _), _)| start % SMALL[1] != 0 || start % LARGE[1] != 0);
        let open: Vec<_> = open
            .map(|((start, key), (value, time))| {
                let row = [&(start ^ i64::MIN).to_be_bytes(), key.as_bytes()].concat();
                (row, [time.to_be_bytes(), value.to_be_bytes()].concat())
            })
            .collect();
        for it in loops::open_databases(left, partition) {
            let missing = open
                .iter()
                .find(|(key, value)| it.contents.get(key) != Some(value));
            verdicts.extend(missing.map(|(key, value)| {
                let found = it.contents.get(key);
                format!(
                    "VIOLATED state_windows: the database of task {} holds {found:?} for {key:?}, not {value:?}",
                    it.task
                )
            }));
        }
    }
    Ok(verdicts)
}
