//! `docs/from-kafka-streams.md`: each method of Kafka Streams has a row, and each method of eos that it names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Parameters that the page explains once, in `Parameters`.
const LEFT_OUT: [&str; 9] = [
    "Consumed",
    "Grouped",
    "Joined",
    "Materialized",
    "Named",
    "Produced",
    "Repartitioned",
    "StreamJoined",
    "TableJoined",
];

/// Names by class or type.
type Names = BTreeMap<String, BTreeSet<String>>;

/// The cells beside a method that name no item of eos.
const WITHOUT_A_NAME: [&str; 1] = ["not built"];

/// A row: a method of Kafka Streams, and the cell beside it.
type Row<'p> = (&'p str, &'p str);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/from-kafka-streams.md")).unwrap()
}

/// Returns the methods of each class, without the parameters that are left out.
fn methods() -> Names {
    let list = repository().join("integration-tests/golden/methods.txt");
    let list = fs::read_to_string(list).unwrap();
    let mut methods = Names::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (class, method) = line.split_once('.').unwrap();
        let (name, parameters) = method.trim_end_matches(')').split_once('(').unwrap();
        let parameters = parameters.split(", ").filter(|it| !LEFT_OUT.contains(it));
        let parameters: Vec<_> = parameters.collect();
        let method = format!("{name}({})", parameters.join(", "));
        methods.entry(class.to_owned()).or_default().insert(method);
    }
    methods
}

/// The text between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of each class.
fn rows(page: &str) -> BTreeMap<&str, Vec<Row<'_>>> {
    let mut rows = BTreeMap::new();
    let mut class = None;
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            class = Some(name);
            rows.insert(name, Vec::new());
        } else if line.starts_with("## ") {
            class = None;
        } else if let Some(class) = class
            && line.starts_with("| `")
        {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
            let [method, ours, _] = cells[..] else {
                panic!("{line} does not have three cells");
            };
            let methods = spans(method).map(|method| (method, ours));
            rows.get_mut(class).unwrap().extend(methods);
        }
    }
    rows
}

/// Compares the page with the list.
fn differences(page: &str) -> Vec<String> {
    let (mut methods, mut found) = (methods(), Vec::new());
    for (class, rows) in rows(page) {
        let Some(left) = methods.get_mut(class) else {
            found.push(format!("no class {class}"));
            continue;
        };
        // A row without parameters stands for the forms without a row of their own.
        let (exact, whole): (Vec<Row<'_>>, Vec<Row<'_>>) =
            rows.into_iter().partition(|(row, _)| row.contains('('));
        for (row, _) in exact {
            if !left.remove(row) {
                found.push(format!("no method {class}.{row}"));
            }
        }
        for (row, _) in whole {
            let before = left.len();
            left.retain(|method| method.split('(').next() != Some(row));
            if left.len() == before {
                found.push(format!("no method {class}.{row}"));
            }
        }
    }
    for (class, left) in methods {
        found.extend(left.iter().map(|method| format!("no row {class}.{method}")));
    }
    found
}

/// The source files of a crate.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// Returns the type that a line without indentation begins to describe, and whether the line makes it public.
fn described(line: &str) -> Option<(&str, bool)> {
    let (is_public, line) = match line.strip_prefix("pub ") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let words = ["struct ", "enum ", "trait ", "type "];
    let (rest, is_public) = match words.iter().find_map(|word| line.strip_prefix(word)) {
        Some(rest) => (rest, is_public),
        None => {
            let rest = line.strip_prefix("impl")?;
            let rest = without_generics(rest).trim_start();
            (rest.rsplit(" for ").next()?, false)
        }
    };
    let mut name = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
    name.next().map(|name| (name, is_public))
}

fn without_generics(text: &str) -> &str {
    let (mut depth, mut before) = (0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { text } else { &text[at + 1..] };
        }
        before = c;
    }
    text
}

