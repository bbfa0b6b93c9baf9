//! Timers and sessions that are not due yet: a restart must not read them, and a restore must find all of them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use eos_core::codec::{Plain, SessionWindowed};
use eos_core::state::SessionStore;
use eos_core::windows::{Session, Windowed};
use eos_core::{App, Timer, Topic};
use kafka_wire::{Isolation, Producer, Record};

use crate::bench::{Bench, Play, now_ms};
use crate::keyed::key;
use crate::running::Running;
use crate::side::Task;
use crate::work::{COUNTS, FIRED, PENDING, Work};

/// The longest time until all results are written.
const LIMIT: Duration = Duration::from_secs(300);

/// The value of the records that make everything due.
const LAST: &[u8] = b"last";

type Key = Vec<u8>;

/// Adds the topology of the work to the app. The app writes each record, and one result for each timer or session once
/// it is due.
pub(crate) fn declare(app: &mut App, task: &Task) {
    let input = Topic::<Key, String>::plain(&task.input);
    let output = Topic::<Key, String>::plain(&task.output);
    if task.work == Work::Timers {
        let timer = app.timer(&Timer::<Key>::event_time("pending"));
        app.source(&input)
            .on_timer(&timer, |ctx, due| ctx.forward(due.key, FIRED.to_owned()))
            .process(move |ctx, record| {
                ctx.timer(&timer).set_in(&record.key, PENDING)?;
                ctx.forward(record.key, record.value)
            })
            .to(&output);
        return;
    }
    let records = app.source(&input);
    records.clone().to(&output);
    let closed =
        Topic::<Windowed<Key>, u64, _, _>::with(&task.output, SessionWindowed::of(Plain), Plain);
    records
        .group_by_key()
        .windowed_by(Session::gap(PENDING))
        .count(&SessionStore::plain(COUNTS))
        .emit_on_close()
        .to(&closed);
}

/// Makes all timers or sessions of the keys due, and checks that each has one result.
pub(crate) fn ensure_all_due(
    bench: &mut Bench,
    play: &Play,
    running: &mut Running,
    keys: u64,
) -> Result<Duration> {
    let before = results(bench, play, keys)?;
    ensure!(
        before.is_empty(),
        "{} results were written before their time",
        before.len()
    );
    let began = Instant::now();
    // The second record moves stream time past every moment, even after a slow fill.
    for later in [900, 1_200] {
        send_to_each(bench, play, PENDING + Duration::from_secs(later))?;
    }
    let (mut last, mut since) = (0, Instant::now());
    loop {
        running.check()?;
        let ends = bench
            .client
            .end_offsets(&play.task.output, Isolation::ReadCommitted)?;
        let sum: i64 = ends.iter().sum();
        if sum > last {
            (last, since) = (sum, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(5) {
            break;
        }
        ensure!(
            began.elapsed() < LIMIT,
            "new results still arrive after {LIMIT:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let due = results(bench, play, keys)?;
    ensure!(
        due.len() as u64 == keys,
        "{} of {keys} timers or sessions have a result",
        due.len()
    );
    Ok(since - began)
}

/// Sends one record to each partition. Its key is not one of the counted keys.
fn send_to_each(bench: &Bench, play: &Play, ahead: Duration) -> Result<()> {
    let mut producer = Producer::new(&bench.bootstrap)?;
    let time = now_ms()? + i64::try_from(ahead.as_millis())?;
    for partition in 0..bench.partitions {
        let key = format!("last-{partition}");
        producer.send(
            &play.task.input,
            partition,
            Some(key.as_bytes()),
            Some(LAST),
            &[],
            time,
        )?;
    }
    producer.flush()?;
    Ok(())
}

/// Returns the keys with a result.
fn results(bench: &mut Bench, play: &Play, keys: u64) -> Result<HashSet<Key>> {
    let work = play.task.work;
    let mut found = HashSet::new();
    let mut wrong = None;
    let length = key(keys).len();
    let each = |_: i32, record: &Record| {
        let bytes = record.key.as_deref().unwrap_or_default();
        let is_result = match work {
            Work::Timers => record.value.as_deref() == Some(FIRED.as_bytes()),
            _ => bytes.len() > length,
        };
        if !is_result || bytes.starts_with(b"last-") {
            return;
        }
        let of = bytes.get(..length).unwrap_or_default();
        if !found.insert(of.to_vec()) {
            wrong = Some(String::from_utf8_lossy(of).into_owned());
        }
    };
    bench
        .client
        .read_all(&play.task.output, Isolation::ReadCommitted, each)?;
    if let Some(key) = wrong {
        bail!("{key} has two results");
    }
    Ok(found)
}
