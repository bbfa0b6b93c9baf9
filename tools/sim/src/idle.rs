//! Final results of windows that close while the input is idle.
//!
//! The time at which a window closes depends on the clock, so no loop over the input computes these outputs. The app
//! writes each record and each result with the time of the cluster. One loop over this log checks that each result is
//! that of the records before it, and that the input was idle for long enough.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, Topic};

use super::case::Case;
use super::clocks::Clocks;
use super::loops;
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left, Undecided};
use super::topics::INPUT;
use eos_testkit::rng::Rng;

pub(super) const IDLE: Case = Case {
    changelog: Some("sim-in-windowed-changelog"),
    outputs: &[LOG, LATE],
    pauses: true,
    draft,
    declare,
    judge,
    ..STATELESS
};

const LOG: &str = "log";
const LATE: &str = "late";

/// The size and the grace of the windows, and the time after which the input is idle, in milliseconds.
const SIZE: i64 = 1_000;
const GRACE: i64 = 300;
const AFTER: i64 = 1_000;
/// The longest time between two responses that proves the time between them.
const STRETCH: i64 = 2_000;

fn declare(app: &mut App, clocks: &Clocks) {
    let [log, late] = [LOG, LATE].map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let [of_record, of_result] = [(); 2].map(|()| clocks.clone());
    let source = app
        .source(&Topic::<String, String>::plain(INPUT))
        .close_when_idle(ms(AFTER));
    source
        .clone()
        .process(move |ctx, record| {
            let seq = loops::word(&record.value, 0).unwrap_or(-1);
            ctx.forward(record.key, format!("record {seq} {}", of_record.now()))
        })
        .to(&log);
    source
        .group_by_key()
        .windowed_by(Tumbling::of(ms(SIZE)).grace(ms(GRACE)))
        .late_to(&late)
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .rekey(move |it| {
            let (start, now) = (it.key.window.start.0, of_result.now());
            (it.key.key, format!("final {start} {} {now}", it.value))
        })
        .to(&log);
}

/// Returns a record. Most have the current time; some are late, and some are ahead.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0 | 1 => rng.between(0, 2_500),
        2 => -rng.between(0, 1_500),
        _ => rng.between(0, 200),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

fn start(time: i64) -> i64 {
    time - time.rem_euclid(SIZE)
}

fn closes_at(start: i64) -> i64 {
    start + SIZE + GRACE
}

/// The log of one partition, read by one loop.
#[derive(Debug)]
struct Model<'a> {
    given: &'a [&'a Given],
    foreign: Vec<Undecided>,
    /// The numbers of the late records.
    late: BTreeSet<i64>,
    /// The number of records that the log has named.
    taken: usize,
    /// Stream time of the records, and the time at which the task took the last one.
    stream_time: i64,
    last: i64,
    /// The highest start of an emitted window.
    emitted: Option<(i64, String)>,
    counts: BTreeMap<(i64, String), u64>,
    wrong: Option<String>,
    closed: usize,
}

