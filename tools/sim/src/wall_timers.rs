//! Timers of the wall clock, and ticks of both clocks.
//!
//! No loop over the input computes these outputs, because they depend on the clock. The app writes its actions and the
//! time of the clock. One loop over this log checks that each moment is handled once, and never before the clock
//! reaches it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use eos_core::timers::Clock;
use eos_core::{App, Timer, Topic};

use super::case::Case;
use super::clocks::Clocks;
use super::loops;
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::timers::{Action, act};
use super::topics::{INPUT, OUTPUTS};
use eos_state::due_row;
use eos_testkit::rng::Rng;

pub(super) const WALL_TIMERS: Case = Case {
    changelog: Some("sim-in-changelog"),
    by_wall_clock: true,
    draft,
    declare,
    judge,
    ..STATELESS
};

/// The period of the ticks, in milliseconds.
const PERIOD: i64 = 1_000;

/// Writes each record, each moment and each tick, with the time of the wall clock.
fn declare(app: &mut App, clocks: &Clocks) {
    let [log, ticks] = OUTPUTS.map(Topic::<String, String>::plain);
    let timer = app.timer(&Timer::<String>::wall_clock("timer"));
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    let [of_moment, of_record, of_tick] = [(); 3].map(|()| clocks.clone());
    source
        .clone()
        .on_timer(&timer, move |ctx, due| {
            let now = of_moment.wall();
            let action = after_moment(due.at.0, now);
            act(ctx, timer, &due.key, action)?;
            let text = format!("due {} {} {now} {action}", due.at.0, due.fired.0);
            ctx.forward(due.key, text)
        })
        .process(move |ctx, record| {
            let seq = loops::word(&record.value, 0);
            let now = of_record.wall();
            let action = after_record(seq.unwrap_or(0), now);
            match action {
                // Half of the moments are set by their distance.
                Action::Set(at) if at > now && at % 2 == 0 => {
                    let after = Duration::from_millis((at - now).unsigned_abs());
                    ctx.timer(&timer).set_in(&record.key, after)?;
                }
                action => act(ctx, timer, &record.key, action)?,
            }
            let text = format!("record {} {now} {action}", seq.unwrap_or(0));
            ctx.forward(record.key, text)
        })
        .to(&log);
    let period = Duration::from_millis(PERIOD.unsigned_abs());
    source
        .on_tick("wall", Clock::Wall, period, move |ctx, tick| {
            let (at, fired, missed) = (tick.at.0, tick.fired.0, tick.missed);
            let (now, wall) = (of_tick.now(), of_tick.wall());
            let partition = ctx.task().partition.get();
            let text = format!("wall {partition} {at} {missed} {fired} {wall} {now}");
            ctx.forward("tick".to_owned(), text)
        })
        .on_tick("stream", Clock::Stream, period, |ctx, tick| {
            let partition = ctx.task().partition.get();
            let text = format!("stream {partition} {} {}", tick.at.0, tick.missed);
            ctx.forward("tick".to_owned(), text)
        })
        .process(|_, _| ())
        .to(&ticks);
}

/// Returns the action of a record at this time of the wall clock.
fn after_record(seq: i64, now: i64) -> Action {
    match seq % 8 {
        0 => Action::Keep,
        1 => Action::Cancel,
        2 => Action::Set(now - 400),
        // Many at one moment.
        3 => Action::Set(now - now % 1_000 + 1_000),
        n => Action::Set(now + 150 * n),
    }
}

/// Returns the action of a handler. A third of the moments are set again once, some of them into the past.
fn after_moment(at: i64, now: i64) -> Action {
    match at.rem_euclid(9) {
        0 => Action::Set(at + 100),
        1 => Action::Set(at - 301),
        2 => Action::Set(now + 901),
        _ => Action::Keep,
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Keep => write!(f, "keep"),
            Action::Cancel => write!(f, "cancel"),
            Action::Set(at) => write!(f, "set {at}"),
        }
    }
}

/// Returns a record. Most have the current time, and some are ahead by several ticks.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0 => -rng.between(0, 4_000),
        _ => rng.between(0, 500),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

/// The log of one partition, read by one loop.
#[derive(Debug, Default)]
struct Model<'a> {
    /// The records that the log has to name next.
    given: VecDeque<&'a Given>,
    /// The moment of each key.
    moments: BTreeMap<String, i64>,
    /// The first violation.
    wrong: Option<String>,
    fired: usize,
    past: usize,
}

