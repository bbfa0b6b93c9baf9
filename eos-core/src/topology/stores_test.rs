//! Ordered and windowed stores in closures.

use std::time::Duration;

use super::golden_test::driver::{Driver, Piece};
use super::tests::{app, text};
use super::{Mistake, TopologyError};
use crate::state::{OrderedStore, WindowStore};
use crate::windows::Tumbling;
use crate::{App, Ctx, Failure, Record, Timestamp, Topic};

/// Sends a value to the topic `in` at time 0. Returns the values of `out`.
fn pipe(driver: &mut Driver, value: &str) -> Vec<String> {
    at(driver, 0, value)
}

fn at(driver: &mut Driver, timestamp: i64, value: &str) -> Vec<String> {
    let out = driver.pipe(Piece {
        topic: "in".into(),
        key: Some(b"k".to_vec()),
        value: Some(value.as_bytes().to_vec()),
        timestamp,
    });
    let text = |piece: Piece| String::from_utf8(piece.value.unwrap()).unwrap();
    out.into_iter().map(text).collect()
}

type Text = Record<String, String>;

fn ordered(
    f: impl Fn(
        &Ctx<'_>,
        &crate::state::OrderedView<'_, (String, i64), String>,
        &str,
    ) -> Result<Vec<String>, Failure>
    + Send
    + Sync
    + 'static,
) -> Driver {
    let mut app = App::new("a");
    let store = app.store(&OrderedStore::<(String, i64), String>::plain("s"));
    let out = app.output(&text("out"));
    app.source(&text("in"))
        .with_store(&store)
        .for_each(move |ctx: &Ctx<'_>, record: Text| {
            for line in f(ctx, &ctx.store(&store), &record.value)? {
                ctx.emit(&out, record.key.clone(), line)?;
            }
            Ok::<_, Failure>(())
        });
    Driver::new(&app)
}

#[test]
fn ranges_and_prefixes_come_in_the_order_of_the_keys_and_back() {
    let mut driver = ordered(|_, store, value| {
        let key = |who: &str, n: i64| (who.to_owned(), n);
        for (who, n) in [("b", 2), ("a", -1), ("ab", 5), ("a", 10), ("a", 2)] {
            store.put(&key(who, n), &format!("{who}{n}"))?;
        }
        store.delete(&key("b", 2))?;
        let entries = match value {
            "all" => store.range(..),
            "range" => store.range(&key("a", 0)..&key("a", 10)),
            "to" => store.range(..=key("a", 10)),
            "inverted" => store.range(key("b", 0)..key("a", 0)),
            "prefix" => store.prefix(&"a".to_owned()),
            "back" => store.prefix(&"a".to_owned()).reverse(),
            _ => panic!("{value}"),
        };
        entries.map(|entry| Ok(entry?.1)).collect()
    });
    for (what, expected) in [
        ("all", &["a-1", "a2", "a10", "ab5"][..]),
        ("range", &["a2"]),
        ("to", &["a-1", "a2", "a10"]),
        ("inverted", &[]),
        ("prefix", &["a-1", "a2", "a10"]),
        ("back", &["a10", "a2", "a-1"]),
    ] {
        assert_eq!(pipe(&mut driver, what), expected, "{what}");
    }
}

/// The reason why `Ctx`'s methods take `&self`.
#[test]
fn a_scan_writes_and_emits_in_its_loop() {
    let mut app = App::new("a");
    let store = app.store(&OrderedStore::<u64, String>::plain("s"));
    let out = app.output(&text("out"));
    app.source(&text("in"))
        .with_store(&store)
        .for_each(move |ctx: &Ctx<'_>, record: Text| {
            let store = ctx.store(&store);
            let last = store.range(..).reverse().next().transpose()?;
            store.put(&last.map_or(0, |(n, _)| n + 1), &record.value)?;
            if record.value == "flush" {
                for entry in store.range(..) {
                    let (n, value) = entry?;
                    store.delete(&n)?;
                    store.put(&(n + 100), &value)?;
                    ctx.emit(&out, record.key.clone(), format!("{n}={value}"))?;
                }
            }
            Ok::<_, Failure>(())
        });
    let mut driver = Driver::new(&app);
    assert!(pipe(&mut driver, "a").is_empty());
    assert_eq!(pipe(&mut driver, "flush"), ["0=a", "1=flush"]);
    assert_eq!(
        pipe(&mut driver, "flush"),
        ["100=a", "101=flush", "102=flush"],
        "what the loop wrote was not part of it"
    );
}

