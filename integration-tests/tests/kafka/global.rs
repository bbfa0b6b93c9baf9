//! A join with a global table, whose process is killed.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, ensure};
use integration_tests::counted::visible;
use integration_tests::fate::TIME_OUT;
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;
use kafka_launcher::os::Signal;
use kafka_wire::{Client, Isolation, Producer};
use tempfile::TempDir;

use crate::common::{KEEP, PATIENCE};

const ORDERS: u64 = 10_000;
const CURRENCIES: u64 = 200;
const PARTITIONS: i32 = 3;
/// The partitions of the topic of rates. Their number differs from that of the orders.
const RATES: i32 = 2;

struct Scene {
    app: String,
    client: Client,
    producer: Producer,
    fleet: Fleet,
    _dir: TempDir,
}

impl Scene {
    fn new(bootstrap: &str) -> Result<Scene> {
        let app = format!("global-{:x}", UNIX_EPOCH.elapsed()?.as_millis());
        let mut client = Client::connect(bootstrap, PATIENCE)?;
        for end in ["in", "out"] {
            client.create_topic(&format!("{app}-{end}"), PARTITIONS, 1, &KEEP)?;
        }
        let compacted = [("cleanup.policy", "compact")];
        client.create_topic(&format!("{app}-rates"), RATES, 1, &compacted)?;
        let dir = TempDir::new()?;
        let program = build(
            "integration-tests",
            Program::Example("global"),
            &["--features", "failpoints"],
        )?;
        let time_out = TIME_OUT.as_millis().to_string();
        let state = dir.path().join("state").display().to_string();
        let environment = [
            ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
            ("APP", app.clone()),
            ("EOS_STATE_DIR", state),
            ("EOS_NUM_STREAM_THREADS", "2".to_owned()),
            ("EOS_SESSION_TIMEOUT_MS", time_out.clone()),
            ("EOS_TRANSACTION_TIMEOUT_MS", time_out),
            ("RUST_LOG", "info".to_owned()),
        ];
        Ok(Scene {
            client,
            producer: Producer::new(bootstrap)?,
            fleet: Fleet::new(&program, environment, &dir.path().join("logs"))?,
            app,
            _dir: dir,
        })
    }

    fn topic(&self, end: &str) -> String {
        format!("{}-{end}", self.app)
    }

    fn write(&mut self, end: &str, partition: i32, key: &str, value: &str) -> Result<()> {
        let (topic, value) = (self.topic(end), Some(value.as_bytes()));
        self.producer
            .send(&topic, partition, Some(key.as_bytes()), value, &[], 1_000)
    }

    /// Writes a rate for each currency.
    fn rates(&mut self, round: u64) -> Result<()> {
        for n in 0..CURRENCIES {
            let partition = (n % RATES as u64) as i32;
            self.write("rates", partition, &format!("c{n}"), &format!("{round}"))?;
        }
        self.producer.flush()
    }

    fn orders(&mut self, range: std::ops::Range<u64>) -> Result<()> {
        for n in range {
            let partition = (n % PARTITIONS as u64) as i32;
            let currency = format!("c{}", n % CURRENCIES);
            self.write("in", partition, &format!("o{n}"), &currency)?;
        }
        self.producer.flush()
    }

    fn await_output(&mut self, count: u64) -> Result<()> {
        let topic = self.topic("out");
        wait_until(PATIENCE, &format!("{topic} has {count} records"), || {
            self.fleet.check()?;
            Ok(visible(&mut self.client, &topic)? >= count)
        })
    }

    /// Returns the results by order.
    fn results(&mut self) -> Result<BTreeMap<String, Vec<String>>> {
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (mut found, output) = (BTreeMap::<String, Vec<String>>::new(), self.topic("out"));
        self.client
            .read_all(&output, Isolation::ReadCommitted, |_, record| {
                let results = found.entry(text(record.key.as_deref())).or_default();
                results.push(text(record.value.as_deref()));
            })?;
        Ok(found)
    }

    /// Runs orders with the rates of two rounds, and a SIGKILL in the middle of each. The rates of the second round are
    /// written while the process is down. Then the process continues from its copy.
    fn run(&mut self) -> Result<()> {
        self.rates(1)?;
        self.fleet.start()?;
        self.orders(0..ORDERS / 4)?;
        self.await_output(1)?;
        self.fleet.kill_and_restart(0)?;
        self.orders(ORDERS / 4..ORDERS / 2)?;
        self.await_output(ORDERS / 2)?;
        self.fleet.kill(0)?;
        self.rates(2)?;
        self.fleet.start()?;
        self.orders(ORDERS / 2..ORDERS * 3 / 4)?;
        self.await_output(ORDERS / 2 + 1)?;
        self.fleet.kill_and_restart(0)?;
        self.orders(ORDERS * 3 / 4..ORDERS)?;
        self.await_output(ORDERS)?;
        self.fleet.stop_all(Signal::Term)
    }

    fn judge(&mut self) -> Result<()> {
        let results = self.results()?;
        ensure!(results.len() as u64 == ORDERS, "{} orders", results.len());
        for n in 0..ORDERS {
            let round = if n < ORDERS / 2 { 1 } else { 2 };
            let expected = format!("c{}={round}", n % CURRENCIES);
            let found = results.get(&format!("o{n}")).context("no result")?;
            ensure!(
                *found == [expected.clone()],
                "o{n}: {found:?} instead of {expected}"
            );
        }
        Ok(())
    }
}

/// Every order has one result. An order that is processed again joins the same row if there were no new rates
/// meanwhile.
#[test]
fn a_join_with_a_global_table_survives_kills() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut scene = Scene::new(kafka.bootstrap())?;
    let ran = scene.run().and_then(|()| scene.judge());
    ran.with_context(|| format!("logs:\n{}", scene.fleet.tails(20)))
}
