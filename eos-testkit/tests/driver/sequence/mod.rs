//! Deduplication by sequence numbers and the guard of versions, with a crash at every effect.

mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use eos_core::identity::{
    BySequence, Gaps, HighWatermarks, Newest, Seen, SeenIds, Sequence, Versions,
};
use eos_core::{App, ErrorPolicy, Failure, KeyValueStore, PlainTopic, Stream, Topic};
use eos_testkit::rng::Rng;
use eos_testkit::{Input, TestDriver, crash_everywhere};
use versions::version;

type Texts = PlainTopic<String, String>;

fn topic(name: &str) -> Texts {
    Topic::plain(name)
}

fn input() -> Texts {
    topic("in")
}

fn output() -> Texts {
    topic("out")
}

/// Reads `producer epoch number`. A producer `-` is none.
#[expect(clippy::ptr_arg, reason = "passed as a closure of values")]
fn sequence(value: &String) -> Sequence<Option<String>> {
    let mut parts = value.split(' ');
    let mut next = || parts.next().unwrap_or_default();
    Sequence {
        producer: Some(next()).filter(|it| *it != "-").map(str::to_owned),
        epoch: next().parse().unwrap_or(0),
        number: next().parse().unwrap_or(0),
    }
}

fn app_with(
    marks: &HighWatermarks,
    policy: ErrorPolicy,
    change: impl FnOnce(BySequence<String, String>) -> Stream<String, String>,
) -> App {
    let mut app = App::new("a");
    let source = app.source(&input()).on_error(policy);
    change(source.dedup_by_sequence(marks, sequence)).to(&output());
    app
}

fn app(marks: &HighWatermarks) -> App {
    app_with(marks, ErrorPolicy::fail(), |it| {
        it.duplicates_to(&topic("repeated"))
            .stale_to(&topic("stale"))
            .accepted()
    })
}

fn marks() -> HighWatermarks {
    HighWatermarks::new("marks")
}

fn start() -> TestDriver {
    TestDriver::new(app(&marks()))
}

fn pipe(driver: &mut TestDriver, values: &[&str]) {
    for (value, key) in values.iter().zip(["k", "l", "m"].iter().cycle()) {
        driver.pipe(&input(), *key, *value);
    }
}

/// The values of the new records of a topic.
fn read(driver: &mut TestDriver, name: &str) -> Vec<String> {
    let records = driver.read_pairs(&topic(name)).into_iter();
    records.map(|(_, value)| value).collect()
}

fn error(driver: &mut TestDriver, value: &str) -> String {
    let input_of = Input::<String, String>::new("k", value);
    driver.try_pipe(&input(), input_of).unwrap_err().to_string()
}

#[test]
fn each_number_of_an_epoch_passes_once_and_in_order() {
    let records = [
        // The first number is not 0, and the numbers of a producer go across keys.
        "p 1 7", "p 1 8", "p 1 8", "q 1 8", "p 1 3", "p 2 0", "p 1 9", "p 2 0", "p 2 1", "q 1 9",
    ];
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &records);
        driver.rebalance();
        pipe(driver, &["p 2 1", "p 2 2"]);
        (
            read(driver, "out"),
            read(driver, "repeated"),
            read(driver, "stale"),
        )
    };
    let mut driver = start();
    let (new, repeated, stale) = scenario(&mut driver);
    assert_eq!(
        new,
        [
            "p 1 7", "p 1 8", "q 1 8", "p 2 0", "p 2 1", "q 1 9", "p 2 2"
        ]
    );
    assert_eq!(repeated, ["p 1 8", "p 1 3", "p 2 0", "p 2 1"]);
    assert_eq!(stale, ["p 1 9"]);
    let totals = driver.metrics().unwrap().totals;
    let counted = (
        totals.dedup_new,
        totals.dedup_duplicates,
        totals.dedup_stale,
        totals.dedup_gaps,
    );
    assert_eq!(counted, (7, 4, 1, 0));
    let places = crash_everywhere(start, scenario);
    assert!(places > 20, "{places}");
}

