//! The comparison of copies of state with the committed inputs.
//!
//! ```text
//! records of the input partition    r0    r1    r2    r3    r4    r5
//! contents after the fold        f0    f1    f2    f3    f4    f5    f6
//!                                └─ behind ─┘    │     └── ahead ──┘    wrong: any other
//!                                        committed: the records below
//! ```
//!
//! A position is compared by the records below it, not as a number. Markers may lie between two offsets with the same
//! records below them.

use std::collections::BTreeMap;

use super::evidence::{Evidence, StateCopy};
use super::fold::Contents;
use super::keys::shown;
use super::records::InputRecord;
use super::verdict::{Example, Verdict};

/// Compares every copy. A violation is counted once per copy.
pub(super) fn find(evidence: &Evidence, verdict: &mut Verdict) {
    // An open transaction that withholds the offsets is a violation of its own kind.
    if evidence.committed.is_none() {
        return;
    }
    let mut partitions = BTreeMap::new();
    for copy in &evidence.state {
        let records = partitions
            .entry(copy.partition)
            .or_insert_with(|| evidence.input.of_partition(copy.partition, &evidence.keys));
        let end = usize::try_from(copy.partition).ok();
        let end = end.and_then(|nth| evidence.input.ends.get(nth));
        let compared = Compared {
            copy,
            records,
            committed: evidence.committed_at(copy.partition),
            end: end.copied().unwrap_or(0),
        };
        if let Some((kind, key, note)) = compared.complaint() {
            let finding = match kind {
                Kind::Ahead => &mut verdict.state_ahead,
                Kind::Behind => &mut verdict.state_behind,
                Kind::Wrong => &mut verdict.state_wrong,
            };
            finding.add(|| Example {
                key,
                topic: Some(evidence.input.topic.clone()),
                partition: Some(copy.partition),
                offset: Some(compared.committed),
                note: format!("{} {note}", copy.name),
                ..Example::default()
            });
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ahead,
    Behind,
    Wrong,
}

/// The kind, the first key that differs, and a description.
type Complaint = (Kind, Option<String>, String);

/// A copy beside the records of its partition.
struct Compared<'a> {
    copy: &'a StateCopy,
    records: &'a [InputRecord<'a>],
    committed: i64,
    /// The end of the input partition.
    end: i64,
}

impl Compared<'_> {
    fn complaint(&self) -> Option<Complaint> {
        let due = self.below(self.committed);
        let says = self.copy.position.map(|position| self.below(position));
        let (expected, beyond) = (self.expected(due), self.is_beyond(due));
        let right = self.copy.contents == expected;
        if right && !beyond && says.is_none_or(|says| says == due) {
            return None;
        }
        let holds = self.holds();
        let at = match says {
            Some(says) if holds.contains(&says) => Some(says),
            _ => nearest(&holds, due),
        };
        let kind = match at {
            _ if beyond => Kind::Ahead,
            Some(at) if at > due => Kind::Ahead,
            Some(at) if at < due && !right && !self.copy.may_lag => Kind::Behind,
            Some(at) if says.is_none_or(|says| says == at) => return None,
            _ => Kind::Wrong,
        };
        // A copy that may lag is not compared with the committed offset.
        let (key, values) = match (kind, says) {
            (Kind::Wrong, Some(says)) => self.difference(&self.expected(says)),
            _ => self.difference(&expected),
        };
        let says = self
            .copy
            .position
            .map_or_else(String::new, |position| format!("says offset {position}, "));
        let holds = match at {
            Some(at) => format!("holds what lies below offset {}", self.offset_of(at)),
            None => "holds what no inputs lead to".to_owned(),
        };
        let note = format!("{says}{holds}, committed is {}{values}", self.committed);
        Some((kind, key, note))
    }

    /// Returns the contents after the first `records` records.
    fn expected(&self, records: usize) -> Contents {
        self.copy.fold.contents(&self.records[..records])
    }

    /// Returns whether the position of the copy is beyond the committed offset.
    fn is_beyond(&self, due: usize) -> bool {
        self.copy.position.is_some_and(|position| {
            let further = self.below(position) > due;
            // A copy beyond the end would skip the records that arrive there.
            further || position > self.committed.max(self.end)
        })
    }

    /// Returns each number of records after which the fold has these contents.
    fn holds(&self) -> Vec<usize> {
        let mut contents = Contents::new();
        let mut holds = Vec::from_iter((contents == self.copy.contents).then_some(0));
        for (record, after) in self.records.iter().zip(1..) {
            self.copy.fold.step(&mut contents, record);
            if contents == self.copy.contents {
                holds.push(after);
            }
        }
        holds
    }

    /// Returns the number of records below an offset.
    fn below(&self, offset: i64) -> usize {
        self.records
            .partition_point(|record| record.offset < offset)
    }

    /// Returns an offset with this number of records below it. Several offsets may qualify, and it prefers one from the
    /// evidence.
    fn offset_of(&self, records: usize) -> i64 {
        let named = [Some(self.committed), self.copy.position];
        let mut named = named.into_iter().flatten();
        let after_last = || match records.checked_sub(1) {
            Some(last) => self.records[last].offset + 1,
            None => 0,
        };
        let same = named.find(|offset| self.below(*offset) == records);
        same.unwrap_or_else(after_last)
    }

    /// Returns the first key that differs, and its value as the end of a note.
    fn difference(&self, expected: &Contents) -> (Option<String>, String) {
        let found = &self.copy.contents;
        let of_either = found.keys().chain(expected.keys());
        let differ = of_either.filter(|key| found.get(*key) != expected.get(*key));
        let Some(key) = differ.min() else {
            return (None, String::new());
        };
        let value = |contents: &Contents| match contents.get(key) {
            Some(value) => shown(value),
            None => "nothing".to_owned(),
        };
        let values = format!(": found {}, expected {}", value(found), value(expected));
        (Some(shown(key)), values)
    }
}

/// Returns the number of records that is nearest to `due`, from those with the same contents.
fn nearest(holds: &[usize], due: usize) -> Option<usize> {
    holds.iter().copied().min_by_key(|at| at.abs_diff(due))
}
