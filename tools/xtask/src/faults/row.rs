//! The rows that the tests wrote.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One line of the table: `integration_tests::faults::Row`, as written to the report.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Row {
    /// A number and a name; rows are sorted by it.
    pub(super) point: String,
    pub(super) case: String,
    pub(super) cases: u64,
    pub(super) fired: u64,
    pub(super) verdict: String,
    pub(super) seconds: f64,
    pub(super) command: String,
}

/// Reads every row, sorted by point. Rows of one point stay in the order of the report.
pub(super) fn read(report: &Path) -> Result<Vec<Row>> {
    let text = match std::fs::read_to_string(report) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context("read what the tests left"),
    };
    let mut rows = parse(&text)?;
    rows.sort_by(|a, b| a.point.cmp(&b.point));
    Ok(rows)
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let rows = text.lines().map(|line| {
        serde_json::from_str(line).with_context(|| format!("a test left this as a row: {line}"))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_line() {
        let line = r#"{"point":"4 brokers","case":"kill -9 of the leader","cases":1,"fired":1,"verdict":"lost 0","seconds":2.5,"command":"c"}"#;
        let rows = parse(&format!("{line}\n{line}\n")).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].case, "kill -9 of the leader");
        assert!(parse("{}").is_err());
    }
}