/// The public methods of each type, and the methods of public traits.
fn surface() -> Names {
    let mut files = Vec::new();
    for folder in ["eos-core/src", "eos-client/src", "eos-protocol/src/windows"] {
        sources(&repository().join(folder), &mut files);
    }
    files.push(repository().join("eos-state/src/backend.rs"));
    let (mut surface, mut public) = (Names::new(), BTreeSet::new());
    for file in files {
        let (mut current, mut is_trait) = (None, false);
        for line in fs::read_to_string(file).unwrap().lines() {
            if let Some((name, is_public)) = described(line) {
                surface.entry(name.to_owned()).or_default();
                public.extend(is_public.then(|| name.to_owned()));
                (current, is_trait) = (Some(name.to_owned()), line.starts_with("pub trait "));
            }
            let Some(line) = line.strip_prefix("    ") else {
                continue;
            };
            let public = line.strip_prefix("pub ");
            let line = public.unwrap_or(line);
            let line = line.strip_prefix("const ").unwrap_or(line);
            let line = line.strip_prefix("async ").unwrap_or(line);
            if let Some(current) = &current
                && let Some(method) = line.strip_prefix("fn ")
                && (public.is_some() || is_trait)
            {
                let end = method.find(['(', '<']).unwrap_or(method.len());
                let names = surface.entry(current.clone()).or_default();
                names.insert(method[..end].to_owned());
            }
        }
    }
    surface.retain(|name, _| public.contains(name));
    surface
}

/// Whether a type, or a method of a type, exists.
fn exists(name: &str, surface: &Names) -> bool {
    match name.split_once("::") {
        Some((of, method)) => surface.get(of).is_some_and(|names| names.contains(method)),
        None => surface.contains_key(name),
    }
}

/// Returns the names of eos in the page that do not exist: those of the rows, and all methods in the text.
fn unknown(page: &str, surface: &Names) -> Vec<String> {
    let rows = rows(page);
    let cells = rows.values().flatten().flat_map(|(_, ours)| spans(ours));
    let is_code = |part: &(usize, &str)| part.0 % 2 == 1;
    let text = page.split("```").enumerate().filter(|part| !is_code(part));
    let in_text = text.flat_map(|(_, text)| spans(text));
    let in_text = in_text.filter(|span| {
        let is_name = |c: char| c.is_alphanumeric() || "_:".contains(c);
        let starts = span.starts_with(|c: char| c.is_uppercase());
        starts && span.contains("::") && span.chars().all(is_name) && !span.starts_with("Clock::")
    });
    let unknown = cells.chain(in_text).filter(|name| !exists(name, surface));
    unknown.map(str::to_owned).collect()
}

#[test]
fn each_method_of_kafka_streams_has_a_row() {
    assert_eq!(differences(&page()), [""; 0]);
}

/// Returns the cells beside methods that name no item of eos, and are not on the list.
fn nameless(page: &str) -> Vec<String> {
    let rows = rows(page);
    let cells = rows.values().flatten().map(|(_, ours)| ours.trim());
    let nameless = cells.filter(|ours| !ours.contains('`') && !WITHOUT_A_NAME.contains(ours));
    nameless.map(str::to_owned).collect()
}

#[test]
fn each_named_method_of_eos_exists() {
    assert_eq!(unknown(&page(), &surface()), [""; 0]);
}

#[test]
fn each_row_names_something_of_eos_or_says_that_it_does_not() {
    assert_eq!(nameless(&page()), [""; 0]);
    let vague = page().replacen("| not built |", "| soon |", 1);
    assert_eq!(nameless(&vague), ["soon"]);
}

#[test]
fn private_types_do_not_count() {
    let surface = surface();
    assert!(surface.contains_key("Stream") && !surface.contains_key("ForeignUpdate"));
    assert_eq!(described("pub struct A<K> {"), Some(("A", true)));
    for private in [
        "struct A;",
        "pub(crate) struct A;",
        "impl<K> Debug for A<K> {",
    ] {
        assert!(described(private).is_none_or(|(_, is_public)| !is_public));
    }
}

#[test]
fn a_row_that_is_missing_or_invented_is_found() {
    let row = "| `selectKey(KeyValueMapper)` |";
    let page = page();
    let renamed = page.replace(row, "| `rekey(KeyValueMapper)` |");
    let expected = [
        "no method KStream.rekey(KeyValueMapper)",
        "no row KStream.selectKey(KeyValueMapper)",
    ];
    assert_eq!(differences(&renamed), expected);
    let other = page.replace("### Punctuator", "### Punctual");
    let expected = ["no class Punctual", "no row Punctuator.punctuate(long)"];
    assert_eq!(differences(&other), expected);
    let surface = surface();
    for name in ["Stream::key_by_nothing", "Nothing", "Streams::map"] {
        let page = page.replace("`Stream::key_by`", &format!("`{name}`"));
        assert_eq!(unknown(&page, &surface).first().unwrap(), name);
    }
}
