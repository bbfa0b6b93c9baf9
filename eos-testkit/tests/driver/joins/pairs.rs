//! Pairs, late records and stores.

use eos_core::codec::Json;
use eos_core::{App, ErrorPolicy, PlainTopic, Timestamp, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use super::*;

/// The right record may be three milliseconds earlier to ten later, both ends included.
#[test]
fn the_range_of_partners_includes_both_ends() {
    for kind in KINDS {
        let mut driver = TestDriver::new(app(kind, within()));
        let before = [(">r96", "k", 96), (">r97", "k", 97), ("<l100", "k", 100)];
        pipe(&mut driver, &before);
        pipe(
            &mut driver,
            &[
                (">r110", "k", 110),
                (">r111", "k", 111),
                (">x", "other", 105),
            ],
        );
        let pairs: Vec<_> = read(&mut driver)
            .into_iter()
            .filter(|it| !it.contains('-'))
            .collect();
        let expected = ["k l100+r97 @100", "k l100+r110 @110"];
        assert_eq!(pairs, expected, "{kind:?}");
    }
}

/// The results of a record are in the order of the times of its partners, then of their arrival, across rows.
#[test]
fn the_pairs_of_a_record_are_in_order_of_time_and_arrival() {
    let mut driver = TestDriver::new(app(Kind::Inner, Within::of(MS(10)).grace(MS(20))));
    let records = [
        ("<c", "k", 104),
        ("<a", "k", 95),
        ("<b", "k", 95),
        ("<d", "k", 104),
        ("<e", "k", 112),
        (">r", "k", 102),
    ];
    pipe(&mut driver, &records);
    let expected = [
        "k a+r @102",
        "k b+r @102",
        "k c+r @104",
        "k d+r @104",
        "k e+r @112",
    ];
    assert_eq!(read(&mut driver), expected);
}

/// Both sides of a join are one topic: each record meets itself once.
#[test]
fn a_stream_may_be_joined_with_itself() {
    let mut app = App::new("a");
    let all = app.source(&orders());
    join(Kind::Inner, all.clone(), all, Within::of(MS(5))).to(&results());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("<a", "k", 100), ("<b", "k", 103)]);
    let expected = ["k a+a @100", "k b+a @103", "k a+b @103", "k b+b @103"];
    let mut found = read(&mut driver);
    found.sort();
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

/// A left record is open for 15 ms, a right one for 8.
#[test]
fn a_record_that_is_closed_when_it_comes_is_late() {
    for kind in KINDS {
        let mut driver = TestDriver::new(app(kind, within()));
        let records = [
            (">r", "k", 100),
            ("<other", "other", 115),
            ("<late", "k", 99),
            ("<open", "k", 100),
            (">late", "k", 106),
            (">open", "k", 107),
        ];
        pipe(&mut driver, &records);
        // The shipment of 100 has closed at 109, so the order of 100 comes too late for it.
        let lost = match kind {
            Kind::Inner => &["k late @99", "k open @100"][..],
            _ => &["k late @99"],
        };
        assert_eq!(shown(&mut driver, &late()), lost, "{kind:?}");
        assert_eq!(shown(&mut driver, &late_right()), ["k late @106"]);
        let totals = driver.metrics().unwrap().totals;
        assert_eq!(totals.late_records, 2);
        let pairs: Vec<_> = read(&mut driver)
            .into_iter()
            .filter(|it| !it.contains('-'))
            .collect();
        // The shipment of 100 has closed at 109, so the order of 100 finds the one of 107 only.
        assert_eq!(pairs, ["k open+open @107"]);
    }
}

/// Without a late output, late records are dropped and counted.
#[test]
fn late_records_need_no_output() {
    let mut app = App::new("a");
    let (left, right) = (app.source(&orders()), app.source(&shipments()));
    join(Kind::Inner, left, right, within())
        .to_stream()
        .to(&results());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &[("<l", "k", 100), (">r", "k", 50)]);
    assert_eq!(driver.metrics().unwrap().totals.late_records, 1);
    let mut app = App::new("a");
    let (left, right) = (app.source(&orders()), app.source(&shipments()));
    join(Kind::Inner, left, right, within())
        .late_right_to(&late_right())
        .to(&results());
    let mut driver = TestDriver::new(app);
    pipe(
        &mut driver,
        &[("<l", "k", 100), (">r", "k", 50), ("<l", "k", 10)],
    );
    assert_eq!(shown(&mut driver, &late_right()), ["k r @50"]);
}