/// Two threads under one producer name: 101 overtakes 100, which is lost. The metric shows it.
#[test]
fn a_gap_is_counted_or_fails() {
    let mut driver = start();
    pipe(&mut driver, &["p 0 99", "p 0 101", "p 0 100"]);
    assert_eq!(read(&mut driver, "out"), ["p 0 99", "p 0 101"]);
    assert_eq!(read(&mut driver, "repeated"), ["p 0 100"]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_gaps, 1);
    // Each thread has its own name.
    let mut driver = start();
    pipe(&mut driver, &["p1 0 99", "p2 0 101", "p1 0 100"]);
    assert_eq!(read(&mut driver, "out").len(), 3);
    assert_eq!(driver.metrics().unwrap().totals.dedup_gaps, 0);

    let strict = || marks().gaps(Gaps::Fail);
    let mut driver = TestDriver::new(app(&strict()));
    pipe(&mut driver, &["p 0 99"]);
    let text = error(&mut driver, "p 0 101");
    assert!(
        text.contains(
            "the number 101 of producer \"p\" does not follow 99; missing numbers: 1 (store marks)"
        ),
        "{text}"
    );
    // The mark of a failed record is not kept.
    let skipping = || app_with(&strict(), ErrorPolicy::skip(), BySequence::accepted);
    let scenario = |driver: &mut TestDriver| {
        pipe(driver, &["p 0 99", "p 0 101", "p 0 100", "p 0 101"]);
        read(driver, "out")
    };
    let expected = ["p 0 99", "p 0 100", "p 0 101"];
    assert_eq!(scenario(&mut TestDriver::new(skipping())), expected);
    crash_everywhere(|| TestDriver::new(skipping()), scenario);
}

#[test]
fn numbers_may_be_far_apart() {
    let far = format!("p 0 {}", u128::from(u64::MAX) + 5);
    let last = format!("p {} {}", u64::MAX, u128::MAX);
    let mut driver = start();
    pipe(
        &mut driver,
        &["p 0 1", &far, "p 0 2", &last, &last, "p 0 3"],
    );
    assert_eq!(read(&mut driver, "out"), ["p 0 1", &far, &last]);
    assert_eq!(read(&mut driver, "repeated"), ["p 0 2", &last]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_gaps, 1);
}

/// The count of missing numbers may have more than 64 bits.
#[test]
fn a_gap_of_two_to_the_64_numbers_fails() {
    let strict = || marks().gaps(Gaps::Fail);
    let most = u128::from(u64::MAX);
    for number in [most, most + 2, u128::MAX] {
        let (far, missing) = (format!("p 0 {number}"), number - 1);
        let mut driver = TestDriver::new(app(&strict()));
        pipe(&mut driver, &["p 0 0"]);
        let text = error(&mut driver, &far);
        let expected = format!(
            "the number {number} of producer \"p\" does not follow 0; missing numbers: {missing} (store marks)"
        );
        assert!(text.contains(&expected), "{text}");
        let policy = ErrorPolicy::dead_letter("letters");
        let mut driver = TestDriver::new(app_with(&strict(), policy, BySequence::accepted));
        pipe(&mut driver, &["p 0 0", &far, "p 0 1"]);
        assert_eq!(read(&mut driver, "out"), ["p 0 0", "p 0 1"]);
        assert_eq!(read(&mut driver, "letters"), [far]);
    }
}

