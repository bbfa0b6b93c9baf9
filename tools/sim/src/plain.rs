//! Copies and counts, without joins, windows or failures.

use std::collections::BTreeMap;

use eos_core::{App, Ctx, Guarantee, KeyValueStore, Record, Topic};
use eos_protocol::partition_for;

use super::case::Case;
use super::record::Draft;
use super::remains::{Found, Left, verdict};
use super::topics::{INPUT, OUTPUTS};
use eos_oracle::{Contents, Evidence, Expectation, Fold, Keys, Row, judge, text};

pub(super) const STATELESS: Case = Case {
    guarantee: Guarantee::ExactlyOnce,
    inputs: &[INPUT],
    sibling: None,
    global: None,
    letters: None,
    repartitions: &[],
    changelog: None,
    outputs: &OUTPUTS,
    by_wall_clock: false,
    pauses: false,
    draft: |_, now| Draft::plain(now),
    declare: |app, _| copy(app),
    ledger: None,
    judge: copied,
};

pub(super) const AT_LEAST_ONCE: Case = Case {
    guarantee: Guarantee::AtLeastOnce,
    judge: repeated,
    ..STATELESS
};

pub(super) const COUNTING: Case = Case {
    changelog: Some("sim-in-changelog"),
    declare: |app, _| count(app),
    judge: counted,
    ..STATELESS
};

pub(super) const REPARTITIONED: Case = Case {
    repartitions: &["sim-by-digit-repartition"],
    changelog: Some("sim-by-digit-repartition-changelog"),
    declare: |app, _| count_by_digit(app),
    judge: counted_by_digit,
    ..STATELESS
};

fn copy(app: &mut App) {
    let [first, second] = OUTPUTS.map(Topic::<String, String>::plain);
    let records = app.source(&Topic::<String, String>::plain(INPUT));
    records.clone().to(&first);
    records.to(&second);
}

/// Counts in the middle of a chain, whose results go on to two topics.
fn count(app: &mut App) {
    let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
    let [first, second] = OUTPUTS.map(Topic::<String, String>::plain);
    let counted = app
        .source(&Topic::<String, String>::plain(INPUT))
        .with_store(&counts)
        .process_values(move |ctx, record| {
            let counts = ctx.store(&counts);
            let count = counts.update(record.key, |before| before.unwrap_or(0) + 1)?;
            ctx.forward(format!("{} {count}", record.value))
        });
    counted.clone().to(&first);
    counted.to(&second);
}

/// Counts at the end of a chain, in a closure that writes to two topics.
fn count_by_digit(app: &mut App) {
    let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
    let [first, second] = OUTPUTS.map(Topic::<String, String>::plain);
    let (first, second) = (app.output(&first), app.output(&second));
    let count = move |ctx: &Ctx<'_>, record: Record<String, String>| {
        let counts = ctx.store(&counts);
        let count = counts.update(&record.key, |before| before.unwrap_or(0) + 1)?;
        let value = format!("{} {count}", record.value);
        ctx.emit(&first, record.key.clone(), value.clone())?;
        ctx.emit(&second, record.key, value)
    };
    app.source(&Topic::<String, String>::plain(INPUT))
        // The value contains the new key.
        .key_by(|value| value.split(' ').nth(1).unwrap_or_default().to_owned())
        .repartition(&Topic::plain("by-digit"))
        .with_store(&counts)
        .for_each(count);
}

/// Returns the new key after the repartition. The input's key is a letter and a digit.
fn digit(key: &str) -> String {
    key.chars().skip(1).collect()
}