fn scenario(driver: &mut TestDriver) -> (Vec<String>, Vec<String>, Vec<String>, usize) {
    // Large values spread the row of their key.
    let large = "x".repeat(1_500);
    for (n, time) in [100, 101, 103, 99, 104, 106].into_iter().enumerate() {
        driver.pipe_at(&orders(), "large", format!("{n}{large}"), Timestamp(time));
    }
    let records = [
        ("<a", "k", 100),
        (">b", "k", 104),
        (">c", "large", 104),
        (">d", "j", 110),
        ("<e", "k", 90),
        ("<f", "k", 117),
        (">g", "large", 125),
        ("<h", "large", 118),
        (">i", "k", 60),
        ("<j", "end", 400),
        (">k", "end", 600),
    ];
    pipe(driver, &records);
    let without = |found: Vec<String>| found.into_iter().map(|it| it.replace(&large, "")).collect();
    let (late, late_right) = (shown(driver, &late()), shown(driver, &late_right()));
    (
        without(read(driver)),
        late,
        late_right,
        driver.store(&store()).len(),
    )
}

#[test]
fn a_crash_at_any_effect_changes_nothing() {
    for kind in KINDS {
        let places = crash_everywhere(|| TestDriver::new(app(kind, within())), scenario);
        assert!(places > 30, "{places}");
    }
    let mut driver = TestDriver::new(app(Kind::Outer, within()));
    let (found, late, late_right, rows) = scenario(&mut driver);
    let expected = [
        "k a+b @104",
        "large 3+c @104",
        "large 0+c @104",
        "large 1+c @104",
        "large 2+c @104",
        "large 4+c @104",
        "large 5+c @106",
        "j -+d @110",
        "large h+g @125",
        "k f+- @117",
        "end j+- @400",
    ];
    assert_eq!(found, expected);
    assert_eq!(
        (late, late_right),
        (vec!["k e @90".to_owned()], vec!["k i @60".to_owned()])
    );
    assert_eq!(rows, 1, "the store keeps open records");
}

/// The bytes that the join has written to its changelog.
fn written(driver: &TestDriver) -> usize {
    let log = driver.cluster().read("a-orders-windowed-changelog", 0);
    let bytes = |it: Option<&[u8]>| it.map_or(0, <[u8]>::len);
    log.iter()
        .map(|it| bytes(it.key.as_deref()) + bytes(it.value.as_deref()))
        .sum()
}

/// A late record of a key writes no more than an early one, although its row has thousands of records of both sides.
/// `eos-protocol` compares the calls of the store.
#[test]
fn a_hot_key_costs_no_more_per_record() {
    for kind in KINDS {
        // An order meets the shipments that are not before it.
        let within = Within::of(MS(0)).after(MS(1_000_000));
        let mut driver = TestDriver::builder().start(app(kind, within));
        for (topic, from) in [(shipments(), 0), (orders(), 300_000)] {
            let all =
                |from, count| (from..from + count).map(|n| Input::new("hot", "o").at(Timestamp(n)));
            let cost = |driver: &mut TestDriver, time| {
                let before = written(driver);
                driver.pipe_at(&topic, "hot", "o", Timestamp(time));
                written(driver) - before
            };
            driver.pipe_all(&topic, all(from, 1_000).collect::<Vec<_>>());
            let early = cost(&mut driver, from + 1_000);
            driver.pipe_all(&topic, all(from + 1_001, 48_998).collect::<Vec<_>>());
            let late = cost(&mut driver, from + 49_999);
            assert!(early > 0 && late <= early + 16, "{kind:?}: {early}, {late}");
        }
        assert_eq!(driver.store(&store()).len(), 100_000);
        driver.pipe_at(&shipments(), "cold", "s", Timestamp(3_000_000));
        let expected = match kind {
            Kind::Inner => 0,
            Kind::Left => 50_000,
            Kind::Outer => 100_000,
        };
        assert_eq!(read(&mut driver).len(), expected);
    }
}

