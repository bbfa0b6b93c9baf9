//! Rows for the table in `docs/faults.md`, written by the fault-injection tests.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The variable that names the file for the rows. `cargo xtask faults` sets it.
pub const REPORT_VAR: &str = "EOS_FAULTS_REPORT";

/// One line of `docs/faults.md`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The group of the fault: `1 KIP-890 gap`, `2 in doubt`, `3 zombies`, `4 brokers`, `5 crash sweep`,
    /// `7 permanent errors`, `8 state`.
    pub point: String,
    /// The fault and its settings, such as `EndTxn held, quarantine on`.
    pub case: String,
    /// The number of cases.
    pub cases: u64,
    /// The number of times that the fault happened, counted at its place.
    pub fired: u64,
    /// `lost 0, doubled 0, torn 0`, or the findings of a control.
    pub verdict: String,
    /// The duration in seconds.
    pub seconds: f64,
    /// The command that repeats the test.
    pub command: String,
}

/// Prints the row. Appends it as a line of JSON to the file that `EOS_FAULTS_REPORT` names, if this is set.
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
    // A single write, because tests append from several threads.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(told)
}

/// Returns whether the tests run in full size (`EOS_FULL=1`).
pub fn is_full() -> bool {
    env::var("EOS_FULL").is_ok_and(|value| value == "1")
}
