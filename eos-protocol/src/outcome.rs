//! The outcome of a transaction in doubt (design rule 6).

use crate::name::TransactionName;
use crate::start::Committed;

/// The outcome for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It committed: its name is beside the offsets.
    Committed,
    /// It did not commit: the previous name is beside the offsets.
    Aborted,
    /// Neither: another owner committed, or the partitions disagree. The local state is invalid.
    Dirty,
}

/// Derives the outcome from the stable committed offsets of all inputs of one task. Call it after `init_transactions`
/// of a new producer with the same id has decided the old transaction.
#[must_use]
pub fn outcome(
    ours: Option<&TransactionName>,
    previous: Option<&TransactionName>,
    committed: &[Committed],
) -> Outcome {
    let mut found = None;
    for c in committed {
        // An unreadable name belongs to no transaction.
        let Ok(name) = TransactionName::parse(&c.metadata) else {
            return Outcome::Dirty;
        };
        let verdict = if ours.is_some() && name.as_ref() == ours {
            Outcome::Committed
        } else if name.as_ref() == previous {
            Outcome::Aborted
        } else {
            Outcome::Dirty
        };
        match found {
            None => found = Some(verdict),
            Some(first) if first != verdict => return Outcome::Dirty,
            Some(_) => {}
        }
    }
    found.unwrap_or(Outcome::Dirty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Nonce, Offset, Partition, Seq, TopicPartition};
    use crate::name::LayoutHash;

    fn name(seq: u64, nonce: u64) -> TransactionName {
        TransactionName {
            layout: LayoutHash(1),
            width: 1,
            seq: Seq(seq),
            nonce: Nonce(nonce),
            plain: None,
            windowed: None,
            stream_time: None,
            topics: crate::state::PerFamily::default(),
            stores: crate::state::StoreNames::default(),
        }
    }

    fn with(names: &[Option<TransactionName>]) -> Vec<Committed> {
        let committed = |name: &Option<TransactionName>| Committed {
            partition: TopicPartition::new("a", Partition::ZERO),
            offset: Some(Offset::ZERO),
            metadata: name
                .as_ref()
                .map_or(String::new(), TransactionName::to_string),
        };
        names.iter().map(committed).collect()
    }

    #[test]
    fn rule_6_the_name_decides() {
        let (ours, before) = (name(5, 50), name(4, 40));
        let verdict =
            |found: &[Option<TransactionName>]| outcome(Some(&ours), Some(&before), &with(found));
        assert_eq!(verdict(&[Some(ours.clone())]), Outcome::Committed);
        assert_eq!(
            verdict(&[Some(ours.clone()), Some(ours.clone())]),
            Outcome::Committed
        );
        assert_eq!(verdict(&[Some(before.clone())]), Outcome::Aborted);
        assert_eq!(
            verdict(&[Some(name(5, 51))]),
            Outcome::Dirty,
            "a stranger's attempt"
        );
        assert_eq!(
            verdict(&[Some(name(6, 60))]),
            Outcome::Dirty,
            "a successor went on"
        );
        assert_eq!(
            verdict(&[Some(ours.clone()), Some(before.clone())]),
            Outcome::Dirty
        );
        assert_eq!(
            verdict(&[None]),
            Outcome::Dirty,
            "the group's offsets were reset"
        );
        assert_eq!(verdict(&[]), Outcome::Dirty);
    }

    #[test]
    fn rule_6_a_first_transaction_has_no_name_before_it() {
        let ours = name(1, 10);
        assert_eq!(outcome(Some(&ours), None, &with(&[None])), Outcome::Aborted);
        assert_eq!(
            outcome(Some(&ours), None, &with(&[Some(ours.clone())])),
            Outcome::Committed
        );
        assert_eq!(outcome(None, None, &with(&[None])), Outcome::Aborted);
    }
}
