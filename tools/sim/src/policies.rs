//! Failing records, slow records, and per-commit results.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eos_core::{App, Backoff, ErrorPolicy, Failure, KeyValueStore, Topic};

use super::case::Case;
use super::clocks::Clocks;
use super::plain::COUNTING;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left, verdict};
use super::topics::INPUT;
use eos_oracle::{Evidence, Fold, Keys, Row};
use eos_testkit::rng::Rng;

/// The policy after the last retry is to skip the record.
pub(super) const SKIPPING: Case = Case {
    outputs: &OUTPUTS,
    draft,
    declare: |app, clocks| declare(app, clocks, ErrorPolicy::skip()),
    judge: |left, found| judge(left, found, false),
    ..COUNTING
};

/// The policy after the last retry is to write the record to a dead-letter topic.
pub(super) const DEAD_LETTERS: Case = Case {
    declare: |app, clocks| declare(app, clocks, ErrorPolicy::dead_letter(DEAD)),
    judge: |left, found| judge(left, found, true),
    ..SKIPPING
};

/// The policy after the last retry is to pause the task. The simulation decides, and in the end each record becomes a dead
/// letter.
pub(super) const PAUSING: Case = Case {
    declare: |app, clocks| {
        let policy = ErrorPolicy::pause().dead_letters_to(DEAD);
        declare(app, clocks, policy.into());
    },
    judge: |left, found| judge(left, found, true),
    ..SKIPPING
};

/// The topic for records that fail permanently, if the shape has one.
const DEAD: &str = "dead";
const COUNTS: &str = "counts";
/// The outputs. Each record goes into the first two.
const OUTPUTS: [&str; 4] = ["out", "copy", COUNTS, DEAD];

fn draft(rng: &mut Rng, now: i64) -> Draft {
    Draft {
        kind: Kind::drawn(rng),
        ..Draft::plain(now)
    }
}

/// Declares an app that keeps a count and emits a record before the closure fails. Neither effect may stay.
fn declare(app: &mut App, clocks: &Clocks, last: ErrorPolicy) {
    let policy = ErrorPolicy::retry(2, Backoff::fixed(Duration::from_millis(70))).then(last);
    let plain = |value: &str| {
        let mut words = value.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        (word(), word(), word())
    };
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    let records = source.on_error(policy);
    records
        .clone()
        .group_by_key()
        .aggregate(
            &KeyValueStore::<String, String>::plain("counts"),
            String::new,
            move |_, value, before| {
                let (seq, digit, _) = plain(&value);
                let count = before.rsplit(' ').next().and_then(|it| it.parse().ok());
                format!("{seq} {digit} {}", count.unwrap_or(0_u64) + 1)
            },
        )
        .emit_per_commit()
        .to(&Topic::plain(COUNTS));
    let words = move |value: &str| {
        let (seq, digit, kind) = plain(value);
        (format!("{seq} {digit}"), seq, kind)
    };
    records
        .clone()
        .map(move |value| words(&value).0)
        .to(&Topic::plain(OUTPUTS[0]));
    let cluster = clocks.cluster().clone();
    let tries = Mutex::new(BTreeMap::<String, u32>::new());
    records
        .try_map(move |value| {
            let (value, seq, kind) = words(&value);
            let mut tries = tries.lock().unwrap_or_else(PoisonError::into_inner);
            let tries = tries.entry(seq).or_default();
            *tries += 1;
            match &kind[..] {
                // A record never fails twice in a row.
                "flaky" if *tries % 3 == 1 => Err(Failure::from("flaky")),
                "bad" => Err(Failure::from("bad")),
                // `resume_unwind` bypasses the panic hook, which would print the panic.
                "panics" => resume_unwind(Box::new("at the disco")),
                "slow" => {
                    cluster.pass(cluster.now() + 3_500 + i64::from(*tries) * 700 % 2_500);
                    Ok(value)
                }
                _ => Ok(value),
            }
        })
        .to(&Topic::plain(OUTPUTS[1]));
}