#[test]
fn a_window_that_is_over_is_neither_read_nor_written() {
    let mut app = App::new("a");
    let store =
        app.store(&WindowStore::<String, String>::plain("s").retention(Duration::from_millis(100)));
    let out = app.output(&text("out"));
    app.source(&text("in"))
        .with_store(&store)
        .for_each(move |ctx: &Ctx<'_>, record: Text| {
            let store = ctx.store(&store);
            let start = record.timestamp.unwrap_or(Timestamp(0));
            let kept = store.put(&record.value, start, &format!("{}", start.0))?;
            let windows = Tumbling::of(Duration::from_millis(10));
            let one = store.get(&record.value, start)?;
            let mut lines = vec![format!("{kept} {one:?}")];
            for entry in store.all(Timestamp(20)..) {
                let (start, key, value) = entry?;
                lines.push(format!("{}{key}={value}", start.0));
            }
            let fetched =
                store.fetch(&record.value, windows.starts(Timestamp(0), Timestamp(1000)))?;
            lines.push(format!("{}", fetched.len()));
            for line in lines {
                ctx.emit(&out, record.key.clone(), line)?;
            }
            Ok::<_, Failure>(())
        });
    let mut driver = Driver::new(&app);
    let mut check = |time, key, expected: &str| {
        let lines = at(&mut driver, time, key).join(", ");
        assert_eq!(lines, expected, "{key} at {time}");
    };
    check(10, "a", "true Some(\"10\"), 1");
    check(20, "a", "true Some(\"20\"), 20a=20, 2");
    check(0, "b", "true Some(\"0\"), 20a=20, 1");
    check(109, "c", "true Some(\"109\"), 20a=20, 109c=109, 0");
    check(10, "a", "true Some(\"10\"), 20a=20, 109c=109, 2");
    check(
        110,
        "a",
        "true Some(\"110\"), 20a=20, 109c=109, 110a=110, 2",
    );
    check(10, "a", "false None, 20a=20, 109c=109, 110a=110, 2");
    check(
        125,
        "d",
        "true Some(\"125\"), 109c=109, 110a=110, 125d=125, 0",
    );
}

fn error(declare: impl FnOnce(&mut App)) -> TopologyError {
    app(declare).check().unwrap_err()
}

fn windowed(windows: Tumbling, store: &WindowStore<String, u64>) -> impl FnOnce(&mut App) {
    let store = store.clone();
    move |app| {
        app.source(&text("in"))
            .group_by_key()
            .windowed_by(windows)
            .count(&store)
            .to_stream()
            .map(|n| n.to_string())
            .for_each(|_, _| {});
    }
}

#[test]
fn windows_that_can_not_be_are_refused_by_name() {
    let hour = Duration::from_secs(3600);
    let store = WindowStore::<String, u64>::plain("counts");
    let text = |windows, store: &_| error(windowed(windows, store)).to_string();
    let empty = text(Tumbling::of(Duration::ZERO), &store);
    let expected = "the windows of the store counts: windows of 0ns are too short";
    assert!(empty.starts_with(expected), "{empty}");
    let graceful = Tumbling::of(hour).grace(hour);
    let short = text(graceful, &store.clone().retention(hour));
    assert_eq!(
        short,
        "the store counts keeps windows for 3600s after their start, but they accept records for \
         7200s (size plus grace). Remove `.retention(..)`, or make it at least that long"
    );
    let long = app(windowed(graceful, &store.clone().retention(2 * hour)));
    assert!(long.check().is_ok());
    let endless = text(Tumbling::of(hour), &store.retention(Duration::MAX));
    assert!(endless.contains("a retention of"), "{endless}");
}

#[test]
fn a_store_of_a_closure_has_to_say_how_long_it_keeps_windows() {
    let error = error(|app| {
        let store = app.store(&WindowStore::<String, u64>::plain("seen"));
        app.source(&text("in"))
            .with_store(&store)
            .for_each(|_, _| {});
    });
    let store = "seen".into();
    assert_eq!(error.mistakes(), [Mistake::NoRetention { store }]);
}

#[test]
fn a_name_is_one_store_of_one_kind() {
    let error = error(|app| {
        let plain = app.store(&OrderedStore::<u64, u64>::plain("s"));
        let windows = Tumbling::of(Duration::from_secs(1));
        windowed(windows, &WindowStore::plain("s"))(app);
        app.source(&text("in"))
            .with_store(&plain)
            .for_each(|_, _| {});
    });
    assert_eq!(
        error.to_string(),
        "two stores are called s. Give one of them another name. To share one store, declare it once, and pass the \
         handle of `app.store(..)` or the same table to both steps"
    );
}

