//! The speed of the embedded broker with librdkafka. It produces records of 120 B in transactions, reads them with
//! read_committed, and checks them in the same run.
//!
//! `cargo test --release -p conformance --test all throughput:: -- --nocapture` for a figure;
//! `EOS_RECORDS` sets the number of records (default: a million in a release build).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_broker::EmbeddedKafka;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message};

const PATIENCE: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 4;
/// Records in one transaction.
const BATCH: u64 = 100_000;

#[test]
fn records_go_in_and_come_out() -> Result<()> {
    let default = if cfg!(debug_assertions) {
        200_000
    } else {
        1_000_000
    };
    let said = std::env::var("EOS_RECORDS").ok();
    let records: u64 = said.and_then(|it| it.parse().ok()).unwrap_or(default);
    let kafka = EmbeddedKafka::builder().topic("t", PARTITIONS).start()?;
    let address = kafka.bootstrap();
    let start = Instant::now();
    let writing = std::thread::spawn({
        let address = address.clone();
        move || write(&address, records)
    });
    let read = read(&address, records)?;
    let wrote = writing.join().ok().context("the writer panicked")??;
    let took = start.elapsed();
    ensure!(read == wrote, "sums differ: wrote {wrote}, read {read}");
    let rate = records as f64 / took.as_secs_f64();
    println!("{records} records of 120 B produced and consumed in {took:.2?}: {rate:.0} a second");
    if let Some(peak) = peak_bytes() {
        println!("peak resident: {} MiB, both clients included", peak >> 20);
        // The broker keeps every record; the clients may hold 64 MiB each.
        let bound = records * 200 + (300 << 20);
        ensure!(peak < bound, "{peak} bytes resident, {bound} at most");
    }
    Ok(())
}

/// Returns the peak memory of this process, if the system reports it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Writes numbers, 120 bytes each. Returns their sum.
fn write(address: &str, records: u64) -> Result<u64> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("transactional.id", "writer")
        .set("linger.ms", "20")
        .set("batch.size", "500000")
        .set("batch.num.messages", "10000")
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", "65536")
        .set("delivery.report.only.error", "true")
        .create()?;
    producer.init_transactions(PATIENCE)?;
    let mut value = [b'x'; 120];
    let mut sum = 0;
    let mut number = 0;
    while number < records {
        producer.begin_transaction()?;
        let end = (number + BATCH).min(records);
        while number < end {
            value[..8].copy_from_slice(&number.to_be_bytes());
            let partition = (number % PARTITIONS as u64) as i32;
            let record = BaseRecord::<(), _>::to("t")
                .payload(&value)
                .partition(partition);
            match producer.send(record) {
                Ok(()) => {
                    sum += number;
                    number += 1;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
        producer.flush(PATIENCE)?;
        producer.commit_transaction(PATIENCE)?;
    }
    Ok(sum)
}

/// Reads numbers, each once and in the order of its partition. Returns their sum.
fn read(address: &str, records: u64) -> Result<u64> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("group.id", "readers")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "50")
        .set("queued.max.messages.kbytes", "65536")
        .create()?;
    consumer.subscribe(&["t"])?;
    let mut next: Vec<u64> = (0..PARTITIONS as u64).collect();
    let (mut sum, mut count) = (0, 0);
    let mut last = Instant::now();
    while count < records {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            ensure!(last.elapsed() < PATIENCE, "only {count} records");
            continue;
        };
        let message = message?;
        last = Instant::now();
        let value = message.payload().context("no value")?;
        ensure!(value.len() == 120, "{} bytes", value.len());
        let number = u64::from_be_bytes(value[..8].try_into()?);
        let expected = &mut next[message.partition() as usize];
        ensure!(number == *expected, "{number}, expected {expected}");
        *expected += PARTITIONS as u64;
        sum += number;
        count += 1;
    }
    Ok(sum)
}
