//! The verdict, and its findings.

use std::fmt;

/// The maximum number of examples of a violation.
const EXAMPLES: usize = 5;

/// The findings of each kind. A clean verdict has none.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Inputs without a record in some output.
    pub lost: Finding,
    /// Additional outputs for the same input.
    pub doubled: Finding,
    /// Outputs of a key that are not in the order of its inputs, or are in more than one partition.
    pub reordered: Finding,
    /// Outputs whose number no input has, so that their input is unknown or was never committed.
    pub foreign: Finding,
    /// Outputs under another key than their input.
    pub rekeyed: Finding,
    /// Inputs that are in some outputs and not in others: part of a transaction.
    pub torn: Finding,
    /// Visible data that its own transaction did not commit, by the markers or by the log of the coordinators.
    pub aborted: Finding,
    /// Input partitions whose committed offset does not match the outputs.
    pub offsets: Finding,
    /// Transactions that have not ended.
    pub open: Finding,
    /// Transactions that will never end: open in a partition, although no coordinator lists them as open.
    pub hanging: Finding,
    /// Copies of state that contain more than the committed records, or whose position is beyond them.
    pub state_ahead: Finding,
    /// Copies of state that contain less than the committed records, and may not lag.
    pub state_behind: Finding,
    /// Copies of state that result from no inputs, or do not match their own position.
    pub state_wrong: Finding,
    /// Outputs whose running value does not match the inputs up to their own. An update was lost, or made from old
    /// state. A key is counted again only after its value was right in between.
    pub stale: Finding,
}

/// Violations of one kind.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The number of violations.
    pub count: u64,
    /// The first violations.
    pub examples: Vec<Example>,
}

/// One violation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Example {
    /// The number of the input.
    pub seq: Option<u64>,
    /// The key of the input.
    pub key: Option<String>,
    /// The topic of the violation.
    pub topic: Option<String>,
    /// The partition in the topic.
    pub partition: Option<i32>,
    /// The offset in the partition.
    pub offset: Option<i64>,
    /// The description of the violation.
    pub note: String,
}

impl Verdict {
    /// Returns whether there are no violations.
    pub fn is_clean(&self) -> bool {
        self.findings()
            .iter()
            .all(|(_, finding)| finding.count == 0)
    }

    /// Returns every kind with its name.
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
    /// Counts a violation, and keeps it as an example if there are fewer than the maximum.
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