/// Returns the fold that counts the records of each key.
fn counts() -> Fold {
    Fold::new(|contents, record| {
        let key = record.key.unwrap_or_default().to_vec();
        let count = contents.entry(key).or_insert_with(|| vec![0; 8]);
        let next = number(count) + 1;
        *count = next.to_be_bytes().to_vec();
        i64::try_from(next).unwrap_or(i64::MAX)
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// Returns the evidence of the input and the outputs. `key` returns the key of an output.
fn evidence(
    left: Left<'_>,
    key: fn(&str) -> String,
    running: Option<Fold>,
) -> Result<Evidence, String> {
    let mut keys = Keys::default();
    let rows = left.of(INPUT).map(|it| Row {
        seq: Some(it.seq),
        key: keys.intern(Some(key(&it.key).as_bytes())),
        partition: it.partition,
        offset: it.offset,
        value: 0,
    });
    let rows = rows.collect();
    let outputs = OUTPUTS.map(|topic| left.output(topic, &mut keys, running.clone()));
    Ok(Evidence {
        outputs: outputs.into(),
        ..left.evidence(INPUT, rows, keys)?
    })
}

fn copied(left: Left<'_>, _: &mut Found) -> Result<Vec<String>, String> {
    let evidence = evidence(left, str::to_owned, None)?;
    Ok(verdict(&evidence).into_iter().collect())
}

fn counted(left: Left<'_>, _: &mut Found) -> Result<Vec<String>, String> {
    let evidence = Evidence {
        state: left.copies(INPUT, &counts()),
        ..evidence(left, str::to_owned, Some(counts()))?
    };
    Ok(verdict(&evidence).into_iter().collect())
}

fn counted_by_digit(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    counted_across(left, &mut found.wrong);
    let evidence = evidence(left, digit, None)?;
    Ok(verdict(&evidence).into_iter().collect())
}

/// Checks an app that may repeat records: only the first copy counts. Records after the last fault must not be
/// repeated.
pub(super) fn repeated(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let evidence = evidence(left, str::to_owned, None)?;
    let mut verdict = judge(&evidence, Expectation::Finished);
    let doubled = std::mem::take(&mut verdict.doubled);
    let times = usize::try_from(doubled.count).unwrap_or(usize::MAX);
    found.saw("records were repeated", times);
    for output in &evidence.outputs {
        let mut times = BTreeMap::new();
        for seq in output.rows.iter().filter_map(|row| row.seq) {
            *times.entry(seq).or_insert(0) += 1;
        }
        let after = left.given.get(left.after_faults..).unwrap_or_default();
        for it in after {
            let (topic, seq) = (&output.topic, it.seq);
            match times.get(&seq) {
                Some(times) if *times > 1 => found.wrong.push(format!(
                    "VIOLATED repeated: seq {seq} is {times} times in {topic}, and it came after the last fault"
                )),
                _ => {}
            }
        }
    }
    let violated = (!verdict.is_clean()).then(|| text(&evidence, &verdict));
    Ok(violated.into_iter().collect())
}

/// Compares counts by digit. A task counts records of several partitions of the input, so no fold of one partition
/// gives its state.
fn counted_across(left: Left<'_>, wrong: &mut Vec<String>) {
    let Left {
        cluster,
        given,
        databases,
        ..
    } = left;
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for it in given {
        *expected.entry(digit(&it.key).into_bytes()).or_default() += 1;
    }
    for topic in OUTPUTS {
        let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for partition in 0..cluster.partitions(topic) {
            for record in cluster.read(topic, partition) {
                let count = counts
                    .entry(record.key.clone().unwrap_or_default().to_vec())
                    .or_default();
                *count += 1;
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
                let told = value
                    .split(' ')
                    .nth(2)
                    .and_then(|it| it.parse::<u64>().ok());
                if told != Some(*count) {
                    let offset = record.offset;
                    wrong.push(format!(
                        "{topic}-{partition}, offset {offset}: count {told:?} instead of {count}"
                    ));
                }
            }
        }
    }
    if let Some(topic) = left.changelog {
        let width = cluster.partitions(topic);
        for partition in 0..width {
            let of_it = |key: &[u8]| {
                let count = u32::try_from(width).unwrap_or(1);
                partition_for(key, count).get() == partition
            };
            let due = expected.iter().filter(|(key, _)| of_it(key));
            let due: Contents = due
                .map(|(key, count)| (key.clone(), count.to_be_bytes().to_vec()))
                .collect();
            let found = left.logged(topic, partition);
            if found != due {
                wrong.push(format!("{topic}-{partition} holds {found:?}, not {due:?}"));
            }
            // Only tasks with counts have contents.
            let own = databases.iter().filter(|it| {
                let of_it = it.task.partition.get() == partition;
                of_it && it.open && it.written
            });
            for it in own {
                let (found, task) = (&it.contents, it.task);
                if *found != due {
                    wrong.push(format!("database of {task} holds {found:?}, not {due:?}"));
                }
            }
        }
    }
}
