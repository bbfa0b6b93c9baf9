//! Global tables, and joins with them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_client::Client;
use eos_core::codec::Json;
use eos_core::errors::{GlobalError, Mistake};
use eos_core::{App, Backoff, Error, ErrorPolicy, PlainTopic, Timestamp, Topic};
use eos_protocol::{Offset, Partition, TopicChange, TopicPartition};
use eos_testkit::client::Written;
use eos_testkit::{Input, TestDriver, crash_everywhere};

use crate::metrics::{foreign, ready};

fn orders() -> PlainTopic<String, String> {
    Topic::plain("orders")
}

fn rates() -> PlainTopic<String, Option<u64>> {
    Topic::plain("rates")
}

fn out() -> PlainTopic<String, String> {
    Topic::plain("out")
}

/// Prices orders, whose value is a currency.
fn pricing_with(policy: impl Into<ErrorPolicy>) -> App {
    let mut app = App::new("a");
    let rates = app.global_table(&rates(), "rates").on_error(policy);
    app.source(&orders())
        .left_join_global(
            &rates,
            |_, currency| currency.clone(),
            |currency, rate| {
                let rate = rate.map_or_else(|| "?".to_owned(), |rate| rate.to_string());
                format!("{currency}={rate}")
            },
        )
        .to(&out());
    app
}

fn pricing() -> App {
    pricing_with(ErrorPolicy::fail())
}

fn values(driver: &mut TestDriver) -> Vec<String> {
    driver.read(&out()).into_iter().map(|it| it.value).collect()
}

/// The result of an order in this currency.
#[track_caller]
fn priced(driver: &mut TestDriver, currency: &str) -> String {
    driver.pipe(&orders(), "o", currency);
    values(driver).pop().unwrap()
}

/// Writes to the topic of the rates while the app is down.
fn write(driver: &TestDriver, key: &str, value: Option<u64>) {
    let value = value.map(u64::to_be_bytes);
    write_raw(driver, key, value.as_ref().map(|bytes| &bytes[..]));
}

fn write_raw(driver: &TestDriver, key: &str, value: Option<&[u8]>) {
    let record = Written {
        key: Some(key.as_bytes()),
        value,
        timestamp: driver.now().0,
        headers: &[],
    };
    driver.cluster().produce("rates", 0, &record).unwrap();
}

/// Returns the number of records that the process has read for the table since its start.
fn read(driver: &TestDriver) -> u64 {
    driver.metrics().unwrap().globals[0].records
}

#[track_caller]
fn global_error(driver: &TestDriver) -> &GlobalError {
    match driver.error() {
        Some(Error::Global(error)) => error,
        other => panic!("no global table is the reason: {other:?}"),
    }
}

/// Starts the processes again, although the app may end.
fn restart(driver: &mut TestDriver) {
    let _panicked_with_the_error = catch_unwind(AssertUnwindSafe(|| driver.restart()));
}

#[test]
fn records_meet_the_newest_row() {
    let mut driver = TestDriver::new(pricing());
    assert_eq!(priced(&mut driver, "usd"), "usd=?");
    driver.pipe(&rates(), "usd", Some(5));
    assert_eq!(priced(&mut driver, "usd"), "usd=5");
    driver.pipe(&rates(), "usd", Some(6));
    assert_eq!(priced(&mut driver, "usd"), "usd=6");
    assert_eq!(priced(&mut driver, "eur"), "eur=?");
    driver.pipe_tombstone(&rates(), "usd");
    assert_eq!(priced(&mut driver, "usd"), "usd=?");
    // An update has no result of its own.
    assert_eq!(values(&mut driver), Vec::<String>::new());
}

#[test]
fn an_inner_join_drops_records_without_a_row() {
    let mut app = App::new("a");
    let rates_table = app.global_table(&rates(), "rates");
    app.source(&orders())
        .join_global(
            &rates_table,
            |_, currency| currency.clone(),
            |currency, rate| format!("{currency}={rate}"),
        )
        .to(&out());
    let mut driver = TestDriver::new(app);
    driver.pipe(&rates(), "usd", Some(5));
    driver.pipe(&orders(), "o1", "eur");
    driver.pipe(&orders(), "o2", "usd");
    assert_eq!(
        driver.read_pairs(&out()),
        [("o2".to_owned(), "usd=5".to_owned())]
    );
}