#[test]
fn the_key_alone_decides_the_partition_of_a_windowed_key() {
    use crate::codec::{Decode, Encode, Encoded, Field, Part, TimeWindowed};
    use crate::windows::{Window, Windowed};
    let codec = TimeWindowed::of(Duration::from_millis(10));
    let field = Field::bare("t", Part::Key);
    let decode =
        |bytes: &[u8]| -> Result<Windowed<String>, _> { codec.decode(Some(bytes), &field) };
    let key = Windowed {
        key: "zürich".to_owned(),
        window: Window {
            start: Timestamp(1_230),
            end: Timestamp(1_240),
        },
    };
    let mut bytes = Vec::new();
    assert_eq!(
        codec.encode(&key, &mut bytes, &field).unwrap(),
        Encoded::Bytes
    );
    // `TimeWindowedSerializer`: the key, then the start as a `long`.
    let expected = ["zürich".as_bytes(), &1_230_i64.to_be_bytes()].concat();
    assert_eq!(bytes, expected);
    assert_eq!(decode(&bytes).unwrap(), key);
    assert_eq!(
        &bytes[..Encode::<Windowed<String>>::deciding_bytes(&codec, &bytes)],
        "zürich".as_bytes()
    );
    let short = decode(b"abc").unwrap_err().to_string();
    assert_eq!(short, "not a key in a window: it has fewer than 8 bytes");

    partition_of_key(codec, &key, &bytes);
}

#[test]
fn the_key_alone_decides_the_partition_of_a_key_in_a_session() {
    use crate::codec::{Decode, Encode, Encoded, Field, Part, Plain, SessionWindowed};
    use crate::windows::{Window, Windowed};
    let codec = SessionWindowed::of(Plain);
    let field = Field::bare("t", Part::Key);
    let decode =
        |bytes: &[u8]| -> Result<Windowed<String>, _> { codec.decode(Some(bytes), &field) };
    let key = Windowed {
        key: "zürich".to_owned(),
        window: Window {
            start: Timestamp(1_230),
            end: Timestamp(1_241),
        },
    };
    let mut bytes = Vec::new();
    let encoded = codec.encode(&key, &mut bytes, &field).unwrap();
    assert_eq!(encoded, Encoded::Bytes);
    // `SessionKeySchema`: the key, then the times of the last and the first record as a `long` each.
    let expected = b"z\xc3\xbcrich\0\0\0\0\0\0\x04\xd8\0\0\0\0\0\0\x04\xce";
    assert_eq!(bytes, expected);
    assert_eq!(decode(&bytes).unwrap(), key);
    let deciding = Encode::<Windowed<String>>::deciding_bytes(&codec, &bytes);
    assert_eq!(&bytes[..deciding], "zürich".as_bytes());
    for len in 0..16 {
        let short = decode(&bytes[..len]).unwrap_err().to_string();
        let expected = "not a key in a session: the key has fewer than 16 bytes";
        assert_eq!(short, expected);
    }
    partition_of_key(codec, &key, &bytes);
}

fn partition_of_key<C>(codec: C, key: &crate::windows::Windowed<String>, bytes: &[u8])
where
    C: crate::codec::Encode<crate::windows::Windowed<String>>,
{
    use crate::codec::Plain;
    use crate::windows::Windowed;
    use eos_protocol::partition_for;
    let mut scratch = super::Scratch::default();
    let topic = Topic::<Windowed<String>, String, _, _>::with("t", codec, Plain);
    let headers = crate::Headers::new();
    scratch
        .write(0, &topic, (key, None), &"v".to_owned(), None, headers)
        .unwrap();
    let out = scratch.get(0, &[7], eos_protocol::Partition::ZERO).unwrap();
    assert_eq!(out.partition, partition_for("zürich".as_bytes(), 7));
    assert_ne!(out.partition, partition_for(bytes, 7));
}

#[test]
fn two_stages_may_not_share_a_changelog() {
    let mut app = App::new("orders");
    for (topic, store) in [("orders-eu", "one"), ("eu", "two")] {
        app.source(&text(topic))
            .group_by_key()
            .count(&crate::KeyValueStore::plain(store))
            .to(&Topic::plain("out"));
    }
    let error = app.check().unwrap_err().to_string();
    assert!(error.contains("orders-eu-changelog"), "{error}");
}
