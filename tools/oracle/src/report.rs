//! The text of a verdict.

use std::fmt::Write;

use super::evidence::Evidence;
use super::verdict::Verdict;

/// Summarises the evidence and the verdict in a few lines.
pub fn text(evidence: &Evidence, verdict: &Verdict) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, evidence, verdict);
    text
}

fn write(text: &mut String, evidence: &Evidence, verdict: &Verdict) -> std::fmt::Result {
    let input = &evidence.input;
    let (records, keys) = (input.records().len(), evidence.keys.len());
    writeln!(
        text,
        "input   {}: {records} records, {keys} keys",
        input.topic
    )?;
    for output in &evidence.outputs {
        let committed = output.rows.len() as u64;
        let aborted = output.uncommitted.saturating_sub(committed);
        let topic = &output.topic;
        writeln!(
            text,
            "output  {topic}: {committed} committed records, {aborted} aborted or open"
        )?;
    }
    for copy in &evidence.state {
        let (name, partition, keys) = (&copy.name, copy.partition, copy.contents.len());
        let topic = &input.topic;
        writeln!(text, "state   {name}, of {topic}-{partition}: {keys} keys")?;
    }
    if verdict.is_clean() {
        return writeln!(
            text,
            "clean: every input is in every output exactly once, in order"
        );
    }
    for (name, finding) in verdict.findings() {
        if finding.count > 0 {
            writeln!(
                text,
                "VIOLATED {name}: {} ({})",
                finding.count,
                meaning(name)
            )?;
        }
        for example in &finding.examples {
            writeln!(text, "  {example}")?;
        }
        let rest = finding.count - finding.examples.len() as u64;
        if rest > 0 {
            writeln!(text, "  and {rest} more")?;
        }
    }
    Ok(())
}

fn meaning(name: &str) -> &'static str {
    match name {
        "lost" => "inputs without a record in an output",
        "doubled" => "outputs beyond the first for one input",
        "reordered" => "outputs of a key out of the order of its inputs",
        "foreign" => "outputs that no input led to",
        "rekeyed" => "outputs under another key than their input",
        "torn" => "inputs that are in some outputs and not in others",
        "offsets" => "input partitions whose committed offset is not where the outputs are",
        "aborted" => "data that readers see although its transaction did not commit it",
        "hanging" => "transactions that will never end",
        "state_ahead" => "copies of state that hold more than what is committed, or say so",
        "state_behind" => "copies of state that hold less than what is committed",
        "state_wrong" => "copies of state that no inputs lead to, or others than they say",
        "stale" => "outputs whose running value is not what the inputs make",
        _ => "transactions that have not ended",
    }
}
