//! Produces city records to a topic, at a given rate or as fast as possible.
//!
//! `generator --bootstrap 127.0.0.1:9092 --topic cities --records 100000 --rate 5000`
//!
//! Each record has a running number `seq`, which the judge uses to follow it through a run. With `--repeats 10`, one of
//! ten records repeats an earlier one, and `event` is the number of the first record. Prints progress on stderr. Prints
//! one line of JSON on stdout once every record is acknowledged.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use integration_tests::data::{self, City, CityEvent, Repeats};
use integration_tests::partitioner;
use kafka_wire::{Client, Producer};
use serde::Serialize;

/// The interval at which a paced run sends the records that are due.
const SLICE: Duration = Duration::from_millis(10);
/// The number of records after which an unpaced run reads the clock.
const UNPACED_SLICE: u64 = 10_000;
/// The time limit for the creation of the topic.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Produce real city records with running numbers.
#[derive(Debug, Parser)]
struct Options {
    /// The cluster, as host:port, several separated by commas.
    #[arg(long)]
    bootstrap: String,
    /// The topic to produce to.
    #[arg(long)]
    topic: String,
    /// The number of records to produce.
    #[arg(long)]
    records: u64,
    /// Records per second; 0 is as fast as possible.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// The number of the first record, to continue an earlier run on the same topic.
    #[arg(long, default_value_t = 0)]
    first_seq: u64,
    /// The percentage of records that repeat an earlier one.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..100))]
    repeats: Option<u64>,
    /// The largest distance of a repeated record to the first record of its event, in records.
    #[arg(long, requires = "repeats")]
    repeats_within: Option<u64>,
    /// Create the topic with this many partitions unless it exists.
    #[arg(long)]
    partitions: Option<i32>,
    /// The replication of a created topic.
    #[arg(long, default_value_t = 1, requires = "partitions")]
    replication: i16,
    /// Read the cities from this file instead of the registry package.
    #[arg(long)]
    cities: Option<PathBuf>,
}

/// The line that is printed once all records are acknowledged.
#[derive(Debug, Serialize)]
struct Report {
    records: u64,
    seconds: f64,
    per_partition: Vec<u64>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(partitions) = options.partitions {
        let mut client = Client::connect(&options.bootstrap, TIMEOUT)?;
        client.create_topic(&options.topic, partitions, options.replication, &[])?;
    }
    let cities = data::cities(options.cities.as_deref())?;
    let report = Run::new(&options, &cities)?.produce()?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// One run of the generator.
struct Run<'a> {
    options: &'a Options,
    cities: &'a [City],
    /// The key and the partition of each city, by its id.
    placement: Vec<(String, i32)>,
    producer: Producer,
    per_partition: Vec<u64>,
    sent: u64,
    started: Instant,
    value: Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options, cities: &'a [City]) -> Result<Self> {
        let mut producer = Producer::new(&options.bootstrap)?;
        let partitions = producer.partitions(&options.topic)?;
        let place = |city: &City| {
            let key = city.key();
            let partition = partitioner::partition(key.as_bytes(), partitions);
            (key, partition)
        };
        Ok(Run {
            options,
            cities,
            placement: cities.iter().map(place).collect(),
            producer,
            per_partition: vec![0; partitions as usize],
            sent: 0,
            started: Instant::now(),
            value: Vec::new(),
        })
    }

    fn produce(mut self) -> Result<Report> {
        let mut next_line = Duration::from_secs(1);
        while self.sent < self.options.records {
            let due = self.due();
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
            while self.sent < due {
                self.send_next(now)?;
            }
            if self.options.rate > 0 {
                self.producer.flush()?;
                self.sleep();
            }
            if self.started.elapsed() >= next_line {
                eprintln!(
                    "{} of {} records acknowledged",
                    self.producer.acknowledged(),
                    self.options.records
                );
                next_line += Duration::from_secs(1);
            }
        }
        self.finish()
    }

    /// Returns the number of records that should be sent by now.
    fn due(&self) -> u64 {
        let by_now = match self.options.rate {
            0 => self.sent + UNPACED_SLICE,
            rate => (self.started.elapsed().as_secs_f64() * rate as f64) as u64,
        };
        by_now.min(self.options.records)
    }

    /// Sleeps until the next multiple of a slice since the start, however long the last slice took.
    fn sleep(&self) {
        let into = self.started.elapsed().as_nanos() % SLICE.as_nanos();
        thread::sleep(SLICE - Duration::from_nanos(into as u64));
    }

    fn send_next(&mut self, now: i64) -> Result<()> {
        let seq = self.options.first_seq + self.sent;
        let repeats = self.options.repeats.map(Repeats::percent);
        let within = self.options.repeats_within.unwrap_or(u64::MAX);
        let repeats = repeats.map(|repeats| repeats.within(within));
        let event = repeats.map(|repeats| repeats.event(seq));
        let city = data::nth(self.cities, event.unwrap_or(seq));
        let (key, partition) = &self.placement[city.id as usize];
        self.value.clear();
        serde_json::to_writer(&mut self.value, &CityEvent { seq, event, city })?;
        let (topic, value) = (&self.options.topic, Some(&self.value[..]));
        self.producer
            .send(topic, *partition, Some(key.as_bytes()), value, &[], now)?;
        self.per_partition[*partition as usize] += 1;
        self.sent += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<Report> {
        let Options { topic, records, .. } = self.options;
        self.producer.flush().with_context(|| {
            let missing = records - self.producer.acknowledged();
            format!("{missing} of {records} records to {topic} are not acknowledged")
        })?;
        let acknowledged = self.producer.acknowledged();
        ensure!(
            acknowledged == *records,
            "{acknowledged} of {records} records to {topic} are acknowledged"
        );
        Ok(Report {
            records: acknowledged,
            seconds: self.started.elapsed().as_secs_f64(),
            per_partition: self.per_partition,
        })
    }
}
