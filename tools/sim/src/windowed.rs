//! Counts by key and time window, with late records.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::WindowStore;
use eos_core::windows::{Tumbling, Windowed};
use eos_core::{App, Topic};

use super::case::Case;
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Copied, Found, Left, verdict};
use super::topics::INPUT;
use eos_oracle::{Contents, Evidence, Fold, Keys, Row, StateCopy};
use eos_testkit::rng::Rng;

pub(super) const WINDOWED: Case = Case {
    changelog: Some("sim-in-windowed-changelog"),
    outputs: &OUTPUTS,
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The outputs. Updates go into the first two, late records into the last.
const OUTPUTS: [&str; 3] = ["out", "copy", "late"];

const SIZE: i64 = 2_000;
const GRACE: i64 = 1_000;
/// The key of the stream time in compared contents. The keys of windows are longer.
const STREAM_TIME: &[u8] = b"time";

fn declare(app: &mut App) {
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let [first, second, late] = OUTPUTS;
    let updates = |topic| -> Topic<Windowed<String>, String, TimeWindowed, Plain> {
        Topic::with(topic, TimeWindowed::of(ms(SIZE)), Plain)
    };
    let results = app
        .source(&Topic::<String, String>::plain(INPUT))
        .group_by_key()
        .windowed_by(Tumbling::of(ms(SIZE)).grace(ms(GRACE)))
        .late_to(&Topic::plain(late))
        .aggregate(
            &WindowStore::<String, String>::plain("windows"),
            String::new,
            |_, value, before| {
                let count = before.rsplit(' ').next().and_then(|it| it.parse().ok());
                format!("{value} {}", count.unwrap_or(0_u64) + 1)
            },
        )
        .to_stream();
    results.clone().to(&updates(first));
    results.to(&updates(second));
}

/// Returns a record. Most have the current time. Some are late, in time for their window or not, and a few are ahead.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let back = match rng.below(12) {
        0..=3 => rng.between(0, 6_000),
        4 => -rng.between(0, 1_500),
        _ => rng.between(0, 300),
    };
    Draft {
        timestamp: now - back,
        ..Draft::plain(now)
    }
}

fn start(time: i64) -> i64 {
    time - time % SIZE
}

/// Returns whether the window with this start is closed and no longer kept.
fn is_expired(start: i64, stream_time: i64) -> bool {
    start + SIZE + GRACE <= stream_time
}

/// Splits records into those in time for their windows and late ones, with one loop over each partition.
fn split(given: &[Given]) -> (Vec<&Given>, Vec<&Given>) {
    let mut stream_times = BTreeMap::new();
    given.iter().partition(|it| {
        let stream_time = stream_times.entry(it.partition).or_insert(i64::MIN);
        *stream_time = it.timestamp.max(*stream_time);
        !is_expired(start(it.timestamp), *stream_time)
    })
}

/// Returns the key of an update, followed by the window's start.
fn windowed(it: &Given) -> Vec<u8> {
    let mut key = it.key.clone().into_bytes();
    key.extend_from_slice(&start(it.timestamp).to_be_bytes());
    key
}

/// Returns the fold of the expected state: windows that are not over, by start and key, each with the highest time of
/// its records, and the stream time. Only records in time can raise the stream time.
fn windows() -> Fold {
    Fold::new(|contents, record| {
        let time = record.value;
        let stream_time = number(contents.get(STREAM_TIME)).unwrap_or(i64::MIN);
        let stream_time = stream_time.max(time);
        contents.insert(STREAM_TIME.to_vec(), stream_time.to_be_bytes().to_vec());
        forget(contents, stream_time);
        let key = record.key.unwrap_or_default();
        let key = key.split_last_chunk::<8>().map_or(key, |(key, _)| key);
        let mut at = stored(start(time)).to_vec();
        at.extend_from_slice(key);
        let before = contents.remove(&at).unwrap_or_default();
        let highest = number(before.get(..8)).unwrap_or(i64::MIN).max(time);
        let count = String::from_utf8_lossy(before.get(8..).unwrap_or_default());
        let count = count.rsplit(' ').next().and_then(|it| it.parse().ok());
        let count = count.unwrap_or(0) + 1;
        let digit = char::from(key.last().copied().unwrap_or_default());
        let mut value = highest.to_be_bytes().to_vec();
        value.extend_from_slice(format!("{} {digit} {count}", record.seq).as_bytes());
        contents.insert(at, value);
        count
    })
}

