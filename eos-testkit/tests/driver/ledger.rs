//! Apps with a ledger.

use std::cell::RefCell;
use std::time::Duration;

use eos_core::codec::Plain;
use eos_core::run::FirstStart;
use eos_core::{App, ErrorPolicy, Guarantee, KeyValueStore, Topic};
use eos_protocol::{Partition, TopicName, TopicPartition};
use eos_testkit::client::Written;
use eos_testkit::conformance::{self, Subject};
use eos_testkit::ledger::{LedgerDefence, LedgerFault, ModelLedger};
use eos_testkit::{CallSite, TestDriver, crash_everywhere};

/// The rows of a place.
type Rows = Vec<(String, u64)>;

fn orders() -> Topic<String, u64, Plain, Plain> {
    Topic::plain("orders")
}

fn app(ledger: &ModelLedger) -> App {
    let mut app = App::new("shop");
    app.ledger(ledger);
    let (bookings, large) = (ledger.place("bookings"), ledger.place("large"));
    let orders = app.source(&orders());
    orders.clone().to_place(bookings);
    orders.filter(|units| *units > 10).to_place(large);
    app
}

fn driver(ledger: &ModelLedger) -> TestDriver {
    let mut driver = TestDriver::new(app(ledger));
    driver.ledger(ledger);
    driver
}

fn rows(ledger: &ModelLedger, place: &str) -> Rows {
    let rows = ledger.rows::<String, u64>(place).into_iter();
    rows.map(|(key, units)| (key, units.unwrap())).collect()
}

/// The rows in the order of the keys.
fn sorted(ledger: &ModelLedger) -> [Rows; 2] {
    let (mut all, mut large) = (rows(ledger, "bookings"), rows(ledger, "large"));
    all.sort();
    large.sort();
    [all, large]
}

fn of(rows: &[(&str, u64)]) -> Rows {
    rows.iter()
        .map(|(key, units)| ((*key).to_owned(), *units))
        .collect()
}

fn in_0() -> TopicPartition {
    TopicPartition::new(TopicName::new("orders"), Partition::ZERO)
}

#[test]
fn rows_and_positions_commit_together() {
    let ledger = ModelLedger::new("shop");
    let mut driver = driver(&ledger);
    driver.pipe(&orders(), "a", 7_u64);
    driver.pipe(&orders(), "b", 70_u64);
    assert_eq!(rows(&ledger, "bookings"), of(&[("a", 7), ("b", 70)]));
    assert_eq!(rows(&ledger, "large"), of(&[("b", 70)]));
    let offsets = ledger.offsets();
    assert_eq!(offsets[&in_0()].unwrap().get(), 2);
}

#[test]
fn a_crash_anywhere_changes_no_row() {
    let last = RefCell::new(ModelLedger::new(""));
    let places = crash_everywhere(
        || {
            let ledger = ModelLedger::new("shop");
            let driver = driver(&ledger);
            last.replace(ledger);
            driver
        },
        |driver| {
            for (key, units) in [("a", 7_u64), ("b", 70), ("c", 8)] {
                driver.pipe(&orders(), key, units);
            }
            sorted(&last.borrow())
        },
    );
    assert!(places > 20, "{places}");
}

/// The group assigns the partitions of the first topic only.
#[test]
fn a_task_of_two_topics_takes_over_the_positions_of_both() {
    let ledger = ModelLedger::new("shop");
    let returns: Topic<String, u64, Plain, Plain> = Topic::plain("returns");
    let mut app = App::new("shop");
    app.ledger(&ledger);
    let merged = app.source(&orders()).merge(app.source(&returns));
    merged.to_place(ledger.place("bookings"));
    let mut driver = TestDriver::new(app);
    driver.ledger(&ledger);
    driver.pipe(&orders(), "a", 7_u64);
    driver.pipe(&returns, "b", 70_u64);
    driver.crash();
    driver.pipe(&returns, "c", 8_u64);
    let mut found = rows(&ledger, "bookings");
    found.sort();
    assert_eq!(found, of(&[("a", 7), ("b", 70), ("c", 8)]));
    assert_eq!(ledger.offsets().len(), 2);
}

/// Pipes three records, with a fault in front of the second one.
fn with_fault(fault: impl FnOnce(&mut TestDriver, &ModelLedger)) -> ModelLedger {
    let ledger = ModelLedger::new("shop");
    let mut driver = driver(&ledger);
    driver.pipe(&orders(), "a", 7_u64);
    fault(&mut driver, &ledger);
    driver.pipe(&orders(), "b", 70_u64);
    driver.pipe(&orders(), "c", 8_u64);
    assert!(ledger.faults_are_over());
    ledger
}

