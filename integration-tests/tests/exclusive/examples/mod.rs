//! Examples 03 to 05, 07, 08 and 11 to 13. The tests run the commands in their headers, and check their topics.

mod failures;

use std::collections::HashMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use integration_tests::data::{self, City};
use integration_tests::user::{INSTALL, Pipeline, User, blocks};
use kafka_launcher::skipped;
use kafka_wire::{Client, Isolation, Producer, Record};
use serde::Deserialize;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

const PIPELINES: [Pipeline<'static>; 8] = [
    Pipeline {
        bin: "03-errors",
        app: "errors-v1",
        inputs: &["cities", "tag-orders"],
        own_outputs: &["tag-orders-dlq"],
        results: &[],
    },
    Pipeline {
        bin: "04-two-topics",
        app: "two-topics-v1",
        inputs: &["departures", "arrivals"],
        own_outputs: &[],
        results: &[],
    },
    Pipeline {
        bin: "05-configuration",
        app: "configuration-v1",
        inputs: &["cities"],
        own_outputs: &[],
        results: &[],
    },
    Pipeline {
        bin: "07-page-views",
        app: "page-views-v1",
        inputs: &["page-views"],
        own_outputs: &["page-views-v1-pages-repartition"],
        results: &[],
    },
    Pipeline {
        bin: "08-enriched-orders",
        app: "enriched-orders-v1",
        inputs: &["customers", "orders"],
        own_outputs: &["enriched-orders-v1-orders-by-customer-repartition"],
        results: &[],
    },
    Pipeline {
        bin: "11-payments-dedup",
        app: "payments-dedup-v1",
        inputs: &["payments"],
        own_outputs: &[],
        results: &[],
    },
    Pipeline {
        bin: "12-enrich-async",
        app: "enrich-async-v1",
        inputs: &["orders"],
        own_outputs: &[],
        results: &[],
    },
    Pipeline {
        bin: "13-dead-letters",
        app: "dead-letters-v1",
        inputs: &[],
        own_outputs: &["tea-orders"],
        // The replay starts later, so committed inputs alone do not end the example.
        results: &[("paid", 6)],
    },
];

#[test]
fn examples_do_what_their_headers_say() -> Result<()> {
    let _alone = crate::alone();
    if skipped()? {
        return Ok(());
    }
    let user = User::new(&PIPELINES)?;
    user.run(INSTALL)?;
    user.run("eos kafka up")?;
    let mut client = Client::connect(&user.bootstrap()?, PATIENCE)?;
    errors(&user, &mut client).context("03-errors")?;
    two_topics(&user, &mut client).context("04-two-topics")?;
    configuration(&user, &mut client).context("05-configuration")?;
    page_views(&user, &mut client).context("07-page-views")?;
    enriched_orders(&user, &mut client).context("08-enriched-orders")?;
    failures::payments_dedup(&user, &mut client).context("11-payments-dedup")?;
    failures::enrich_async(&user, &mut client).context("12-enrich-async")?;
    failures::dead_letters(&user, &mut client).context("13-dead-letters")
}

/// Runs the commands of an example's header. Returns the output of each command.
fn follow(user: &User<'_>, example: &str) -> Result<HashMap<String, String>> {
    let source = kafka_launcher::workspace_root().join(format!("examples/{example}/main.rs"));
    let header = fs::read_to_string(source)?;
    let header = header.lines().map_while(|line| line.strip_prefix("//!"));
    let header: String = header.map(|line| format!("{}\n", line.trim())).collect();
    let mut printed = HashMap::new();
    for line in blocks(&header, "sh").iter().flat_map(|block| block.lines()) {
        eprintln!("$ {line}");
        printed.insert(line.to_owned(), user.run(line)?);
    }
    ensure!(printed.len() >= 3, "{example} lost its commands");
    Ok(printed)
}

fn said<'p>(printed: &'p HashMap<String, String>, part: &str) -> Result<&'p str> {
    let mut lines = printed.iter().filter(|(line, _)| line.contains(part));
    lines
        .next()
        .map(|(_, said)| &said[..])
        .context(part.to_owned())
}

