//! The replay of sequenced dead letters.

use std::time::Duration;

use eos_core::{App, ErrorPolicy, Headers, PlainTopic, Timestamp};
use eos_testkit::{Input, TestDriver, crash_everywhere};

use super::{
    Bytes, Letter, app, broken, letters, orders, paid, pairs, pipe, read, read_letters, send, text,
    three,
};

/// The replay app, in a cluster of its own.
pub(super) struct Replay(TestDriver);

impl Replay {
    pub(super) fn start(of: &TestDriver, generation: Option<u64>) -> Self {
        Self::of(of, move |replay| match generation {
            Some(generation) => replay.as_generation(generation),
            None => replay,
        })
    }

    /// The letters before the time of the driver's clock, plus a second.
    pub(super) fn of(
        of: &TestDriver,
        more: impl Fn(eos_core::replays::Replay) -> eos_core::replays::Replay,
    ) -> Self {
        let until = Timestamp(of.now().0 + 1_000_000_000);
        let replay = App::replay("orders-dlq").to("orders").until(until);
        let app = more(replay).app();
        let builder = TestDriver::builder().partitions("orders", 3);
        Self(builder.start(app))
    }

    pub(super) fn pipe(&mut self, key: Option<&[u8]>, value: Option<&[u8]>, headers: &Headers) {
        let mut input = Input::raw(key, value).at(Timestamp(9));
        for header in headers.iter() {
            input = input.header(header.name(), header.value().unwrap_or_default());
        }
        self.0.pipe_input(&letters(), input);
    }

    pub(super) fn letters(&mut self, letters: &[Letter]) {
        for (key, value, headers) in letters {
            self.pipe(key.as_deref(), value.as_deref(), headers);
        }
    }

    /// The replayed records, with their partitions.
    pub(super) fn read(&mut self) -> Vec<(i32, Input<String, String>, String, String)> {
        self.0.advance_wall_clock(Duration::from_secs(2));
        let records = self.0.read(&PlainTopic::<Bytes, Bytes>::named("orders"));
        let records = records.into_iter().map(|it| {
            let mut input = Input::raw(it.key.as_deref(), it.value.as_deref());
            input = input.at(it.timestamp);
            for header in it.headers.iter() {
                input = input.header(header.name(), header.value().unwrap_or_default());
            }
            let replay = text(it.headers.get("eos-replay"));
            (it.partition, input, text(it.value.as_deref()), replay)
        });
        records.collect()
    }
}

#[test]
fn the_replay_sorts_letters_and_writes_them_to_their_origin() {
    let broken = broken(&["1"]);
    let mut driver = TestDriver::new(app(&broken));
    let mut letters = three(&mut driver);
    read(&mut driver);
    letters.reverse();
    let mut replay = Replay::start(&driver, None);
    replay.letters(&letters);
    let records = replay.read();
    let shown: Vec<_> = records.iter().map(|it| (it.0, &*it.2, &*it.3)).collect();
    assert_eq!(
        shown,
        [
            (0, "1", "1 record 0 1"),
            (0, "2", "1 record 0 2"),
            (0, "3", "1 record 0 3")
        ]
    );
    broken.lock().unwrap().clear();
    for record in records {
        driver.pipe_input(&orders(), record.1);
    }
    assert_eq!(read(&mut driver), ["1", "2", "3"]);
}

#[test]
fn the_replay_keeps_headers_and_names_the_origin() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let input = Input::new("k", "1").at(Timestamp(7)).header("trace", "t");
    driver.pipe_input(&orders(), input);
    let letters = read_letters(&mut driver);
    let mut replay = Replay::start(&driver, None);
    replay.letters(&letters);
    replay.0.advance_wall_clock(Duration::from_secs(1));
    let record = replay.0.read(&orders()).remove(0);
    let names: Vec<_> = record
        .headers
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    assert_eq!(
        names,
        ["trace", "eos-origin", "eos-replay", "eos-replay-for"]
    );
    assert_eq!(record.headers.get("eos-origin"), Some(&b"orders 0 0"[..]));
    assert_eq!(record.headers.get("trace"), Some(&b"t"[..]));
}

#[test]
fn a_replay_is_named_after_its_topic_and_replays_each_letter_once() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letters = three(&mut driver);
    let mut replay = Replay::start(&driver, None);
    replay.letters(&letters);
    assert_eq!(replay.read().len(), 3);
    replay.0.restart();
    assert!(replay.read().is_empty());
    replay.letters(&letters[..1]);
    assert_eq!(replay.read().len(), 1, "a letter that arrives meanwhile");
}

