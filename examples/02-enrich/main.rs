//! One input, two outputs, both or none: `cargo run -p eos-examples --bin 02-enrich`
//!
//! Reads `cities` and writes each city twice: enriched to `cities-enriched`, and as an audit line to
//! `cities-audit`. A crash between the two writes needs no handling: readers with `read_committed` see both
//! or none.
//!
//! `WORKERS=4` runs four workers in this process. `GUARANTEE=at-least-once` shows the results
//! without transactions: duplicates after each crash. `GUARANTEE=at-most-once` shows lost records instead.

use anyhow::bail;
use eos_core::{App, Guarantee, Topic};
use eos_examples::{CITIES, City, Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Enriched {
    seq: u64,
    name: String,
    hemisphere: String,
    /// The nautical time zone: one for every 15 degrees of longitude.
    utc_offset: i32,
}

#[derive(Debug, Serialize, Deserialize)]
struct AuditLine {
    seq: u64,
    partition: i32,
    offset: i64,
}

fn enrich(city: &City) -> Enriched {
    let (ns, ew) = (
        if city.lat < 0.0 { 'S' } else { 'N' },
        if city.lon < 0.0 { 'W' } else { 'E' },
    );
    Enriched {
        seq: city.seq,
        name: city.name.clone(),
        hemisphere: format!("{ns}{ew}"),
        utc_offset: (city.lon / 15.0).round() as i32,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let cities = Input::keyed("cities", CITIES);
    let kafka = Kafka::provide(&[cities], &["cities-enriched", "cities-audit"])?;
    let guarantee = match std::env::var("GUARANTEE").as_deref() {
        Err(_) | Ok("exactly-once") => Guarantee::ExactlyOnce,
        Ok("at-least-once") => Guarantee::AtLeastOnce,
        Ok("at-most-once") => Guarantee::AtMostOnce,
        Ok(other) => bail!("GUARANTEE={other}: exactly-once, at-least-once or at-most-once"),
    };
    let workers = std::env::var("WORKERS").map_or(Ok(1), |n| n.parse())?;

    let mut app = App::new("enrich-v1");
    app.guarantee(guarantee).workers(workers);
    let enriched = app.output(&Topic::<String, Enriched>::json("cities-enriched"));
    let audit = app.output(&Topic::<String, AuditLine>::json("cities-audit"));

    app.source(&Topic::<String, City>::json("cities"))
        .for_each(move |ctx, city| {
            let line = AuditLine {
                seq: city.value.seq,
                partition: ctx.partition().get(),
                offset: ctx.offset().get(),
            };
            ctx.emit(&enriched, city.key.clone(), enrich(&city.value))?;
            ctx.emit(&audit, city.key, line)
        });
    app.run(kafka.bootstrap()).await?;
    Ok(())
}