/// The topics have different numbers of partitions, and the keys of the stream are scattered.
#[test]
fn neither_partitions_nor_keys_have_to_fit() {
    let mut app = App::new("a");
    let rates_table = app.global_table(&rates(), "rates");
    app.source(&orders())
        .key_by(|currency| currency.clone())
        .join_global(
            &rates_table,
            |key, _| key.clone(),
            |currency, rate| format!("{currency}={rate}"),
        )
        .to(&out());
    let builder = TestDriver::builder().partitions("orders", 2);
    let mut driver = builder.partitions("rates", 5).instances(2).start(app);
    for n in 0..20 {
        driver.pipe(&rates(), format!("c{n}"), Some(n));
    }
    for n in 0..20 {
        driver.pipe(&orders(), format!("o{n}"), format!("c{n}"));
    }
    let mut values = values(&mut driver);
    values.sort();
    let mut expected: Vec<_> = (0..20).map(|n| format!("c{n}={n}")).collect();
    expected.sort();
    assert_eq!(values, expected);
}

/// 20,000 rows take several fetches, and the order arrives before them.
#[test]
fn no_record_is_processed_before_the_table_is_read() {
    let mut driver = TestDriver::new(pricing());
    driver.kill();
    for n in 0..20_000 {
        write(&driver, &format!("c{n}"), Some(n));
    }
    driver.pipe(&orders(), "o", "c19999");
    driver.restart();
    assert_eq!(values(&mut driver), ["c19999=19999"]);
    assert_eq!(read(&driver), 20_000);
}

#[test]
fn a_restart_reads_on() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver.pipe(&rates(), "eur", Some(7));
    driver.kill();
    write(&driver, "usd", Some(6));
    driver.restart();
    assert_eq!(read(&driver), 1);
    assert_eq!(priced(&mut driver, "usd"), "usd=6");
    assert_eq!(priced(&mut driver, "eur"), "eur=7");
    driver.crash_and_lose_state();
    assert_eq!(read(&driver), 3);
    assert_eq!(priced(&mut driver, "eur"), "eur=7");
}

#[test]
fn a_crash_at_any_effect_changes_no_result() {
    let places = crash_everywhere(
        || TestDriver::new(pricing()),
        |driver| {
            driver.pipe(&rates(), "usd", Some(5));
            driver.pipe(&orders(), "o1", "usd");
            driver.pipe(&rates(), "usd", Some(6));
            driver.pipe(&orders(), "o2", "usd");
            driver.committed()
        },
    );
    assert!(places > 20, "{places}");
}

#[test]
fn a_topic_that_is_replaced_stops_the_app_and_the_next_start_reads_the_new_one() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    let error = driver.recreate_topic("rates").unwrap_err().to_string();
    assert!(
        error.contains("rates was deleted and created again"),
        "{error}"
    );
    let error = global_error(&driver);
    assert!(matches!(
        error,
        GlobalError::Changed {
            change: TopicChange::Recreated { .. },
            ..
        }
    ));
    driver.restart();
    assert_eq!(priced(&mut driver, "usd"), "usd=?");
    // The same while the app is down.
    driver.pipe(&rates(), "usd", Some(6));
    driver.kill();
    driver.cluster().recreate_topic("rates").unwrap();
    write(&driver, "eur", Some(7));
    driver.restart();
    assert_eq!(priced(&mut driver, "usd"), "usd=?");
    assert_eq!(priced(&mut driver, "eur"), "eur=7");
}

#[test]
fn a_deleted_topic_stops_the_app_and_the_error_names_the_fix() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver.delete_topic("rates").unwrap_err();
    let text = global_error(&driver).to_string();
    assert!(
        text.contains("the topic rates of the global table rates was deleted"),
        "{text}"
    );
    assert!(text.contains("Create the topic again"), "{text}");
    restart(&mut driver);
    let text = driver.error().unwrap().to_string();
    assert!(
        text.contains("the global table's topic rates is missing"),
        "{text}"
    );
}

#[test]
fn new_partitions_stop_the_app_and_the_next_start_reads_them() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver.grow_topic("rates", 2).unwrap_err();
    assert!(matches!(
        global_error(&driver),
        GlobalError::Changed {
            change: TopicChange::Grown { .. },
            ..
        }
    ));
    driver.restart();
    driver.pipe_input(&rates(), Input::new("eur", Some(7)).to_partition(1));
    assert_eq!(priced(&mut driver, "usd"), "usd=5");
    assert_eq!(priced(&mut driver, "eur"), "eur=7");
}

