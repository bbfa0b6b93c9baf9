//! A parser of the YAML subset in `docker-compose.yml`.
//!
//! It supports nested maps by indentation, lists of scalars, quoted and plain scalars, comments, anchors on maps and
//! `<<` merges. It rejects all other syntax with the line number, instead of misreading it.

mod line;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use line::{Line, at, entry, scalar};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Yaml {
    /// Text. Numbers are text, too.
    Scalar(String),
    /// `- one per line`, or `[a, b]`.
    List(Vec<String>),
    /// `key: value` per line, with merges applied. Unordered.
    Map(BTreeMap<String, Yaml>),
}

impl Yaml {
    /// Returns the map's value for a key.
    pub(crate) fn get(&self, key: &str) -> Result<&Yaml> {
        self.map()?.get(key).with_context(|| format!("no `{key}`"))
    }

    pub(crate) fn map(&self) -> Result<&BTreeMap<String, Yaml>> {
        match self {
            Yaml::Map(map) => Ok(map),
            other => bail!("a map is expected, not {other:?}"),
        }
    }

    pub(crate) fn list(&self) -> Result<&[String]> {
        match self {
            Yaml::List(list) => Ok(list),
            other => bail!("a list is expected, not {other:?}"),
        }
    }

    pub(crate) fn scalar(&self) -> Result<&str> {
        match self {
            Yaml::Scalar(text) => Ok(text),
            other => bail!("a scalar is expected, not {other:?}"),
        }
    }
}

/// Parses a document whose root is a map.
pub(crate) fn parse(text: &str) -> Result<Yaml> {
    let mut reader = Reader {
        lines: Vec::new(),
        at: 0,
        anchors: BTreeMap::new(),
    };
    for (index, line) in text.lines().enumerate() {
        reader.lines.extend(Line::read(index + 1, line)?);
    }
    let root = reader.block(0)?;
    match reader.lines.get(reader.at) {
        Some(line) => bail!(
            "line {}: indented less than what it belongs to",
            line.number
        ),
        None => Ok(root),
    }
}

struct Reader {
    lines: Vec<Line>,
    at: usize,
    anchors: BTreeMap<String, Yaml>,
}

impl Reader {
    /// Parses the map or list whose lines are indented by exactly `indent`.
    fn block(&mut self, indent: usize) -> Result<Yaml> {
        let is_list = self
            .here(indent)
            .is_some_and(|line| line.text.starts_with("- "));
        if is_list {
            self.list(indent)
        } else {
            self.map(indent)
        }
    }

    fn here(&self, indent: usize) -> Option<&Line> {
        self.lines.get(self.at).filter(|line| line.indent == indent)
    }

    fn list(&mut self, indent: usize) -> Result<Yaml> {
        let mut items = Vec::new();
        while let Some(line) = self.here(indent) {
            let item = line
                .text
                .strip_prefix("- ")
                .with_context(|| at(line, "a list continues with `- `"))?;
            items.push(scalar(item.trim()).with_context(|| at(line, "not a plain list item"))?);
            self.at += 1;
        }
        Ok(Yaml::List(items))
    }

    fn map(&mut self, indent: usize) -> Result<Yaml> {
        let mut map = BTreeMap::new();
        let mut merged = BTreeMap::new();
        while let Some(line) = self.here(indent) {
            let (number, text) = (line.number, line.text.clone());
            self.at += 1;
            let (key, value) =
                entry(&text).with_context(|| format!("line {number}: not `key: value`"))?;
            if key == "<<" {
                merged.extend(
                    self.merge(&value)
                        .with_context(|| format!("line {number}"))?,
                );
                continue;
            }
            let value = self
                .value(&value, indent)
                .with_context(|| format!("line {number}"))?;
            let twice = map.insert(key.clone(), value).is_some();
            ensure!(!twice, "line {number}: `{key}` a second time");
        }
        // The map's own entries override merged entries.
        merged.extend(map);
        Ok(Yaml::Map(merged))
    }

