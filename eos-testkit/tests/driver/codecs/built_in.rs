//! The codecs that eos brings along.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::Duration;

use eos_core::codec::{Json, Plain, PlainType, SessionWindowed, TimeWindowed};
use eos_core::spi::stepped::codecs;
use eos_core::windows::{Tumbling, Window, Windowed};
use eos_core::{Timestamp, Topic};
use eos_testkit::conformance::codecs::{
    Violation, check_keys, check_ordered_keys, check_partitions, check_prefixes, check_refusals,
    check_values,
};
use serde::{Deserialize, Serialize};

const TEXTS: [&str; 8] = [
    "",
    "a",
    "a\0",
    "a\0\u{1}",
    "ab",
    "zürich",
    "\u{ffff}",
    "\u{10000}",
];
const BYTES: [&[u8]; 8] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"\x01",
    b"a",
    b"a\xff",
    b"\xff\xff",
];

fn texts() -> Vec<String> {
    TEXTS.map(str::to_owned).to_vec()
}

fn bytes() -> Vec<Vec<u8>> {
    BYTES.map(<[u8]>::to_vec).to_vec()
}

#[track_caller]
fn plain<T: PlainType + PartialEq + Debug + Clone>(values: &[T]) {
    let codec = Plain;
    check_values(&codec, values.to_vec()).unwrap();
    check_keys(&codec, values.to_vec()).unwrap();
    let codec = Plain;
    let maybe = values.iter().cloned().map(Some).chain([None]);
    check_keys(&codec, maybe).unwrap();
}