/// The tombstone is deleted, so a reader that continues would keep the row forever.
#[test]
fn a_copy_that_missed_deleted_records_is_read_again() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver.kill();
    write(&driver, "usd", None);
    write(&driver, "eur", Some(7));
    let partition = TopicPartition::new("rates", Partition::ZERO);
    let before = [(partition, Offset::new(2).unwrap())];
    let deleted = driver
        .cluster()
        .delete_records(&before, Duration::from_secs(1));
    deleted.unwrap().remove(0).1.unwrap();
    driver.restart();
    assert_eq!(priced(&mut driver, "usd"), "usd=?");
    assert_eq!(priced(&mut driver, "eur"), "eur=7");
}

/// `delete.retention.ms` is a day.
#[test]
fn a_copy_older_than_half_of_delete_retention_is_read_again() {
    for (hours, expected) in [(11, 1), (13, 3)] {
        let mut driver = TestDriver::new(pricing());
        driver.pipe(&rates(), "usd", Some(5));
        driver.pipe(&rates(), "eur", Some(7));
        let now = driver.now();
        driver.kill();
        write(&driver, "usd", Some(6));
        driver.set_wall_clock(Timestamp(now.0 + hours * 3_600_000));
        driver.restart();
        assert_eq!(read(&driver), expected, "{hours} hours later");
        assert_eq!(priced(&mut driver, "usd"), "usd=6");
    }
}

/// A long run without updates does not make a copy old, because the reader has seen that there were none.
#[test]
fn a_quiet_topic_does_not_make_a_copy_old() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver.advance_wall_clock(Duration::from_secs(20 * 3600));
    driver.kill();
    write(&driver, "eur", Some(7));
    driver.restart();
    assert_eq!(read(&driver), 1);
}

/// The process was suspended, and the tombstones of that time may be deleted.
#[test]
fn a_reader_that_stood_still_for_too_long_stops_the_app() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    let now = driver.now();
    driver.set_wall_clock(Timestamp(now.0 + 13 * 3_600_000));
    driver
        .try_pipe(&rates(), ("usd".to_owned(), Some(6)))
        .unwrap_err();
    assert!(matches!(global_error(&driver), GlobalError::Stale { .. }));
    driver.restart();
    assert_eq!(priced(&mut driver, "usd"), "usd=6");
}

#[test]
fn a_record_that_cannot_be_decoded_stops_the_app_also_at_a_start() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver
        .try_pipe(&rates(), Input::raw(Some(b"usd"), Some(b"five")))
        .unwrap_err();
    for _ in 0..2 {
        let text = global_error(&driver).to_string();
        for part in [
            "record 1 of rates-0",
            "global table rates",
            "ErrorPolicy::skip()",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        restart(&mut driver);
    }
}

#[test]
fn a_record_that_cannot_be_decoded_is_skipped_also_at_a_start() {
    let mut driver = TestDriver::new(pricing_with(ErrorPolicy::skip()));
    driver.pipe(&rates(), "usd", Some(5));
    driver.pipe_input(&rates(), Input::raw(Some(b"usd"), Some(b"five")));
    driver.pipe_input(&rates(), Input::raw(None, Some(&7_u64.to_be_bytes())));
    let skipped = |driver: &TestDriver| driver.metrics().unwrap().globals[0].skipped;
    assert_eq!(skipped(&driver), 2);
    assert_eq!(priced(&mut driver, "usd"), "usd=5");
    driver.crash_and_lose_state();
    assert_eq!(skipped(&driver), 2);
    assert_eq!(priced(&mut driver, "usd"), "usd=5");
    // After the restart, the copy does not read the skipped record again.
    driver.crash();
    assert_eq!(skipped(&driver), 0);
}

/// Two producers may encode one key in two ways.
#[test]
fn rows_are_found_whatever_the_bytes_of_their_keys() {
    let grid = Topic::<(i32, i32), Option<String>>::with("rates", Json, Json);
    let mut app = App::new("a");
    let table = app.global_table(&grid, "grid");
    app.source(&orders())
        .join_global(&table, |_, _| (1, 2), |_, row| row)
        .to(&out());
    let mut driver = TestDriver::new(app);
    driver.pipe_input(&grid, Input::raw(Some(b"[ 1,  2 ]"), Some(b"\"here\"")));
    assert_eq!(priced(&mut driver, "x"), "here");
    driver.pipe_tombstone(&grid, (1, 2));
    driver.pipe(&orders(), "o", "x");
    assert_eq!(values(&mut driver), Vec::<String>::new());
}

