//! A deleted topic is not created again by a running app.
//!
//! The brokers create topics on request (`auto.create.topics.enable`, Kafka's default), but no client of the app
//! requests it. The app stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Isolation, Producer};

use crate::common::{Case, PATIENCE, commits_go_on, ended, says};
use anyhow::{Context, Result, ensure};

/// Longer than the time after which any client refreshes the metadata of a missing topic.
const AFTERWARDS: Duration = Duration::from_secs(15);

#[test]
fn a_deleted_output_is_not_created_again_by_the_app() -> Result<()> {
    let options = ClusterOptions::default().property("auto.create.topics.enable", "true");
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(());
    };
    let mut case = Case::with_partitions(cluster.bootstrap(), "auto-create", 3)?;
    let stop = Arc::new(AtomicBool::new(false));
    let feeder = {
        let (bootstrap, topic, stop) = (
            case.bootstrap.clone(),
            case.input.clone(),
            Arc::clone(&stop),
        );
        thread::spawn(move || -> Result<()> {
            let mut producer = Producer::with_patience(&bootstrap, PATIENCE)?;
            while !stop.load(Ordering::Relaxed) {
                producer.send(&topic, 0, Some(b"k"), Some(b"v"), &[], 1_000)?;
                producer.flush()?;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        })
    };
    let mut running = case.copy().start_blocking(cluster.bootstrap())?;
    commits_go_on(&running)?;

    case.client.delete_topic(&case.output)?;
    let end = ended(&mut running);
    // The last requests of the app's clients may be in flight.
    let until = Instant::now() + AFTERWARDS;
    let mut back = false;
    while !back && Instant::now() < until {
        let read = case
            .client
            .fetch(&case.output, 0, 0, Isolation::ReadCommitted);
        back = read.is_ok();
        thread::sleep(Duration::from_millis(500));
    }
    stop.store(true, Ordering::Relaxed);
    feeder
        .join()
        .map_err(|_| anyhow::anyhow!("the feeder panicked"))??;
    let error = end?.err().context("the app ended without an error")?;
    ensure!(!back, "{} was created again", case.output);
    says(&error, &["A topic was deleted"])?;
    case.nothing_is_open()
}
