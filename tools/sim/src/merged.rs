//! Two topics that one task merges by time.

use eos_core::{App, Topic};

use super::case::Case;
use super::plain::STATELESS;
use super::record::Draft;
use super::remains::{Found, Left, verdict};
use super::topics::{INPUT, OUTPUTS};
use eos_oracle::{Evidence, Keys, Row};
use eos_testkit::rng::Rng;

pub(super) const MERGED: Case = Case {
    inputs: &INPUTS,
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The group subscribes to the first.
const INPUTS: [&str; 2] = [INPUT, "beside"];

fn declare(app: &mut App) {
    let [first, second] = INPUTS.map(|topic| app.source(&Topic::<String, String>::plain(topic)));
    let merged = first.merge(second);
    merged.clone().to(&Topic::plain(OUTPUTS[0]));
    merged.to(&Topic::plain(OUTPUTS[1]));
}

/// Returns a record. The times within a topic vary slightly in both directions.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    Draft {
        topic: INPUTS[rng.below(2)],
        timestamp: now - rng.between(0, 40),
        ..Draft::plain(now)
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for topic in INPUTS {
        let mut keys = Keys::default();
        let rows = left.of(topic).map(|it| Row {
            seq: Some(it.seq),
            key: keys.intern(Some(it.key.as_bytes())),
            partition: it.partition,
            offset: it.offset,
            value: 0,
        });
        let rows = rows.collect();
        let outputs = OUTPUTS.map(|output| {
            let mut output = left.output(output, &mut keys, None);
            // Outputs without an input are in neither list.
            output.rows.retain(|row| {
                let seq = row.seq.and_then(|it| usize::try_from(it).ok());
                let given = seq.and_then(|it| left.given.get(it));
                given.is_none_or(|it| it.topic == topic)
            });
            output
        });
        let evidence = Evidence {
            outputs: outputs.into(),
            ..left.evidence(topic, rows, keys)?
        };
        verdicts.extend(verdict(&evidence));
    }
    for output in OUTPUTS {
        left.out_of_order(output, found);
        for partition in 0..left.partitions {
            let due = left.by_time(INPUTS, partition);
            let due: Vec<u64> = due.into_iter().map(|it| it.seq).collect();
            let records = left.cluster.read(output, partition).into_iter();
            let seqs = records.filter_map(|it| {
                let value = it.value?;
                let value = std::str::from_utf8(&value).ok()?;
                value.split(' ').next()?.parse::<u64>().ok()
            });
            let last: Vec<u64> = seqs.filter(|it| due.contains(it)).collect();
            found.saw("records were merged by time", due.len());
            if last != due {
                found.wrong.push(format!(
                    "VIOLATED merged: the last of {output}-{partition} are {last:?}, and in order of time they \
                     are {due:?}"
                ));
            }
        }
    }
    Ok(verdicts)
}
