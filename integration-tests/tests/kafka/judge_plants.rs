//! The judge on real brokers: histories with one planted violation each. It names that kind, and what
//! follows from it, and nothing else; a judge that complains of everything proves as little as one that
//! never does.
//!
//! The brokers don't verify transactions here, as before Kafka 3.6: with verification a hanging
//! transaction can't be planted. What cannot be planted at all is a broker that shows what a marker aborts; for
//! that see the judge's unit tests.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use integration_tests::judge::{Expectation, Question};
use integration_tests::wait::wait_until;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, End, Isolation, Producer, TransactionalProducer};

use Expectation::{Behind, Finished};

const TIMEOUT: Duration = Duration::from_secs(30);
/// EndTxn is answered before its markers are written.
const SETTLED: Duration = Duration::from_secs(3);

/// The input: key and value by number.
const INPUT: [(&str, &str); 4] = [
    ("a", r#"{"seq":0}"#),
    ("b", r#"{"seq":1}"#),
    ("a", r#"{"seq":2}"#),
    ("b", r#"{"seq":3}"#),
];

type Kinds = &'static [(&'static str, u64)];
type Plan = fn(&mut History) -> Result<()>;

/// Name, what is planted, how far the run was to come, what is to be found.
const PLANTS: [(&str, Plan, Expectation, Kinds); 12] = [
    ("clean", clean, Finished, &[]),
    // A committed offset above what is not there is wrong, too.
    ("lost", lost, Finished, &[("lost", 2), ("offsets", 1)]),
    ("doubled", doubled, Finished, &[("doubled", 1)]),
    ("reordered", reordered, Finished, &[("reordered", 1)]),
    ("foreign", foreign, Finished, &[("foreign", 1)]),
    ("rekeyed", rekeyed, Finished, &[("rekeyed", 1)]),
    // The offsets are on the side of the output that has less.
    ("torn", torn, Behind, &[("torn", 1), ("offsets", 1)]),
    ("aborted", aborted, Finished, &[("aborted", 1)]),
    // As the gap really goes: what became visible is processed once more.
    (
        "late-end",
        late_end,
        Finished,
        &[("doubled", 1), ("aborted", 1)],
    ),
    ("offsets", offsets, Behind, &[("offsets", 1)]),
    // The end of the output and the transactional id.
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
        // What is left open on purpose is not waited for as long.
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

/// What an application does to two outputs, by hand.
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
            // The broker would delete records of 2023 when it first looks, half a minute after its start.
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
            // What is left open stays open.
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

    /// A transaction as it should be: these records to either output, and an offset.
    fn commit(&mut self, records: [&[(&str, &str)]; 2], offset: i64) -> Result<()> {
        self.write(0, records[0])?;
        self.write(1, records[1])?;
        self.offset(offset)?;
        self.app.end(End::Commit)
    }
}

fn clean(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..2], &INPUT[..2]], 2)?;
    // What an abort leaves behind is nothing to complain of.
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

/// The first record of the transaction is committed by an EndTxn that was meant for another one. By
/// chance nothing else is wrong.
fn aborted(history: &mut History) -> Result<()> {
    history.write(0, &INPUT[..1])?;
    history.write(1, &INPUT[..1])?;
    history.app.end(End::Commit)?;
    history.commit([&INPUT[1..], &INPUT[1..]], 4)
}

fn late_end(history: &mut History) -> Result<()> {
    history.commit([&INPUT[..1], &INPUT[..1]], 1)?;
    history.write(0, &INPUT[1..2])?;
    // The EndTxn of the transaction before arrives a second time.
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
    // Before the markers it would be part of this transaction.
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
