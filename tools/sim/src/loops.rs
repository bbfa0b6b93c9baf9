//! Outputs that one loop over the input computes.

use super::record::Given;
use super::remains::{Copied, Left};

/// An expected output: key, value and time.
pub(super) type Emitted = (String, String, i64);

/// Returns the records of a partition of an input, in the order of their offsets.
pub(super) fn given<'a>(
    left: Left<'a>,
    input: &str,
    partition: i32,
) -> impl Iterator<Item = &'a Given> {
    let given = left.of(input).filter(|it| it.partition == partition);
    let mut given: Vec<&Given> = given.collect();
    given.sort_by_key(|it| it.offset);
    given.into_iter()
}

/// Returns the whole databases of a partition's tasks that were open at the end.
pub(super) fn open_databases(left: Left<'_>, partition: i32) -> impl Iterator<Item = &Copied> {
    let open = left.databases.iter().filter(|it| it.open && it.whole);
    open.filter(move |it| it.task.partition.get() == partition)
}

/// Returns the first difference between a partition of an output and the expected records.
pub(super) fn difference(
    left: Left<'_>,
    output: &str,
    partition: i32,
    expected: &[Emitted],
) -> Option<String> {
    let found = emitted(left, output, partition);
    first_difference((output, partition), &found, expected)
}

/// The same, for an output in which only the order within each key is known.
pub(super) fn difference_by_key(
    left: Left<'_>,
    output: &str,
    partition: i32,
    expected: &[Emitted],
) -> Option<String> {
    let (mut found, mut expected) = (emitted(left, output, partition), expected.to_vec());
    for records in [&mut found, &mut expected] {
        records.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    }
    first_difference((output, partition), &found, &expected)
}

/// Returns a number in a text, by its place among the words.
pub(super) fn word(text: &str, nth: usize) -> Option<i64> {
    text.split(' ').nth(nth)?.parse().ok()
}

/// Returns the records of a partition of an output.
pub(super) fn emitted(left: Left<'_>, output: &str, partition: i32) -> Vec<Emitted> {
    let found = left.cluster.read(output, partition).into_iter();
    let emitted = found.map(|it| {
        let (key, value) = (text(it.key.as_deref()), text(it.value.as_deref()));
        (key, value, it.timestamp)
    });
    emitted.collect()
}

fn first_difference(
    (output, partition): (&str, i32),
    found: &[Emitted],
    expected: &[Emitted],
) -> Option<String> {
    let equal = found
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count();
    if equal == found.len() && equal == expected.len() {
        return None;
    }
    let what = match (found.get(equal), expected.get(equal)) {
        (Some(it), _) if found[..equal].contains(it) => "doubled",
        (Some(it), Some(_)) if !expected.contains(it) => "unexpected",
        (None, Some(_)) => "lost",
        (Some(_), Some(missing)) if !found.contains(missing) => "lost",
        _ => "reordered",
    };
    Some(format!(
        "VIOLATED {what}: {output}-{partition}, record {equal}: found {:?}, expected {:?}",
        found.get(equal),
        expected.get(equal)
    ))
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}
