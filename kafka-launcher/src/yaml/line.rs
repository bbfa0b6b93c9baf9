//! A line of YAML, and the scalars on it.

use anyhow::{Context, Result, ensure};

#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) indent: usize,
    pub(super) text: String,
}

impl Line {
    /// Parses a line. Returns `None` for blank lines and comments.
    pub(super) fn read(number: usize, line: &str) -> Result<Option<Line>> {
        ensure!(
            !line.contains('\t'),
            "line {number}: a tab; indent with spaces"
        );
        let text = without_comment(line).trim_end();
        let indent = text.len() - text.trim_start().len();
        let text = text.trim_start().to_owned();
        ensure!(text != "---", "line {number}: more than one document");
        Ok((!text.is_empty()).then_some(Line {
            number,
            indent,
            text,
        }))
    }
}

/// Removes the comment. A `#` begins a comment at the start or after a space, outside quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '#' && before == ' ' => return &line[..at],
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
        before = c;
    }
    line
}

pub(super) fn at(line: &Line, what: &str) -> String {
    format!("line {}: {what}", line.number)
}

/// Splits `key: value`. The value may be empty.
pub(super) fn entry(text: &str) -> Result<(String, String)> {
    let (key, value) = match text.split_once(": ") {
        Some((key, value)) => (key, value),
        None => (text.strip_suffix(':').context("no colon")?, ""),
    };
    Ok((scalar(key.trim())?, value.trim().to_owned()))
}

/// Parses a quoted or plain scalar. Rejects plain scalars that YAML does not parse as text.
pub(super) fn scalar(text: &str) -> Result<String> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            let inner = rest.strip_suffix(quote).context("a quote is not closed")?;
            ensure!(
                !inner.contains([quote, '\\']),
                "quotes and backslashes inside quotes"
            );
            return Ok(inner.to_owned());
        }
    }
    let words = ["true", "false", "yes", "no", "on", "off", "null", "~"];
    let word = text.to_ascii_lowercase();
    ensure!(
        !words.contains(&word.as_str()),
        "`{text}` is not text in YAML: quote it"
    );
    ensure!(
        !text.starts_with(['|', '>', '{', '[', '&', '*', '!', '%', '@', '`']),
        "`{text}`: quote it, or write it plainly"
    );
    ensure!(
        !text.contains(": "),
        "`{text}` has a colon inside: quote it"
    );
    Ok(text.to_owned())
}
