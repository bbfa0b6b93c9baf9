//! What the judge found.

use std::fmt;

/// At most this many examples of a violation are kept.
const EXAMPLES: usize = 5;

/// The findings of each kind; clean when there are none.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Inputs without a record in some output.
    pub lost: Finding,
    /// Outputs beyond the first for the same input.
    pub doubled: Finding,
    /// Outputs of a key out of the order of its inputs, or in more than one partition.
    pub reordered: Finding,
    /// Outputs whose number no input has: of unknown origin, or never committed.
    pub foreign: Finding,
    /// Outputs under another key than their input.
    pub rekeyed: Finding,
    /// Inputs that reached some outputs and not others: part of a transaction.
    pub torn: Finding,
    /// Visible data that its own transaction did not commit: by the markers, or by the
    /// log of the coordinators.
    pub aborted: Finding,
    /// Input partitions whose committed offset is not where the outputs are.
    pub offsets: Finding,
    /// Transactions that have not ended.
    pub open: Finding,
    /// Transactions that will never end: a partition holds them open, and no coordinator knows
    /// them to be.
    pub hanging: Finding,
    /// Copies of state that hold more than what is committed, or say so.
    pub state_ahead: Finding,
    /// Copies of state that hold less than what is committed, and may not.
    pub state_behind: Finding,
    /// Copies of state that no inputs lead to, or others than they say.
    pub state_wrong: Finding,
    /// Outputs whose running value is not what the inputs up to theirs make: an update was lost, or made from
    /// old state. What follows for the same key is counted when it has been right in between.
    pub stale: Finding,
}

/// Violations of one kind.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// One violation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Example {
    /// The number of the input.
    pub seq: Option<u64>,
    /// Its key.
    pub key: Option<String>,
    /// The topic it shows in.
    pub topic: Option<String>,
    /// The partition there.
    pub partition: Option<i32>,
    /// The offset there.
    pub offset: Option<i64>,
    /// What is wrong.
    pub note: String,
}

impl Verdict {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings()
            .iter()
            .all(|(_, finding)| finding.count == 0)
    }

    /// Every kind with its name.
    pub fn findings(&self) -> [(&'static str, &Finding); 14] {
        [
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("reordered", &self.reordered),
            ("foreign", &self.foreign),
            ("rekeyed", &self.rekeyed),
            ("torn", &self.torn),
            ("aborted", &self.aborted),
            ("offsets", &self.offsets),
            ("open", &self.open),
            ("hanging", &self.hanging),
            ("state_ahead", &self.state_ahead),
            ("state_behind", &self.state_behind),
            ("state_wrong", &self.state_wrong),
            ("stale", &self.stale),
        ]
    }
}

impl Finding {
    /// Counts a violation and keeps it while few are kept.
    pub(super) fn add(&mut self, example: impl FnOnce() -> Example) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(seq) = self.seq {
            parts.push(format!("seq {seq}"));
        }
        if let Some(key) = &self.key {
            parts.push(format!("key {key}"));
        }
        if let (Some(topic), Some(partition)) = (&self.topic, self.partition) {
            parts.push(format!("{topic}-{partition}"));
        }
        if let Some(offset) = self.offset {
            parts.push(format!("offset {offset}"));
        }
        if !parts.is_empty() {
            write!(f, "{}: ", parts.join(", "))?;
        }
        f.write_str(&self.note)
    }
}