/// The store has a hash of a long name. The error text of a dead letter has its beginning, so that the letter fits into
/// its topic.
#[test]
fn a_producer_may_have_a_name_of_a_megabyte() {
    let name = |last: char| format!("{}{last}", "p".repeat(999_999));
    let (p, q) = (name('p'), name('q'));
    let value = |name: &str, number: u32| format!("{name} 0 {number}");
    let mut driver = start();
    pipe(&mut driver, &[&value(&p, 1), &value(&p, 1), &value(&q, 1)]);
    // The values are too long to print.
    assert!(read(&mut driver, "out") == [value(&p, 1), value(&q, 1)]);
    assert!(read(&mut driver, "repeated") == [value(&p, 1)]);
    let rows = driver.store(&marks());
    assert_eq!(rows.len(), 2);
    assert!(rows.entries().iter().all(|(key, _)| key.len() < 64));

    let policy = ErrorPolicy::dead_letter("letters");
    let strict = marks().gaps(Gaps::Fail);
    let mut driver = TestDriver::new(app_with(&strict, policy, BySequence::accepted));
    pipe(&mut driver, &[&value(&p, 1), &value(&p, 3), &value(&p, 2)]);
    assert!(read(&mut driver, "out") == [value(&p, 1), value(&p, 2)]);
    let letters = driver.read(&topic("letters"));
    assert_eq!(letters.len(), 1);
    assert!(letters[0].value == value(&p, 3));
    let message = letters[0].headers.get("__streams.errors.message").unwrap();
    assert!(message.len() < 10_000, "{} bytes", message.len());
    let message = String::from_utf8_lossy(message);
    assert!(
        message.contains("the number 3 of producer \"pppp"),
        "{message}"
    );
}

#[test]
fn a_record_without_a_producer_fails_unless_it_may_pass() {
    for value in ["-", " 0 1"] {
        let text = error(&mut start(), value);
        assert!(
            text.contains("the record has no producer name (store marks)"),
            "{text}"
        );
    }
    let passing = app_with(&marks(), ErrorPolicy::fail(), |it| {
        it.pass_without_producer().accepted()
    });
    let mut driver = TestDriver::new(passing);
    pipe(&mut driver, &["- 0 1", "- 0 1", "p 0 1", "p 0 1"]);
    assert_eq!(read(&mut driver, "out"), ["- 0 1", "- 0 1", "p 0 1"]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_missing_id, 2);
}

/// R51: the store has one row per producer, and R53: a block of numbers is a producer. `EOS_FULL=1` has ten million
/// records of a hundred producers.
#[test]
fn the_store_has_one_row_per_producer() {
    let mut driver = start();
    let (producers, most) = match std::env::var_os("EOS_FULL") {
        Some(_) => (100, 50_000),
        None => (100, 100),
    };
    for _ in 0..2 {
        for number in 0..most {
            let all = (0..producers).map(|of| format!("p{of} 0 {number}"));
            let all = all.map(|value| Input::<String, String>::new("k", value));
            driver.pipe_all(&input(), all.collect::<Vec<_>>());
        }
        assert_eq!(driver.store(&marks()).len(), producers);
    }
    assert_eq!(read(&mut driver, "out").len(), producers * most);
    let blocks = [
        "2 0 0", "1 0 999", "2 0 1", "3 0 0", "1 0 1000", "3 0 1", "2 0 1",
    ];
    pipe(&mut driver, &blocks);
    assert_eq!(read(&mut driver, "out"), blocks[..6]);
}

/// R53: three threads take blocks of a thousand numbers from a common counter. Each block is a producer.
#[test]
fn interleaved_blocks_of_numbers_drop_only_repetitions() {
    let mut driver = start();
    let mut rng = Rng::new(53);
    let mut blocks = 0..9;
    // The block and the next number of each thread.
    let mut threads: Vec<(u32, u32)> = blocks.by_ref().take(3).map(|it| (it, 0)).collect();
    let (mut new, mut again, mut chunk) = (Vec::new(), 0, Vec::new());
    while !threads.is_empty() {
        let thread = rng.below(threads.len());
        let (block, number) = threads[thread];
        let value = format!("{block} 0 {number}");
        new.push(value.clone());
        chunk.push(Input::<String, String>::new("k", value));
        if rng.one_in(10) {
            again += 1;
            let repeated = number.saturating_sub(u32::try_from(rng.below(20)).unwrap());
            chunk.push(Input::new("k", format!("{block} 0 {repeated}")));
        }
        threads[thread].1 += 1;
        if number == 999 {
            match blocks.next() {
                Some(block) => threads[thread] = (block, 0),
                None => drop(threads.remove(thread)),
            }
        }
        if chunk.len() > 500 || threads.is_empty() {
            driver.pipe_all(&input(), std::mem::take(&mut chunk));
        }
    }
    assert_eq!(new.len(), 9_000);
    assert_eq!(read(&mut driver, "out"), new);
    assert_eq!(read(&mut driver, "repeated").len(), again);
    assert_eq!(driver.store(&marks()).len(), 9);
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.dedup_gaps, totals.dedup_stale), (0, 0));
}