/// Returns the fold of the expected state: each key's last record and count, with the highest time.
fn counts() -> Fold {
    Fold::new(|contents, record| {
        let key = record.key.unwrap_or_default().to_vec();
        let before = contents.remove(&key).unwrap_or_default();
        let count = String::from_utf8_lossy(before.get(8..).unwrap_or_default());
        let count = count.rsplit(' ').next().and_then(|it| it.parse().ok());
        let count = count.unwrap_or(0_i64) + 1;
        let digit = char::from(key.last().copied().unwrap_or_default());
        let mut value = record.value.to_be_bytes().to_vec();
        value.extend_from_slice(format!("{} {digit} {count}", record.seq).as_bytes());
        contents.insert(key, value);
        count
    })
}

fn judge(left: Left<'_>, found: &mut Found, letters: bool) -> Result<Vec<String>, String> {
    let (good, failed): (Vec<&Given>, Vec<&Given>) =
        left.given.iter().partition(|it| it.kind.counts());
    let slow = good.iter().filter(|it| it.kind == Kind::Slow).count();
    found.saw("records took seconds", slow);
    let evidence = |given: &[&Given], outputs: &[&str]| {
        let mut keys = Keys::default();
        let rows = given.iter().map(|it| Row {
            seq: Some(it.seq),
            key: keys.intern(Some(it.key.as_bytes())),
            partition: it.partition,
            offset: it.offset,
            value: it.timestamp,
        });
        let rows = rows.collect();
        let outputs = outputs.iter().map(|it| left.output(it, &mut keys, None));
        let outputs = outputs.collect();
        Ok::<_, String>(Evidence {
            outputs,
            ..left.evidence(INPUT, rows, keys)?
        })
    };
    let effects = Evidence {
        state: left.copies(INPUT, &counts()),
        ..evidence(&good, &OUTPUTS[..2])?
    };
    // Without a policy for dead letters, no record may be in their topic.
    let letters = if letters {
        found.saw("records became dead letters", failed.len());
        evidence(&failed, &[DEAD])?
    } else {
        found.saw("records were left out", failed.len());
        evidence(&[], &[DEAD])?
    };
    for output in [OUTPUTS[0], OUTPUTS[1], DEAD] {
        left.out_of_order(output, found);
    }
    per_commit(left, &good, found);
    Ok([effects, letters].iter().filter_map(verdict).collect())
}

/// Checks the per-commit results of each key. They belong to later and later records, each carries the count up to its
/// record, and the last one belongs to the last record.
fn per_commit(left: Left<'_>, good: &[&Given], found: &mut Found) {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    let mut due: BTreeMap<u64, i64> = BTreeMap::new();
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for it in good {
        let count = counts.entry(&it.key).or_default();
        *count += 1;
        due.insert(it.seq, *count);
    }
    let mut keys = Keys::default();
    let results = left.output(COUNTS, &mut keys, None).rows;
    found.saw("results went on once per commit", results.len());
    for row in &results {
        let given = row
            .seq
            .and_then(|seq| left.given.get(usize::try_from(seq).ok()?));
        let Some(given) = given else {
            found
                .wrong
                .push(format!("VIOLATED foreign: {COUNTS} holds {row:?}"));
            continue;
        };
        let before = last.insert(&given.key, row.value).unwrap_or(0);
        let is = due.get(&given.seq).copied();
        if is != Some(row.value) || row.value <= before || row.partition != given.partition {
            found.wrong.push(format!(
                "VIOLATED stale: {COUNTS}-{}, offset {}, key {}: {} after {before}, and up to seq {} it is {is:?}",
                row.partition, row.offset, given.key, row.value, given.seq
            ));
        }
    }
    if last != counts {
        found.wrong.push(format!(
            "VIOLATED lost: the last results of {COUNTS} are {last:?}, and they are to be {counts:?}"
        ));
    }
}
