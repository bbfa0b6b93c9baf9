//! The judge's answer.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::child::Guard;
use super::stop::Stop;
use super::topics::{APP, INPUT, OUTPUTS};

/// The judge reads every topic twice.
const LIMIT: Duration = Duration::from_secs(300);

/// It waits for open transactions less long than those take to time out.
const PATIENCE_SECONDS: &str = "10";

/// What the judge found in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Records in the input.
    pub(crate) input: u64,
    /// The outputs and how many committed records each has.
    pub(crate) outputs: Vec<(String, u64)>,
    /// Each kind of violation and how often it was found.
    pub(crate) findings: Vec<Finding>,
}

/// A kind of violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: String,
    pub(crate) count: u64,
    /// The first ones, as the judge wrote them.
    pub(crate) examples: Vec<String>,
}

impl Audit {
    /// Has the judge look at what a finished run left, in a process of its own.
    pub(crate) fn of(judge: &Path, bootstrap: &str, dir: &Path, stop: &Stop) -> Result<Audit> {
        let mut command = Command::new(judge);
        command.args(["--json", "--bootstrap", bootstrap, "--input", INPUT]);
        for output in OUTPUTS {
            command.args(["--output", output]);
        }
        command.args(["--group", APP, "--wait", PATIENCE_SECONDS]);
        command.args(["--transactional-prefix", &format!("{APP}-")]);
        let mut process = Guard::spawn("the judge", command, &dir.join("judge.log"))?;
        let status = stop.wait_for(LIMIT, "the judge has read all topics", || process.ended())?;
        // 0 and 1 are verdicts.
        if !matches!(status.code(), Some(0 | 1)) {
            bail!(process.obituary(&format!("could not judge ({status})")));
        }
        let audit = parse(&process.log()).with_context(|| process.obituary("made no sense"))?;
        if audit.is_clean() != status.success() {
            bail!(process.obituary(&format!("contradicts itself ({status})")));
        }
        Ok(audit)
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.count == 0)
    }

    pub(crate) fn count(&self, kind: &str) -> u64 {
        let of_kind = self.findings.iter().filter(|finding| finding.kind == kind);
        of_kind.map(|finding| finding.count).sum()
    }
}

#[derive(Deserialize)]
struct Report {
    input: Input,
    outputs: Vec<Output>,
    violations: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Input {
    records: u64,
}

#[derive(Deserialize)]
struct Output {
    topic: String,
    committed: u64,
}

/// Reads the judge's line of JSON.
fn parse(said: &str) -> Result<Audit> {
    let line = said.lines().find(|line| line.starts_with('{'));
    let report: Report = serde_json::from_str(line.context("no JSON")?)?;
    let outputs = report.outputs.into_iter();
    let findings = report.violations.into_iter();
    Ok(Audit {
        input: report.input.records,
        outputs: outputs.map(|o| (o.topic, o.committed)).collect(),
        findings: findings
            .map(|(kind, found)| finding(kind, &found))
            .collect::<Result<_>>()?,
    })
}

fn finding(kind: String, found: &Value) -> Result<Finding> {
    let examples = found["examples"].as_array().into_iter().flatten();
    Ok(Finding {
        count: found["count"]
            .as_u64()
            .with_context(|| format!("{kind}: no count"))?,
        examples: examples.map(Value::to_string).collect(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judges_line_is_read() {
        let audit = parse(concat!(
            "a warning\n",
            r#"{"clean":false,"input":{"topic":"cities","records":3},"#,
            r#""outputs":[{"topic":"a","committed":4,"uncommitted":9}],"violations":{"#,
            r#""lost":{"count":0,"examples":[]},"doubled":{"count":1,"examples":[{"seq":2}]}}}"#,
        ))
        .unwrap();
        assert_eq!((audit.input, audit.is_clean()), (3, false));
        assert_eq!(audit.outputs, [("a".to_owned(), 4)]);
        assert_eq!((audit.count("lost"), audit.count("doubled")), (0, 1));
        assert_eq!(audit.findings.len(), 2);
        let doubled = audit.findings.iter().find(|f| f.kind == "doubled").unwrap();
        assert_eq!(doubled.examples, [r#"{"seq":2}"#]);
    }

    #[test]
    fn a_count_that_is_missing_is_not_taken_for_zero() {
        let said = r#"{"input":{"records":3},"outputs":[],"violations":{"lost":{}}}"#;
        assert!(parse(said).is_err());
        assert!(parse("").is_err());
    }
}
