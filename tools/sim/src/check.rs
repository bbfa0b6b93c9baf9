//! The check that a run processed each record exactly once.

use super::case::Case;
use super::remains::{Copied, Found, Left};
use super::topics::APP;
use eos_testkit::client::Cluster;
use eos_testkit::ledger::ModelLedger;

/// Returns whether the group has committed all records, and every transaction has ended.
pub(super) fn is_committed(cluster: &Cluster, case: &Case) -> bool {
    let ended = case.topics().all(|topic| {
        let mut partitions = 0..cluster.partitions(topic);
        partitions.all(|partition| {
            let (stable, high) = cluster.ends(topic, partition);
            stable == high
        })
    });
    ended
        && case.read().all(|topic| {
            (0..cluster.partitions(topic)).all(|partition| {
                let committed = cluster.committed(APP, topic, partition);
                // Only markers may follow.
                committed
                    .is_ok_and(|it| !cluster.has_records_from(topic, partition, it.unwrap_or(0)))
            })
        })
}

/// Returns whether the positions in the ledger are at the ends of all inputs.
pub(super) fn is_in_ledger(cluster: &Cluster, ledger: &ModelLedger, case: &Case) -> bool {
    let offsets = ledger.offsets();
    case.inputs.iter().all(|topic| {
        (0..cluster.partitions(topic)).all(|partition| {
            let (_, end) = cluster.ends(topic, partition);
            let mut all = offsets.iter();
            let at =
                all.find(|(it, _)| it.topic.as_str() == *topic && it.partition.get() == partition);
            let at = at.and_then(|(_, at)| *at).map_or(0, |at| at.get());
            at == end
        })
    })
}

/// Adds the violations, and counts the behaviour that occurred.
pub(super) fn judge(case: &Case, left: Left<'_>, found: &mut Found) {
    found
        .wrong
        .extend(in_parts(left.cluster, left.changelog, left.databases));
    let by_oracle = (case.judge)(left, found);
    found.judged(by_oracle.unwrap_or_else(|why| vec![why]));
}

/// Finds databases that are open and not whole, although their changelog has records. At the end of a run every open
/// database must be restored. Without this check, a database that was cleared and never restored would not be
/// compared at all.
fn in_parts(cluster: &Cluster, changelog: Option<&str>, databases: &[Copied]) -> Vec<String> {
    let Some(topic) = changelog else {
        return Vec::new();
    };
    let open = databases.iter().filter(|it| it.open && !it.whole);
    let wrong = open.filter_map(|it| {
        let (task, partition) = (it.task, it.task.partition.get());
        let count = cluster.read(topic, partition).len();
        (count > 0).then(|| {
            format!(
                "the database of task {task} is open and not whole, although {topic}-{partition} has {count} \
                 records"
            )
        })
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use eos_protocol::{Partition, StageId, TaskId};

    use super::*;
    use eos_broker::broker::{Broker, BrokerOptions};
    use eos_oracle::Contents;
    use eos_testkit::client::Written;

    const TOPIC: &str = "sim-in-changelog";

    /// Returns the database of a task that was never written to.
    fn nothing(partition: i32, open: bool) -> Copied {
        Copied {
            task: TaskId {
                stage: StageId(0),
                partition: Partition::new(partition).unwrap(),
            },
            open,
            positions: BTreeMap::new(),
            stream_time: None,
            written: false,
            whole: false,
            stores: Vec::new(),
            contents: Contents::new(),
        }
    }

    #[test]
    fn an_open_database_is_whole_in_the_end_if_there_is_something_to_restore() {
        let cluster = Cluster::new(Broker::new(BrokerOptions::default()), 0);
        cluster.add_topic(TOPIC, 2).unwrap();
        let record = Written {
            timestamp: 0,
            key: Some(b"\0\0\0\x01a"),
            value: Some(b"1"),
            headers: &[],
        };
        cluster.produce(TOPIC, 1, &record).unwrap();
        let wrong = |databases: &[Copied]| in_parts(&cluster, Some(TOPIC), databases);
        // Either the changelog is empty, or the database is closed.
        assert!(wrong(&[nothing(0, true), nothing(1, false)]).is_empty());
        let restored = Copied {
            whole: true,
            written: true,
            ..nothing(1, true)
        };
        assert!(wrong(&[restored]).is_empty());
        let found = wrong(&[nothing(0, true), nothing(1, true)]);
        assert_eq!(
            found,
            [
                "the database of task 0_1 is open and not whole, although sim-in-changelog-1 has 1 records"
            ]
        );
        assert!(in_parts(&cluster, None, &[nothing(1, true)]).is_empty());
    }
}
