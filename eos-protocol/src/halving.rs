//! The search for a record that aborts transactions (design rule 9).
//!
//! Two aborts that begin at the same record raise the suspicion that one of their records is the cause. Then
//! transactions take half as many records, and half as many again after every abort, until the culprit is alone:
//!
//! ```text
//! records 1–8, abort   records 1–8, abort: 4 at most   1–4, commit   5–8, abort: 2 at most
//! 5–6, abort: 1 at most   5, commit   6, abort   6, abort: 6 is the culprit
//! ```
//!
//! Meanwhile, a worker's other partitions continue in small transactions of their own. Their commits prove nothing
//! about the suspected records, so this module keeps everything by partition.
//!
//! A due item has a partition of its own ([`ItemName::partition`]), because items may come in another order after
//! an abort. Another record may delete an item or move it, so its suspicion ends after some commits without it.
//!
//! Only aborts that a record can have caused belong here: a refused output, a transaction timeout. External causes (a
//! rebalance, a broker that moves) prove nothing.

use std::collections::BTreeMap;

use crate::ids::{Offset, TopicPartition};
use crate::item_name::ItemName;

/// The number of commits without a suspected due item after which the item counts as gone.
const PATIENCE: u64 = 200;

/// The records that a transaction took from one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The partition.
    pub partition: TopicPartition,
    /// The first record.
    pub first: Offset,
    /// The offset after the last one.
    pub next: Offset,
}

/// The search for records that keep aborting their transactions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Isolation {
    /// By partition: where the last aborted transaction with records of this partition began.
    begun: BTreeMap<TopicPartition, Begun>,
    search: Option<Search>,
    culprits: Vec<Culprit>,
    /// The number of commits since the first of these.
    commits: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Culprit {
    place: (TopicPartition, Offset),
    /// The number of aborts by the record since the search found it.
    aborts: u32,
}