    /// Parses the value after `key:`, on the same line or indented below it.
    fn value(&mut self, inline: &str, indent: usize) -> Result<Yaml> {
        if let Some(anchor) = inline.strip_prefix('&') {
            let nested = self.nested(indent)?;
            self.anchors.insert(anchor.to_owned(), nested.clone());
            return Ok(nested);
        }
        if let Some(anchor) = inline.strip_prefix('*') {
            return self.anchor(anchor).cloned();
        }
        if let Some(items) = inline
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let items = items.split(',').map(|item| scalar(item.trim()));
            return Ok(Yaml::List(items.collect::<Result<_>>()?));
        }
        if inline.is_empty() {
            self.nested(indent)
        } else {
            scalar(inline).map(Yaml::Scalar)
        }
    }

    fn nested(&mut self, indent: usize) -> Result<Yaml> {
        let deeper = self.lines.get(self.at).map(|line| line.indent);
        match deeper.filter(|deeper| *deeper > indent) {
            Some(deeper) => self.block(deeper),
            None => bail!("nothing is indented below it, and there is no value"),
        }
    }

    /// Parses `<<: *one` or `<<: [*one, *two]`. Entries of the first take precedence over the second.
    fn merge(&self, value: &str) -> Result<BTreeMap<String, Yaml>> {
        let names = value.trim_start_matches('[').trim_end_matches(']');
        let mut merged = BTreeMap::new();
        for name in names.rsplit(',') {
            let anchor = name
                .trim()
                .strip_prefix('*')
                .context("`<<` takes `*anchor`")?;
            merged.extend(self.anchor(anchor)?.map()?.clone());
        }
        Ok(merged)
    }

    fn anchor(&self, name: &str) -> Result<&Yaml> {
        self.anchors
            .get(name)
            .with_context(|| format!("no anchor `&{name}` above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Yaml {
        Yaml::Scalar(value.into())
    }

    fn map<const N: usize>(entries: [(&str, Yaml); N]) -> Yaml {
        Yaml::Map(entries.map(|(key, value)| (key.to_owned(), value)).into())
    }

    #[test]
    fn maps_lists_comments_and_quotes_nest() {
        let parsed = parse(
            "# head\na: 1\nb:\n  c: \"x # y\"  # tail\n  d:\n    - \"1:2\"\n    - z\n\n  e: [p, 'q']\nf: http://x:1\n",
        );
        let list = |items: [&str; 2]| Yaml::List(items.map(str::to_owned).into());
        let inner = map([
            ("c", text("x # y")),
            ("d", list(["1:2", "z"])),
            ("e", list(["p", "q"])),
        ]);
        let whole = map([("a", text("1")), ("b", inner), ("f", text("http://x:1"))]);
        assert_eq!(parsed.unwrap(), whole);
    }

    #[test]
    fn merges_yield_to_what_is_said_in_place() {
        let parsed =
            parse("x: &x\n  a: 1\n  b: 1\ny: &y\n  b: 2\n  c: 2\nz:\n  <<: [*x, *y]\n  a: 3\n");
        let z = parsed.unwrap().get("z").unwrap().clone();
        assert_eq!(
            z,
            map([("a", text("3")), ("b", text("1")), ("c", text("2"))])
        );
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        let refused = [
            ("a: 1\n\tb: 2", "line 2"),
            ("a: true", "quote it"),
            ("a: |\n  text", "line 1"),
            ("a: 1\na: 2", "second time"),
            ("a: *x", "no anchor"),
            ("a:\nb: 1", "nothing is indented"),
            ("a: {b: c}", "line 1"),
            ("a: \"b", "not closed"),
            ("a:\n    b: 1\n  c: 2", "line 3"),
        ];
        for (document, expected) in refused {
            let error = format!("{:#}", parse(document).unwrap_err());
            assert!(error.contains(expected), "{document:?}: {error}");
        }
    }
}