#[test]
fn a_failed_call_loses_and_doubles_no_row() {
    use LedgerFault::{Aborted, AnswerLost, Late, Lost, Slow, Unavailable};
    for (call, fault) in [
        (CallSite::Send, Aborted),
        (CallSite::Send, Lost),
        (CallSite::Send, AnswerLost),
        (CallSite::SendOffsets, Aborted),
        (CallSite::SendOffsets, Lost),
        (CallSite::SendOffsets, AnswerLost),
        (CallSite::SendOffsets, Slow),
        (CallSite::Commit, Lost),
        (CallSite::Commit, AnswerLost),
        (CallSite::Commit, Late),
    ] {
        let ledger = with_fault(|_, ledger| ledger.fail(call, fault));
        let [found, _] = sorted(&ledger);
        assert_eq!(
            found,
            of(&[("a", 7), ("b", 70), ("c", 8)]),
            "{call:?} {fault:?}"
        );
    }
    // The new session finds the ledger unavailable at first.
    let ledger = with_fault(|_, ledger| {
        ledger.fail(CallSite::Commit, AnswerLost);
        ledger.fail(CallSite::Init, Unavailable);
        ledger.fail(CallSite::Committed, Unavailable);
    });
    assert_eq!(sorted(&ledger)[0], of(&[("a", 7), ("b", 70), ("c", 8)]));
}

#[test]
fn a_restart_of_the_ledger_is_no_fence() {
    let ledger = with_fault(|driver, ledger| {
        for units in 100..110_u64 {
            ledger.restart();
            driver.pipe(&orders(), "r", units);
        }
    });
    assert_eq!(rows(&ledger, "bookings").len(), 13);
}

#[test]
fn a_position_that_another_worker_took_over_is_taken_over_again() {
    let ledger = with_fault(|_, ledger| ledger.steal(&in_0()));
    assert_eq!(sorted(&ledger)[0], of(&[("a", 7), ("b", 70), ("c", 8)]));
}

#[test]
fn commits_that_a_failover_lost_are_written_again() {
    let ledger = ModelLedger::new("shop");
    let mut driver = driver(&ledger);
    driver.pipe(&orders(), "a", 7_u64);
    driver.pipe(&orders(), "b", 70_u64);
    ledger.fail_over(1);
    assert_eq!(rows(&ledger, "bookings"), of(&[("a", 7)]));
    // C3: the failover is found although no record follows, because the session is replaced.
    driver.advance_wall_clock(seconds(10));
    assert_eq!(rows(&ledger, "bookings"), of(&[("a", 7), ("b", 70)]));
    driver.pipe(&orders(), "c", 8_u64);
    assert_eq!(
        rows(&ledger, "bookings"),
        of(&[("a", 7), ("b", 70), ("c", 8)])
    );
}

/// A deadlock, a lock or a full disk may recur for hours, and stops no worker. After 32 other aborts in a row, a worker
/// stops.
#[test]
fn contention_stops_no_worker() {
    for call in [CallSite::Send, CallSite::SendOffsets] {
        let ledger = with_fault(|_, ledger| {
            for _ in 0..40 {
                ledger.fail(call, LedgerFault::Aborted);
            }
        });
        assert_eq!(sorted(&ledger)[0], of(&[("a", 7), ("b", 70), ("c", 8)]));
    }
}

const GROUP: &str = "shop";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_group_has_copies_of_the_positions() {
    let ledger = ModelLedger::new("shop");
    let mut driver = driver(&ledger);
    driver.pipe(&orders(), "a", 7_u64);
    driver.advance_wall_clock(seconds(6));
    let copied = |driver: &TestDriver| driver.cluster().committed(GROUP, "orders", 0);
    assert_eq!(copied(&driver), Ok(Some(1)));
    driver.pipe(&orders(), "b", 70_u64);
    driver.pipe(&orders(), "c", 8_u64);
    driver.advance_wall_clock(seconds(6));
    assert_eq!(copied(&driver), Ok(Some(3)));
    // A start continues at the positions. A copy may be behind.
    driver.pipe(&orders(), "d", 9_u64);
    driver.crash();
    assert_eq!(
        sorted(&ledger)[0],
        of(&[("a", 7), ("b", 70), ("c", 8), ("d", 9)])
    );
}

/// H7 of the design: a start from the beginning would double the rows, and one at the copy could lose some.
#[test]
fn a_lost_position_stops_the_app() {
    let ledger = ModelLedger::new("shop");
    let mut driver = driver(&ledger);
    driver.pipe(&orders(), "a", 7_u64);
    driver.advance_wall_clock(seconds(6));
    driver.kill();
    ledger.fail_over(usize::MAX);
    assert_eq!(rows(&ledger, "bookings"), []);
    let error = ends(&mut driver);
    assert!(
        error.contains("the ledger has no position of orders-0")
            && error.contains("copy of one: 1"),
        "{error}"
    );
}

/// Restarts the app and returns its error.
fn ends(driver: &mut TestDriver) -> String {
    let restart = std::panic::AssertUnwindSafe(|| driver.restart());
    let why = std::panic::catch_unwind(restart).unwrap_err();
    why.downcast_ref::<String>().unwrap().clone()
}

