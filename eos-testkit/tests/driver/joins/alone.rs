//! Results of records without a pair.

use std::time::Duration;

use eos_core::codec::{Plain, TimeWindowed};
use eos_core::state::{JoinStore, WindowStore};
use eos_core::windows::{Tumbling, Windowed};
use eos_core::{App, ErrorPolicy, Failure, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use super::*;

/// An order of 100 may have a shipment up to 110, which may come up to 115.
#[test]
fn a_record_without_a_partner_goes_out_alone_once_when_it_closes() {
    for kind in [Kind::Left, Kind::Outer] {
        let mut driver = TestDriver::new(app(kind, within()));
        pipe(
            &mut driver,
            &[("<a", "k", 100), ("<b", "k", 101), ("<x", "other", 115)],
        );
        assert_eq!(read(&mut driver), [""; 0], "{kind:?}");
        pipe(&mut driver, &[("<x", "other", 116)]);
        assert_eq!(read(&mut driver), ["k a+- @100"]);
        pipe(&mut driver, &[(">r", "k", 110)]);
        assert_eq!(read(&mut driver), ["k b+r @110"]);
        pipe(
            &mut driver,
            &[("<x", "other", 1_000), ("<x", "other", 2_000)],
        );
        let alone: Vec<_> = read(&mut driver)
            .into_iter()
            .filter(|it| it.contains("k "))
            .collect();
        assert_eq!(alone, [""; 0]);
    }
}

#[test]
fn both_sides_of_an_outer_join_go_out_alone_in_order() {
    let mut driver = TestDriver::new(app(Kind::Outer, within()));
    let records = [
        ("<a", "k", 100),
        (">b", "j", 101),
        (">c", "i", 99),
        ("<d", "e", 300),
    ];
    pipe(&mut driver, &records);
    // In the order of the moments at which they close: 108, 110 and 116.
    assert_eq!(read(&mut driver), ["i -+c @99", "j -+b @101", "k a+- @100"]);
    assert_eq!(driver.metrics().unwrap().totals.join_alone, 3);
    let mut driver = TestDriver::new(app(Kind::Left, within()));
    pipe(&mut driver, &records);
    assert_eq!(read(&mut driver), ["k a+- @100"]);
}

/// A shipment may wait for its order longer than the order waits for it. It does not meet an order that went out alone.
#[test]
fn a_record_whose_partners_have_closed_is_counted_and_not_lost() {
    let within = Within::of(Duration::ZERO).before(MS(100));
    let records = [("<a", "k", 100), ("<x", "other", 150), (">r", "k", 100)];
    for kind in KINDS {
        let mut driver = TestDriver::new(app(kind, within));
        pipe(&mut driver, &records);
        let alone = if kind == Kind::Inner {
            vec![]
        } else {
            vec!["k a+- @100"]
        };
        assert_eq!(read(&mut driver), alone, "{kind:?}");
        assert_eq!(driver.metrics().unwrap().totals.join_too_late_pairs, 1);
        let lost = if kind == Kind::Outer {
            vec![]
        } else {
            vec!["k r @100"]
        };
        assert_eq!(shown(&mut driver, &late_right()), lost);
        // It is in time, so a later order may still meet it.
        pipe(&mut driver, &[("<b", "k", 150)]);
        assert_eq!(read(&mut driver), ["k b+r @150"]);
        pipe(&mut driver, &[("<x", "other", 900)]);
        let alone = read(&mut driver);
        assert!(!alone.iter().any(|it| it.contains("-+r")), "{alone:?}");
    }
}

/// Each missed pair is counted, even if the record has another pair.
#[test]
fn a_closed_partner_beside_an_open_one_is_counted() {
    let within = Within::of(Duration::ZERO).before(MS(100));
    for kind in KINDS {
        let mut driver = TestDriver::new(app(kind, within));
        let records = [
            ("<a", "k", 100),
            ("<b", "k", 149),
            ("<c", "k", 150),
            (">r", "k", 100),
        ];
        pipe(&mut driver, &records);
        let pairs: Vec<_> = read(&mut driver);
        let pairs: Vec<_> = pairs.iter().filter(|it| it.contains("+r")).collect();
        assert_eq!(pairs, ["k c+r @150"], "{kind:?}");
        assert_eq!(driver.metrics().unwrap().totals.join_too_late_pairs, 2);
        assert_eq!(shown(&mut driver, &late_right()), [""; 0]);
    }
}

#[test]
fn records_go_out_alone_while_nothing_arrives() {
    const SECOND: Duration = Duration::from_secs(1);
    let make = || {
        let mut app = App::new("a");
        let (left, right) = (app.source(&orders()), app.source(&shipments()));
        let left = left.close_when_idle(3 * SECOND);
        let within = Within::of(5 * SECOND).grace(2 * SECOND);
        join(Kind::Left, left, right, within)
            .late_to(&late())
            .late_right_to(&late_right())
            .to(&results());
        TestDriver::new(app)
    };
    let mut driver = make();
    pipe(&mut driver, &[("<a", "k", 10_000)]);
    driver.advance_wall_clock(10 * SECOND);
    assert_eq!(read(&mut driver), [""; 0]);
    driver.advance_wall_clock(2 * SECOND);
    assert_eq!(read(&mut driver), ["k a+- @10000"]);
    // Its partner is in time or not, but it has no pair.
    pipe(&mut driver, &[(">r", "k", 10_000), (">s", "k", 15_000)]);
    assert_eq!(read(&mut driver), [""; 0]);
    let places = crash_everywhere(make, |driver| {
        pipe(driver, &[("<a", "k", 10_000), ("<b", "j", 10_500)]);
        // After a crash, the inputs have to be idle again.
        for _ in 0..40 {
            driver.advance_wall_clock(SECOND);
        }
        read(driver)
    });
    assert!(places > 5, "{places}");
}

/// Ten thousand records close at once. The rows stay until all results were emitted, although there are many commits in
/// between.
#[test]
fn a_jump_of_time_loses_no_result() {
    let jump = |driver: &mut TestDriver| {
        let key = |n: i64| format!("k{n}");
        let all = (0..10_000).map(|n| Input::new(key(n), "o").at(Timestamp(100 + n % 13)));
        driver.pipe_all(&orders(), all.collect::<Vec<_>>());
        driver.pipe_at(&shipments(), "end", "s", Timestamp(50_000_000));
        read(driver)
    };
    let mut app = app(Kind::Left, within());
    app.set("commit.interval.ms", 10);
    let mut driver = TestDriver::new(app);
    let mut alone = jump(&mut driver);
    assert_eq!(alone.len(), 10_000);
    alone.sort();
    alone.dedup();
    assert_eq!(alone.len(), 10_000, "each of them once");
}

/// A minute's window behind a join needs the time for which results alone are held back.
#[test]
fn windows_and_joins_behind_a_join_need_a_longer_grace() {
    let windowed = |kind, grace| {
        let mut app = App::new("a");
        let (left, right) = (app.source(&orders()), app.source(&shipments()));
        join(kind, left, right, within())
            .to_stream()
            .group_by_key()
            .windowed_by(Tumbling::of(MS(100)).grace(grace))
            .count(&WindowStore::plain("counts"))
            .to(&Topic::with("counts", TimeWindowed::of(MS(100)), Plain));
        app
    };
    let error = TestDriver::build(windowed(Kind::Left, MS(15)))
        .unwrap_err()
        .to_string();
    for part in ["the store counts", "orders-shipments", "at least 16ms"] {
        assert!(error.contains(part), "{error}");
    }
    drop(TestDriver::new(windowed(Kind::Inner, MS(0))));
    // With it, no result comes late, however far time jumps.
    let mut driver = TestDriver::new(windowed(Kind::Left, MS(16)));
    pipe(
        &mut driver,
        &[("<a", "k", 199), ("<b", "k", 190), ("<c", "k", 9_000)],
    );
    assert_eq!(driver.metrics().unwrap().totals.late_windows, 0);
    let counts =
        Topic::<Windowed<String>, u64, _, _>::with("counts", TimeWindowed::of(MS(100)), Plain);
    let counts = driver.read_pairs(&counts);
    let counts: Vec<_> = counts
        .iter()
        .map(|(key, count)| (key.window.start.0, *count))
        .collect();
    assert_eq!(counts, [(100, 1), (100, 2)]);
    let joined = |grace| {
        let mut app = App::new("a");
        let (left, right) = (app.source(&orders()), app.source(&shipments()));
        let third = app.source(&late());
        let first = join(Kind::Outer, left, right, within()).to_stream();
        let second = JoinStore::<String, String, String>::plain("second");
        first
            .join_within(third, Within::of(MS(1)).grace(grace), &second, |l, r| {
                format!("{l}{r}")
            })
            .to(&results());
        app
    };
    let error = TestDriver::build(joined(MS(14))).unwrap_err().to_string();
    for part in ["the store second", "at least 15ms"] {
        assert!(error.contains(part), "{error}");
    }
    drop(TestDriver::new(joined(MS(15))));
}

/// The others of the same row go out.
#[test]
fn a_failed_result_alone_goes_to_its_policy() {
    let make = |policy| {
        let mut app = App::new("a");
        app.on_error(policy);
        let (left, right) = (app.source(&orders()), app.source(&shipments()));
        join(Kind::Left, left, right, within())
            .to_stream()
            .try_map(|value| match value.starts_with("bad") {
                true => Err(Failure::from("bad")),
                false => Ok(value),
            })
            .to(&results());
        TestDriver::new(app)
    };
    let records = [
        ("<a", "k", 100),
        ("<bad", "k", 101),
        ("<c", "k", 102),
        ("<x", "end", 300),
    ];
    let mut driver = make(ErrorPolicy::skip());
    pipe(&mut driver, &records);
    assert_eq!(read(&mut driver), ["k a+- @100", "k c+- @102"]);
    let mut driver = make(ErrorPolicy::dead_letter("letters"));
    pipe(&mut driver, &records);
    assert_eq!(read(&mut driver), ["k a+- @100", "k c+- @102"]);
    let letter = driver.read_one(&eos_core::PlainTopic::<String, String>::named("letters"));
    let found = (&*letter.key, &*letter.value, letter.timestamp);
    assert_eq!(found, ("k", "bad", Timestamp(101)));
    let mut headers = letter.headers.iter();
    let side = headers.find(|it| it.name() == "eos-join-side");
    assert_eq!(side.and_then(|it| it.value()), Some(&b"left"[..]));
    // Those of one moment fail together, and each counts.
    let together = [("<a", "k", 100), ("<bad", "k", 100), ("<x", "end", 300)];
    let mut driver = make(ErrorPolicy::skip());
    pipe(&mut driver, &together);
    assert_eq!(read(&mut driver), [""; 0]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 2);
    let mut driver = make(ErrorPolicy::dead_letter("letters"));
    pipe(&mut driver, &together);
    assert_eq!(driver.metrics().unwrap().totals.dead_letters, 2);
    let mut driver = make(ErrorPolicy::fail());
    pipe(&mut driver, &records[..3]);
    let failed = driver.try_pipe(&orders(), Input::new("end", "x").at(Timestamp(300)));
    let text = failed.map_or_else(|e| e.to_string(), |_| String::new());
    for part in ["orders-shipments", "the key \"k\"", "closed at 117 ms"] {
        assert!(text.contains(part), "{text}");
    }
}
