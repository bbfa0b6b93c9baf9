//! The selection of ids.

use eos_core::codec::{Json, Plain};
use eos_core::errors::WorkerError;
use eos_core::identity::{Dedup, SeenIds, presets};
use eos_core::{App, Error, ErrorPolicy, Timestamp, Topic};
use eos_testkit::rng::Rng;
use eos_testkit::{Input, TestDriver};
use serde::{Deserialize, Serialize};

use super::{BEGIN, app, app_with, five_minutes, ids, input, minutes, output, pipe};

#[test]
fn ids_come_from_headers_keys_and_contents() {
    let header = |id: &[u8], value: &str| Input::<String, String>::new("k", value).header("id", id);
    let by_header = || {
        app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
            dedup.by_header("id")
        })
    };
    let mut driver = TestDriver::new(by_header());
    let long = vec![b'x'; 1_000_000];
    let mut longer = long.clone();
    longer.push(b'y');
    for (id, value) in [
        (&b"1"[..], "a"),
        (b"1", "b"),
        // Not UTF-8.
        (&[0xff, 0xfe], "c"),
        (&[0xff, 0xfe], "d"),
        (&[0xff, 0xfd], "e"),
        (&long, "f"),
        (&long, "g"),
        (&longer, "h"),
    ] {
        driver.pipe_input(&input(), header(id, value));
    }
    assert_eq!(ids(&mut driver), ["a", "c", "e", "f", "h"]);
    let by_key = app_with(&five_minutes(), ErrorPolicy::fail(), Dedup::by_key);
    let mut driver = TestDriver::new(by_key);
    pipe(&mut driver, &[("1", "a", 0), ("2", "b", 1), ("1", "c", 2)]);
    assert_eq!(ids(&mut driver), ["a", "b"]);

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Cart {
        customer: String,
        cents: u64,
        sent: u64,
    }
    let carts = || Topic::<String, Cart, Plain, Json>::with("carts", Plain, Json);
    let kept = || Topic::<String, Cart, Plain, Json>::with("kept", Plain, Json);
    let mut app = App::new("a");
    app.source(&carts())
        .dedup(&five_minutes())
        .by_content("checkout", |cart, id| {
            id.add(&cart.customer).add(cart.cents)
        })
        .to(&kept());
    let mut driver = TestDriver::new(app);
    for (customer, cents, sent) in [
        ("ada", 11, 1),
        ("ada", 11, 2),
        ("ada1", 1, 3),
        ("ada", 12, 4),
    ] {
        let customer = customer.to_owned();
        let cart = Cart {
            customer,
            cents,
            sent,
        };
        // The time of the record is not a part of the id.
        let time = Timestamp(BEGIN + sent.cast_signed() * 1_000);
        driver.pipe_at(&carts(), "k", cart, time);
    }
    let sent = driver
        .read_pairs(&kept())
        .into_iter()
        .map(|(_, cart)| cart.sent);
    assert_eq!(sent.collect::<Vec<_>>(), [1, 3, 4]);
}

/// All records with an empty header would be duplicates of the first one.
#[test]
fn an_empty_header_is_no_id() {
    let empty =
        |name: &str, value: &str| Input::<String, String>::new("k", value).header(name, b"");
    let failing = app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
        dedup.by_header("id")
    });
    let error = TestDriver::new(failing)
        .try_pipe(&input(), empty("id", "a"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the record has no id (store seen). Set the id in the producer"),
        "{error}"
    );
    let passing = app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
        dedup.pass_without_id().by_header("id")
    });
    let mut driver = TestDriver::new(passing);
    driver.pipe_all(&input(), [empty("id", "a"), empty("id", "b")]);
    assert_eq!(ids(&mut driver), ["a", "b"]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_missing_id, 2);

    // The value takes the place of an empty header.
    let queue = presets::sqs_fifo::<String, String>("seen");
    let mut app = App::new("a");
    app.source(&input())
        .dedup_as(queue.allow_identical_payloads_to_collapse())
        .only_new()
        .to(&output());
    let mut driver = TestDriver::new(app);
    let header = "MessageDeduplicationId";
    for value in ["a", "b", "a"] {
        driver.pipe_input(&input(), empty(header, value));
    }
    assert_eq!(ids(&mut driver), ["a", "b"]);
}

