//! The shortest check that a cluster works.

use std::time::Duration;

use anyhow::{Result, ensure};

use kafka_wire::{Client, Isolation, Producer};

const RECORDS: i64 = 100;

/// Creates a topic, produces to it, reads the same records with read_committed, and deletes it.
///
/// # Errors
/// If any step fails, or the read records differ from the written records.
pub fn smoke(bootstrap: &str, replication: i16) -> Result<()> {
    let topic = format!("smoke-{}", crate::ids::uuid());
    let mut client = Client::connect(bootstrap, Duration::from_secs(20))?;
    client.create_topic(&topic, 2, replication, &[])?;
    let mut written = Vec::new();
    let mut producer = Producer::new(bootstrap)?;
    for number in 0..RECORDS {
        let (partition, value) = ((number % 2) as i32, number.to_string());
        producer.send(
            &topic,
            partition,
            Some(b"key"),
            Some(value.as_bytes()),
            &[],
            number,
        )?;
        written.push((partition, value.into_bytes()));
    }
    producer.flush()?;
    let mut read = Vec::new();
    client.read_all(&topic, Isolation::ReadCommitted, |partition, record| {
        read.push((partition, record.value.clone().unwrap_or_default().to_vec()));
    })?;
    written.sort();
    read.sort();
    ensure!(
        read == written,
        "read back {} records of {RECORDS}",
        read.len()
    );
    client.delete_topic(&topic)
}