impl Model<'_> {
    fn read(&mut self, key: &str, text: &str) {
        let wrong = match text.split(' ').next() {
            Some("record") => self.record(key, text),
            _ => self.result(key, text),
        };
        let wrong = wrong
            .err()
            .map(|wrong| format!("{wrong}: key {key}, {text}"));
        self.wrong = self.wrong.take().or(wrong);
    }

    fn record(&mut self, key: &str, text: &str) -> Result<(), String> {
        let (Some(seq), Some(now)) = (loops::word(text, 1), loops::word(text, 2)) else {
            return Err("VIOLATED foreign".into());
        };
        let expected = self.given.get(self.taken);
        let Some(it) = expected.filter(|it| it.seq.cast_signed() == seq && it.key == key) else {
            let expected = expected.map(|it| (it.seq, &*it.key));
            return Err(format!("VIOLATED order, expected {expected:?}"));
        };
        let start = start(it.timestamp);
        let most = self.stream_time.max(it.timestamp) + self.runs_on(now);
        self.taken += 1;
        self.stream_time = self.stream_time.max(it.timestamp);
        self.last = now;
        let emitted = self.emitted.as_ref().map(|(start, _)| closes_at(*start));
        let least = self.stream_time.max(emitted.unwrap_or(i64::MIN));
        if !self.late.remove(&seq) {
            if closes_at(start) <= least {
                return Err(format!("VIOLATED late: its window is closed at {least}"));
            }
            *self.counts.entry((start, key.to_owned())).or_default() += 1;
        } else if closes_at(start) > most {
            return Err(format!("VIOLATED late: its window is open until {most}"));
        }
        Ok(())
    }

    fn result(&mut self, key: &str, text: &str) -> Result<(), String> {
        let numbers = [1, 2, 3].map(|nth| loops::word(text, nth));
        let [Some(start), Some(count), Some(now)] = numbers else {
            return Err("VIOLATED foreign".into());
        };
        let window = (start, key.to_owned());
        let counted = self.counts.remove(&window);
        if counted != Some(count.unsigned_abs()) {
            return Err(format!(
                "VIOLATED doubled, or another count than {counted:?}"
            ));
        }
        if self.emitted.as_ref().is_some_and(|last| *last > window) {
            return Err(format!("VIOLATED reordered, behind {:?}", self.emitted));
        }
        self.emitted = Some(window);
        let ahead = closes_at(start) - self.stream_time;
        if ahead <= 0 {
            return Ok(());
        }
        self.closed += 1;
        if self.runs_on(now) < ahead {
            return Err(format!(
                "VIOLATED early, {} ms after the last record",
                now - self.last
            ));
        }
        // The last query began no earlier than this.
        let asked = self.last + AFTER + ahead;
        let unread = self.given[self.taken..].iter();
        let mut unread = unread.filter(|it| it.arrived < asked);
        match unread.next() {
            Some(it) => Err(format!(
                "VIOLATED early, because seq {} arrived at {} and time ran on to {asked}",
                it.seq, it.arrived
            )),
            None => Ok(()),
        }
    }

    /// Returns how far the idle input lets stream time run on at most, up to this time of the cluster. The time of an open
    /// transaction does not count.
    fn runs_on(&self, now: i64) -> i64 {
        let open = self.foreign.iter();
        let open = open.map(|it| it.until.min(now) - it.from.max(self.last));
        let open = open.map(|it| (it - STRETCH).max(0));
        (now - self.last - AFTER - open.sum::<i64>()).max(0)
    }

    fn end(self) -> Option<String> {
        let lost = self.given.get(self.taken);
        let lost = lost.map(|it| format!("VIOLATED lost: the log ends before seq {}", it.seq));
        let open = self.counts.keys().next();
        let open = open.map(|it| format!("VIOLATED lost: there is no result of {it:?}"));
        let late = self.late.first();
        let late = late.map(|it| format!("VIOLATED doubled: seq {it} is late twice, or unknown"));
        self.wrong.or(lost).or(open).or(late)
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let given: Vec<&Given> = loops::given(left, INPUT, partition).collect();
        let late = loops::emitted(left, LATE, partition);
        let late: Vec<i64> = late
            .iter()
            .filter_map(|(_, text, _)| loops::word(text, 0))
            .collect();
        let foreign = left.foreign.iter().copied();
        let foreign = foreign.filter(|it| it.partition == partition);
        let mut model = Model {
            given: &given,
            foreign: foreign.collect(),
            late: late.iter().copied().collect(),
            taken: 0,
            stream_time: i64::MIN,
            last: 0,
            emitted: None,
            counts: BTreeMap::new(),
            wrong: None,
            closed: 0,
        };
        if model.late.len() < late.len() {
            verdicts.push(format!(
                "VIOLATED doubled: {LATE}-{partition} holds {late:?}"
            ));
        }
        for (key, text, _) in loops::emitted(left, LOG, partition) {
            model.read(&key, &text);
        }
        found.saw("records came too late for their windows", late.len());
        found.saw("windows closed while the input was idle", model.closed);
        let wrong = model.end();
        verdicts.extend(wrong.map(|wrong| format!("{wrong}, in {LOG}-{partition}")));
    }
    Ok(verdicts)
}
