//! Two topics as one stream in time order, and a processor that remembers:
//! `cargo run -p eos-examples --bin 04-two-topics`
//!
//! Reads `departures` and `arrivals`, both cities keyed by region. For each arrival, writes the distance from
//! the last departure in that region to `trips`.
//!
//! In the sample data, all departures are before the first arrival. After `eos kafka up` (see README.md):
//!
//! ```sh
//! eos kafka topic departures arrivals trips
//! cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 --topic departures --records 20000
//! cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 --topic arrivals --records 20000 --first-seq 5000
//! cargo run -p integration-tests --bin generator -- --bootstrap localhost:9092 --topic departures --records 20000 --first-seq 40000
//! cargo run -p eos-examples --bin 04-two-topics -- --kafka
//! eos kafka read trips
//! ```
//!
//! The last generator sends departures that are later than all arrivals. No trip may contain them.
//!
//! `merge` makes the two topics siblings: they need equally many partitions, one task reads
//! the same partition of both, and the older record comes first. While one topic has no records, the task
//! continues with the other. `EOS_MAX_TASK_IDLE_MS=1000` makes it wait a second for a late producer.
//!
//! The memory is a `HashMap` in the processor. Each trip is written exactly once, but its content depends on
//! that memory, which is empty after a restart, a move of the task or an aborted transaction. An arrival whose
//! departure came before that is a trip without an origin (`"from":null`). Keep data that must survive in a
//! store, as in `06-word-count`.

use std::collections::HashMap;

use eos_core::processor::OnDiscard;
use eos_core::{App, Failure, ProcessCtx, Processor, Record, Topic};
use eos_examples::{CITIES, City, Input, Kafka, log_to_stderr};
use serde::{Deserialize, Serialize};

/// What both topics become, so that they can be one stream.
enum Event {
    Left(City),
    Arrived(City),
}

#[derive(Debug, Serialize, Deserialize)]
struct Trip {
    from: Option<String>,
    to: String,
    km: Option<u32>,
}

/// Remembers the last departure in each region of its task.
#[derive(Default)]
struct Trips {
    left: HashMap<String, City>,
}

impl Processor<String, Event> for Trips {
    type Key = String;
    type Value = Trip;

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, String, Trip>,
        event: Record<String, Event>,
    ) -> Result<(), Failure> {
        match event.value {
            Event::Left(city) => {
                self.left.insert(event.key, city);
                Ok(())
            }
            Event::Arrived(city) => {
                let from = self.left.get(&event.key);
                let trip = Trip {
                    from: from.map(|from| from.name.clone()),
                    km: from.map(|from| distance_km(from, &city)),
                    to: city.name,
                };
                ctx.forward(event.key, trip)
            }
        }
    }

    /// The last records come again. Kept, the memory would hold departures from after an arrival
    /// that comes again; rebuilt, it knows less, but nothing from the future. This is the default;
    /// it stands here to be seen.
    fn on_discard(&mut self) -> OnDiscard {
        OnDiscard::Rebuild
    }
}

/// Along a great circle.
fn distance_km(a: &City, b: &City) -> u32 {
    let (lat_a, lat_b) = (a.lat.to_radians(), b.lat.to_radians());
    let half = |from: f64, to: f64| ((to - from) / 2.0).sin().powi(2);
    let (across, along) = (
        half(lat_a, lat_b),
        half(a.lon.to_radians(), b.lon.to_radians()),
    );
    let h = across + lat_a.cos() * lat_b.cos() * along;
    (2.0 * 6371.0 * h.sqrt().min(1.0).asin()).round() as u32
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr();
    let inputs = ["departures", "arrivals"].map(|topic| Input::keyed(topic, CITIES));
    let kafka = Kafka::provide(&inputs, &["trips"])?;

    let mut app = App::new("two-topics-v1");
    let departures = app.source(&Topic::<String, City>::json("departures"));
    let arrivals = app.source(&Topic::<String, City>::json("arrivals"));

    departures
        .map(Event::Left)
        .merge(arrivals.map(Event::Arrived))
        .process_with(Trips::default)
        .to(&Topic::json("trips"));
    app.run(kafka.bootstrap()).await?;
    Ok(())
}
