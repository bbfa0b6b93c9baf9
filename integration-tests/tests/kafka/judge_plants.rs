//! The judge on real brokers, with histories that contain one planted violation each. The judge must report this kind
//! and its consequences, and nothing else. A judge that always reports violations proves as little as one that never
//! does.
//!
//! The brokers don't verify transactions here, as before Kafka 3.6, because with verification a hanging transaction
//! can't be planted. A broker that shows aborted records can't be planted at all. The judge's unit tests cover this
//! case.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use integration_tests::judge::{Expectation, Question};
use integration_tests::wait::wait_until;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, End, Isolation, Producer, TransactionalProducer};

use Expectation::{Behind, Finished};

const TIMEOUT: Duration = Duration::from_secs(30);
/// The time to wait for markers. Brokers respond to EndTxn before its markers are written.
const SETTLED: Duration = Duration::from_secs(3);

/// The input: the key and the value of each record.
const INPUT: [(&str, &str); 4] = [
    ("a", r#"{"seq":0}"#),
    ("b", r#"{"seq":1}"#),
    ("a", r#"{"seq":2}"#),
    ("b", r#"{"seq":3}"#),
];

type Kinds = &'static [(&'static str, u64)];
type Plan = fn(&mut History) -> Result<()>;

/// For each history: its name, the planted violation, the expected end of the run, and the expected findings.
const PLANTS: [(&str, Plan, Expectation, Kinds); 12] = [
    ("clean", clean, Finished, &[]),
    // An offset above missing outputs is a violation, too.
    ("lost", lost, Finished, &[("lost", 2), ("offsets", 1)]),
    ("doubled", doubled, Finished, &[("doubled", 1)]),
    ("reordered", reordered, Finished, &[("reordered", 1)]),
    ("foreign", foreign, Finished, &[("foreign", 1)]),
    ("rekeyed", rekeyed, Finished, &[("rekeyed", 1)]),
    // The offsets match the output that has fewer records.
    ("torn", torn, Behind, &[("torn", 1), ("offsets", 1)]),
    ("aborted", aborted, Finished, &[("aborted", 1)]),
    // As in the real gap, the records that became visible are processed again.
    (
        "late-end",
        late_end,
        Finished,
        &[("doubled", 1), ("aborted", 1)],
    ),
    ("offsets", offsets, Behind, &[("offsets", 1)]),
    // One finding for the end of the output, and one for the transactional id.
    ("open", open, Finished, &[("open", 2)]),
    ("hanging", hanging, Behind, &[("hanging", 1)]),
];

#[test]
fn the_judge_names_what_is_planted_and_nothing_else() -> Result<()> {
    let verification = ("transaction.partition.verification.enable", "false");
    let options = ClusterOptions::default().property(verification.0, verification.1);
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    thread::scope(|scope| {
        let running = PLANTS.map(|(name, plan, expectation, expected)| {
            scope.spawn(move || {
                let found = found(bootstrap, name, plan, expectation)?;
                ensure!(found == expected, "found {found:?}, not {expected:?}");
                anyhow::Ok(())
            })
        });
        let mut wrong = Vec::new();
        for ((name, ..), thread) in PLANTS.iter().zip(running) {
            let end = thread.join().unwrap_or_else(|_| bail!("it panicked"));
            wrong.extend(end.err().map(|error| format!("{name}: {error:#}")));
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

fn found(
    bootstrap: &str,
    name: &str,
    plan: Plan,
    expectation: Expectation,
) -> Result<Vec<(&'static str, u64)>> {
    let mut history = History::begin(bootstrap, name)?;
    plan(&mut history)?;
    let question = Question {
        bootstrap,
        input: &history.input,
        outputs: &history.outputs,
        group: &history.group,
        transactional_prefix: history.group.clone(),
        // If a transaction is left open on purpose, the judge waits for a short time only.
        patience: match name {
            "open" | "hanging" => SETTLED,
            _ => TIMEOUT,
        },
    };
    let (_, verdict) = question.judge(expectation)?;
    let findings = verdict.findings().into_iter();
    let counts = findings.map(|(kind, finding)| (kind, finding.count));
    Ok(counts.filter(|(_, count)| *count > 0).collect())
}

/// The history of an app with two outputs, written by the test.
struct History {
    input: String,
    outputs: [String; 2],
    group: String,
    app: TransactionalProducer,
    client: Client,
}

impl History {
    fn begin(bootstrap: &str, name: &str) -> Result<History> {
        let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let named = |part: &str| format!("{name}-{part}-{mark:x}");
        let (input, outputs) = (named("in"), [named("out"), named("audit")]);
        let mut client = Client::connect(bootstrap, TIMEOUT)?;
        for topic in outputs.iter().chain([&input]) {
            // With the default, the broker would delete records of 2023 at its first check, half a minute after its
            // start.
            client.create_topic(topic, 1, 1, &[("retention.ms", "-1")])?;
        }
        let mut producer = Producer::new(bootstrap)?;
        for (key, value) in INPUT {
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            producer.send(&input, 0, key, value, &[], 1_700_000_000_000)?;
        }
        producer.flush()?;
        let group = named("app");
        Ok(History {
            // A long timeout, so that an open transaction stays open.
            app: TransactionalProducer::new(bootstrap, &group, TIMEOUT * 20)?,
            input,
            outputs,
            group,
            client,
        })
    }

    fn write(&mut self, output: usize, records: &[(&str, &str)]) -> Result<()> {
        let topic = self.outputs.get(output).context("no such output")?;
        self.app.send(topic, 0, records).map(drop)
    }

    fn offset(&mut self, offset: i64) -> Result<()> {
        self.app.send_offset(&self.group, &self.input, 0, offset)
    }

    /// Commits a valid transaction with records of each output and an offset.
    fn commit(&mut self, records: [&[(&str, &str)]; 2], offset: i64) -> Result<()> {
        self.write(0, records[0])?;
        self.write(1, records[1])?;
        self.offset(offset)?;
        self.app.end(End::Commit)
    }
}

fn clean(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..2], &INPUT[..2]], 2)?;
    // Aborted records are no violation.
    history.write(0, &INPUT[2..])?;
    history.app.end(End::Abort)?;
    history.commit([&INPUT[2..], &INPUT[2..]], 4)
}

fn lost(history: &mut History) -> Result<()> {
    let most = [INPUT[0], INPUT[1], INPUT[3]];
    history.commit([&most, &most], 4)
}

fn doubled(history: &mut History) -> Result<()> {
    let more = [INPUT[0], INPUT[1], INPUT[2], INPUT[3], INPUT[1]];
    history.commit([&more, &INPUT], 4)
}

fn reordered(history: &mut History) -> Result<()> {
    let other = [INPUT[2], INPUT[1], INPUT[0], INPUT[3]];
    history.commit([&INPUT, &other], 4)
}

fn foreign(history: &mut History) -> Result<()> {
    let strange = ("a", r#"{"seq":99}"#);
    let more = [INPUT[0], INPUT[1], INPUT[2], INPUT[3], strange];
    history.commit([&more, &INPUT], 4)
}

fn rekeyed(history: &mut History) -> Result<()> {
    let other = [INPUT[0], INPUT[1], INPUT[2], ("c", INPUT[3].1)];
    history.commit([&other, &INPUT], 4)
}

fn torn(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..2], &INPUT[..2]], 2)?;
    history.write(0, &INPUT[2..3])?;
    history.offset(2)?;
    history.app.end(End::Commit)
}

/// An EndTxn of another transaction commits the first records of the transaction. By chance, there is no other
/// violation.
fn aborted(history: &mut History) -> Result<()> {
    history.write(0, &INPUT[..1])?;
    history.write(1, &INPUT[..1])?;
    history.app.end(End::Commit)?;
    history.commit([&INPUT[1..], &INPUT[1..]], 4)
}

fn late_end(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..1], &INPUT[..1]], 1)?;
    history.write(0, &INPUT[1..2])?;
    // The EndTxn of the previous transaction arrives a second time.
    history.app.end(End::Commit)?;
    history.write(1, &INPUT[1..2])?;
    history.app.end(End::Abort)?;
    history.commit([&INPUT[1..], &INPUT[1..]], 4)
}

fn offsets(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..2], &INPUT[..2]], 1)
}

fn open(history: &mut History) -> Result<()> {
    history.commit([&INPUT, &INPUT], 4)?;
    history.write(0, &INPUT[..1])
}

fn hanging(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..2], &INPUT[..2]], 2)?;
    // Before the markers, the record would be part of this transaction.
    let topic = history.outputs[0].clone();
    wait_until(TIMEOUT, "the transaction has its marker", || {
        let mut end = |isolation| history.client.end_offsets(&topic, isolation);
        Ok(end(Isolation::ReadCommitted)? == end(Isolation::ReadUncommitted)?)
    })?;
    let late = history
        .app
        .send_unannounced(&history.outputs[0], 0, &INPUT[2..3]);
    late.map(drop)
}