impl Culprit {
    fn is_at(&self, partition: &TopicPartition, offset: Offset) -> bool {
        self.place.1 == offset && self.place.0 == *partition
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begun {
    first: Offset,
    /// That record was its only one.
    alone: bool,
    /// The number of commits before it.
    at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Search {
    /// The maximum number of records in a transaction.
    limit: u64,
    /// The number of records in the transaction that raised the suspicion.
    normal: u64,
    /// The uncommitted records of the last aborted transaction, which include the culprit: the offset after the last one,
    /// and the number of commits before it.
    suspected: BTreeMap<TopicPartition, (Offset, u64)>,
}

impl Isolation {
    /// Records the abort of a transaction with this number of records.
    ///
    /// Two transactions begin at the same record if they do so in one partition. The other partitions need not match:
    /// between two attempts more records of another partition may arrive, and half as many records may not reach
    /// every partition. No record of that partition was committed between the two attempts.
    pub fn aborted(&mut self, taken: &[Taken], records: u64) {
        let before = |t: &Taken| self.begun.get(&t.partition).filter(|b| b.first == t.first);
        let again = taken.iter().any(|t| before(t).is_some());
        let culprit = taken
            .iter()
            .find(|t| records == 1 && before(t).is_some_and(|b| b.alone))
            .map(|t| (t.partition.clone(), t.first));
        for t in taken {
            let begun = Begun {
                first: t.first,
                alone: records == 1,
                at: self.commits,
            };
            self.begun.insert(t.partition.clone(), begun);
        }

        if self.search.is_some() || again {
            let search = self.search.take();
            let (limit, normal) = search.map_or((records, records), |s| (s.limit, s.normal));
            // Once the culprit is found, no other record is suspected.
            let suspected = if culprit.is_none() { taken } else { &[] };
            self.search = Some(Search {
                limit: (records.min(limit) / 2).max(1),
                normal,
                suspected: suspected
                    .iter()
                    .map(|t| (t.partition.clone(), (t.next, self.commits)))
                    .collect(),
            });
        }
        let Some(place) = culprit else { return };
        match self.culprits.iter_mut().find(|c| c.place == place) {
            Some(known) => known.aborts += 1,
            None => self.culprits.push(Culprit { place, aborts: 0 }),
        }
    }

    /// Records a commit. (A transaction that holds a culprit commits, too, once the error policy has handled the
    /// culprit.) Costs nothing while no record is suspected.
    ///
    /// Beyond the suspected records the limit doubles with each commit, until it has its old value. An immediate
    /// reset would save a few commits. But if the size aborted the transaction (a hundred records that are too slow
    /// together, and none alone), two aborts of the full size would follow every search.
    pub fn committed(&mut self, taken: impl IntoIterator<Item = Taken>) {
        if self.begun.is_empty() && self.search.is_none() {
            return;
        }
        for t in taken {
            self.begun.remove(&t.partition);
            self.culprits
                .retain(|c| c.place.0 != t.partition || c.place.1 >= t.next);
            if let Some(search) = &mut self.search
                && let Some((next, _)) = search.suspected.get(&t.partition)
                && *next <= t.next
            {
                search.suspected.remove(&t.partition);
            }
        }
        self.commits += 1;
        let stays = |partition: &TopicPartition, at: u64| {
            self.commits - at < PATIENCE || !ItemName::is_item(partition)
        };
        self.begun.retain(|partition, it| stays(partition, it.at));
        if let Some(search) = &mut self.search {
            let suspected = &mut search.suspected;
            suspected.retain(|partition, (_, at)| stays(partition, *at));
        }
        if let Some(search) = &mut self.search
            && search.suspected.is_empty()
        {
            search.limit = search.limit.saturating_mul(2);
            if search.limit >= search.normal {
                self.search = None;
            }
        }
        if self.begun.is_empty() && self.search.is_none() {
            self.commits = 0;
        }
    }

    /// Drops the partition, which another worker owns now.
    pub fn revoked(&mut self, partition: &TopicPartition) {
        self.revoked_all(|it| it == partition);
    }

    /// The same, for all partitions that this function selects.
    pub fn revoked_all(&mut self, is_gone: impl Fn(&TopicPartition) -> bool) {
        self.begun.retain(|partition, _| !is_gone(partition));
        self.culprits.retain(|c| !is_gone(&c.place.0));
        if let Some(search) = &mut self.search {
            search.suspected.retain(|partition, _| !is_gone(partition));
        }
    }

    /// The maximum number of records in a transaction. `None` is unlimited.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.search.as_ref().map(|search| search.limit)
    }

    /// The first uncommitted culprit: a record that aborted its transaction twice while it was alone in it. Its error
    /// policy decides. The limit is two because a policy may drop the record for good: an unrelated abort of a
    /// transaction of one record must not condemn that record.
    #[must_use]
    pub fn culprit(&self) -> Option<&(TopicPartition, Offset)> {
        self.culprits.first().map(|c| &c.place)
    }

    /// Returns whether any record is a [`culprit`](Self::culprit).
    #[must_use]
    #[inline]
    pub fn has_culprits(&self) -> bool {
        !self.culprits.is_empty()
    }

    /// Returns whether this record is a [`culprit`](Self::culprit). Checked before the record is processed.
    #[must_use]
    pub fn is_culprit(&self, partition: &TopicPartition, offset: Offset) -> bool {
        self.culprits.iter().any(|c| c.is_at(partition, offset))
    }

    /// Returns whether even the output of the policy for this record aborts its transaction: a dead letter that the
    /// brokers refuse as they refused the output. The limit is two, for the reason above. Without a limit the worker
    /// would retry it forever.
    #[must_use]
    pub fn is_hopeless(&self, partition: &TopicPartition, offset: Offset) -> bool {
        let mut culprits = self.culprits.iter();
        culprits.any(|c| c.is_at(partition, offset) && c.aborts >= 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;
    use proptest::prelude::*;

    fn partition(topic: &str) -> TopicPartition {
        TopicPartition::new(topic, Partition::ZERO)
    }

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    fn took(topic: &str, first: i64, next: i64) -> Taken {
        Taken {
            partition: partition(topic),
            first: offset(first),
            next: offset(next),
        }
    }

    /// An isolation with these aborts, all of topic `a` from offset 10 on.
    fn after(aborts: &[i64]) -> Isolation {
        let mut isolation = Isolation::default();
        for &records in aborts {
            isolation.aborted(&[took("a", 10, 10 + records)], records as u64);
        }
        isolation
    }

    #[test]
    fn rule_9_one_abort_raises_no_suspicion_and_two_from_the_same_record_do() {
        assert_eq!(after(&[8]).limit(), None);
        assert_eq!(after(&[8, 8]).limit(), Some(4));
        assert_eq!(after(&[8, 8, 4]).limit(), Some(2));
        assert_eq!(after(&[8, 9]).limit(), Some(4));
    }

    #[test]
    fn rule_9_aborts_that_begin_elsewhere_are_none() {
        let mut isolation = after(&[8]);
        isolation.aborted(&[took("b", 10, 18)], 8);
        assert_eq!(isolation.limit(), None);
        isolation.committed([took("a", 10, 11)]);
        isolation.aborted(&[took("a", 11, 18)], 7);
        assert_eq!(isolation.limit(), None);
    }

    #[test]
    fn rule_9_one_partition_in_common_is_enough() {
        let mut isolation = Isolation::default();
        isolation.aborted(&[took("a", 10, 12), took("b", 5, 11)], 8);
        isolation.aborted(&[took("c", 1, 3), took("b", 5, 9)], 6);
        assert_eq!(isolation.limit(), Some(3));
    }

    #[test]
    fn rule_9_the_culprit_is_alone_in_the_end() {
        let mut isolation = after(&[8, 8, 4, 2]);
        assert_eq!(isolation.limit(), Some(1));
        isolation.aborted(&[took("a", 10, 11)], 1);
        assert_eq!(isolation.culprit(), None, "once may be chance");
        isolation.aborted(&[took("a", 10, 11)], 1);
        assert_eq!(isolation.culprit(), Some(&(partition("a"), offset(10))));
        assert!(isolation.is_culprit(&partition("a"), offset(10)));
        assert!(!isolation.is_culprit(&partition("a"), offset(11)));
        assert!(!isolation.is_culprit(&partition("b"), offset(10)));
        isolation.aborted(&[took("a", 10, 11)], 1);
        isolation.committed([took("a", 10, 11)]);
        assert_eq!(isolation.culprit(), None);
    }

    #[test]
    fn rule_9_a_culprit_that_aborts_as_a_dead_letter_too_is_hopeless() {
        let mut isolation = after(&[1, 1]);
        let hopeless = |isolation: &Isolation| isolation.is_hopeless(&partition("a"), offset(10));
        isolation.aborted(&[took("a", 10, 11)], 1);
        assert!(!hopeless(&isolation), "once may be chance");
        isolation.aborted(&[took("a", 10, 12)], 2);
        assert!(!hopeless(&isolation), "it was not alone");
        isolation.aborted(&[took("a", 10, 11)], 1);
        isolation.aborted(&[took("a", 10, 11)], 1);
        assert!(hopeless(&isolation));
        assert!(!isolation.is_hopeless(&partition("a"), offset(11)));
        isolation.committed([took("a", 10, 11)]);
        assert!(!hopeless(&isolation));
    }

    #[test]
    fn rule_9_other_partitions_neither_clear_nor_condemn() {
        let mut isolation = after(&[8, 8, 4, 2]);
        isolation.aborted(&[took("a", 10, 11)], 1);
        isolation.committed([took("b", 3, 4)]);
        isolation.aborted(&[took("c", 7, 8)], 1);
        assert_eq!(isolation.culprit(), None);
        assert_eq!(isolation.limit(), Some(1));
        isolation.aborted(&[took("a", 10, 11)], 1);
        assert_eq!(isolation.culprit(), Some(&(partition("a"), offset(10))));
        isolation.committed([took("b", 4, 5)]);
        assert!(isolation.is_culprit(&partition("a"), offset(10)));
    }

    #[test]
    fn rule_9_once_the_culprit_is_found_no_other_record_is_delayed() {
        let mut isolation = after(&[4, 4, 2, 1, 1]);
        assert_eq!(isolation.limit(), Some(1));
        // The record's task may be parked now, while others commit.
        isolation.committed([took("b", 3, 4)]);
        assert_eq!(isolation.limit(), Some(2));
        isolation.committed([took("b", 4, 6)]);
        assert_eq!(isolation.limit(), None);
    }

    #[test]
    fn rule_9_the_limit_stays_within_the_suspected_range_and_doubles_beyond_it() {
        let mut isolation = after(&[16, 16, 8, 4]);
        assert_eq!(isolation.limit(), Some(2));
        isolation.committed([took("a", 10, 12)]);
        assert_eq!(isolation.limit(), Some(2), "12 and 13 are still suspected");
        isolation.committed([took("b", 0, 2)]);
        assert_eq!(isolation.limit(), Some(2), "b does not tell");
        isolation.committed([took("a", 12, 14)]);
        assert_eq!(isolation.limit(), Some(4));
        isolation.committed([took("a", 14, 15)]);
        assert_eq!(isolation.limit(), Some(8));
        isolation.committed([took("a", 15, 23)]);
        assert_eq!(isolation, Isolation::default());
    }

    #[test]
    fn rule_9_an_abort_on_the_way_back_halves_at_once() {
        let mut isolation = after(&[16, 16, 8]);
        isolation.committed([took("a", 10, 14)]);
        isolation.committed([took("a", 14, 18)]);
        assert_eq!(isolation.limit(), Some(8));
        isolation.aborted(&[took("a", 18, 26)], 8);
        assert_eq!(isolation.limit(), Some(4));
    }

    #[test]
    fn rule_9_a_revoked_partition_is_not_waited_for() {
        let mut isolation = after(&[4, 4, 2, 1, 1]);
        isolation.revoked(&partition("a"));
        assert_eq!(isolation.culprit(), None);
        let mut isolation = after(&[4, 4]);
        isolation.revoked(&partition("a"));
        isolation.committed([took("b", 0, 2)]);
        assert_eq!(isolation, Isolation::default());
    }

    fn took_item(key: &str) -> Taken {
        let (stage, partition) = (crate::ids::StageId(1), Partition::ZERO);
        let task = crate::ids::TaskId { stage, partition };
        let store = crate::state::StoreId::due("timer");
        let item = ItemName::of(store, key.as_bytes(), crate::ids::Timestamp(5));
        Taken {
            partition: item.partition(task),
            first: Offset::ZERO,
            next: Offset::ZERO.next(),
        }
    }

    /// Other items come before the suspected one, after each abort.
    #[test]
    fn rule_9_an_item_is_found_whatever_comes_before_it() {
        let bad = took_item("bad");
        let mut isolation = Isolation::default();
        isolation.aborted(&[took_item("a"), bad.clone(), took_item("b")], 3);
        isolation.committed([took_item("early")]);
        isolation.aborted(&[took_item("earlier"), bad.clone()], 2);
        assert_eq!(isolation.limit(), Some(1));
        for n in 0..2 {
            isolation.committed([took_item(&format!("early {n}"))]);
            assert_eq!(isolation.limit(), Some(1), "it is still suspected");
            isolation.aborted(std::slice::from_ref(&bad), 1);
        }
        assert!(isolation.is_culprit(&bad.partition, Offset::ZERO));
        assert!(!isolation.is_culprit(&took_item("early 1").partition, Offset::ZERO));
        isolation.committed([took_item("early 2")]);
        assert!(isolation.is_culprit(&bad.partition, Offset::ZERO));
        isolation.committed([bad.clone()]);
        assert!(!isolation.is_culprit(&bad.partition, Offset::ZERO));
    }

    /// A record has deleted it.
    #[test]
    fn rule_9_an_item_that_never_comes_again_does_not_hold_the_search_up() {
        let mut isolation = Isolation::default();
        for _ in 0..2 {
            isolation.aborted(&[took_item("gone"), took("a", 1, 2)], 2);
        }
        isolation.committed([took("a", 1, 2)]);
        for n in 2..300 {
            isolation.committed([took("a", n, n + 1)]);
        }
        assert_eq!(isolation, Isolation::default());
    }

    /// Runs a worker whose partitions take turns: each transaction takes from one after the other. A poisonous record
    /// aborts its transaction, and the policy skips a culprit. Returns the culprits, and the numbers of aborted and
    /// committed transactions.
    fn run(
        partitions: usize,
        records: i64,
        batch: u64,
        poison: &[(usize, i64)],
    ) -> (Vec<(usize, i64)>, u32, u32) {
        let names: Vec<String> = (0..partitions).map(|n| n.to_string()).collect();
        let mut isolation = Isolation::default();
        let mut next = vec![0; partitions];
        let (mut found, mut aborts, mut commits, mut turn) = (Vec::new(), 0, 0, 0);
        while next.iter().any(|&n| n < records) {
            let mut room = isolation.limit().unwrap_or(batch).min(batch) as i64;
            let (mut taken, mut count, mut bad) = (Vec::new(), 0, false);
            for n in 0..partitions {
                let p = (turn + n) % partitions;
                let end = records.min(next[p] + room);
                if end > next[p] {
                    room -= end - next[p];
                    count += (end - next[p]) as u64;
                    taken.push(took(&names[p], next[p], end));
                    bad |= poison.iter().any(|&(q, o)| {
                        let there = q == p && (next[p]..end).contains(&o);
                        there && !isolation.is_culprit(&partition(&names[p]), offset(o))
                    });
                }
            }
            turn += 1;
            if bad {
                aborts += 1;
                isolation.aborted(&taken, count);
                continue;
            }
            commits += 1;
            for t in &taken {
                let p: usize = t.partition.topic.as_str().parse().unwrap();
                for o in next[p]..t.next.get() {
                    if isolation.is_culprit(&t.partition, offset(o)) {
                        found.push((p, o));
                    }
                }
                next[p] = t.next.get();
            }
            isolation.committed(taken);
        }
        found.sort_unstable();
        (found, aborts, commits)
    }

    #[test]
    fn rule_9_a_search_takes_as_many_aborts_as_the_batch_has_halves() {
        // Two to suspect, one per half, one more alone.
        let (found, aborts, commits) = run(1, 100_000, 65_536, &[(0, 0)]);
        assert_eq!((found, aborts), (vec![(0, 0)], 19));
        assert!(commits < 40, "{commits}");
    }

    proptest! {
        #[test]
        fn rule_9_the_poisonous_records_are_found_and_no_others(
            partitions in 1usize..6,
            batch in 1u64..200,
            mut poison in prop::collection::vec((0usize..6, 0i64..300), 0..5),
        ) {
            poison.retain(|&(p, _)| p < partitions);
            poison.sort_unstable();
            poison.dedup();
            let (found, aborts, _) = run(partitions, 300, batch, &poison);
            prop_assert_eq!(&found, &poison);
            // The search ends, and does not replay the worker's records forever.
            let most = poison.len() as u32 * (batch.ilog2() + 4) * 2;
            prop_assert!(aborts <= most, "{} aborts", aborts);
        }
    }
}
