//! A backlog in every partition passes through a repartition into windows. No partition runs so far ahead that records
//! of the others are late (`docs/design/0028`).

use std::time::Duration;

use kafka_wire::{Client, Isolation, Producer};

use crate::common::{PATIENCE, With, ended};
use anyhow::{Result, ensure};
use eos_broker::EmbeddedKafka;
use eos_core::codec::{Plain, TimeWindowed};
use eos_core::run::StopMode;
use eos_core::state::WindowStore;
use eos_core::windows::Tumbling;
use eos_core::{App, Topic};
use integration_tests::wait::wait_until;

const PARTITIONS: i32 = 6;
const RECORDS: i64 = 400_000;
/// The event time between two records, in milliseconds. One fetch of one partition has about 1,200 records, which is 20
/// seconds of event time. So the partition of the first fetch closes no window of the others.
const STEP_MS: i64 = 3;
const MINUTE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);

#[test]
fn partitions_with_much_to_do_stay_side_by_side() -> Result<()> {
    let _alone = crate::alone();
    let topics = ["in", "late", "out"].into_iter();
    let kafka = topics.fold(EmbeddedKafka::builder(), |kafka, topic| {
        kafka.topic(topic, PARTITIONS)
    });
    let kafka = kafka.start()?;
    let bootstrap = kafka.bootstrap();
    let mut producer = Producer::new(&bootstrap)?;
    for n in 0..RECORDS {
        let partition = (n * 7_919 / 13) % i64::from(PARTITIONS);
        let value = format!("item {} {n:080}", n % 37);
        let time = 1_790_000_000_000 + n * STEP_MS;
        let value = Some(value.as_bytes());
        producer.send("in", i32::try_from(partition)?, None, value, &[], time)?;
    }
    producer.flush()?;

    let dir = tempfile::tempdir()?;
    let mut app = App::new("backlog").with("state.dir", dir.path().display());
    app.source(&Topic::<Option<String>, String>::plain("in"))
        .key_by(|value| value.chars().take(7).collect::<String>())
        .repartition(&Topic::plain("by-item"))
        .group_by_key()
        .windowed_by(Tumbling::of(MINUTE).grace(GRACE))
        .late_to(&Topic::plain("late"))
        .count(&WindowStore::<String, u64>::plain("counts"))
        .to(&Topic::with("out", TimeWindowed::of(MINUTE), Plain));
    let mut running = app.start_blocking(&bootstrap)?;
    let mut client = Client::connect(&bootstrap, PATIENCE)?;
    let mut visible = |topic| -> Result<i64> {
        let mut count = 0;
        client.read_all(topic, Isolation::ReadCommitted, |_, _| count += 1)?;
        Ok(count)
    };
    let mut late = 0;
    wait_until(PATIENCE, "every record is counted or late", || {
        late = visible("late")?;
        Ok(late + visible("out")? == RECORDS)
    })?;
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    eprintln!("{late} of {RECORDS} records were late");
    // Partitions whose first records arrive later have some late records. With long turns, four in five were late.
    ensure!(late * 5 < RECORDS, "{late} of {RECORDS} were late");
    Ok(())
}