/// The numbers of one producer in two merged topics have no common order.
#[test]
fn topics_are_apart() {
    let mut app = App::new("a");
    let both = app.source(&input()).merge(app.source(&topic("in2")));
    both.dedup_by_sequence(&marks(), sequence)
        .accepted()
        .to(&output());
    let mut driver = TestDriver::new(app);
    driver.pipe(&input(), "k", "p 0 2");
    driver.pipe(&topic("in2"), "k", "p 0 1");
    driver.pipe(&topic("in2"), "k", "p 0 1");
    assert_eq!(read(&mut driver, "out"), ["p 0 2", "p 0 1"]);
}

#[test]
fn the_mark_of_a_failed_record_is_not_kept() {
    let start = || {
        let calls = AtomicU32::new(0);
        let app = app_with(&marks(), ErrorPolicy::skip(), |it| {
            it.accepted()
                .try_map(move |value| match calls.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(Failure::from("the service is down")),
                    _ => Ok(value),
                })
        });
        TestDriver::new(app)
    };
    let mut driver = start();
    pipe(&mut driver, &["p 0 1", "p 0 1", "p 0 1"]);
    assert_eq!(read(&mut driver, "out"), ["p 0 1"]);
    let totals = driver.metrics().unwrap().totals;
    assert_eq!((totals.skipped, totals.dedup_duplicates), (1, 1));
}

#[test]
fn each_number_of_a_generation_passes_once() {
    let mut driver = start();
    pipe(&mut driver, &["p 0 1", "p 0 2"]);
    for value in ["p 0 1", "p 0 1", "p 0 2"] {
        let replayed =
            Input::<String, String>::new("k", value).header("eos-replay-generation", b"1");
        driver.pipe_input(&input(), replayed);
    }
    assert_eq!(
        read(&mut driver, "out"),
        ["p 0 1", "p 0 2", "p 0 1", "p 0 2"]
    );
}

#[test]
fn numbers_come_from_headers_and_keys_may_be_null() {
    let keyless = || Topic::<Option<String>, String>::plain("keyless");
    let mut app = App::new("a");
    app.source(&keyless())
        .on_error(ErrorPolicy::skip())
        .dedup_record_by_sequence(&marks(), |record| {
            let number = record.headers.get("number").unwrap_or_default();
            Ok(Sequence {
                producer: "web".to_owned(),
                epoch: 0,
                number: str::from_utf8(number)?.parse()?,
            })
        })
        .accepted()
        .to(&Topic::plain("kept"));
    let mut driver = TestDriver::new(app);
    for (number, value) in [("1", "a"), ("1", "b"), ("x", "c"), ("2", "d")] {
        let record = Input::<Option<String>, String>::new(None, value);
        driver.pipe_input(&keyless(), record.header("number", number.as_bytes()));
    }
    let kept = driver.read(&Topic::<Option<String>, String>::plain("kept"));
    let kept: Vec<&str> = kept.iter().map(|it| &it.value[..]).collect();
    assert_eq!(kept, ["a", "d"]);
}

