//! Checks whether a run processed each input exactly once, from its records and offsets in Kafka.
//!
//! `judge --bootstrap 127.0.0.1:9092 --input cities --output enriched --group enricher`
//!
//! With `--repeats repeated`, the app deduplicates by the field `event`. The output must have each event once, and the
//! topic `repeated` each other record once.
//!
//! Exit code 0: clean. 1: violated, with examples. 2: could not be judged.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use integration_tests::judge::{self, Evidence, Expectation, Finding, Question, Verdict};
use serde_json::{Map, Value, json};

/// Kinds of violations that need state or running values as evidence. This program does not read them.
const NOT_READ: [&str; 4] = ["state_ahead", "state_behind", "state_wrong", "stale"];

/// The names of the two verdicts on an app that deduplicates.
const PARTS: [&str; 2] = ["first records", "repetitions"];

/// Judge a run by its records and offsets in Kafka.
#[derive(Debug, Parser)]
struct Options {
    /// The cluster, as host:port, several separated by commas.
    #[arg(long)]
    bootstrap: String,
    /// The topic that the app read, written by the generator.
    #[arg(long)]
    input: String,
    /// A topic that the app wrote. Repeat for more.
    #[arg(long = "output", required = true)]
    outputs: Vec<String>,
    /// The topic of repeated records, for an app that deduplicates by `event`.
    #[arg(long)]
    repeats: Option<String>,
    /// The consumer group of the app.
    #[arg(long)]
    group: String,
    /// Judge only the records below the committed offsets, for a run that was stopped early.
    #[arg(long)]
    allow_behind: bool,
    /// Check only transactional ids with this prefix.
    #[arg(long, default_value = "")]
    transactional_prefix: String,
    /// Wait this many seconds for open transactions to end.
    #[arg(long, default_value_t = 0)]
    wait: u64,
    /// Print one line of JSON instead of text. With `--repeats`, a second line is about the repetitions.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("judge: could not read what the run left: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let question = Question {
        bootstrap: &options.bootstrap,
        input: &options.input,
        outputs: &options.outputs,
        group: &options.group,
        transactional_prefix: options.transactional_prefix.clone(),
        patience: Duration::from_secs(options.wait),
    };
    let expectation = match options.allow_behind {
        true => Expectation::Behind,
        false => Expectation::Finished,
    };
    let parts = match &options.repeats {
        None => vec![judge::read(&question)?],
        Some(repeats) => question.read_by_event(repeats)?.into(),
    };
    let mut is_clean = true;
    for (evidence, part) in parts.iter().zip(PARTS) {
        let verdict = judge::judge(evidence, expectation);
        is_clean &= verdict.is_clean();
        match (options.json, &options.repeats) {
            (true, _) => println!("{}", as_json(evidence, &verdict)),
            (false, None) => print!("{}", judge::text(evidence, &verdict)),
            (false, Some(_)) => print!("{part}:\n{}", judge::text(evidence, &verdict)),
        }
    }
    Ok(is_clean)
}

fn as_json(evidence: &Evidence, verdict: &Verdict) -> Value {
    let outputs = evidence.outputs.iter().map(|output| {
        json!({
            "topic": output.topic,
            "committed": output.rows.len(),
            "uncommitted": output.uncommitted,
        })
    });
    let violations = verdict.findings().into_iter();
    let violations = violations.filter(|(kind, _)| !NOT_READ.contains(kind));
    let violations = violations.map(|(kind, finding)| (kind.to_owned(), of_kind(finding)));
    json!({
        "clean": verdict.is_clean(),
        "input": { "topic": evidence.input.topic, "records": evidence.input.len() },
        "outputs": outputs.collect::<Vec<_>>(),
        "violations": violations.collect::<Map<String, Value>>(),
    })
}

fn of_kind(finding: &Finding) -> Value {
    let examples = finding.examples.iter().map(|example| {
        json!({
            "seq": example.seq,
            "key": example.key,
            "topic": example.topic,
            "partition": example.partition,
            "offset": example.offset,
            "note": example.note,
        })
    });
    json!({ "count": finding.count, "examples": examples.collect::<Vec<_>>() })
}
