//! Examples 11 to 13: duplicates, calls that fail, and dead letters.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use integration_tests::user::User;
use kafka_wire::{Client, Record};
use serde_json::Value;

use super::{committed, follow, said, text};

/// Returns the values of each key, in order.
fn by_key<T>(
    client: &mut Client,
    topic: &str,
    value: impl Fn(&Record) -> Result<T>,
) -> Result<HashMap<String, Vec<T>>> {
    let mut found: HashMap<String, Vec<T>> = HashMap::new();
    for record in committed(client, topic)? {
        let key = text(record.key.as_deref());
        found.entry(key).or_default().push(value(&record)?);
    }
    Ok(found)
}

fn expected<T: Clone>(rows: &[(&str, &[T])]) -> HashMap<String, Vec<T>> {
    let rows = rows.iter();
    rows.map(|(key, values)| ((*key).to_owned(), values.to_vec()))
        .collect()
}

fn json(record: &Record) -> Result<Value> {
    Ok(serde_json::from_slice(
        record.value.as_deref().unwrap_or_default(),
    )?)
}

fn id(record: &Record) -> Result<String> {
    Ok(json(record)?["id"].as_str().unwrap_or_default().to_owned())
}

fn header(record: &Record, name: &str) -> String {
    let mut found = record.headers.iter().filter(|(it, _)| *it == name);
    text(found.next().and_then(|(_, value)| value.as_deref()))
}

pub(super) fn payments_dedup(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "11-payments-dedup")?;
    let read = said(&printed, "read accepted")?;
    ensure!(read.contains("\"p-4\""), "{read}");
    let own = |ids: &[&str]| ids.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let accepted = [
        ("ada", &own(&["p-1", "p-4"])[..]),
        // Another customer may use the same id.
        ("emmy", &own(&["p-2", "p-1"])),
        ("grace", &own(&["p-3"])),
    ];
    let accepted = expected(&accepted);
    let seen = by_key(client, "accepted", id)?;
    ensure!(seen == accepted, "{seen:?}");
    let once = [("ada", &own(&["p-1"])[..]), ("grace", &own(&["p-3"]))];
    let seen = by_key(client, "repeated", id)?;
    ensure!(seen == expected(&once), "{seen:?}");

    // The same payments again, within five minutes and after a restart.
    user.run("eos kafka produce payments < examples/11-payments-dedup/payments.txt")?;
    user.run("cargo run -p eos-examples --bin 11-payments-dedup -- --kafka")?;
    let seen = by_key(client, "accepted", id)?;
    ensure!(seen == accepted, "accepted twice: {seen:?}");
    let all = [
        ("ada", &own(&["p-1", "p-1", "p-1", "p-4"])[..]),
        ("emmy", &own(&["p-2", "p-1"])),
        ("grace", &own(&["p-3", "p-3", "p-3"])),
    ];
    let seen = by_key(client, "repeated", id)?;
    ensure!(seen == expected(&all), "{seen:?}");
    Ok(())
}

/// Example 08 wrote orders of another format to `orders`.
pub(super) fn enrich_async(user: &User<'_>, client: &mut Client) -> Result<()> {
    let before = committed(client, "orders")?.len();
    let printed = follow(user, "12-enrich-async")?;
    let read = said(&printed, "read orders-in-euros")?;
    ensure!(read.contains("\"o-7\""), "{read}");
    let converted = |record: &Record| Ok((id(record)?, json(record)?["euro_cents"].as_u64()));
    let own = |(id, cents): (&str, u64)| (id.to_owned(), Some(cents));
    // The call of o-6 ends before that of o-4.
    let results = [
        (
            "ada",
            &[("o-1", 1150), ("o-4", 4838), ("o-6", 276)].map(own)[..],
        ),
        ("emmy", &[("o-2", 840)].map(own)),
        ("grace", &[("o-3", 91), ("o-7", 8085)].map(own)),
    ];
    let seen = by_key(client, "orders-in-euros", converted)?;
    ensure!(seen == expected(&results), "{seen:?}");
    let letters = committed(client, "orders-dlq")?;
    let (failed, foreign): (Vec<_>, Vec<_>) = letters
        .iter()
        .partition(|it| header(it, "__streams.errors.exception") == "Failure");
    let [letter] = &failed[..] else {
        anyhow::bail!("{failed:?}");
    };
    ensure!(id(letter)? == "o-5", "{letter:?}");
    let message = header(letter, "__streams.errors.message");
    ensure!(message.contains("no rate for ???"), "{message}");
    ensure!(foreign.len() == before, "{foreign:?}");
    Ok(())
}

pub(super) fn dead_letters(user: &User<'_>, client: &mut Client) -> Result<()> {
    let printed = follow(user, "13-dead-letters")?;
    let log = said(&printed, "--bin 13-dead-letters")?;
    for part in [
        "tea has no price",
        "tea has a price now; the replay begins",
        "becomes a dead letter",
    ] {
        ensure!(log.contains(part), "{part:?} is not in {log}");
    }
    // Each order is paid once, and the letters are replayed in order.
    let value = |record: &Record| Ok(text(record.value.as_deref()));
    let own = |values: [&str; 3]| values.map(str::to_owned);
    let paid = [
        ("ada", &own(["coffee 320", "cake 450", "coffee 320"])[..]),
        ("emmy", &own(["tea 280", "coffee 320", "cake 450"])),
    ];
    let seen = by_key(client, "paid", value)?;
    ensure!(seen == expected(&paid), "{seen:?}");
    let placed = |record: &Record| {
        let number = header(record, "eos-sequence");
        let number = number.rsplit(' ').next().unwrap_or_default().to_owned();
        let exception = header(record, "__streams.errors.exception");
        Ok((number, value(record)?, exception))
    };
    let letters = [
        ("1", "tea", "Failure"),
        ("2", "coffee", "ParkedKey"),
        ("3", "cake", "ParkedKey"),
    ];
    let letters = letters.map(|(n, item, why)| (n.to_owned(), item.to_owned(), why.to_owned()));
    let seen = by_key(client, "tea-orders-dlq", placed)?;
    ensure!(seen == expected(&[("emmy", &letters[..])]), "{seen:?}");
    let replayed = |record: &Record| Ok(header(record, "eos-replay"));
    let seen = by_key(client, "tea-orders", replayed)?;
    let emmy = seen.get("emmy").map_or(&[][..], Vec::as_slice);
    let actions: Vec<_> = emmy.iter().filter(|it| !it.is_empty()).collect();
    ensure!(emmy.len() == 6 && actions.len() == 3, "{seen:?}");
    Ok(())
}