/// Returns all committed records of a topic.
fn committed(client: &mut Client, topic: &str) -> Result<Vec<Record>> {
    let mut all = Vec::new();
    client.read_all(topic, Isolation::ReadCommitted, |_, record| {
        all.push(record.clone());
    })?;
    Ok(all)
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn errors(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "03-errors")?;
    let log = said(&printed, "--bin 03-errors")?;

    // The cities whose names can be cut after three bytes, and the one valid order.
    let cities = data::cities(None)?;
    let names = (0..10_000).map(|seq| &data::nth(&cities, seq).name);
    let (good, bad): (Vec<_>, Vec<_>) = names.partition(|name| name.get(..3).is_some());
    ensure!(!bad.is_empty(), "the bug never shows");
    let mut expected: Vec<String> = good.iter().map(|name| name[..3].to_owned()).collect();
    expected.push("OslOsl".to_owned());
    expected.sort();
    let tags = committed(client, "tags")?;
    let mut tags: Vec<_> = tags.iter().map(|tag| text(tag.value.as_deref())).collect();
    tags.sort();
    ensure!(
        tags == expected,
        "{} tags, not {}",
        tags.len(),
        expected.len()
    );

    let sent = committed(client, "tag-orders")?;
    let letters = committed(client, "tag-orders-dlq")?;
    ensure!(letters.len() == 4, "{letters:?}");
    for (order, exception, message) in [
        (
            "undecodable",
            "ValueDecodeError",
            "invalid type: string \"two\"",
        ),
        ("refused", "Failure", "Oslo ordered no copies"),
        ("panic", "Panic", "byte index 3"),
        ("oversize", "OversizeOutput", "max.message.bytes is"),
    ] {
        let of = |all: &[Record]| {
            let mut all = all.iter().filter(|r| text(r.key.as_deref()) == order);
            let first = all.next().cloned();
            first.with_context(|| format!("no {order}"))
        };
        let (sent, letter) = (of(&sent)?, of(&letters)?);
        ensure!(letter.value == sent.value, "it is the record as it was");
        ensure!(letter.timestamp == sent.timestamp);
        let header = |name: &str| {
            let name = format!("__streams.errors.{name}");
            let mut all = letter.headers.iter().filter(|(n, _)| *n == name);
            text(all.next().and_then(|(_, value)| value.as_deref()))
        };
        ensure!(header("exception") == exception, "{order}: {letter:?}");
        ensure!(header("message").contains(message), "{order}: {letter:?}");
        ensure!(header("topic") == "tag-orders");
        ensure!(header("offset") == sent.offset.to_string());
    }
    ensure!(log.matches("dead letter: ").count() == 4, "{log}");
    for part in [
        "a record failed and becomes a dead letter",
        "dead_letters=tag-orders-dlq",
        // Logged at the end.
        "stopped app=errors-v1 records_in=",
    ] {
        ensure!(log.contains(part), "{part:?} is not in {log}");
    }
    ensure!(!log.contains('\x1b'), "colours in a file: {log}");
    ensure!(
        !log.contains("GETPID"),
        "no warning of what every start does: {log}"
    );
    Ok(())
}

#[derive(Debug, PartialEq, Deserialize)]
struct Trip {
    from: Option<String>,
    to: String,
}

fn trips(client: &mut Client) -> Result<HashMap<String, Vec<Trip>>> {
    let mut by_region: HashMap<String, Vec<Trip>> = HashMap::new();
    for record in committed(client, "trips")? {
        let trip = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        by_region
            .entry(text(record.key.as_deref()))
            .or_default()
            .push(trip);
    }
    Ok(by_region)
}

/// Returns the expected trips: the departures and arrivals of each region, merged by time. Each trip begins at the last
/// departure. On a tie the departure comes first, because its topic was declared first.
fn expected_trips(client: &mut Client) -> Result<HashMap<String, Vec<Trip>>> {
    let mut events = Vec::new();
    for (topic, number) in [("departures", 0), ("arrivals", 1)] {
        for record in committed(client, topic)? {
            let city: City = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
            let at = (record.timestamp, number, record.offset);
            events.push((at, text(record.key.as_deref()), city.name));
        }
    }
    events.sort();
    let (mut left, mut trips) = (HashMap::new(), HashMap::new());
    for ((_, number, _), region, city) in events {
        if number == 0 {
            left.insert(region, city);
            continue;
        }
        let from = left.get(&region).cloned();
        let trip = Trip { from, to: city };
        trips.entry(region).or_insert_with(Vec::new).push(trip);
    }
    Ok(trips)
}

