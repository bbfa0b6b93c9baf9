//! Rows that expire, read by records and by timers.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::state::OrderedStore;
use eos_core::timers::TimerHandle;
use eos_core::{App, Ctx, Failure, KeyValueStore, Timer, Timestamp, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_state::due_row;
use eos_testkit::rng::Rng;

pub(super) const EXPIRING: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The lifetimes of rows, in milliseconds: in the key-value store, and in the ordered store.
const LIFE: i64 = 700;
const ORDERED_LIFE: i64 = 1_100;

/// Writes the rows that records and moments read. A record and some moments write rows, and a record sets the moment of
/// its key.
fn declare(app: &mut App) {
    let [first, second] = OUTPUTS.map(Topic::<String, String>::plain);
    let life = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let codes = KeyValueStore::<String, u64>::plain("codes").expire_after(life(LIFE));
    let last = OrderedStore::<(String, u64), String>::plain("last");
    let last = last.expire_after(life(ORDERED_LIFE));
    let (codes, last) = (app.store(&codes), app.store(&last));
    let timer = app.timer(&Timer::<String>::event_time("timer"));
    let kept = move |ctx: &Ctx<'_>, key: &String| {
        let code = ctx.store(&codes).get(&code(key))?;
        let rows = ctx.store(&last).prefix(key).map(|it| Ok(it?.0.1));
        let rows = rows.collect::<Result<Vec<u64>, Failure>>()?;
        Ok::<_, Failure>(shown(code, &rows))
    };
    let all = app
        .source(&Topic::<String, String>::plain(INPUT))
        .with_store(&codes)
        .with_store(&last)
        .on_timer(&timer, move |ctx, due| {
            let kept = kept(ctx, &due.key)?;
            if renews(due.at.0) {
                ctx.store(&codes).put(&code(&due.key), &0)?;
            }
            ctx.forward(due.key, format!("due {} {kept}", due.at.0))
        })
        .process(move |ctx, record| {
            let kept = kept(ctx, &record.key)?;
            let seq = loops::word(&record.value, 0).unwrap_or(0).unsigned_abs();
            match after_record(seq) {
                Action::Keep => {}
                Action::Delete => ctx.store(&codes).delete(&code(&record.key))?,
                Action::Put => {
                    ctx.store(&codes).put(&code(&record.key), &seq)?;
                    let row = (record.key.clone(), seq);
                    ctx.store(&last).put(&row, &record.value)?;
                }
            }
            let now = ctx.stream_time().ok_or("a record has no time")?.0;
            set(ctx, timer, &record.key, now + moment(seq))?;
            ctx.forward(record.key, format!("{seq} {kept}"))
        });
    all.clone().to(&first);
    all.to(&second);
}

fn set(ctx: &Ctx<'_>, timer: TimerHandle<String>, key: &String, at: i64) -> Result<(), Failure> {
    ctx.timer(&timer).set(key, Timestamp(at))
}

/// Returns the key of a row that differs from that of a moment.
fn code(key: &str) -> String {
    format!("code {key}")
}