/// Returns the start as encoded in a store's key, with the sign bit flipped.
fn stored(start: i64) -> [u8; 8] {
    (start ^ i64::MIN).to_be_bytes()
}

fn number(bytes: Option<impl AsRef<[u8]>>) -> Option<i64> {
    Some(i64::from_be_bytes(bytes?.as_ref().try_into().ok()?))
}

/// Drops windows that are over, which databases and changelogs remove at an unspecified time.
fn forget(contents: &mut Contents, stream_time: i64) {
    contents.retain(|key, _| match key.first_chunk() {
        Some(start) => !is_expired(i64::from_be_bytes(*start) ^ i64::MIN, stream_time),
        None => true,
    });
}

/// Returns the open windows in a database or a changelog, with the stream time.
fn open(mut contents: Contents, stream_time: Option<i64>) -> Contents {
    // The stored window settings.
    contents.remove(&[][..]);
    if let Some(stream_time) = stream_time {
        forget(&mut contents, stream_time);
        contents.insert(STREAM_TIME.to_vec(), stream_time.to_be_bytes().to_vec());
    }
    contents
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let [first, second, late_to] = OUTPUTS;
    let (in_time, late) = split(left.given);
    found.saw("records came too late for their windows", late.len());
    if let Some(topic) = left.changelog {
        let mut partitions = 0..left.cluster.partitions(topic);
        let cut_off = partitions.any(|it| left.cluster.begin(topic, it) > 0);
        found.saw("changelogs of windows were cut off", usize::from(cut_off));
    }
    let mut keys = Keys::default();
    let rows = in_time.iter().map(|it| Row {
        seq: Some(it.seq),
        key: keys.intern(Some(&windowed(it))),
        partition: it.partition,
        offset: it.offset,
        value: it.timestamp,
    });
    let rows = rows.collect();
    let running = || Some(windows());
    let outputs = [first, second].map(|topic| left.output(topic, &mut keys, running()));
    let updates = Evidence {
        outputs: outputs.into(),
        state: open_windows(left),
        ..left.evidence(INPUT, rows, keys)?
    };
    let mut keys = Keys::default();
    let rows = late.iter().map(|it| Row {
        seq: Some(it.seq),
        key: keys.intern(Some(it.key.as_bytes())),
        partition: it.partition,
        offset: it.offset,
        value: 0,
    });
    let rows = rows.collect();
    let outputs = vec![left.output(late_to, &mut keys, None)];
    let late = Evidence {
        outputs,
        ..left.evidence(INPUT, rows, keys)?
    };
    for output in OUTPUTS {
        left.out_of_order(output, found);
    }
    Ok([updates, late].iter().filter_map(verdict).collect())
}

fn open_windows(left: Left<'_>) -> Vec<StateCopy> {
    let databases = left.databases.iter().map(|it| Copied {
        contents: open(it.contents.clone(), it.stream_time),
        ..it.clone()
    });
    let databases: Vec<_> = databases.collect();
    let left = Left {
        databases: &databases,
        ..left
    };
    let mut copies = left.copies(INPUT, &windows());
    let changelogs = copies.iter_mut().filter(|it| it.position.is_none());
    for it in changelogs {
        let given = left.given.iter().filter(|at| at.partition == it.partition);
        it.contents = open(
            std::mem::take(&mut it.contents),
            given.map(|it| it.timestamp).max(),
        );
    }
    copies
}
