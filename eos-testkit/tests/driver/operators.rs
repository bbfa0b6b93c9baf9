//! Operators without state, each with a crash at every effect.

use eos_core::{App, Ctx, Failure, OnDiscard, Output, Processor, Record, Topic};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn input() -> Topic<String, String> {
    Topic::plain("in")
}

fn output() -> Topic<String, String> {
    Topic::plain("out")
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Runs an app plainly and with a crash everywhere; what comes out at `out` is this.
#[track_caller]
fn check(build: impl Fn(&mut App), records: &[(&str, &str)], expected: &[(&str, &str)]) {
    let start = || {
        let mut app = App::new("a");
        build(&mut app);
        TestDriver::new(app)
    };
    let mut driver = start();
    for (key, value) in records {
        driver.pipe(&input(), *key, *value);
    }
    let expected: Vec<_> = expected.iter().map(|(k, v)| pair(k, v)).collect();
    assert_eq!(driver.read_pairs(&output()), expected);

    // One after the other, and all in one transaction.
    let places = crash_everywhere(start, |driver| {
        for (key, value) in records {
            driver.pipe(&input(), *key, *value);
        }
        driver.pipe_all(&input(), records.iter().map(|(k, v)| pair(k, v)));
        driver.committed()
    });
    assert!(places > 10, "{places}");
}

#[test]
fn map_and_filter() {
    check(
        |app| {
            app.source(&input())
                .filter(|value| value != "no")
                .map(|value| value.to_uppercase())
                .filter_map(|value| (value.len() > 1).then_some(value))
                .to(&output());
        },
        &[("k", "yes"), ("k", "no"), ("k", "x"), ("l", "two")],
        &[("k", "YES"), ("l", "TWO")],
    );
}

#[test]
fn flat_map() {
    check(
        |app| {
            app.source(&input())
                .flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
                .to(&output());
        },
        &[("k", "a b c"), ("k", "d")],
        &[("k", "a"), ("k", "b"), ("k", "c"), ("k", "d")],
    );
}

#[test]
fn key_by_and_repartition() {
    check(
        |app| {
            app.source(&input())
                .key_by(|value| value.clone())
                .repartition(&Topic::plain("by-value"))
                .map(|value| format!("{value}!"))
                .to(&output());
        },
        &[("k", "a"), ("l", "b"), ("m", "a")],
        &[("a", "a!"), ("b", "b!"), ("a", "a!")],
    );
}

#[test]
fn branch_and_merge() {
    check(
        |app| {
            let (long, short) = app.source(&input()).branch(|value| value.len() > 2);
            let long = long.map(|value| format!("long {value}"));
            let short = short.map(|value| format!("short {value}"));
            long.merge(short).to(&output());
        },
        &[("k", "abc"), ("k", "a"), ("l", "abcd")],
        &[("k", "long abc"), ("k", "short a"), ("l", "long abcd")],
    );
}

#[test]
fn tee_writes_both_or_none() {
    let copies = Topic::<String, String>::plain("copies");
    let start = || {
        let mut app = App::new("a");
        let (one, other) = app.source(&input()).tee();
        one.to(&output());
        other.to(&copies);
        TestDriver::new(app)
    };
    crash_everywhere(start, |driver| {
        driver.pipe(&input(), "k", "a");
        driver.pipe(&input(), "l", "b");
        let (out, copies) = (driver.read_pairs(&output()), driver.read_pairs(&copies));
        assert_eq!(out, copies);
        out
    });
}

#[test]
fn two_topics_merge_by_time() {
    let second = Topic::<String, String>::plain("second");
    let start = || {
        let mut app = App::new("a");
        let (one, other) = (app.source(&input()), app.source(&second));
        one.merge_by_time(other).to(&output());
        let mut driver = TestDriver::new(app);
        driver.kill();
        driver
    };
    let scenario = |driver: &mut TestDriver| {
        for time in [1, 4, 5] {
            let record = Input::new("k", format!("one {time}"));
            driver.pipe_input(&input(), record.at(eos_core::Timestamp(time)));
        }
        for time in [2, 3, 6] {
            let record = Input::new("k", format!("two {time}"));
            driver.pipe_input(&second, record.at(eos_core::Timestamp(time)));
        }
        driver.restart();
        let records = driver.read_pairs(&output()).into_iter();
        records.map(|(_, value)| value).collect::<Vec<_>>()
    };
    let expected = ["one 1", "two 2", "two 3", "one 4", "one 5", "two 6"];
    assert_eq!(scenario(&mut start()), expected);
    crash_everywhere(start, scenario);
}

#[test]
fn a_closure_writes_to_several_topics_both_or_none() {
    let lengths = Topic::<String, u64>::plain("lengths");
    let start = || {
        let mut app = App::new("a");
        let (out, length) = (app.output(&output()), app.output(&lengths));
        app.source(&input()).process(move |ctx, line| {
            for word in line.value.split(' ') {
                ctx.emit(&out, line.key.clone(), word.to_owned())?;
            }
            ctx.emit(&length, line.key, line.value.len() as u64)
        });
        TestDriver::new(app)
    };
    crash_everywhere(start, |driver| {
        driver.pipe(&input(), "k", "a b");
        driver.pipe_all(&input(), [pair("k", "c d e"), pair("l", "f")]);
        let words = driver.read_pairs(&output());
        let lengths = driver.read_pairs(&lengths);
        assert_eq!(words.len(), 6);
        assert_eq!(
            lengths.iter().map(|(_, n)| *n).collect::<Vec<_>>(),
            [3, 5, 1]
        );
        (words, lengths)
    });
}

/// Numbers the records that it sees.
struct Numbering {
    out: Output<String, String>,
    seen: u64,
    on_discard: OnDiscard,
}

impl Processor<String, String> for Numbering {
    fn process(&mut self, ctx: &Ctx<'_>, record: Record<String, String>) -> Result<(), Failure> {
        self.seen += 1;
        let value = format!("{} {}", record.value, self.seen);
        ctx.emit(&self.out, record.key, value)
    }

    fn on_discard(&mut self) -> OnDiscard {
        self.on_discard
    }
}

fn numbering(on_discard: OnDiscard) -> TestDriver {
    let mut app = App::new("a");
    let out = app.output(&output());
    app.source(&input()).process_with(move || Numbering {
        out,
        seen: 0,
        on_discard,
    });
    TestDriver::new(app)
}

fn values(driver: &mut TestDriver) -> Vec<String> {
    let pairs = driver.read_pairs(&output()).into_iter();
    pairs.map(|(_, value)| value).collect()
}

#[test]
fn a_processor_is_memory_and_what_it_emits_counts_once() {
    let mut driver = numbering(OnDiscard::Rebuild);
    driver.pipe(&input(), "k", "a");
    driver.pipe(&input(), "k", "b");
    assert_eq!(values(&mut driver), ["a 1", "b 2"]);
    driver.crash();
    driver.pipe(&input(), "k", "c");
    assert_eq!(values(&mut driver), ["c 1"]);
    crash_everywhere(
        || numbering(OnDiscard::Rebuild),
        |driver| {
            driver.pipe(&input(), "k", "a");
            driver.pipe(&input(), "l", "b");
            // What it numbers starts anew with each process.
            let values = values(driver).into_iter();
            let values = values.map(|value| value.split(' ').next().map(str::to_owned));
            values.collect::<Vec<_>>()
        },
    );
}

#[test]
fn a_processor_says_what_an_abort_makes_of_it() {
    for (on_discard, expected) in [(OnDiscard::Rebuild, "b 1"), (OnDiscard::Keep, "b 3")] {
        let mut driver = numbering(on_discard);
        driver.pipe(&input(), "k", "a");
        driver.hold();
        driver.pipe(&input(), "k", "b");
        driver.abort();
        driver.commit();
        assert_eq!(values(&mut driver), ["a 1", expected]);
    }
}