fn two_topics(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "04-two-topics")?;
    let trips_read = said(&printed, "read trips")?;
    ensure!(trips_read.contains("\"from\":"), "{trips_read}");
    let expected = expected_trips(client)?;
    let known = expected
        .values()
        .flatten()
        .filter(|trip| trip.from.is_some());
    ensure!(known.count() > 1_000, "too few trips have an origin");
    let seen = trips(client)?;
    for (region, expected) in &expected {
        let seen = seen.get(region).map_or(&[][..], Vec::as_slice);
        ensure!(seen == expected, "{region}: {seen:?}, not {expected:?}");
    }

    // After a restart, the last departures are forgotten, as the header of the example says. No trip has a start.
    let generator = "cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 \
                     --topic arrivals --records 1000";
    user.run(generator)?;
    user.run("cargo run -p eos-examples --bin 04-two-topics -- --kafka")?;
    let before = seen.values().map(Vec::len).sum::<usize>();
    let after = trips(client)?;
    let all = after.values().map(Vec::len).sum::<usize>();
    ensure!(all == before + 1_000, "{all} trips, not {before} + 1000");
    let fresh = after.iter().flat_map(|(region, trips)| {
        let known = seen.get(region).map_or(0, Vec::len);
        &trips[known..]
    });
    for trip in fresh {
        ensure!(trip.from.is_none(), "remembered over a restart: {trip:?}");
    }
    Ok(())
}

fn configuration(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "05-configuration")?;
    let log = said(&printed, "--bin 05-configuration")?;
    for part in [
        "Source: KSTREAM-SOURCE-0000000000 (topics: [cities])",
        "for consumers with isolation.level=read_committed",
        // The number from the file overrides the number in the program.
        "workers 2, records ",
    ] {
        ensure!(log.contains(part), "{part:?} is not in {log}");
    }
    let names = committed(client, "city-names")?.len();
    let cities = committed(client, "cities")?.len();
    ensure!(names == cities, "{names} names of {cities} cities");
    // The settings and their origins. The number of threads is from the file.
    for part in [
        "commit.interval.ms = \"50\" (in the program)",
        "num.stream.threads = \"2\" (",
        "05-configuration/eos.properties:2)",
    ] {
        ensure!(log.contains(part), "{part:?} is not in {log}");
    }

    let run = "cargo run -p eos-examples --bin 05-configuration -- --kafka";
    let log = user.run_with(&[("EOS_NUM_STREAM_THREADS", "3")], run)?;
    ensure!(log.contains("workers 3, "), "the environment wins: {log}");

    // With port 0, the app takes a free port and logs it.
    let serving = "cargo run -p eos-examples --features prometheus --bin 05-configuration";
    let log = user.run_with(&[("METRICS_PORT", "0")], serving)?;
    ensure!(
        log.contains("metrics at /metrics address=127.0.0.1:"),
        "{log}"
    );

    let log = user.run_with(&[("EOS_TREADS", "9")], run)?;
    let ignored = "unknown property EOS_TREADS; ignoring it";
    ensure!(log.matches(ignored).count() == 1, "{log}");

    let Err(error) = user.run_with(&[("EOS_COMIT_INTERVAL_MS", "5")], run) else {
        bail!("a misspelt property is ignored");
    };
    let text = format!("{error:?}");
    let hint = "Did you mean commit.interval.ms?";
    ensure!(text.contains(hint), "{text}");
    Ok(())
}

/// Returns the last count of each page and minute.
fn views(client: &mut Client) -> Result<HashMap<(String, i64), u64>> {
    let mut last = HashMap::new();
    for record in committed(client, "page-views-per-minute")? {
        let (key, count) = (
            record.key.unwrap_or_default(),
            record.value.unwrap_or_default(),
        );
        let (page, start) = key.split_last_chunk().context("no start of a window")?;
        let count = count.first_chunk().context("no count")?;
        let of = (text(Some(page)), i64::from_be_bytes(*start));
        last.insert(of, u64::from_be_bytes(*count));
    }
    Ok(last)
}