fn shown(code: Option<u64>, rows: &[u64]) -> String {
    format!("{code:?} {rows:?}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Keep,
    Delete,
    Put,
}

/// Returns the action of a record.
fn after_record(seq: u64) -> Action {
    match seq % 8 {
        0..=2 => Action::Keep,
        3 => Action::Delete,
        _ => Action::Put,
    }
}

/// Returns the time from a record to the moment that it sets.
fn moment(seq: u64) -> i64 {
    150 * (seq % 7).cast_signed() + 50
}

/// Returns whether the handler of this moment writes the row of its key.
fn renews(at: i64) -> bool {
    at % 3 == 0
}

/// Returns a record. Most have the current time; some are late, and some are ahead of several moments and rows.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(10) {
        0 => rng.between(0, 2_000),
        1 => -rng.between(0, 3_000),
        _ => rng.between(0, 100),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

/// The rows of one partition: one loop over the records.
#[derive(Debug, Default)]
struct Model {
    stream_time: i64,
    /// The value of each row, and the time at which it expires.
    codes: BTreeMap<String, (u64, i64)>,
    last: BTreeMap<(String, u64), i64>,
    moments: BTreeMap<String, i64>,
    out: Vec<Emitted>,
    expired: usize,
    seen_by_moments: usize,
}

impl Model {
    fn record(&mut self, it: &Given) {
        let (key, seq) = (&it.key, it.seq);
        self.stream_time = self.stream_time.max(it.timestamp);
        let now = self.stream_time;
        // The moment of its key is handled first.
        if let Some(at) = self.moments.get(key).copied().filter(|at| *at <= now) {
            self.due(key, at);
        }
        let text = format!("{seq} {}", self.kept(key, now));
        self.out.push((key.clone(), text, it.timestamp));
        let gone = self.codes.get(key).is_some_and(|(_, until)| *until <= now);
        self.expired += usize::from(gone);
        match after_record(seq) {
            Action::Keep => {}
            Action::Delete => drop(self.codes.remove(key)),
            Action::Put => {
                self.codes.insert(key.clone(), (seq, now + LIFE));
                self.last.insert((key.clone(), seq), now + ORDERED_LIFE);
            }
        }
        self.moments.insert(key.clone(), now + moment(seq));
        let first = |model: &Model| {
            let due = model.moments.iter().map(|(key, at)| (*at, key.clone()));
            due.min().filter(|(at, _)| *at <= now)
        };
        while let Some((at, key)) = first(self) {
            self.due(&key, at);
        }
    }

    /// Handles a moment. It reads the rows of its own time.
    fn due(&mut self, key: &str, at: i64) {
        self.moments.remove(key);
        let text = format!("due {at} {}", self.kept(key, at));
        self.out.push((key.to_owned(), text, at));
        let code = self.codes.get(key);
        let older = code.is_some_and(|(_, until)| (at + 1..=self.stream_time).contains(until));
        self.seen_by_moments += usize::from(older);
        if renews(at) {
            self.codes.insert(key.to_owned(), (0, at + LIFE));
        }
    }

    fn kept(&self, key: &str, now: i64) -> String {
        let code = self.codes.get(key).filter(|(_, until)| now < *until);
        let rows = self.last.iter();
        let rows = rows.filter(|((of, _), until)| of == key && now < **until);
        let rows: Vec<u64> = rows.map(|((_, seq), _)| *seq).collect();
        shown(code.map(|(code, _)| *code), &rows)
    }

    /// Returns all rows and moments at the end, in the form of [`held`].
    fn held(&self) -> BTreeMap<String, i64> {
        let now = self.stream_time;
        let codes = self.codes.iter();
        let codes = codes.filter(|(_, (_, until))| now < *until);
        let codes = codes.map(|(key, (_, until))| (code(key), *until));
        let last = self.last.iter().filter(|(_, until)| now < **until);
        let last = last.map(|((key, seq), until)| (format!("{key} {seq}"), *until));
        let moments = self.moments.iter().map(|(key, at)| (key.clone(), *at));
        codes.chain(last).chain(moments).collect()
    }
}

/// Returns the rows of a database with their moments: an expired one is no longer there.
fn held(contents: &eos_oracle::Contents) -> BTreeMap<String, i64> {
    let rows = contents.iter();
    let rows = rows.filter_map(|(key, row)| due_row(key, row));
    let named = rows.map(|(key, at, _)| {
        // A key of the ordered store ends with the number of the record.
        let name = match key.split_last_chunk::<8>() {
            Some((head, seq)) if !key.starts_with(b"code ") => {
                let end = head
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(head.len());
                let head = String::from_utf8_lossy(&head[..end]);
                format!("{head} {}", u64::from_be_bytes(*seq))
            }
            _ => String::from_utf8_lossy(key).into_owned(),
        };
        (name, at.0)
    });
    named.collect()
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        loops::given(left, INPUT, partition).for_each(|it| model.record(it));
        found.saw("rows were expired when a record read them", model.expired);
        found.saw("moments saw rows that expired later", model.seen_by_moments);
        for output in OUTPUTS {
            verdicts.extend(loops::difference(left, output, partition, &model.out));
        }
        let expected = model.held();
        for it in loops::open_databases(left, partition) {
            let held = held(&it.contents);
            if held != expected {
                verdicts.push(format!(
                    "VIOLATED state_rows: the database of task {} holds {held:?}, not {expected:?}",
                    it.task
                ));
            }
        }
    }
    Ok(verdicts)
}