#[test]
fn plain_types() {
    plain(&texts());
    plain(&["x".repeat(70_000)]);
    plain(&bytes());
    plain(&[0, 1, -1, i32::MIN, i32::MAX]);
    plain(&[0, 1, -1, i64::MIN, i64::MAX]);
    plain(&[0, 1, u32::MAX]);
    plain(&[0, 1, u64::MAX]);
    check_keys(&Plain, [()]).unwrap();
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    amount: i64,
    note: Option<String>,
    lines: Vec<(u32, Kind)>,
    tags: BTreeMap<String, bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Kind {
    Book,
    Other { name: String },
    Many(Vec<Kind>),
}

fn orders() -> Vec<Order> {
    let small = Order {
        id: String::new(),
        amount: i64::MIN,
        note: None,
        lines: Vec::new(),
        tags: BTreeMap::new(),
    };
    let other = Kind::Other {
        name: "\"quoted\" \\ \u{7f}".to_owned(),
    };
    let large = Order {
        id: "zürich\0".to_owned(),
        amount: i64::MAX,
        note: Some("null".to_owned()),
        lines: vec![
            (1, Kind::Book),
            (2, other.clone()),
            (3, Kind::Many(vec![other])),
        ],
        tags: BTreeMap::from([(String::new(), true), ("b".to_owned(), false)]),
    };
    vec![small, large]
}

#[test]
fn json_of_a_struct() {
    check_values(&Json, orders()).unwrap();
    check_keys(&Json, orders()).unwrap();
    check_values(&Json, orders().into_iter().map(Some).chain([None])).unwrap();
}

#[test]
fn json_of_what_is_small() {
    check_keys(&Json, texts()).unwrap();
    check_keys(&Json, [0, 1, -1, i32::MIN]).unwrap();
    check_keys(&Json, [0, u64::MAX]).unwrap();
    check_keys(&Json, [None, Some(true), Some(false)]).unwrap();
    check_keys(&Json, [()]).unwrap();
    check_keys(&Json, [(1, "a".to_owned()), (2, "b".to_owned())]).unwrap();
    check_values(
        &Json,
        [serde_json::Value::Null, serde_json::json!({"a": [1, "b"]})],
    )
    .unwrap();
}

#[test]
fn json_of_floats() {
    // Floats that need 17 digits, extreme values, and arbitrary sums.
    let digits = [31.245_270_191_439_438, 121.487_919_511_619_45, 0.1 + 0.2];
    let ends = [0.0, f64::MIN_POSITIVE, f64::MAX, f64::MIN, f64::EPSILON];
    let sums = (1..200).map(|n| f64::from(n) * 0.1 + 1.0 / f64::from(n));
    let mut all: Vec<f64> = digits.into_iter().chain(ends).chain(sums).collect();
    check_values(&Json, all.iter().map(|float| vec![*float])).unwrap();
    all.push(-0.5);
    check_keys(&Json, all).unwrap();
    // There is none in JSON.
    let found = check_values(&Json, [f64::NAN]).unwrap_err();
    assert!(matches!(found, Violation::Unreadable { .. }), "{found}");
}

#[test]
fn json_in_the_order_of_a_hash_map_is_a_value() {
    let map: HashMap<String, u32> = texts().into_iter().zip(0..).collect();
    check_values(&Json, [map]).unwrap();
}

#[test]
fn json_that_can_not_be_written_is_refused() {
    check_refusals(&Json, [BTreeMap::from([((1, 2), 3)])]).unwrap();
}

#[test]
fn keys_in_windows() {
    let hour = Duration::from_secs(3600);
    let at = |start| Tumbling::of(hour).at(Timestamp(start));
    let windowed = |key: &str, start| Windowed {
        key: key.to_owned(),
        window: at(start),
    };
    let starts = [0, 3_600_000, -3_600_000];
    let keys = || {
        TEXTS
            .iter()
            .flat_map(|key| starts.map(|start| windowed(key, start)))
    };
    let key = |windowed: &Windowed<String>| windowed.key.clone();
    check_partitions(&TimeWindowed::of(hour), keys(), key).unwrap();
    check_partitions(&TimeWindowed::with(Json, hour), keys(), key).unwrap();
    let null = Windowed {
        key: None::<String>,
        window: at(0),
    };
    check_refusals(&TimeWindowed::of(hour), [null]).unwrap();
}

#[test]
fn keys_in_sessions() {
    let spans = [(0, 0), (0, 5), (5, 5), (-7, 3_600_000)];
    let keys = || {
        TEXTS.iter().flat_map(|key| {
            spans.map(|(first, last)| Windowed {
                key: (*key).to_owned(),
                window: Window {
                    start: Timestamp(first),
                    end: Timestamp(last + 1),
                },
            })
        })
    };
    let key = |windowed: &Windowed<String>| windowed.key.clone();
    check_partitions(&SessionWindowed::of(Plain), keys(), key).unwrap();
    check_partitions(&SessionWindowed::of(Json), keys(), key).unwrap();
    let null = Windowed {
        key: None::<String>,
        window: Tumbling::of(Duration::from_secs(1)).at(Timestamp(0)),
    };
    check_refusals(&SessionWindowed::of(Plain), [null]).unwrap();
}

#[test]
fn windows_of_windows() {
    let hour = Duration::from_secs(3600);
    let codec = TimeWindowed::with(TimeWindowed::of(hour), hour);
    let at = |start| Tumbling::of(hour).at(Timestamp(start));
    let keys = [("a", 0, 0), ("a", 1, 0), ("a", 0, 1), ("b", 0, 0)];
    let keys = keys.map(|(key, inner, outer)| Windowed {
        key: Windowed {
            key: key.to_owned(),
            window: at(inner),
        },
        window: at(outer),
    });
    check_partitions(&codec, keys, |outer| outer.key.key.clone()).unwrap();
}

#[test]
fn the_codecs_of_a_topic() {
    let topic = Topic::<String, Option<Order>>::json("orders");
    let (keys, values) = codecs(&topic);
    check_keys(keys, texts()).unwrap();
    check_values(values, orders().into_iter().map(Some)).unwrap();
}

#[test]
fn ordered_keys() {
    check_ordered_keys(texts()).unwrap();
    check_ordered_keys(bytes()).unwrap();
    check_ordered_keys([0, 1, -1, 255, 256, -256, i32::MIN, i32::MAX]).unwrap();
    check_ordered_keys([0, 1, -1, 255, 256, -256, i64::MIN, i64::MAX]).unwrap();
    check_ordered_keys([0, 1, 255, 256, u32::MAX]).unwrap();
    check_ordered_keys([0, 1, 255, 256, u64::MAX]).unwrap();
}

fn pairs<A: Clone, B: Clone>(firsts: &[A], seconds: &[B]) -> Vec<(A, B)> {
    let firsts = firsts.iter();
    let pairs = firsts.flat_map(|a| seconds.iter().map(|b| (a.clone(), b.clone())));
    pairs.collect()
}

#[test]
fn ordered_pairs() {
    check_ordered_keys(pairs(&texts(), &[0_i64, -1, i64::MAX])).unwrap();
    check_ordered_keys(pairs(&bytes(), &bytes()[..5])).unwrap();
    let inner = pairs(&bytes()[..5], &[0_u32, 1]);
    check_ordered_keys(pairs(&inner, &bytes()[..5])).unwrap();
    check_ordered_keys(pairs(&bytes()[..5], &inner)).unwrap();
}

#[test]
fn what_ordered_keys_begin_with() {
    let text = |key: &String, prefix: &str| key.starts_with(prefix);
    check_prefixes(texts(), TEXTS, text).unwrap();
    let bytewise = |key: &Vec<u8>, prefix: &[u8]| key.starts_with(prefix);
    check_prefixes(bytes(), BYTES, bytewise).unwrap();
    let visits = pairs(&texts(), &[0_i64, 97]);
    check_prefixes(visits, &texts(), |(first, _), prefix| first == prefix).unwrap();
    let inner = pairs(&bytes()[..5], &bytes()[..5]);
    let outer = pairs(&inner, &bytes()[..5]);
    check_prefixes(outer, &inner, |(first, _), prefix| first == prefix).unwrap();
}
