//! The calls of the worker to processors in commits, aborts and closes.

use std::convert::Infallible;
use std::sync::Mutex;

use super::state::{Disk, stateful};
use super::*;
use crate::processor::OnDiscard;
use crate::{KeyValueStore, Output, ProcessCtx, Processor, Record, Store};

type Log = Arc<Mutex<Vec<String>>>;

/// Numbers the records that it has seen, and notes the calls of the worker.
struct Number {
    out: Output<String, String>,
    seen: u32,
    log: Log,
}

impl Number {
    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(what.into());
    }
}

impl Processor<String, String> for Number {
    type Key = Infallible;
    type Value = Infallible;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, Infallible, Infallible>,
        record: Record<String, String>,
    ) -> Result<(), Failure> {
        self.seen += 1;
        if record.value == "poison" {
            return Err("poison".into());
        }
        let numbered = format!("{}:{}", self.seen, record.value);
        ctx.emit(&self.out, record.key, numbered)
    }

    fn on_discard(&mut self) -> OnDiscard {
        self.note("discard");
        OnDiscard::Rebuild
    }

    fn close(&mut self) {
        self.note("close");
    }
}

/// A worker that owns partition 0 and has committed its first three records.
fn numbering() -> (Bench, Log) {
    numbering_with(Clock::default())
}

/// The clock passes with each record that begins with "slow".
fn numbering_with(clock: Clock) -> (Bench, Log) {
    let log = Log::default();
    let noted = Arc::clone(&log);
    let slow = clock.clone();
    let mut bench = Bench::with_clock(clock, Guarantee::ExactlyOnce, |app| {
        let out = app.output(&Topic::plain("out"));
        app.source(&text("in"))
            .peek(move |v| {
                if v.starts_with("slow") {
                    slow.pass(Duration::from_secs(25));
                }
            })
            .for_each_with(move || Number {
                out,
                seen: 0,
                log: Arc::clone(&noted),
            });
    });
    bench.assign(&[0]);
    bench.settle();
    (bench, log)
}

fn noted(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

#[test]
fn a_processor_is_rebuilt_after_an_abort_and_what_was_aborted_is_seen_as_new() {
    let (mut bench, log) = numbering();
    bench.feed(0, &["a", "b"]);
    bench.next_flush_aborts();
    bench.settle();
    assert_eq!(bench.visible()[..3], ["1:p0r0", "2:p0r1", "3:p0r2"]);
    assert_eq!(bench.visible()[3..], ["1:a", "2:b"]);
    assert_eq!(noted(&log), ["discard"]);
}

#[test]
fn an_abort_does_not_trouble_a_processor_whose_records_are_committed() {
    let (mut bench, log) = numbering();
    bench.assign(&[1]);
    bench.settle();
    bench.feed(1, &["a"]);
    bench.next_flush_aborts();
    bench.settle();
    assert_eq!(noted(&log), ["discard"], "that of the other task");
    bench.take(&["b"]);
    assert_eq!(bench.visible()[6..], ["1:a", "4:b"]);
}

#[test]
fn a_processor_is_notified_of_a_failed_record_and_not_closed_after_it() {
    let (mut bench, log) = numbering();
    bench.feed(0, &["a", "poison"]);
    bench.end().unwrap_err();
    assert_eq!(bench.visible()[3..], ["4:a"]);
    drop(bench);
    assert_eq!(
        noted(&log),
        ["discard"],
        "one that is rebuilt is not closed"
    );
}

#[test]
fn a_processor_is_closed_when_its_partition_goes_and_when_the_worker_stops() {
    let (mut bench, log) = numbering();
    bench.revoke(0, false);
    bench.settle();
    assert_eq!(noted(&log), ["close"]);

    let (mut bench, log) = numbering();
    bench.worker.stop(StopMode::Restart);
    bench.end().unwrap();
    drop(bench);
    assert_eq!(noted(&log), ["close"]);
}

/// A slow record is processed before the earlier records are committed.
#[test]
fn a_processor_keeps_what_it_saw_of_a_record_that_waits_for_its_own_transaction() {
    let (mut bench, log) = numbering_with(Clock::default());
    bench.take(&["a", "slow", "b"]);
    assert_eq!(bench.visible()[3..], ["4:a", "5:slow", "6:b"]);
    assert!(noted(&log).is_empty());
}

#[test]
fn a_record_that_waits_goes_down_with_the_transaction_before_it() {
    let (mut bench, log) = numbering_with(Clock::default());
    bench.feed(0, &["a", "slow", "b"]);
    bench.next_flush_aborts();
    bench.settle();
    assert_eq!(bench.visible()[3..], ["1:a", "2:slow", "3:b"]);
    assert_eq!(noted(&log), ["discard"]);
}

/// Counts words, and keeps the last word. It may fail after both writes.
struct Tally {
    counts: Store<KeyValueStore<String, u64>>,
    last: Store<KeyValueStore<u64, String>>,
    out: Output<String, String>,
}

impl Processor<String, String> for Tally {
    type Key = Infallible;
    type Value = Infallible;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, Infallible, Infallible>,
        record: Record<String, String>,
    ) -> Result<(), Failure> {
        let (counts, last) = (ctx.store(&self.counts), ctx.store(&self.last));
        let word = record.value;
        let n = counts.update(&word, |n| n.unwrap_or(0) + 1)?;
        let before = last.get(&0)?.unwrap_or_else(|| "nothing".into());
        last.put(&0, &word)?;
        if word == "poison" {
            return Err("both stores were written".into());
        }
        ctx.emit(&self.out, record.key, format!("{word}={n} after {before}"))
    }
}

#[test]
fn a_record_that_fails_leaves_none_of_a_processors_stores_changed() {
    let disk = Disk::default();
    let declare = |app: &mut App| {
        let counts = app.store(&KeyValueStore::plain("counts"));
        let last = app.store(&KeyValueStore::plain("last"));
        let out = app.output(&Topic::plain("out"));
        app.source(&text("in"))
            .on_error(crate::ErrorPolicy::skip())
            .with_store(&counts)
            .with_store(&last)
            .for_each_with(move || Tally { counts, last, out });
    };
    let mut bench = Bench::of(stateful(&disk, 0), declare);
    bench.feed(0, &["a", "poison", "a"]);
    bench.assign(&[0]);
    bench.settle();
    // A new processor on another host. The record fails there once more.
    bench.replace(stateful(&Disk::default(), 0), declare);
    bench.assign(&[0]);
    bench.take(&["poison", "b", "a"]);
    assert_eq!(
        bench.visible(),
        [
            "a=1 after nothing",
            "a=2 after a",
            "b=1 after a",
            "a=3 after b"
        ]
    );
    assert_eq!(bench.committed(0), Some(6));
}