fn page_views(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "07-page-views")?;
    let read = said(&printed, "read page-views-per-minute")?;
    ensure!(read.contains("/books/sorting"), "{read}");
    let mut by_page = HashMap::new();
    for ((page, start), count) in views(client)? {
        ensure!(start % 60_000 == 0, "{start}");
        // The views may be in two minutes.
        *by_page.entry(page).or_insert(0) += count;
    }
    let expected = [("/books", 3), ("/", 2), ("/books/sorting", 1)];
    let expected = HashMap::from(expected.map(|(page, n)| (page.to_owned(), n)));
    ensure!(by_page == expected, "{by_page:?}");
    ensure!(committed(client, "late-page-views")?.is_empty());

    // Own times, later than all others: views in two minutes. After a restart, a view of the first minute again.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let minute = i64::try_from(since_1970)? / 60_000 * 60_000 + 600_000;
    for views in [
        [(0, "ada /noon"), (120_000, "alan /noon")],
        [(30_000, "late /noon"), (121_000, "grace /noon")],
    ] {
        let mut producer = Producer::new(&user.bootstrap()?)?;
        for (after_ms, view) in views {
            let (view, time) = (Some(view.as_bytes()), minute + after_ms);
            producer.send("page-views", 0, None, view, &[], time)?;
        }
        producer.flush()?;
        user.run("cargo run -p eos-examples --bin 07-page-views -- --kafka")?;
    }
    let counted = views(client)?.into_iter();
    let counted = counted.filter(|((page, _), _)| page == "/noon");
    let counted: HashMap<i64, u64> = counted.map(|((_, at), n)| (at - minute, n)).collect();
    ensure!(
        counted == HashMap::from([(0, 1), (120_000, 2)]),
        "{counted:?}"
    );
    let late = committed(client, "late-page-views")?;
    let late: Vec<_> = (late.iter())
        .map(|r| (text(r.key.as_deref()), text(r.value.as_deref())))
        .collect();
    ensure!(
        late == [("/noon".to_owned(), "late /noon".to_owned())],
        "{late:?}"
    );
    Ok(())
}

#[derive(Deserialize)]
struct Enriched {
    item: String,
    to: Option<String>,
}

/// Returns the customers of each item, in the order of each customer's orders.
fn enriched(client: &mut Client) -> Result<HashMap<String, Vec<Option<String>>>> {
    let mut by_item: HashMap<String, Vec<Option<String>>> = HashMap::new();
    for record in committed(client, "enriched-orders")? {
        let order: Enriched = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        by_item.entry(order.item).or_default().push(order.to);
    }
    Ok(by_item)
}

fn enriched_orders(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "08-enriched-orders")?;
    let read = said(&printed, "read enriched-orders")?;
    ensure!(read.contains("Emmy Noether, Göttingen"), "{read}");
    let ada = || Some("Ada Lovelace, London".to_owned());
    let grace = || Some("Grace Hopper, New York".to_owned());
    let emmy = || Some("Emmy Noether, Göttingen".to_owned());
    let first = [
        ("punched cards", vec![ada()]),
        ("chalk", vec![emmy()]),
        ("a nanosecond of wire", vec![grace()]),
        ("a tape without end", vec![None]),
        ("a loom", vec![ada()]),
    ];
    let expected = HashMap::from(first.map(|(item, to)| (item.to_owned(), to)));
    let seen = enriched(client)?;
    ensure!(seen == expected, "{seen:?}");

    // One customer moves and one is deleted. The others are as before the restart.
    user.run("printf 'ada:{\"name\":\"Ada\",\"city\":\"Ockham\"}\\ngrace:\\n' | eos kafka produce customers")?;
    user.run("eos kafka produce orders < examples/08-enriched-orders/orders.txt")?;
    user.run("cargo run -p eos-examples --bin 08-enriched-orders -- --kafka")?;
    let moved = || Some("Ada, Ockham".to_owned());
    let second = [
        ("punched cards", vec![ada(), moved()]),
        ("chalk", vec![emmy(), emmy()]),
        ("a nanosecond of wire", vec![grace(), None]),
        ("a tape without end", vec![None, None]),
        ("a loom", vec![ada(), moved()]),
    ];
    let expected = HashMap::from(second.map(|(item, to)| (item.to_owned(), to)));
    let seen = enriched(client)?;
    ensure!(seen == expected, "{seen:?}");
    Ok(())
}
