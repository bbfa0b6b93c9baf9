//! Tables and joins: each record finds the rows of earlier records, crashes included.

use super::state::{Disk, stateful};
use super::*;
use crate::codec::{CodecError, Decode, Encode, Encoded, Field, Plain};
use crate::{ErrorPolicy, KeyValueStore};

fn rows(partition: i32) -> TopicPartition {
    TopicPartition::new("rows", tp(partition).partition)
}

/// All records of the fake have values: `-` stands for a tombstone, and `?` for an unreadable value.
struct Dash;

impl Decode<Option<String>> for Dash {
    fn decode(
        &self,
        bytes: Option<&[u8]>,
        field: &Field<'_>,
    ) -> Result<Option<String>, CodecError> {
        match bytes {
            Some(b"?") => Err(CodecError::invalid("a row", "it is a question")),
            Some(b"-") | None => Ok(None),
            bytes => Plain.decode(bytes, field).map(Some),
        }
    }
}

impl Encode<Option<String>> for Dash {
    fn encode(
        &self,
        row: &Option<String>,
        into: &mut Vec<u8>,
        _: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        into.extend_from_slice(row.as_deref().unwrap_or("-").as_bytes());
        Ok(Encoded::Bytes)
    }
}

/// The table drives; the fake's times are its offsets, and all keys are the same.
fn joining(app: &mut App) {
    let topic = Topic::<String, Option<String>>::with("rows", Plain, Dash);
    let table = app
        .table(&topic, &KeyValueStore::plain("rows"))
        .on_error(ErrorPolicy::skip());
    app.source(&text("in"))
        .left_join(&table, |value, row| {
            format!("{value}+{}", row.as_deref().unwrap_or("none"))
        })
        .to(&Topic::plain("out"));
}

fn spec_on(disk: &Disk) -> WorkerSpec {
    WorkerSpec {
        input_partitions: BTreeMap::from([("rows".into(), 2), ("in".into(), 2)]),
        output_limits: vec![None, None],
        ..stateful(disk, 0)
    }
}

fn bench_on(disk: &Disk, table: &[&str], stream: &[&str]) -> Bench {
    let bench = Bench::of(spec_on(disk), joining);
    bench.feed_to(rows(0), table);
    bench.feed(0, stream);
    bench.assign_rows();
    bench
}

impl Bench {
    fn assign_rows(&self) {
        self.assign_these([rows(0)]);
    }

    /// Feeds a row and a record of the same time. The row comes first, so the record finds it.
    fn feed_both(&self, row: &str, value: &str) {
        self.feed_to(rows(0), &[row]);
        self.feed(0, &[value]);
    }
}

#[test]
fn a_record_finds_the_row_of_its_own_time() {
    let mut bench = bench_on(
        &Disk::default(),
        &["r0", "-", "r2", "?"],
        &["a", "b", "c", "d"],
    );
    bench.settle();
    assert_eq!(bench.visible(), ["a+r0", "b+none", "c+r2", "d+r2"]);
}

#[test]
fn kip_695_a_record_waits_for_rows_that_may_be_older() {
    let mut bench = bench_on(&Disk::default(), &[], &["a"]);
    bench.kafka.broker().silent.insert(rows(0));
    bench.settle();
    assert_eq!(bench.visible(), Vec::<String>::new());
    bench.feed_to(rows(0), &["late"]);
    bench.kafka.broker().silent.clear();
    bench.settle();
    assert_eq!(bench.visible(), ["a+late"]);
}

#[test]
fn a_row_of_an_aborted_transaction_is_not_found() {
    let mut bench = bench_on(&Disk::default(), &["r0"], &["a"]);
    bench.settle();
    bench.next_flush_aborts();
    bench.feed_both("r1", "b");
    bench.settle();
    bench.assert_called("abort");
    bench.feed_both("-", "c");
    bench.settle();
    assert_eq!(bench.visible(), ["a+r0", "b+r1", "c+none"]);
}

/// Rows are not read from their topic again. They come from the database, or from the changelog.
#[test]
fn rows_are_there_after_a_restart_with_a_database_and_without() {
    for wiped in [false, true] {
        let disk = Disk::default();
        let mut bench = bench_on(&disk, &["r0"], &["a"]);
        bench.settle();
        bench.replace(spec_on(&disk), joining);
        if wiped {
            disk.wipe();
        }
        bench.assign_rows();
        bench.kafka.calls();
        let log = bench.kafka.broker().input[&rows(0)].len();
        bench.take(&["b"]);
        assert_eq!(bench.visible(), ["a+r0", "b+r0"], "wiped: {wiped}");
        assert_eq!(bench.committed_of(&rows(0)), Some(log as i64));
        let read = bench.calls_begin_with("assign app-in-changelog");
        assert_eq!(read, wiped);
    }
}
