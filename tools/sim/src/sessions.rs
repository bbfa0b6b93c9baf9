//! Sessions, with updates and with final results.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::state::SessionStore;
use eos_core::windows::Session;
use eos_core::{App, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_protocol::windows::OpenSessions;
use eos_state::due_row;
use eos_testkit::rng::Rng;

pub(super) const SESSIONS: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

const GAP: i64 = 400;
const GRACE: i64 = 500;

fn declare(app: &mut App) {
    let [updates, finals] = OUTPUTS.map(Topic::<String, String>::plain);
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let windows = Session::gap(ms(GAP)).grace(ms(GRACE));
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    source
        .clone()
        .group_by_key()
        .windowed_by(windows)
        .count(&SessionStore::plain("updates"))
        .to_stream()
        .rekey(|it| {
            let (first, last) = (it.key.window.start.0, it.key.window.end.0 - 1);
            (it.key.key, shown((first, last), it.value))
        })
        .to(&updates);
    source
        .group_by_key()
        .windowed_by(windows)
        .count(&SessionStore::plain("finals"))
        .emit_on_close()
        .rekey(|it| {
            let (first, last) = (it.key.window.start.0, it.key.window.end.0 - 1);
            (it.key.key, shown((first, last), Some(it.value)))
        })
        .to(&finals);
}

type Span = (i64, i64);

fn shown((first, last): Span, count: Option<u64>) -> String {
    match count {
        Some(count) => format!("{first} {last} {count}"),
        None => format!("{first} {last} -"),
    }
}

/// Returns a record. Most have the current time; some are late, and some are ahead by several sessions.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0..=3 => rng.between(0, 1_800),
        4 => -rng.between(0, 4_000),
        _ => rng.between(0, 200),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

/// The sessions of one partition: one loop over the records.
#[derive(Debug, Default)]
struct Model {
    stream_time: i64,
    /// The count of each open session, by key.
    open: BTreeMap<String, BTreeMap<Span, u64>>,
    updates: Vec<Emitted>,
    finals: Vec<Emitted>,
    late: usize,
    joined: usize,
}

impl Model {
    fn record(&mut self, it: &Given) {
        let time = it.timestamp;
        let now = self.stream_time.max(time);
        let open = self.open.entry(it.key.clone()).or_default();
        let joins = |(first, last): &Span| {
            last + GAP + GRACE >= now && first - GAP <= time && time <= last + GAP
        };
        let joined = take(open, joins);
        self.joined += usize::from(joined.len() > 1);
        if joined.is_empty() && time + GAP + GRACE < now {
            self.late += 1;
        } else {
            let first = joined
                .iter()
                .map(|((first, _), _)| *first)
                .fold(time, i64::min);
            let last = joined
                .iter()
                .map(|((_, last), _)| *last)
                .fold(time, i64::max);
            let count = joined.iter().map(|(_, count)| count).sum::<u64>() + 1;
            open.insert((first, last), count);
            let gone = joined
                .into_iter()
                .filter(|(span, _)| *span != (first, last));
            let gone = gone.map(|(span, _)| (it.key.clone(), shown(span, None), span.1));
            self.updates.extend(gone);
            let shown = shown((first, last), Some(count));
            self.updates.push((it.key.clone(), shown, last));
        }
        self.stream_time = now;
        let mut closed = Vec::new();
        for (key, sessions) in &mut self.open {
            let over = take(sessions, |(_, last)| last + GAP + GRACE < now).into_iter();
            closed.extend(over.map(|(span, count)| (span.1, key.clone(), span, count)));
        }
        closed.sort();
        let closed = closed.into_iter();
        let shown = closed.map(|(last, key, span, count)| (key, shown(span, Some(count)), last));
        self.finals.extend(shown);
        self.open.retain(|_, sessions| !sessions.is_empty());
    }
}

/// Removes the sessions for which a condition holds.
fn take(sessions: &mut BTreeMap<Span, u64>, which: impl Fn(&Span) -> bool) -> Vec<(Span, u64)> {
    let taken = sessions.iter().filter(|(span, _)| which(span));
    let taken: Vec<(Span, u64)> = taken.map(|(span, count)| (*span, *count)).collect();
    for (span, _) in &taken {
        sessions.remove(span);
    }
    taken
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        loops::given(left, INPUT, partition).for_each(|it| model.record(it));
        found.saw("records came too late for their windows", model.late);
        found.saw("a record joined sessions", model.joined);
        let [updates, finals] = OUTPUTS;
        for (output, expected) in [(updates, &model.updates), (finals, &model.finals)] {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
        for it in loops::open_databases(left, partition) {
            let rows = it.contents.iter();
            let rows = rows.filter_map(|(key, row)| due_row(key, row));
            let mut held = BTreeMap::new();
            for (key, _, row) in rows {
                let sessions = OpenSessions::decode(row).map_err(|error| error.to_string())?;
                // Closed sessions may still be there.
                let open = sessions
                    .iter()
                    .filter(|it| it.last.0 + GAP + GRACE >= model.stream_time);
                let count = |result: &[u8]| result.try_into().map_or(0, u64::from_be_bytes);
                let open = open.map(|it| ((it.first.0, it.last.0), count(&it.result)));
                let open: BTreeMap<Span, u64> = open.collect();
                if !open.is_empty() {
                    held.insert(String::from_utf8_lossy(key).into_owned(), open);
                }
            }
            if held != model.open {
                verdicts.push(format!(
                    "VIOLATED state_sessions: the database of task {} holds {held:?}, not {:?}",
                    it.task, model.open
                ));
            }
        }
    }
    Ok(verdicts)
}