#[test]
fn letters_after_the_start_wait_for_the_next_replay() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letters = three(&mut driver);
    let before = driver.now();
    let mut replay = Replay::of(&driver, |replay| replay.until(Timestamp(before.0 - 1_000)));
    replay.letters(&letters);
    assert!(replay.read().is_empty());
}

/// With a wrong name, the letter would be processed.
#[test]
fn a_decision_about_another_topic_is_refused() {
    for replay in [
        App::replay("orders-dlq").discard("order", "k", 1),
        App::replay("orders-dlq").release("order", "k"),
        App::replay("orders-dlq").discard_without_key("order", 0, 1),
    ] {
        let error = TestDriver::build(replay.to("orders").app())
            .unwrap_err()
            .to_string();
        for part in [
            "the topic order,",
            "its topics are [orders]",
            ".to(\"order\")",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

/// A unit of work reads at most 4,000 letters. Those that wait for a later replay are read once, and hide no others.
#[test]
fn letters_of_a_later_replay_hide_no_others() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letter = three(&mut driver).remove(0);
    let failed = "__eos.errors.time";
    let at: i64 = text(letter.2.get(failed)).parse().unwrap();
    let of = |key: &str, at: i64| {
        let mut input = Input::raw(Some(key.as_bytes()), Some(b"v")).at(Timestamp(9));
        for header in letter.2.iter().filter(|it| it.name() != failed) {
            input = input.header(header.name(), header.value().unwrap_or_default());
        }
        input.header(failed, at.to_string())
    };
    let mut replay = Replay::of(&driver, |replay| replay.until(Timestamp(at + 1)));
    let mut all: Vec<_> = (0..9_000).map(|n| of(&format!("{n:04}"), at + 1)).collect();
    all.push(of("9998", at));
    replay.0.pipe_all(&letters(), all);
    let keys = |replay: &mut Replay| {
        let records = replay.0.read(&PlainTopic::<Bytes, Bytes>::named("orders"));
        let keys = records.into_iter().map(|it| text(it.key.as_deref()));
        keys.collect::<Vec<_>>()
    };
    let mut rounds = 0;
    let first = loop {
        let found = keys(&mut replay);
        if !found.is_empty() {
            break found;
        }
        rounds += 1;
        assert!(rounds < 20, "it never comes");
        // Its key is parked, and gets a new record in each round.
        replay.0.pipe_input(&letters(), of("0000", at + 1));
        if rounds == 2 {
            // A letter before the place, while the next round begins behind it.
            replay.0.pipe_input(&letters(), of("001", at));
        }
        replay.0.advance_wall_clock(Duration::from_millis(500));
    };
    assert_eq!(first, ["9998"]);
    assert!((3..5).contains(&rounds), "{rounds}");
    replay.0.advance_wall_clock(Duration::from_secs(3));
    assert_eq!(keys(&mut replay), ["001"]);
    // A letter before the place, because short keys come first, and one behind it.
    for key in ["000", "9999"] {
        replay.0.pipe_input(&letters(), of(key, at));
    }
    replay.0.restart();
    replay.0.advance_wall_clock(Duration::from_secs(3));
    assert_eq!(keys(&mut replay), ["000", "9999"]);
}

#[test]
fn a_replay_killed_half_way_writes_each_letter_once() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letters = three(&mut driver);
    let until = driver.now();
    let start = || {
        let replay = App::replay("orders-dlq").to("orders");
        let replay = replay.until(Timestamp(until.0 + 1_000_000_000));
        TestDriver::new(replay.app())
    };
    let places = crash_everywhere(start, |driver| {
        let mut replay = Replay(std::mem::replace(driver, start()));
        replay.letters(&letters);
        let records = replay.read();
        let shown: Vec<_> = records.into_iter().map(|it| (it.2, it.3)).collect();
        *driver = replay.0;
        shown
    });
    assert!(places > 10, "{places}");
}

#[test]
fn the_replay_discards_and_releases() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letters = three(&mut driver);
    let mut replay = Replay::of(&driver, |replay| replay.discard("orders", "k", 1));
    replay.letters(&letters);
    let shown: Vec<_> = replay.read().into_iter().map(|it| (it.2, it.3)).collect();
    let expected = [
        ("1", "1 discard 0 1"),
        ("2", "1 record 0 2"),
        ("3", "1 record 0 3"),
    ];
    assert_eq!(shown, pairs(&expected));
    let mut replay = Replay::of(&driver, |replay| replay.release("orders", "k"));
    replay.letters(&letters[..1]);
    let records = replay.read();
    assert_eq!(records[0].3, "1 release 0 1");
    // It gives up the letters of its start. The others and this record stay.
    pipe(&mut driver, &[("k", "4")]);
    for record in records {
        driver.pipe_input(&orders(), record.1);
    }
    let fourth = read_letters(&mut driver);
    let mut replay = Replay::of(&driver, |replay| replay);
    replay.letters(&letters);
    replay.letters(&fourth);
    for record in replay.read() {
        driver.pipe_input(&orders(), record.1);
    }
    pipe(&mut driver, &[("k", "5")]);
    assert_eq!(read(&mut driver), ["a", "b", "2", "3", "4", "5"]);
    // A key without letters.
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letters = three(&mut driver);
    let mut replay = Replay::of(&driver, |replay| replay.release_lost("a", "orders", 0, "k"));
    for record in replay.read() {
        driver.pipe_input(&orders(), record.1);
    }
    pipe(&mut driver, &[("k", "6")]);
    send(&mut driver, &letters[0]);
    assert_eq!(read(&mut driver), ["a", "b", "6"]);
}

