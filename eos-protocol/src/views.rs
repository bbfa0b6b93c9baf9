//! Views of stores from outside of the tasks: where the rows of a key are, and how far a database is.

use std::collections::BTreeMap;

use crate::ids::{Offset, Partition, TopicPartition};
use crate::state::{Position, Standing};

/// The phase of a task for views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewPhase {
    /// The worker owns the partition and reads the committed offsets.
    Starting,
    /// The state is being restored.
    Restoring,
    /// The state can be read.
    Ready,
}

/// The place of a task, for a query of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// The task is here, and its state can be read.
    Here,
    /// The task is here or may come here, and starts.
    Starting,
    /// The task is here, and its state is being restored.
    Restoring,
    /// The task is in another process, or in none.
    Elsewhere {
        /// The partitions of the stage in this process.
        here: Vec<Partition>,
    },
    /// The topics of the stage do not have the partition.
    Missing,
}

/// Decides where the task of a partition is.
///
/// `tasks` are those of the stage in this process. `joined`: every worker of the process has an assignment.
#[must_use]
pub fn whereabouts(
    partition: Partition,
    partitions: u32,
    tasks: &BTreeMap<Partition, ViewPhase>,
    joined: bool,
) -> Whereabouts {
    match tasks.get(&partition) {
        Some(ViewPhase::Ready) => Whereabouts::Here,
        Some(ViewPhase::Restoring) => Whereabouts::Restoring,
        Some(ViewPhase::Starting) => Whereabouts::Starting,
        None if partition.get().unsigned_abs() >= partitions => Whereabouts::Missing,
        None if !joined => Whereabouts::Starting,
        None => Whereabouts::Elsewhere {
            here: tasks.keys().copied().collect(),
        },
    }
}

/// Checks that a database has the effects of a record.
///
/// # Errors
/// The next offset of the partition if the database is behind. `None` if it is unknown, before the first transaction.
pub fn covers(
    position: Option<&Position>,
    partition: &TopicPartition,
    offset: Offset,
) -> Result<(), Option<Offset>> {
    let Some(Standing::At { inputs, .. }) = position.map(|position| &position.standing) else {
        return Err(None);
    };
    let mut inputs = inputs.iter();
    match inputs.find(|(input, _)| input == partition) {
        Some((_, next)) if *next > offset => Ok(()),
        Some((_, next)) => Err(Some(*next)),
        None => Err(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Nonce, Seq, TaskId, Timestamp};
    use crate::state::{Identity, PerFamily, StoresHash};

    fn partition(number: i32) -> Partition {
        Partition::new(number).unwrap()
    }

    #[test]
    fn a_task_is_here_starting_elsewhere_or_nowhere() {
        let tasks = [
            (partition(0), ViewPhase::Ready),
            (partition(2), ViewPhase::Restoring),
            (partition(4), ViewPhase::Starting),
        ];
        let tasks = BTreeMap::from(tasks);
        let of = |number, joined| whereabouts(partition(number), 6, &tasks, joined);
        assert_eq!(of(0, true), Whereabouts::Here);
        assert_eq!(of(0, false), Whereabouts::Here);
        assert_eq!(of(2, true), Whereabouts::Restoring);
        assert_eq!(of(4, true), Whereabouts::Starting);
        let here = [0, 2, 4].map(partition).to_vec();
        assert_eq!(of(5, true), Whereabouts::Elsewhere { here });
        assert_eq!(of(5, false), Whereabouts::Starting);
        assert_eq!(of(6, true), Whereabouts::Missing);
        assert_eq!(of(6, false), Whereabouts::Missing);
    }

    #[test]
    fn a_record_is_covered_once_the_next_offset_is_behind_it() {
        let input = TopicPartition::new("in", partition(1));
        let at = |next| Position {
            identity: Identity {
                cluster: String::new(),
                app: "a".into(),
                task: TaskId::default(),
                topics: Vec::new(),
                stores: StoresHash(0),
            },
            standing: Standing::At {
                seq: Seq(1),
                nonce: Nonce(1),
                inputs: vec![(input.clone(), Offset::new(next).unwrap())],
                commit_records: PerFamily::default(),
                stream_time: None,
                wall_time: Timestamp(0),
            },
            changelogs: PerFamily::default(),
        };
        let seven = Offset::new(7).unwrap();
        assert_eq!(covers(Some(&at(8)), &input, seven), Ok(()));
        assert_eq!(covers(Some(&at(7)), &input, seven), Err(Some(seven)));
        let other = TopicPartition::new("in", partition(0));
        assert_eq!(covers(Some(&at(8)), &other, seven), Err(None));
        assert_eq!(covers(None, &input, seven), Err(None));
        let mut restoring = at(8);
        restoring.standing = Standing::Restoring {
            since: Timestamp(0),
            seen: PerFamily::default(),
        };
        assert_eq!(covers(Some(&restoring), &input, seven), Err(None));
    }
}
