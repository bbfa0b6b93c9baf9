//! Operators without state, each with a crash at every effect.

use std::convert::Infallible;

use eos_core::codec::{BoxCodec, Json, Plain};
use eos_core::processor::OnDiscard;
use eos_core::{
    App, Failure, Output, PlainTopic, ProcessCtx, Processor, Record, Stream, Timestamp, Topic,
};
use eos_testkit::{Input, TestDriver, crash_everywhere};

fn input() -> PlainTopic<String, String> {
    Topic::plain("in")
}

fn output() -> PlainTopic<String, String> {
    Topic::plain("out")
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Runs an app without crashes and with a crash everywhere. Checks the records of the topic `out`.
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
            long.union(short).to(&output());
        },
        &[("k", "abc"), ("k", "a"), ("l", "abcd")],
        &[("k", "long abc"), ("k", "short a"), ("l", "long abcd")],
    );
}

#[test]
fn records_with_their_keys() {
    check(
        |app| {
            app.source(&input())
                .filter_record(|record| record.key != "none")
                .map_record(|record| format!("{}={}", record.key, record.value))
                .try_map_record(|record| match &record.key[..] {
                    "poison" => Err("a poisoned key".into()),
                    key => Ok(format!("{key}:{}", record.value)),
                })
                .filter_map_record(|record| (record.key != "few").then_some(record.value))
                .flat_map_record(|record| [record.value, record.key.clone()])
                .try_flat_map_record(|record| Ok(Some(record.value)))
                .to(&output());
        },
        &[("k", "a"), ("none", "b"), ("few", "c")],
        &[("k", "k:k=a"), ("k", "k")],
    );
}

#[test]
fn keys_made_of_whole_records() {
    check(
        |app| {
            let (short, long) = app
                .source(&input())
                .branch_record(|record| record.key.len() + record.value.len() < 3);
            let short = short.key_by_record(|record| format!("{}/{}", record.key, record.value));
            let long = long.rekey(|record| (record.value, record.key));
            short.union(long).to(&output());
        },
        &[("k", "a"), ("key", "value")],
        &[("k/a", "a"), ("value", "key")],
    );
}

#[test]
fn results_are_split_and_the_rest_is_ignored() {
    check(
        |app| {
            let numbers = app.source(&input()).map(|text| text.parse::<u64>());
            let (numbers, errors) = numbers.split_result();
            numbers.map(|n| (n + 1).to_string()).to(&output());
            errors.ignore();
        },
        &[("k", "1"), ("k", "x"), ("k", "2")],
        &[("k", "2"), ("k", "3")],
    );
}

#[test]
fn streams_of_both_kinds_in_a_loop() {
    check(
        |app| {
            let shout = |lines: Stream<String, String>| lines.map(|line| line.to_uppercase());
            let streams = [
                app.source(&input()).pipe(shout).scattered(),
                app.source(&input()).key_by(|value| value.clone()),
            ];
            let all = streams.into_iter().reduce(Stream::union).unwrap();
            all.to(&output());
        },
        &[("k", "a")],
        &[("k", "A"), ("a", "a")],
    );
}

/// A record form hands on time and headers, also to several records.
#[test]
fn time_and_headers_stay_where_records_change() {
    let mut app = App::new("a");
    app.source(&input())
        .map_record(|record| record.headers.get("n").map_or(0, <[u8]>::len))
        .flat_map_record(|record| [record.value, record.value + 1])
        .rekey(|record| (record.key, record.value.to_string()))
        .key_by_record(|record| format!("{:?}", record.timestamp))
        .to(&output());
    let mut driver = TestDriver::new(app);
    let record = Input::new("k", "v").at(Timestamp(7)).header("n", b"four");
    driver.pipe_input(&input(), record);
    let records = driver.read(&output());
    let values: Vec<_> = records.iter().map(|record| &record.value[..]).collect();
    assert_eq!(values, ["4", "5"]);
    for record in records {
        assert_eq!(record.key, "Some(Timestamp(7))");
        assert_eq!(record.timestamp, Timestamp(7));
        assert_eq!(record.headers.get("n"), Some(&b"four"[..]));
    }
}

#[test]
fn a_type_that_is_only_read_and_one_that_is_only_written() {
    #[derive(serde::Deserialize)]
    struct Order {
        cents: u64,
    }
    #[derive(serde::Serialize)]
    struct Priced {
        euros: u64,
    }
    let orders = Topic::<String, Order>::json("orders");
    let priced = Topic::<String, Priced>::json("priced");
    let mut app = App::new("a");
    app.source(&orders)
        .map(|order| Priced {
            euros: order.cents / 100,
        })
        .to(&priced);
    let mut driver = TestDriver::new(app);
    let raw = orders.values::<serde_json::Value>();
    driver.pipe(&raw, "k", serde_json::json!({ "cents": 250 }));
    let read = driver.read_one(&priced.values::<serde_json::Value>());
    assert_eq!(read.value, serde_json::json!({ "euros": 2 }));
}

/// Configuration chooses the codec, so the topics have one type.
#[test]
fn codecs_chosen_at_run_time() {
    let boxed = |codec: BoxCodec<u64>| Topic::with("numbers", Plain, codec).erased();
    let choices = [
        Topic::<String, u64>::json("numbers").erased(),
        PlainTopic::<String, u64>::named("numbers").erased(),
        boxed(Box::new(Json)),
        boxed(Box::new(Plain)),
    ];
    for numbers in choices {
        let mut app = App::new("a");
        app.source(&numbers).map(|n| n.to_string()).to(&output());
        let mut driver = TestDriver::new(app);
        driver.pipe(&numbers, "k", 258_u64);
        assert_eq!(driver.read_one(&output()).value, "258");
        assert_eq!(numbers.name(), "numbers");
    }
}

#[test]
fn clones_of_a_stream_write_both_or_none() {
    let copies = Topic::<String, String>::plain("copies");
    let start = || {
        let mut app = App::new("a");
        let lines = app.source(&input());
        lines.clone().to(&output());
        lines.to(&copies);
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
fn two_topics_merge() {
    let second = Topic::<String, String>::plain("second");
    let start = || {
        let mut app = App::new("a");
        let (one, other) = (app.source(&input()), app.source(&second));
        one.merge(other).to(&output());
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
        app.source(&input()).for_each(move |ctx, line| {
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
    type Key = Infallible;
    type Value = Infallible;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, Infallible, Infallible>,
        record: Record<String, String>,
    ) -> Result<(), Failure> {
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
    app.source(&input()).for_each_with(move || Numbering {
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
            // Its numbers start again with each process.
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

/// `Record::new` sets no time.
#[test]
fn an_emitted_record_without_a_time_has_the_time_of_the_input_record() {
    let (lines, out) = (
        Topic::<String, String>::plain("lines"),
        Topic::<String, String>::plain("out"),
    );
    let mut app = App::new("emits");
    let to = app.output(&out);
    app.source(&lines).for_each(move |ctx, line| {
        ctx.emit_record(&to, Record::new(line.key.clone(), line.value.clone()))?;
        ctx.emit_record(&to, Record::new(line.key, line.value).at(Timestamp(99)))
    });
    let mut driver = TestDriver::new(app);
    driver.pipe_at(&lines, "k".to_owned(), "v", Timestamp(7));
    let times: Vec<_> = driver.read(&out).iter().map(|r| r.timestamp).collect();
    assert_eq!(times, [Timestamp(7), Timestamp(99)]);
}