/// H7 of the design.
#[test]
fn the_offsets_of_another_program_are_taken_over_on_request_only() {
    for first_start in [FirstStart::Earliest, FirstStart::Latest, FirstStart::Group] {
        let ledger = ModelLedger::new("shop");
        let mut app = app(&ledger);
        app.first_start(first_start);
        let mut driver = TestDriver::new(app);
        driver.kill();
        // The app starts for the first time again, behind a consumer that read one record.
        ledger.fail_over(usize::MAX);
        driver.advance_wall_clock(seconds(120));
        let input = driver.cluster();
        for value in [7_u64, 70, 8] {
            let (key, value) = (b"k".as_slice(), value.to_be_bytes());
            let record = Written {
                key: Some(key),
                value: Some(&value),
                ..Written::default()
            };
            input.produce("orders", 0, &record).unwrap();
        }
        input.commit(GROUP, "orders", 0, 1).unwrap();
        if first_start == FirstStart::Group {
            driver.restart();
            assert_eq!(rows(&ledger, "bookings"), of(&[("k", 70), ("k", 8)]));
            driver.crash();
            assert_eq!(rows(&ledger, "bookings").len(), 2);
        } else {
            let error = ends(&mut driver);
            assert!(
                error.contains("another program committed the offset 1 for")
                    && error.contains("FirstStart::Group"),
                "{error}"
            );
        }
    }
}

#[test]
fn the_model_keeps_the_obligations() {
    conformance::ledger(&mut || Subject::of_model(ModelLedger::new("shop")));
}

#[test]
fn a_ledger_without_a_defence_violates_an_obligation() {
    use LedgerDefence::{Compares, Epoch, OneTransaction, WaitsForLocks};
    for (defence, obligation) in [
        (Epoch, "L1"),
        (WaitsForLocks, "L1"),
        (Compares, "L1"),
        (OneTransaction, "L1"),
    ] {
        let broken = || {
            conformance::ledger(&mut || {
                Subject::of_model(ModelLedger::new("shop").without(defence))
            });
        };
        let why = std::panic::catch_unwind(broken).unwrap_err();
        let why = why.downcast_ref::<String>().unwrap();
        assert!(why.starts_with(obligation), "{defence:?}: {why}");
    }
}

#[test]
fn an_app_commits_in_kafka_or_in_a_ledger() {
    let says = |build: &dyn Fn(&mut App, &ModelLedger), text: &str| {
        let (mut app, ledger) = (App::new("shop"), ModelLedger::new("shop"));
        build(&mut app, &ledger);
        let error = TestDriver::build(app).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(
        &|app, ledger| app.source(&orders()).to_place(ledger.place("bookings")),
        "the app has no ledger",
    );
    says(
        &|app, ledger| {
            app.ledger(ledger);
            app.source(&orders()).to(&Topic::plain("copies"));
        },
        "the step `to` writes to the topic copies, but the app commits its transactions in ledger shop",
    );
    says(
        &|app, ledger| {
            app.ledger(ledger);
            let counts = KeyValueStore::plain("counts");
            app.source(&orders())
                .group_by_key()
                .count(&counts)
                .to_stream()
                .to_place(ledger.place("counts"));
        },
        "the app keeps state in counts",
    );
    says(
        &|app, ledger| {
            app.ledger(ledger).guarantee(Guarantee::AtLeastOnce);
            app.source(&orders()).to_place(ledger.place("bookings"));
        },
        "processing.guarantee = at_least_once",
    );
    says(
        &|app, ledger| {
            app.ledger(ledger);
            app.source(&orders()).to_place(ledger.place("bookings"));
            app.source(&Topic::<String, u64>::plain("others"))
                .to_place(ledger.place("bookings"));
        },
        "two steps write to bookings",
    );
    says(
        &|app, ledger| {
            app.ledger(ledger).ledger(&ModelLedger::new("bank"));
            app.source(&orders()).to_place(ledger.place("bookings"));
        },
        "the ledgers ledger shop and ledger bank",
    );
}

#[test]
fn a_description_names_the_ledger() {
    let ledger = ModelLedger::new("shop");
    let description = app(&ledger).describe().unwrap();
    let guarantees = description.guarantees().to_string();
    assert!(
        guarantees.contains("the position commits in the transaction of the rows, in ledger shop"),
        "{guarantees}"
    );
    assert!(
        guarantees.contains("exactly once for all readers of ledger shop"),
        "{guarantees}"
    );
    assert!(
        guarantees.ends_with(
            "\nnote: after a failover of ledger shop that loses commits, the app writes rows again, as long as Kafka keeps \
             their records\n"
        ),
        "{guarantees}"
    );
    let text = description.to_string();
    assert!(text.contains("(bookings, ledger shop)"), "{text}");
}

#[test]
fn dead_letters_are_rows_of_the_ledger() {
    let ledger = ModelLedger::new("shop");
    let mut app = App::new("shop");
    app.ledger(&ledger)
        .on_error(ErrorPolicy::dead_letter("failed"));
    app.source(&orders())
        .try_map(|units: u64| match units {
            13 => Err("no order of 13".into()),
            units => Ok(units),
        })
        .to_place(ledger.place("bookings"));
    let mut driver = TestDriver::new(app);
    driver.ledger(&ledger);
    for units in [12_u64, 13, 14] {
        driver.pipe(&orders(), "a", units);
    }
    assert_eq!(rows(&ledger, "bookings"), of(&[("a", 12), ("a", 14)]));
    assert_eq!(ledger.dead_letters("failed").len(), 1);
}