#[test]
fn judged_records_have_their_status() {
    let mut app = App::new("a");
    app.source(&input())
        .dedup_by_sequence(&marks(), sequence)
        .judged()
        .map(|it| match it.seen {
            Seen::New => format!("{} new", it.value),
            Seen::Duplicate { .. } => format!("{} again", it.value),
            Seen::Stale => format!("{} stale", it.value),
            _ => format!("{} nameless", it.value),
        })
        .to(&output());
    let mut driver = TestDriver::new(app);
    pipe(&mut driver, &["p 1 1", "p 1 1", "p 0 2", "- 0 0"]);
    assert_eq!(
        read(&mut driver, "out"),
        ["p 1 1 new", "p 1 1 again", "p 0 2 stale", "- 0 0 nameless"]
    );
}

#[test]
fn another_operator_over_known_rows_does_not_start() {
    type Make = fn() -> App;
    let by_sequence: Make = || {
        let marks = HighWatermarks::new("rows");
        app_with(&marks, ErrorPolicy::fail(), BySequence::accepted)
    };
    let by_version: Make = || {
        let mut app = App::new("a");
        app.source(&input())
            .newest(&Versions::new("rows"), version)
            .accepted()
            .to(&output());
        app
    };
    let by_id: Make = || {
        let mut app = App::new("a");
        app.source(&input())
            .dedup(&SeenIds::for_ever("rows"))
            .by(String::clone)
            .to(&output());
        app
    };
    let by_count: Make = || {
        let mut app = App::new("a");
        app.source(&input())
            .group_by_key()
            .count(&KeyValueStore::plain("rows"))
            .to_stream()
            .map(|count| count.to_string())
            .to(&output());
        app
    };
    for (before, after, word) in [
        (by_sequence, by_version, "belonged to `dedup_by_sequence`"),
        (by_version, by_sequence, "belonged to `newest`"),
        (by_sequence, by_id, "belonged to `dedup_by_sequence`"),
        (by_version, by_count, "belonged to `newest`"),
        (by_id, by_sequence, "belonged to a `SeenIds`"),
        (by_count, by_version, "belonged to an operator"),
    ] {
        let version = Arc::new(AtomicU32::new(0));
        let next = Arc::clone(&version);
        let mut driver = TestDriver::of(move || match next.load(Ordering::Relaxed) {
            0 => before(),
            _ => after(),
        });
        pipe(&mut driver, &["p 0 1"]);
        version.store(1, Ordering::Relaxed);
        let restarted = catch_unwind(AssertUnwindSafe(|| driver.crash()));
        assert!(restarted.is_err());
        let text = driver.error().unwrap().to_string();
        assert!(text.contains(word), "{text}");
    }
}

/// A number that failed is below the high watermark once a later number has passed. Its replay is not a duplicate: it
/// fails, or passes once in a generation, in any order.
#[test]
fn a_replayed_number_is_not_dropped_as_a_duplicate() {
    let replayed = |value: &str, generation: Option<&str>| {
        let record = Input::<String, String>::new("k", value).header("eos-replay-for", "a in");
        match generation {
            Some(generation) => record.header("eos-replay-generation", generation),
            None => record,
        }
    };
    let scenario = |driver: &mut TestDriver| {
        for value in ["p 0 1", "p 0 4"] {
            driver.pipe(&input(), "k", value);
        }
        for value in ["p 0 3", "p 0 2", "p 0 3"] {
            driver.pipe_input(&input(), replayed(value, Some("1")));
        }
        read(driver, "out")
    };
    let start = || TestDriver::new(app(&marks()));
    let mut driver = start();
    assert_eq!(scenario(&mut driver), ["p 0 1", "p 0 4", "p 0 3", "p 0 2"]);
    assert_eq!(read(&mut driver, "repeated"), ["p 0 3"]);
    crash_everywhere(start, scenario);
    // The letter of another app is a duplicate.
    let other = Input::<String, String>::new("k", "p 0 2").header("eos-replay-for", "b in");
    driver.pipe_input(&input(), other);
    assert_eq!(read(&mut driver, "repeated"), ["p 0 2"]);
    let error = driver.try_pipe(&input(), replayed("p 0 2", None));
    let error = error.unwrap_err().to_string();
    let expected = "the replayed number 2 of producer \"p\" is not above 4 (store marks)";
    assert!(error.contains(expected), "{error}");
}