impl Model<'_> {
    fn read(&mut self, key: &str, text: &str) {
        let wrong = match text.split(' ').next() {
            Some("record") => self.record(key, text),
            _ => self.due(key, text),
        };
        let wrong = wrong.map(|wrong| format!("{wrong}: key {key}, {text}"));
        self.wrong = self.wrong.take().or(wrong);
    }

    fn record(&mut self, key: &str, text: &str) -> Option<String> {
        let (Some(seq), Some(now)) = (loops::word(text, 1), loops::word(text, 2)) else {
            return Some("VIOLATED foreign".into());
        };
        let expected = self.given.pop_front();
        let expected = expected.map(|it| (it.seq.cast_signed(), &*it.key));
        if expected != Some((seq, key)) {
            return Some(format!("VIOLATED order, expected {expected:?}"));
        }
        // The moments of its key come first, also those that a handler sets into the past.
        let overdue = self.moments.get(key).copied();
        let overdue = overdue.filter(|at| *at <= now);
        let action = after_record(seq, now);
        let wrong = self.act(key, action, (now, text));
        overdue
            .map(|at| format!("VIOLATED lost, the moment {at} of its key comes before it"))
            .or(wrong)
    }

    fn due(&mut self, key: &str, text: &str) -> Option<String> {
        let numbers = [1, 2, 3].map(|nth| loops::word(text, nth));
        let [Some(at), Some(fired), Some(now)] = numbers else {
            return Some("VIOLATED foreign".into());
        };
        self.fired += 1;
        match self.moments.remove(key) {
            Some(moment) if moment == at => {}
            other => {
                return Some(format!(
                    "VIOLATED doubled, the moment of the key is {other:?}"
                ));
            }
        }
        if at > now {
            return Some("VIOLATED early".into());
        }
        if fired > now {
            return Some("VIOLATED clock, the handler sees a later time than its clock has".into());
        }
        self.act(key, after_moment(at, now), (now, text))
    }

    fn act(&mut self, key: &str, action: Action, (now, text): (i64, &str)) -> Option<String> {
        match action {
            Action::Keep => {}
            Action::Cancel => drop(self.moments.remove(key)),
            Action::Set(at) => {
                self.past += usize::from(at < now);
                self.moments.insert(key.to_owned(), at);
            }
        }
        let said = text.ends_with(&action.to_string());
        (!said).then(|| format!("VIOLATED foreign, expected {action}"))
    }

    /// Returns the violation at the end, when the wall clock stands at this time.
    fn end(self, now: i64) -> Option<String> {
        let lost = self.given.front();
        let lost = lost.map(|it| format!("VIOLATED lost: the log ends before seq {}", it.seq));
        let mut due = self.moments.iter().filter(|(_, at)| **at <= now);
        let due = due.next().map(|(key, at)| {
            format!(
                "VIOLATED lost: the moment {at} of key {key} never came, and the clock is at {now}"
            )
        });
        self.wrong.or(lost).or(due)
    }
}

/// The ticks of the wall clock of one task, read by one loop.
#[derive(Debug)]
struct Ticks<'a> {
    clocks: &'a Clocks,
    /// The next tick, and the cluster's time at the last one.
    next: Option<(i64, i64)>,
    repeated: usize,
}

impl Ticks<'_> {
    /// Checks a tick: its moment, the number of missed ones, the time of its handler, and the times of both clocks.
    fn tick(&mut self, [at, missed, fired, wall, now]: [i64; 5]) -> Result<(), String> {
        if at > fired || fired > wall || at % PERIOD != 0 {
            return Err("VIOLATED early".into());
        }
        if missed != (fired - at) / PERIOD {
            return Err(format!("VIOLATED missed, at {fired}"));
        }
        match self.next {
            Some((next, _)) if at > next => {
                return Err(format!("VIOLATED lost, expected {next}"));
            }
            // Moments are repeated after the clock was set back by more than a period.
            Some((next, since)) if at < next => match self.set_back(next, since, now) {
                Some(low) if at > low => self.repeated += 1,
                low => return Err(format!("VIOLATED doubled, expected {next}, low {low:?}")),
            },
            _ => {}
        }
        self.next = Some((at + (missed + 1) * PERIOD, now));
        Ok(())
    }

    /// Returns the lowest time of the clock, if it is so low that the schedule restarts.
    fn set_back(&self, next: i64, since: i64, now: i64) -> Option<i64> {
        let low = self.clocks.lowest_jump(since, now)?;
        ((low.div_euclid(PERIOD) + 2) * PERIOD < next).then_some(low)
    }

    /// Returns the violation at the end. After its last jump, which is longer than two periods, the clock stood still.
    fn end(&self) -> Option<String> {
        let (wall, last) = (self.clocks.wall(), self.clocks.last_jump());
        match self.next {
            None => Some("VIOLATED lost: there is no tick".into()),
            Some((next, _)) if next <= wall => Some(format!(
                "VIOLATED lost: no tick of {next}, and the clock is at {wall}"
            )),
            Some((_, since)) if last.is_some_and(|at| since < at) => Some(format!(
                "VIOLATED lost: no tick after {since}, and the clock jumped at {last:?}"
            )),
            Some(_) => None,
        }
    }
}

