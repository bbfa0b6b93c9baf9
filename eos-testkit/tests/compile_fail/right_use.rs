//! The correct uses that correspond to the misuses.
use std::convert::Infallible;
use std::time::Duration;

use eos_core::codec::{Json, Plain, PlainType};
use eos_core::{
    App, Backoff, ErrorPolicy, Failure, KeyValueStore, ProcessCtx, Processor, Record, Stream, Topic,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

/// Only read.
#[derive(Deserialize)]
struct Sensor {
    celsius: f64,
}

/// Only written.
#[derive(Serialize)]
struct Alarm {
    celsius: f64,
}

/// Keeps every second record.
struct Half(u64);

impl Processor<String, String> for Half {
    type Key = Infallible;
    type Value = Infallible;

    fn process(
        &mut self,
        _: &ProcessCtx<'_, Infallible, Infallible>,
        _: Record<String, String>,
    ) -> Result<(), Failure> {
        self.0 += 1;
        Ok(())
    }
}

/// The store's types are inferred, even with a bound on the key.
fn counted<K: PlainType>(lines: Stream<K, String>, store: &str) -> Stream<K, u64> {
    lines
        .group_by_key()
        .count(&KeyValueStore::plain(store))
        .to_stream()
}

fn main() {
    let texts = Topic::<String, String>::plain("texts");
    let lengths = Topic::<String, u64>::plain("lengths");
    let orders = Topic::<Option<String>, Option<Order>>::json("orders");
    let _struct_as_key = Topic::<Order, String>::with("by-order", Json, Plain);
    let mut app = App::new("right");
    app.source(&Topic::<String, Sensor>::json("sensors"))
        .map(|sensor| Alarm {
            celsius: sensor.celsius,
        })
        .to(&Topic::json("alarms"));
    let out = app.output(&lengths);
    app.source(&texts)
        .map(|text| text.len() as u64)
        .to(&lengths);
    app.source(&texts)
        .for_each(move |ctx, text| ctx.emit(&out, text.key, 1));
    app.source(&texts).for_each(|_, _| {});
    app.source(&texts)
        .on_error(
            ErrorPolicy::retry(3, Backoff::fixed(Duration::from_secs(1))).then(ErrorPolicy::skip()),
        )
        .for_each(|_, text| {
            let _n: u64 = text.value.parse()?;
            Ok(())
        });
    app.source(&texts).for_each_with(|| Half(0));
    app.source(&texts)
        .process(|ctx, text| ctx.forward(text.value.len() as u64, text.key))
        .process_values(|ctx, text| ctx.forward(text.value))
        .ignore();
    let twice = app.source(&texts);
    twice.clone().to(&texts);
    twice.to(&texts);
    let _rows = app.table(
        &Topic::<u64, Option<String>>::plain("rows"),
        &KeyValueStore::plain("rows"),
    );
    app.source(&texts)
        .try_map(|text| Ok(text.parse()?))
        .to(&lengths);
    let numbers = app.source(&lengths).map(|n| n.to_string());
    let (short, long) = app.source(&texts).branch(|text| text.len() < 3);
    short.merge(numbers).to(&texts);
    long.union(app.source(&texts).key_by(|text| text.clone()))
        .to(&texts);
    app.source(&orders).to(&orders);
    let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
    let by_text = app
        .source(&texts)
        .key_by(|text| text.clone())
        .repartition(&texts);
    by_text.with_store(&counts).for_each(move |ctx, text| {
        let n = ctx.store(&counts).get(&text.key)?.unwrap_or(0);
        ctx.store(&counts).put(&text.key, &(n + 1))
    });
    let longest = KeyValueStore::<String, String>::plain("longest");
    app.source(&texts)
        .group_by_key()
        .reduce(&longest, |a, b| a.max(b))
        .to(&texts);
    counted(app.source(&texts), "lines").ignore();
    let names = app.table(
        &Topic::<String, Option<String>>::plain("names"),
        &KeyValueStore::plain("names"),
    );
    app.source(&lengths)
        .key_by(|length| length.to_string())
        .repartition(&lengths)
        .join(&names, |length, name| format!("{name} has {length}"))
        .to(&texts);
}
