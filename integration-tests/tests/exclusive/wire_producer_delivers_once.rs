//! The wire producer while brokers are killed or freeze. Every record arrives once, in order.
//!
//! Every verdict is based on the generator's input. If a retry doubled or reordered the input, the judge would reject
//! it or blame the app.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use integration_tests::wait::wait_until;
use kafka_launcher::{Cluster, ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Producer};

const PARTITIONS: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of records of each partition that must be acknowledged before the test continues.
const STRETCH: u64 = 20_000;

/// The time for which followers are frozen. It is longer than a leader waits for its followers before it responds with
/// an error.
const OUTAGE: Duration = Duration::from_secs(7);

/// The most times that followers are frozen until the leader responds with this error. On a machine that stalls, the
/// followers may continue before the response.
const OUTAGES: usize = 5;

#[test]
fn while_a_leader_is_killed_and_comes_back() -> Result<()> {
    let _alone = crate::alone();
    delivers_once(|cluster, client, flow| {
        flow.goes_on()?;
        let victim = leader(client)?.context("no leader to kill")?;
        cluster.kill_node(victim)?;
        wait_until(PATIENCE, "another broker leads", || {
            Ok(leader(client)?.is_some_and(|leader| leader != victim))
        })?;
        flow.goes_on()?;
        cluster.start_node(victim)?;
        flow.goes_on()
    })
}

/// The leader has the batches and cannot acknowledge them. With new sequence numbers, a retry would write them twice.
#[test]
fn while_followers_are_frozen() -> Result<()> {
    let _alone = crate::alone();
    delivers_once(|cluster, client, flow| {
        flow.goes_on()?;
        let before = flow.retried.load(Ordering::Acquire);
        for _ in 0..OUTAGES {
            let leader = leader(client)?.context("no leader to keep")?;
            let followers = (1..=3).filter(|node| *node != leader);
            followers
                .clone()
                .try_for_each(|node| cluster.freeze(node))?;
            // Without the followers, there is no quorum to remove them from the in-sync replicas.
            thread::sleep(OUTAGE);
            followers.clone().try_for_each(|node| cluster.thaw(node))?;
            flow.goes_on()?;
            if flow.retried.load(Ordering::Acquire) > before {
                return Ok(());
            }
        }
        bail!("{OUTAGES} outages were not felt")
    })
}

/// Sends records during a fault. Then checks that each record arrived once, in order.
fn delivers_once(fault: impl FnOnce(&mut Cluster, &mut Client, &Flow) -> Result<()>) -> Result<()> {
    let Some(mut cluster) = own_for_tests(&ClusterOptions::default().nodes(3))? else {
        return Ok(());
    };
    let mut client = Client::connect(cluster.bootstrap(), PATIENCE)?;
    client.create_topic("log", PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
    let mut producer = Producer::with_patience(cluster.bootstrap(), PATIENCE)?;

    let flow = Flow::default();
    thread::scope(|scope| -> Result<()> {
        let sending = scope.spawn(|| flow.run(&mut producer));
        let fault = fault(&mut cluster, &mut client, &flow);
        flow.stop.store(true, Ordering::Relaxed);
        let sent = sending.join().map_err(|_| anyhow!("the sender panicked"))?;
        fault.and(sent)
    })?;
    assert!(producer.retried() > 0, "the fault was not felt");

    let mut next = vec![0; PARTITIONS as usize];
    client.read_all("log", Isolation::ReadUncommitted, |partition, record| {
        let seen = &mut next[partition as usize];
        assert_eq!(number(record.value.as_deref()), *seen, "in {partition}");
        *seen += 1;
    })?;
    let all = flow.acknowledged.load(Ordering::Relaxed);
    assert_eq!(next, vec![all; PARTITIONS as usize]);
    Ok(())
}

/// A stream of records that are numbered from 0 in each partition.
#[derive(Default)]
struct Flow {
    stop: AtomicBool,
    /// The number of acknowledged records in each partition.
    acknowledged: AtomicU64,
    /// The number of batches that were sent again until then.
    retried: AtomicU64,
}

impl Flow {
    /// Sends records until it is stopped. All records are acknowledged when this returns.
    fn run(&self, producer: &mut Producer) -> Result<()> {
        let mut next = 0u64;
        // Retention would delete old records while the test still runs.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..500 {
                let value = next.to_be_bytes();
                for partition in 0..PARTITIONS {
                    producer.send("log", partition, None, Some(&value), &[], now)?;
                }
                next += 1;
            }
            producer.flush()?;
            self.retried.store(producer.retried(), Ordering::Release);
            self.acknowledged.store(next, Ordering::Release);
        }
        Ok(())
    }

    /// Waits until [`STRETCH`] more records of each partition are acknowledged.
    fn goes_on(&self) -> Result<()> {
        let from = self.acknowledged.load(Ordering::Relaxed);
        wait_until(PATIENCE, "more records are acknowledged", || {
            Ok(self.acknowledged.load(Ordering::Acquire) >= from + STRETCH)
        })
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    let bytes = value.and_then(|value| value.try_into().ok());
    bytes.map_or(u64::MAX, u64::from_be_bytes)
}

/// Returns the broker that leads partition 0.
fn leader(client: &mut Client) -> Result<Option<u8>> {
    let cluster = client.metadata(Some(&["log"]))?;
    let partitions = cluster.topics.get("log").context("no topic")?;
    let leader = partitions.first().and_then(|partition| partition.leader);
    Ok(leader.map(u8::try_from).transpose()?)
}