#[test]
fn a_key_or_a_tenant_may_have_a_megabyte() {
    let long = |last: char| format!("{}{last}", "x".repeat(999_999));
    let (x, y) = (long('x'), long('y'));
    let mut driver = TestDriver::new(app(&five_minutes()));
    for key in [&x, &x, &y] {
        driver.pipe(&input(), key.as_str(), "a");
    }
    let kept = driver.read_pairs(&output()).into_iter();
    let ends = kept.map(|(mut key, _)| key.pop());
    assert_eq!(ends.collect::<Vec<_>>(), [Some('x'), Some('y')]);

    let of_tenants = app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
        let part = |value: &String, at: usize| value.split(' ').nth(at).map(str::to_owned);
        dedup
            .tenant(move |value| part(value, 0))
            .by(move |value| part(value, 1))
    });
    let mut driver = TestDriver::new(of_tenants);
    for tenant in [&x, &x, &y] {
        driver.pipe(&input(), "k", format!("{tenant} a"));
    }
    let kept = ids(&mut driver).into_iter();
    let ends = kept.map(|value| value.chars().rev().nth(2));
    assert_eq!(ends.collect::<Vec<_>>(), [Some('x'), Some('y')]);
    assert_eq!(driver.metrics().unwrap().totals.dedup_duplicates, 1);
}

/// The row of an id contains the key. A key that fills its own record leaves no room for the rest of the row.
#[test]
fn a_record_whose_key_does_not_fit_into_the_changelog_fails_alone() {
    let key = "x".repeat(1_048_500);
    let record = || Input::<String, String>::new(key.as_str(), "a");
    let mut driver = TestDriver::new(app(&five_minutes()));
    let error = driver.try_pipe(&input(), record()).unwrap_err().to_string();
    assert!(
        error.contains("the store seen: a key of store")
            && error.contains("bytes in the changelog, but its max.message.bytes is 1048588"),
        "{error}"
    );
    let skipping = app_with(&five_minutes(), ErrorPolicy::skip(), |dedup| {
        dedup.by(String::clone)
    });
    let mut driver = TestDriver::new(skipping);
    driver.pipe_input(&input(), record());
    pipe(&mut driver, &[("k", "b", 0), ("k", "b", 1)]);
    assert_eq!(ids(&mut driver), ["b"]);
    assert_eq!(driver.metrics().unwrap().totals.skipped, 1);
}

/// R49. Two heartbeats are equal as a whole, and differ in the field that the id names.
#[test]
fn equal_values_collapse_only_if_the_program_permits_it() {
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Beat {
        device: String,
        sequence: u64,
    }
    let beats = || Topic::<String, Beat, Plain, Json>::with("beats", Plain, Json);
    let kept = || Topic::<String, Beat, Plain, Json>::with("kept", Plain, Json);
    let kept_of = |by_field: bool, sequences: &[u64]| {
        let mut app = App::new("a");
        let dedup = app.source(&beats()).dedup(&five_minutes());
        let new = match by_field {
            true => dedup.by_content("beat", |beat, id| id.add(&beat.device).add(beat.sequence)),
            false => dedup.by_value().allow_identical_payloads_to_collapse(),
        };
        new.to(&kept());
        let mut driver = TestDriver::new(app);
        for &sequence in sequences {
            let device = "d".to_owned();
            driver.pipe(&beats(), "k", Beat { device, sequence });
        }
        driver.count(&kept())
    };
    assert_eq!(kept_of(true, &[1, 2, 2]), 2);
    assert_eq!(
        kept_of(false, &[0, 0, 0]),
        1,
        "no sequence tells them apart"
    );
    assert_eq!(kept_of(false, &[0, 1]), 2);
}

/// R66: a mirror writes some records a second time, later and at other offsets. A header contains the id.
#[test]
fn records_of_a_mirrored_topic_pass_once() {
    let mirror = || Topic::<String, String>::plain("mirror");
    let mut app = App::new("a");
    app.source(&input())
        .merge(app.source(&mirror()))
        .dedup(&five_minutes())
        .by_header("id")
        .to(&output());
    let driver = TestDriver::builder().partitions("in", 3);
    let mut driver = driver.partitions("mirror", 3).start(app);
    let mut rng = Rng::new(66);
    let mut mirrored = 0;
    for n in 0..600_i64 {
        let record = |at: i64| {
            Input::<String, String>::new(format!("k{}", n % 7), n.to_string())
                .header("id", n.to_string())
                .at(Timestamp(BEGIN + at))
        };
        match rng.one_in(2) {
            true => driver.pipe_input(&input(), record(n)),
            false => driver.pipe_input(&mirror(), record(n)),
        }
        if rng.one_in(20) {
            mirrored += 1;
            let copy = record(n + rng.between(0, 60_000));
            match rng.one_in(2) {
                true => driver.pipe_input(&input(), copy),
                false => driver.pipe_input(&mirror(), copy),
            }
        }
    }
    assert!(mirrored > 15, "{mirrored}");
    let mut ids = ids(&mut driver);
    ids.sort_by_key(|id| id.parse::<u32>().unwrap());
    let all: Vec<_> = (0..600).map(|n| n.to_string()).collect();
    assert_eq!(ids, all);
    assert_eq!(driver.metrics().unwrap().totals.dedup_duplicates, mirrored);
}

