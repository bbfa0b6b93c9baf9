//! What a fault-injection test leaves for the table in `docs/faults.md`.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The file that rows are appended to, if it is set: `cargo xtask faults` sets it.
pub const REPORT_VAR: &str = "EOS_FAULTS_REPORT";

/// One line of `docs/faults.md`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Which of the points: `1 KIP-890 gap`, `2 in doubt`, `3 zombies`, `4 brokers`,
    /// `5 crash sweep`, `7 permanent errors`, `8 state`.
    pub point: String,
    /// What was done, such as `EndTxn held, quarantine on`.
    pub case: String,
    /// How often.
    pub cases: u64,
    /// How often the fault happened, as counted where it happened.
    pub fired: u64,
    /// `lost 0, doubled 0, torn 0`, or for a control what was found.
    pub verdict: String,
    /// How long it took.
    pub seconds: f64,
    /// The command that repeats it.
    pub command: String,
}

/// Prints the row, and appends it as a line of JSON to the file that `EOS_FAULTS_REPORT` names, if
/// it is set.
///
/// # Errors
/// When the file cannot be written.
pub fn record(row: &Row) -> Result<()> {
    let Row {
        point,
        case,
        cases,
        fired,
        verdict,
        seconds,
        ..
    } = row;
    eprintln!("{point} | {case} | {cases} cases | {fired} fired | {verdict} | {seconds:.1} s");
    let Some(path) = env::var_os(REPORT_VAR) else {
        return Ok(());
    };
    let told = || format!("write the file that {REPORT_VAR} names: {}", path.display());
    let line = serde_json::to_string(row)? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // One write: tests append from several threads.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(told)
}

/// Whether the full sizes are asked for: `EOS_FULL=1`.
pub fn is_full() -> bool {
    env::var("EOS_FULL").is_ok_and(|value| value == "1")
}
