//! Sequence numbers and versions, with repeated and stale records, and failures after them.

use std::collections::BTreeMap;

use eos_core::identity::{HighWatermarks, Seen, Sequence, Versions};
use eos_core::{App, ErrorPolicy, Failure, Topic};

use super::case::Case;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_testkit::rng::Rng;

pub(super) const SEQUENCES: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// Writes each record with its verdict by the numbers of its producer, and each record with a higher version of its
/// key. Bad records fail after both.
fn declare(app: &mut App) {
    let [judged, newest] = OUTPUTS.map(Topic::<String, String>::plain);
    let source = app.source(&Topic::<String, String>::plain(INPUT));
    let source = source.on_error(ErrorPolicy::skip());
    let newer = source.clone();
    let newer = newer.newest(&Versions::new("versions"), |value: &String| place(value).2);
    newer.accepted().to(&newest);
    let numbered = source.dedup_by_sequence(&HighWatermarks::new("marks"), |value| {
        let (producer, epoch, number) = place(value);
        Sequence {
            producer,
            epoch,
            number: number.into(),
        }
    });
    let verdicts = numbered.judged();
    verdicts
        .try_map(|it| match it.value.ends_with("bad") {
            true => Err(Failure::from("bad")),
            false => Ok(match it.seen {
                Seen::New => format!("{} new", it.value),
                Seen::Duplicate { .. } => format!("{} again", it.value),
                _ => format!("{} stale", it.value),
            }),
        })
        .to(&judged);
}

/// Returns producer, epoch and number of a record. They rise with the number of the record, but for one in three: these
/// repeat an earlier number, or belong to a former epoch.
fn place(value: &str) -> (u64, u64, u64) {
    let seq = value.split(' ').next().and_then(|it| it.parse().ok());
    let seq: u64 = seq.unwrap_or(0);
    let noise = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let (mut epoch, mut number) = (seq / 50, seq % 50);
    match noise % 12 {
        0 => epoch = epoch.saturating_sub(1),
        1..=3 => number = number.saturating_sub(noise / 12 % 20),
        _ => {}
    }
    (seq % 3, epoch, number)
}

fn draft(rng: &mut Rng, now: i64) -> Draft {
    let kind = match rng.below(12) {
        0 => Kind::Bad,
        _ => Kind::Good,
    };
    Draft {
        kind,
        ..Draft::plain(now)
    }
}

/// One partition: one loop over the records, with the highest place of each producer and key.
#[derive(Debug, Default)]
struct Model {
    marks: BTreeMap<u64, (u64, u64)>,
    versions: BTreeMap<String, u64>,
    judged: Vec<Emitted>,
    newest: Vec<Emitted>,
    repeated: usize,
    stale: usize,
}

impl Model {
    fn record(&mut self, it: &Given, value: &str) {
        // A failed record leaves nothing.
        if it.kind == Kind::Bad {
            return;
        }
        let (producer, epoch, number) = place(value);
        let verdict = match self.marks.get(&producer) {
            Some((last, _)) if epoch < *last => "stale",
            Some(last) if (epoch, number) <= *last => "again",
            _ => "new",
        };
        self.repeated += usize::from(verdict == "again");
        self.stale += usize::from(verdict == "stale");
        if verdict == "new" {
            self.marks.insert(producer, (epoch, number));
        }
        let time = it.timestamp;
        self.judged
            .push((it.key.clone(), format!("{value} {verdict}"), time));
        if self.versions.get(&it.key).is_none_or(|last| number > *last) {
            self.versions.insert(it.key.clone(), number);
            self.newest.push((it.key.clone(), value.to_owned(), time));
        }
    }
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        for it in loops::given(left, INPUT, partition) {
            let digit = it.key.bytes().last().map_or(0, |digit| digit - b'0');
            let value = it.kind.value(it.seq, digit.into());
            model.record(it, &String::from_utf8_lossy(&value));
        }
        found.saw("numbers were repeated", model.repeated);
        found.saw("epochs were stale", model.stale);
        let [judged, newest] = OUTPUTS;
        for (output, expected) in [(judged, &model.judged), (newest, &model.newest)] {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
    }
    Ok(verdicts)
}