#[test]
fn what_is_no_letter_of_the_origin_is_refused() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let letters = three(&mut driver);
    let refused = |edit: &dyn Fn(&mut Headers)| {
        let mut headers = letters[0].2.clone();
        edit(&mut headers);
        let mut replay = Replay::start(&driver, None);
        let mut input = Input::raw(Some(b"k"), None);
        for header in headers.iter() {
            input = input.header(header.name(), header.value().unwrap_or_default());
        }
        let error = replay.0.try_pipe(&self::letters(), input).unwrap_err();
        error.to_string()
    };
    let foreign = refused(&|headers| *headers = Headers::new());
    assert!(foreign.contains("not a dead letter") && foreign.contains("__streams.errors.topic"));
    let partition = refused(&|headers| headers.push("__streams.errors.partition", Some(b"-1")));
    assert!(
        partition.contains("__streams.errors.partition"),
        "{partition}"
    );
    let due = refused(&|headers| headers.push("eos-due", Some(b"idle 7")));
    assert!(
        due.contains("idle 7") && due.contains("to its topic by hand"),
        "{due}"
    );
    let number = refused(&|headers| headers.push("eos-sequence", Some(b"9 9 9")));
    assert!(number.contains("has format 9"), "{number}");
}

/// The headers of a processed letter travel to the next topic, whose dead letters are in sequence as well.
#[test]
fn a_replayed_record_is_a_plain_record_of_the_next_topic() {
    let broken = broken(&["1"]);
    let shipped = PlainTopic::<String, String>::named("shipped");
    let mut both = app(&broken);
    both.source(&paid())
        .on_error(ErrorPolicy::dead_letter("paid-dlq").in_sequence("parked-paid"))
        .to(&shipped);
    let mut driver = TestDriver::new(both);
    let letters = three(&mut driver);
    let mut replay = Replay::start(&driver, None);
    replay.letters(&letters);
    broken.lock().unwrap().clear();
    for record in replay.read() {
        driver.pipe_input(&orders(), record.1);
    }
    let shipped = driver.read_pairs(&shipped).into_iter();
    let values: Vec<_> = shipped.map(|(_, value)| value).collect();
    assert_eq!(values, ["a", "b", "1", "2", "3"]);
}

/// A record that was replayed into another topic has an origin there. It is not the origin in this topic.
#[test]
fn each_topic_of_a_record_has_an_origin_of_its_own() {
    let mut driver = TestDriver::new(app(&broken(&["1"])));
    let input = Input::new("k", "1").at(Timestamp(7));
    driver.pipe_input(&orders(), input.header("eos-origin", "clicks 0 9"));
    let letters = read_letters(&mut driver);
    let mut replay = Replay::start(&driver, None);
    replay.letters(&letters);
    replay.0.advance_wall_clock(Duration::from_secs(1));
    let record = replay.0.read(&orders()).remove(0);
    let origins = record.headers.iter();
    let origins = origins.filter(|it| it.name() == "eos-origin");
    let origins: Vec<_> = origins.map(|it| text(it.value())).collect();
    assert_eq!(origins, ["clicks 0 9", "orders 0 0"]);
}