/// The id of a CloudEvent is unique only with its source.
#[test]
fn a_cloud_event_is_its_source_and_its_id() {
    let event = |source: Option<&str>, id: Option<&str>, value: &str| {
        let mut input = Input::<String, String>::new("k", value);
        for (name, value) in [("ce_source", source), ("ce_id", id)] {
            if let Some(value) = value {
                input = input.header(name, value);
            }
        }
        input
    };
    let app = app_with(&five_minutes(), ErrorPolicy::skip(), |dedup| {
        dedup.by_cloud_event_headers()
    });
    let mut driver = TestDriver::new(app);
    let (a, b) = (Some("/a"), Some("/ab"));
    for input in [
        event(a, Some("1"), "first"),
        event(a, Some("1"), "again"),
        event(b, Some("1"), "other source"),
        event(a, Some("b1"), "the same letters"),
        event(None, Some("1"), "no source"),
        event(a, None, "no id"),
        event(a, Some(""), "empty id"),
    ] {
        driver.pipe_input(&super::input(), input);
    }
    assert_eq!(
        ids(&mut driver),
        ["first", "other source", "the same letters"]
    );
    assert_eq!(driver.metrics().unwrap().totals.skipped, 3);

    let structured = app_with(&five_minutes(), ErrorPolicy::skip(), |dedup| {
        dedup.by_cloud_event(|value| {
            let (source, id) = value.split_once('#').unwrap_or_default();
            (source.to_owned(), id.to_owned())
        })
    });
    let mut driver = TestDriver::new(structured);
    let events = ["a#1", "a#1", "ab#1", "a#b1", "#1", "a#"];
    pipe(&mut driver, &events.map(|event| ("k", event, 0)));
    assert_eq!(ids(&mut driver), ["a#1", "ab#1", "a#b1"]);
}

/// Headers are bytes, and may not be text. Two sources or ids are equal only if all their bytes are equal. No byte separates the
/// source from the id.
#[test]
fn a_cloud_event_whose_headers_are_not_text_has_an_id() {
    let event = |source: &[u8], id: &[u8], value: &str| {
        let input = Input::<String, String>::new("k", value);
        input.header("ce_source", source).header("ce_id", id)
    };
    let app = || {
        app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
            dedup.by_cloud_event_headers()
        })
    };
    let mut driver = TestDriver::new(app());
    for input in [
        event(b"/a", b"\xff\xfe", "first"),
        event(b"/a", b"\xff\xfe", "again"),
        // As text, both ids would be equal.
        event(b"/a", b"\xff\xfd", "other id"),
        event(b"\xff", b"1", "first source"),
        event(b"\xfe", b"1", "other source"),
        event(b"\xff", b"1", "again"),
        event(b"/a\xff", b"\xfe", "other border"),
        event(b"/a\0", b"b", "zero in the source"),
        event(b"/a", b"\0b", "zero in the id"),
    ] {
        driver.pipe_input(&super::input(), input);
    }
    let expected = [
        "first",
        "other id",
        "first source",
        "other source",
        "other border",
        "zero in the source",
        "zero in the id",
    ];
    assert_eq!(ids(&mut driver), expected);
    for (source, id) in [(&b""[..], &b"\xff"[..]), (b"\xff", b""), (b"", b"")] {
        let error = TestDriver::new(app())
            .try_pipe(&super::input(), event(source, id, "empty"))
            .unwrap_err();
        let Error::Worker(WorkerError::Record { .. }) = &*error else {
            panic!("{error:?}");
        };
        let text = error.to_string();
        assert!(text.contains("the record has no id (store seen)"), "{text}");
    }
}

/// R68: an id that names its context.
#[test]
fn a_business_id_separates_the_steps_of_an_order() {
    let app = app_with(&five_minutes(), ErrorPolicy::fail(), |dedup| {
        dedup.by(|value| format!("order-12345.{value}"))
    });
    let mut driver = TestDriver::new(app);
    let steps = ["payment", "shipment", "payment"];
    pipe(&mut driver, &steps.map(|step| ("k", step, 0)));
    assert_eq!(ids(&mut driver), ["payment", "shipment"]);
}

#[test]
fn keys_of_any_codec_are_a_scope() {
    #[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
    struct Shop {
        country: String,
        number: u32,
    }
    let orders = || Topic::<Shop, String, Json, Plain>::named("orders");
    let kept = || Topic::<Shop, String, Json, Plain>::named("kept");
    let mut app = App::new("a");
    app.source(&orders())
        .dedup(&SeenIds::with("seen", Json).fixed(minutes(5)))
        .by(String::clone)
        .to(&kept());
    let mut driver = TestDriver::new(app);
    let shop = |number| Shop {
        country: "ch".to_owned(),
        number,
    };
    for number in [1, 2, 1] {
        driver.pipe(&orders(), shop(number), "order");
    }
    let kept = driver.read_pairs(&kept()).into_iter();
    let shops: Vec<_> = kept.map(|(shop, _)| shop.number).collect();
    assert_eq!(shops, [1, 2]);
}