/// Returns the ticks of stream time after these records.
fn of_stream_time<'a>(given: impl Iterator<Item = &'a Given>) -> Vec<(i64, i64)> {
    let (mut now, mut next, mut ticks) = (i64::MIN, None, Vec::new());
    for it in given {
        now = now.max(it.timestamp);
        let at = *next.get_or_insert((now.div_euclid(PERIOD) + 1) * PERIOD);
        if at <= now {
            let missed = (now - at) / PERIOD;
            ticks.push((at, missed));
            next = Some(at + (missed + 1) * PERIOD);
        }
    }
    ticks
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    let [log, ticks] = OUTPUTS;
    // The ticks of all tasks have one key.
    let all = 0..left.partitions;
    let all_ticks: Vec<String> = all
        .flat_map(|it| loops::emitted(left, ticks, it))
        .map(|(_, text, _)| text)
        .collect();
    for partition in 0..left.partitions {
        let mut model = Model {
            given: loops::given(left, INPUT, partition).collect(),
            ..Model::default()
        };
        for (key, text, _) in loops::emitted(left, log, partition) {
            model.read(&key, &text);
        }
        found.saw("moments of the wall clock came", model.fired);
        found.saw("moments were set into the past", model.past);
        let now = left.clocks.wall();
        let moments = model.moments.clone();
        let wrong = model.end(now);
        verdicts.extend(wrong.map(|wrong| format!("{wrong}, in {log}-{partition}")));
        verdicts.extend(held_moments(left, partition, &moments));

        let own = |clock: &str| {
            let begin = format!("{clock} {partition} ");
            let own = all_ticks.iter().filter(move |it| it.starts_with(&begin));
            own.collect::<Vec<_>>()
        };
        let mut model = Ticks {
            clocks: left.clocks,
            next: None,
            repeated: 0,
        };
        let mut wrong = None;
        for text in own("wall") {
            let numbers = [2, 3, 4, 5, 6].map(|nth| loops::word(text, nth).unwrap_or(-1));
            let wrong_tick = model.tick(numbers).err();
            wrong = wrong.or(wrong_tick.map(|wrong| format!("{wrong}: {text}")));
        }
        found.saw(
            "the clock was set back and ticks were repeated",
            model.repeated,
        );
        let wrong = wrong.or_else(|| model.end());
        verdicts.extend(
            wrong.map(|wrong| format!("{wrong}, the wall clock in {ticks} of task {partition}")),
        );
        let expected = of_stream_time(loops::given(left, INPUT, partition));
        let number = |text: &str, nth| loops::word(text, nth).unwrap_or(-1);
        let came = own("stream").into_iter();
        let came: Vec<_> = came.map(|it| (number(it, 2), number(it, 3))).collect();
        if came != expected {
            verdicts.push(format!(
                "VIOLATED ticks: stream time of task {partition} ticked at {came:?}, not {expected:?}"
            ));
        }
    }
    Ok(verdicts)
}

/// Compares the moments in the open databases of a partition. Ticks have an empty key.
fn held_moments(left: Left<'_>, partition: i32, moments: &BTreeMap<String, i64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for it in loops::open_databases(left, partition) {
        let rows = it.contents.iter();
        let rows = rows.filter_map(|(key, row)| due_row(key, row));
        let rows = rows.filter(|(key, ..)| !key.is_empty());
        let held = rows.map(|(key, at, _)| (String::from_utf8_lossy(key).into_owned(), at.0));
        let held: BTreeMap<String, i64> = held.collect();
        if held != *moments {
            wrong.push(format!(
                "VIOLATED state_timers: the database of task {} holds {held:?}, not {moments:?}",
                it.task
            ));
        }
    }
    wrong
}
