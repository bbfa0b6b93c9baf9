//! Checks that a stage's topics have equal partition counts.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::{StageId, TopicName};
use crate::stages::Stage;

/// The topics of a stage have different partition counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the topics that one task reads together have different partition counts: {counts}. A task reads the same \
     partition number of each topic, so different tasks would read the records of one key. Give each topic {most} partitions"
)]
#[non_exhaustive]
pub struct UnequalWidths {
    /// The stage.
    pub stage: StageId,
    /// Its topics with their partition counts.
    pub counts: Counts,
    /// The largest count. A topic can grow, not shrink.
    pub most: u32,
}

impl UnequalWidths {
    /// Returns the topics with fewer than `most` partitions.
    pub fn smaller_topics(&self) -> impl Iterator<Item = &TopicName> {
        let counts = self.counts.0.iter();
        let smaller = counts.filter(|(_, count)| *count < self.most);
        smaller.map(|(topic, _)| topic)
    }
}

/// Topics with their partition counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts(pub Vec<(TopicName, u32)>);

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (topic, count)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{topic} has {count}")?;
        }
        Ok(())
    }
}

/// Checks that the topics of a stage have equal partition counts: at the start, and again after a change of metadata.
/// `counts` are the counts by topic. A topic that is not in `counts` does not exist, which another check reports.
///
/// # Errors
/// [`UnequalWidths`] if two counts differ.
pub fn check_widths(stage: &Stage, counts: &BTreeMap<TopicName, u32>) -> Result<(), UnequalWidths> {
    let of_stage = stage.topics.iter();
    let found: Vec<(TopicName, u32)> = of_stage
        .filter_map(|topic| Some((topic.clone(), *counts.get(topic)?)))
        .collect();
    let most = found.iter().map(|&(_, count)| count).max();
    match most {
        Some(most) if found.iter().any(|&(_, count)| count != most) => Err(UnequalWidths {
            stage: stage.id,
            counts: Counts(found),
            most,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::stages;

    fn check(counts: &[(&str, u32)]) -> Result<(), UnequalWidths> {
        let topics: Vec<TopicName> = ["orders", "customers", "refunds"].map(Into::into).into();
        let stage = &stages(&topics, &[(0, 1), (1, 2)])[0];
        let counts = counts.iter().map(|&(topic, n)| (topic.into(), n)).collect();
        check_widths(stage, &counts)
    }

    #[test]
    fn equal_counts_pass_and_other_stages_don_t_matter() {
        let equal = [("orders", 6), ("customers", 6), ("refunds", 6)];
        assert_eq!(check(&[&equal[..], &[("payments", 3)]].concat()), Ok(()));
        assert_eq!(check(&equal[..2]), Ok(()), "one is not there");
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn unequal_counts_are_named() {
        let error = check(&[("orders", 6), ("customers", 12), ("refunds", 6)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the topics that one task reads together have different partition counts: orders has 6, customers has 12, \
             refunds has 6. A task reads the same partition number of each topic, so different tasks would read the records of \
             one key. Give each topic 12 partitions"
        );
        let smaller: Vec<_> = error.smaller_topics().map(TopicName::as_str).collect();
        assert_eq!(smaller, ["orders", "refunds"]);
    }
}