/// A record without a time, and one with a null value, fail by their own policy.
#[test]
fn null_values_fail() {
    let orders = Topic::<String, Option<String>>::plain("orders");
    let store =
        eos_core::state::JoinStore::with("s", eos_core::codec::Plain, eos_core::codec::Plain, Json);
    let mut app = App::new("a");
    app.on_error(ErrorPolicy::skip());
    let (left, right) = (app.source(&orders), app.source(&shipments()));
    left.join_within(right, within(), &store, |l: &Option<String>, r: &String| {
        format!("{l:?}+{r}")
    })
    .to(&results());
    let mut driver = TestDriver::new(app);
    driver.pipe_tombstone(&orders, "k");
    driver.pipe_at(&orders, "k", Some("l".to_owned()), Timestamp(100));
    driver.pipe_at(&shipments(), "k", "r", Timestamp(100));
    assert_eq!(read(&mut driver), ["k Some(\"l\")+r @100"]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

/// The store shows the records of both sides, spread or not.
#[test]
fn the_rows_of_the_store_are_readable() {
    let mut driver = TestDriver::new(app(Kind::Inner, within()));
    pipe(&mut driver, &[("<l", "k", 100), (">r", "k", 101)]);
    let large = "x".repeat(5_000);
    driver.pipe_at(&shipments(), "large", &*large, Timestamp(102));
    let rows = driver.store(&store());
    let own = |key: &str, time| (key.to_owned(), Timestamp(time));
    assert_eq!(rows.get(&own("k", 100)), Some(&Sides::Left("l".to_owned())));
    assert_eq!(
        rows.get(&own("k", 101)),
        Some(&Sides::Right("r".to_owned()))
    );
    assert_eq!(rows.get(&own("large", 102)), Some(&Sides::Right(large)));
}

/// Records of old rows leave the store with the time.
#[test]
fn rows_leave_the_store() {
    for kind in KINDS {
        let mut driver = TestDriver::new(app(kind, within()));
        for n in 0..200 {
            pipe(
                &mut driver,
                &[("<l", "k", 100 + n * 50), (">r", "j", 101 + n * 50)],
            );
        }
        let rows = driver.store(&store()).len();
        assert!(rows < 10, "{rows}");
        // KAFKA-13216: neither may the moments of results alone stay.
        let (written, moments) = rows_of(&driver, "a-orders-changelog");
        assert_eq!(written > 200, !matches!(kind, Kind::Inner), "{kind:?}");
        assert!(moments < 10, "{kind:?}: {moments}");
    }
}

/// The number of records of a changelog, and of the rows that it has in the end.
fn rows_of(driver: &TestDriver, changelog: &str) -> (usize, usize) {
    let records = driver.cluster().read(changelog, 0);
    let mut rows = std::collections::BTreeSet::new();
    for it in &records {
        let key = it.key.as_deref().unwrap_or_default().to_vec();
        match it.value {
            Some(_) => rows.insert(key),
            None => rows.remove(&key),
        };
    }
    (records.len(), rows.len())
}

#[test]
fn mistakes_are_refused_before_the_start() {
    let text = |app: App| TestDriver::build(app).unwrap_err().to_string();
    let long = std::time::Duration::MAX;
    let found = text(app(Kind::Left, Within::of(long)));
    assert!(
        found.contains("the windows of the store orders-shipments"),
        "{found}"
    );
    let mut app = App::new("a");
    for name in ["a", "b"] {
        let left: PlainTopic<String, String> = Topic::plain(&format!("{name}-left"));
        let right = Topic::plain(&format!("{name}-right"));
        let (left, right) = (app.source(&left), app.source(&right));
        join(Kind::Outer, left, right, within()).to(&results());
    }
    let found = text(app);
    assert!(found.contains("orders-shipments"), "{found}");
}

/// Kafka Streams drops such records.
#[test]
fn a_record_without_a_key_or_a_value_fails_with_the_fix() {
    type Maybe = PlainTopic<Option<String>, Option<String>>;
    let (left, right): (Maybe, Maybe) = (Topic::plain("orders"), Topic::plain("shipments"));
    let fails = |filtered: bool, key: Option<&str>, value: Option<&str>| {
        let mut app = App::new("a");
        let mut orders = app.source(&left);
        if filtered {
            orders = orders.filter_record(|record| record.key.is_some() && record.value.is_some());
        }
        orders
            .join_within(
                app.source(&right),
                within(),
                &JoinStore::plain("orders-shipments"),
                |l, _| l.clone(),
            )
            .to(&Topic::plain("results"));
        let mut driver = TestDriver::new(app);
        let record = Input::<Option<String>, Option<String>>::new(
            key.map(str::to_owned),
            value.map(str::to_owned),
        );
        driver.try_pipe(&left, record).map_err(|e| e.to_string())
    };
    let text = fails(false, None, Some("o1")).unwrap_err();
    assert!(
        text.contains("the record has no key, so the join with the store"),
        "{text}"
    );
    assert!(
        text.contains(".filter_record(|record| record.key.is_some())"),
        "{text}"
    );
    let text = fails(false, Some("k"), None).unwrap_err();
    assert!(text.contains("the record has no value"), "{text}");
    assert!(
        text.contains(".filter_record(|record| record.value.is_some())"),
        "{text}"
    );
    fails(true, None, Some("o1")).unwrap();
    fails(true, Some("k"), None).unwrap();
}
