//! The generator and the judge as a user runs them, with their records, verdicts and exit codes.
//!
//! The input is also the output. A topic is a perfect copy of itself, so the verdict depends only on the committed
//! offsets, which this test sets.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kafka_launcher::for_tests;
use kafka_wire::{Client, Isolation};
use serde_json::Value;

const RECORDS: u64 = 5_000;

#[test]
fn generated_records_are_judged_by_the_offsets_committed() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let bootstrap = kafka.bootstrap();
    let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let (topic, group) = (format!("cities-{mark:x}"), format!("app-{mark:x}"));

    // Two runs. The second one is paced, and continues the numbers of the first one.
    let half = (RECORDS / 2).to_string();
    let first = ["--records", &half, "--partitions", "3"];
    let report = json(&generator(bootstrap, &topic, &first)?)?;
    assert_eq!(report["records"], RECORDS / 2);
    let second = ["--records", &half, "--rate", "5000", "--first-seq", &half];
    let report = json(&generator(bootstrap, &topic, &second)?)?;
    let seconds = report["seconds"].as_f64().context("seconds")?;
    assert!(seconds > 0.4, "2500 records at 5000/s took {seconds} s");

    let judged = judge(bootstrap, &topic, &topic, &group)?;
    assert_eq!(judged.status.code(), Some(1), "nothing is committed yet");
    let verdict = json(&judged)?;
    assert_eq!(verdict["input"]["records"], RECORDS);
    assert_eq!(verdict["violations"]["offsets"]["count"], 3);

    let mut client = Client::connect(bootstrap, Duration::from_secs(30))?;
    let ends = client.end_offsets(&topic, Isolation::ReadCommitted)?;
    for (partition, end) in (0..).zip(&ends) {
        client.commit_offset(&group, &topic, partition, *end, "")?;
    }
    let judged = judge(bootstrap, &topic, &topic, &group)?;
    assert_eq!(judged.status.code(), Some(0), "{judged:?}");
    assert_eq!(json(&judged)?["clean"], true);

    let unreadable = judge(bootstrap, &topic, "no-such-topic", &group)?;
    assert_eq!(unreadable.status.code(), Some(2), "{unreadable:?}");
    client.delete_records(&topic, 0, 10)?;
    let beheaded = judge(bootstrap, &topic, &topic, &group)?;
    assert_eq!(beheaded.status.code(), Some(2), "{beheaded:?}");
    Ok(())
}

fn generator(bootstrap: &str, topic: &str, options: &[&str]) -> Result<Output> {
    let program = Path::new(env!("CARGO_BIN_EXE_generator"));
    let mut command = Command::new(program);
    command.args(["--bootstrap", bootstrap, "--topic", topic]);
    let output = command.args(options).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

fn judge(bootstrap: &str, input: &str, output: &str, group: &str) -> Result<Output> {
    let program = Path::new(env!("CARGO_BIN_EXE_judge"));
    let mut command = Command::new(program);
    command.args(["--json", "--bootstrap", bootstrap, "--group", group]);
    command.args(["--input", input, "--output", output]);
    // Other tests on the same broker may have open transactions.
    command.args(["--transactional-prefix", group]);
    Ok(command.output()?)
}

fn json(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}