/// A dead producer's transaction would hold the start until it times out.
#[test]
fn an_open_transaction_delays_no_start_and_its_records_are_no_rows() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    let mut producer = foreign(driver.cluster(), "rates", 3);
    driver.crash_and_lose_state();
    assert_eq!(priced(&mut driver, "k"), "k=?");
    ready(driver.cluster(), || {
        eos_client::Producer::abort(&mut producer, Duration::ZERO)
    });
    // Behind the marker.
    driver.crash();
    driver.pipe(&rates(), "k", Some(9));
    assert_eq!(priced(&mut driver, "k"), "k=9");
}

#[test]
fn metrics_tell_how_far_a_table_is_behind() {
    let mut driver = TestDriver::new(pricing());
    driver.pipe(&rates(), "usd", Some(5));
    driver.advance_wall_clock(Duration::from_secs(10));
    let metrics = driver.metrics().unwrap();
    let [table] = &metrics.globals[..] else {
        panic!("one table");
    };
    assert_eq!((&*table.table, &*table.topic), ("rates", "rates"));
    assert_eq!((table.records, table.skipped, table.behind), (1, 0, 0));
}

#[test]
fn the_description_tells_the_promise() {
    let description = pricing().describe().unwrap();
    let graph = description.to_string();
    assert!(
        graph.contains(
            "  Sub-topology: 1 for global store (will not generate tasks)\n    \
             Source: KSTREAM-SOURCE-0000000000 (topics: [rates])\n      \
             --> KTABLE-SOURCE-0000000001\n    \
             Processor: KTABLE-SOURCE-0000000001 (stores: [rates])\n      \
             --> none\n      <-- KSTREAM-SOURCE-0000000000\n"
        ),
        "{graph}"
    );
    assert!(
        graph.contains("KSTREAM-LEFTJOIN-0000000003 (stores: [])"),
        "{graph}"
    );
    let promises = description.guarantees().to_string();
    for promise in [
        "the row is the newest known one, and may differ if the record is repeated",
        "Global table: rates, one copy in each process, of all partitions of rates",
        "a record that can't be decoded stops the app",
        "rates --> KSTREAM-LEFTJOIN-0000000003: each record is processed exactly once; its row is the newest known one",
    ] {
        assert!(promises.contains(promise), "{promise}: {promises}");
    }
    let drawing = description.mermaid().to_string();
    assert!(
        drawing.contains("g0[(\"rates\")] -->|newest row of rates|"),
        "{drawing}"
    );
}

/// The mistakes of an app.
fn mistakes(app: &App) -> Vec<Mistake> {
    match app.describe() {
        Err(Error::Topology(error)) => error.mistakes().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn mistakes_are_found_before_the_start() {
    let found = mistakes(&pricing_with(ErrorPolicy::dead_letter("letters")));
    assert!(
        matches!(&found[..], [Mistake::GlobalPolicy { .. }]),
        "{found:?}"
    );
    assert!(
        found[0].to_string().contains("ErrorPolicy::skip()"),
        "{}",
        found[0]
    );
    let retried = ErrorPolicy::retry_forever(Backoff::fixed(Duration::from_secs(1)));
    let found = mistakes(&pricing_with(retried.then(ErrorPolicy::skip())));
    assert!(
        matches!(&found[..], [Mistake::GlobalPolicy { .. }]),
        "{found:?}"
    );

    let mut app = pricing();
    let _unused = app.global_table(&rates(), "rates");
    let found = mistakes(&app);
    let both = [
        Mistake::SameGlobal {
            name: "rates".into(),
        },
        Mistake::UnusedGlobal {
            name: "rates".into(),
        },
    ];
    assert_eq!(found, both);

    let mut other = App::new("b");
    let table = other.global_table(&rates(), "rates");
    let mut app = App::new("a");
    app.source(&orders())
        .join_global(&table, |_, it| it.clone(), |order, _| order)
        .to(&out());
    let found = mistakes(&app);
    let (method, what) = ("join_global", "global table");
    assert_eq!(found, [Mistake::OtherApp { method, what }]);
}
