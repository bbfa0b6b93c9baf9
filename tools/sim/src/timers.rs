//! Timers of stream time.

use std::collections::BTreeMap;

use eos_core::{App, Ctx, ErrorPolicy, Failure, Timer, Timestamp, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_core::timers::TimerHandle;
use eos_state::due_row;
use eos_testkit::rng::Rng;

pub(super) const TIMERS: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// Writes each record and each moment. A record sets, moves or cancels the moment of its key. Some moments fail, and are
/// skipped without effects.
fn declare(app: &mut App) {
    let [first, second] = OUTPUTS.map(Topic::<String, String>::plain);
    let timer = app.timer(&Timer::<String>::event_time("timer"));
    let all = app
        .source(&Topic::<String, String>::plain(INPUT))
        .on_error(ErrorPolicy::skip())
        .on_timer(&timer, move |ctx, due| {
            act(ctx, timer, &due.key, after_moment(due.at.0))?;
            ctx.forward(due.key, shown(due.at.0))?;
            match fails(due.at.0) {
                true => Err("this moment fails".into()),
                false => Ok(()),
            }
        })
        .process(move |ctx, record| {
            let seq = record
                .value
                .split(' ')
                .next()
                .and_then(|it| it.parse().ok());
            let time = ctx.timestamp().ok_or("a record has no time")?.0;
            act(
                ctx,
                timer,
                &record.key,
                after_record(seq.unwrap_or(0), time),
            )?;
            ctx.forward_record(record)
        });
    all.clone().to(&first);
    all.to(&second);
}

/// The effect on the moment of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Keep,
    Cancel,
    Set(i64),
}

pub(super) fn act(
    ctx: &Ctx<'_>,
    timer: TimerHandle<String>,
    key: &String,
    action: Action,
) -> Result<(), Failure> {
    match action {
        Action::Keep => Ok(()),
        Action::Cancel => ctx.timer(&timer).cancel(key),
        Action::Set(at) => ctx.timer(&timer).set(key, Timestamp(at)),
    }
}

/// Returns the action of a record.
fn after_record(seq: u64, time: i64) -> Action {
    match seq % 8 {
        0 => Action::Keep,
        1 => Action::Cancel,
        2 => Action::Set(time - 400),
        // Many at one moment.
        3 => Action::Set(time - time % 1_000 + 1_000),
        n => Action::Set(time + 150 * n.cast_signed()),
    }
}

/// Returns the action of a handler. Nearly half of the handlers set a further moment, some of them in the past. No chain has
/// more than two further moments.
fn after_moment(at: i64) -> Action {
    match at.rem_euclid(9) {
        0 => Action::Set(at + 100),
        1 => Action::Set(at - 301),
        2 => Action::Set(at + 901),
        // Most of these new moments are handled before the same record as the handled one.
        4 => Action::Set(at + 3),
        _ => Action::Keep,
    }
}

/// Returns whether the handler of a moment fails. It then fails at every try.
fn fails(at: i64) -> bool {
    at.rem_euclid(5) == 3
}

fn shown(at: i64) -> String {
    format!("due {at}")
}

/// Returns a record. Most have the current time; some are late.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(8) {
        0 => rng.between(0, 2_000),
        1 => -rng.between(0, 1_500),
        _ => rng.between(0, 100),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

/// A moment, and a round of those that were set into the past at this moment.
type Round = (i64, u32);

/// The timers of one partition, without an index: one loop over the records.
#[derive(Debug, Default)]
struct Model {
    stream_time: Option<i64>,
    /// The moment of each key, and the moment and the round in which it is handled.
    moments: BTreeMap<String, (i64, Round)>,
    /// The last moment that was handled in order.
    handled: Option<(Round, String)>,
    out: Vec<Emitted>,
    early: usize,
    past: usize,
    failed: usize,
    /// The number of failed moments after others of their key, before one record.
    failed_behind: usize,
}

impl Model {
    fn record(&mut self, it: &Given) {
        let now = self
            .stream_time
            .map_or(it.timestamp, |time| time.max(it.timestamp));
        let mut behind = false;
        while let Some((at, _)) = self
            .moments
            .get(&it.key)
            .copied()
            .filter(|(at, _)| *at <= now)
        {
            self.moments.remove(&it.key);
            self.early += 1;
            self.failed_behind += usize::from(behind && fails(at));
            behind = true;
            let before = self.stream_time.unwrap_or(at);
            self.come(&it.key, at, now.min(at.max(before)));
        }
        self.act(&it.key, after_record(it.seq, it.timestamp), now);
        let value = String::from_utf8_lossy(&it.kind.value(it.seq, digit(&it.key))).into_owned();
        self.out.push((it.key.clone(), value, it.timestamp));
        self.stream_time = Some(now);
        while let Some((place, key)) = self.first().filter(|((at, _), _)| *at <= now) {
            let (at, _) = self.moments.remove(&key).unwrap_or_default();
            self.handled = Some((place, key.clone()));
            self.come(&key, at, place.0);
        }
    }

    fn first(&self) -> Option<(Round, String)> {
        let places = self.moments.iter().map(|(key, (_, place))| (*place, key));
        places.min().map(|(place, key)| (place, key.clone()))
    }

    /// Handles a moment at this time.
    fn come(&mut self, key: &str, at: i64, now: i64) {
        if fails(at) {
            self.failed += 1;
            return;
        }
        self.act(key, after_moment(at), now);
        self.out.push((key.to_owned(), shown(at), at));
    }

    /// Performs an action at this time. A moment that is set into the past is handled no earlier than this time.
    fn act(&mut self, key: &str, action: Action, now: i64) {
        match action {
            Action::Keep => {}
            Action::Cancel => drop(self.moments.remove(key)),
            Action::Set(at) => {
                let from = at.max(now);
                self.past += usize::from(at < now);
                let place = match &self.handled {
                    Some((handled, last)) if (from, 0) <= *handled => {
                        (handled.0, handled.1 + u32::from(key <= &**last))
                    }
                    _ => (from, 0),
                };
                self.moments.insert(key.to_owned(), (at, place));
            }
        }
    }
}

fn digit(key: &str) -> usize {
    let last = key.chars().last().and_then(|it| it.to_digit(10));
    last.map_or(0, |it| it as usize)
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        loops::given(left, INPUT, partition).for_each(|it| model.record(it));
        found.saw("moments came before a record of their key", model.early);
        found.saw("moments were set into the past", model.past);
        found.saw("moments failed", model.failed);
        found.saw(
            "moments failed behind others of their key",
            model.failed_behind,
        );
        for output in OUTPUTS {
            verdicts.extend(loops::difference(left, output, partition, &model.out));
        }
        for it in loops::open_databases(left, partition) {
            let rows = it
                .contents
                .iter()
                .filter_map(|(key, row)| due_row(key, row));
            let held: BTreeMap<String, i64> = rows
                .map(|(key, at, _)| (String::from_utf8_lossy(key).into_owned(), at.0))
                .collect();
            let expected = model
                .moments
                .iter()
                .map(|(key, (at, _))| (key.clone(), *at));
            let expected: BTreeMap<String, i64> = expected.collect();
            if held != expected {
                verdicts.push(format!(
                    "VIOLATED state_timers: the database of task {} holds {held:?}, not {expected:?}",
                    it.task
                ));
            }
        }
    }
    Ok(verdicts)
}
