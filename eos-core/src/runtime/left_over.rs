//! Removes the databases of tasks that have moved.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use eos_protocol::{AppId, Now, TaskId};
use eos_state::directory::{DirectoryError, LeftOver, left_over, remove};

use super::chores::Chore;
use super::handle::Handle;
use super::time_of_day::time_of_files;
use crate::worker::Env;

/// The range of the interval between two searches.
const LOOKS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// Returns the chore that removes databases of this slot that are unused for `delay`.
pub(super) fn chore(app: AppId, slot: PathBuf, delay: Duration, handle: Handle, env: Env) -> Chore {
    let mut unused = Unused::new(delay);
    Chore {
        every: (delay / 4).clamp(*LOOKS.start(), *LOOKS.end()),
        act: Box::new(move || {
            let found = match left_over(&slot, time_of_files()) {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%app, %error, "looking for unused state failed");
                    return;
                }
            };
            let workers = handle.metrics().workers;
            let owns = workers.iter().any(|worker| !worker.tasks.is_empty());
            for left in unused.over(found, owns, env.now()) {
                remove_one(&app, &left);
            }
        }),
    }
}

fn remove_one(app: &AppId, left: &LeftOver) {
    let (task, path) = (left.task, left.path.display());
    match remove(left) {
        Ok(true) => tracing::info!(
            %app, %task, %path, unused_s = left.age.as_secs(),
            "removed the local state of a task that another process runs"
        ),
        // Another thread removed the directory, or uses it again.
        Ok(false) | Err(DirectoryError::Locked { .. }) => {}
        Err(error) => tracing::warn!(
            %app, %task, %error,
            "removing the local state of a task that another process runs failed; trying again \
             later"
        ),
    }
}

/// The time since which directories are unused.
///
/// Only time in which this process has tasks counts. Without tasks, the process can't detect that the tasks of these
/// directories have moved. The brokers may be unavailable, and all tasks return when the brokers do. (Kafka Streams
/// cleans up in the state RUNNING only.)
#[derive(Debug)]
struct Unused {
    delay: Duration,
    since: BTreeMap<TaskId, Now>,
}

impl Unused {
    fn new(delay: Duration) -> Self {
        Self {
            delay,
            since: BTreeMap::new(),
        }
    }

    /// Returns the directories that were found unused in each search for this time, and were not written for as long.
    /// (Either check alone would depend on one clock: this host's clock may jump, and copied files have old times.)
    fn over(&mut self, found: Vec<LeftOver>, owns: bool, now: Now) -> Vec<LeftOver> {
        if !owns {
            self.since.clear();
            return Vec::new();
        }
        let before = std::mem::take(&mut self.since);
        let mut over = Vec::new();
        for left in found {
            let since = before.get(&left.task).copied().unwrap_or(now);
            self.since.insert(left.task, since);
            if now.since(since) >= self.delay && left.age >= self.delay {
                over.push(left);
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eos_protocol::{Partition, StageId};

    fn left(partition: i32, age: u64) -> LeftOver {
        let task = TaskId {
            stage: StageId(0),
            partition: Partition::new(partition).unwrap(),
        };
        LeftOver {
            task,
            path: task.to_string().into(),
            age: Duration::from_secs(age),
        }
    }

    fn at(seconds: u64) -> Now {
        Now(Duration::from_secs(seconds))
    }

    fn unused() -> Unused {
        Unused::new(Duration::from_secs(600))
    }

    #[test]
    fn what_is_unused_for_long_goes() {
        let mut unused = unused();
        let old = || vec![left(0, 5000), left(1, 5000)];
        assert_eq!(unused.over(old(), true, at(0)), []);
        assert_eq!(unused.over(old(), true, at(599)), []);
        assert_eq!(unused.over(old(), true, at(600)), old());
    }

    #[test]
    fn state_that_was_used_meanwhile_starts_a_new_delay() {
        let mut unused = unused();
        assert_eq!(unused.over(vec![left(0, 5000)], true, at(0)), []);
        // Locked at this search: the directory was in use.
        assert_eq!(unused.over(vec![], true, at(300)), []);
        assert_eq!(unused.over(vec![left(0, 5000)], true, at(601)), []);
        assert_eq!(unused.over(vec![left(0, 5000)], true, at(1200)), []);
        let last = unused.over(vec![left(0, 5000)], true, at(1201));
        assert_eq!(last, [left(0, 5000)]);
    }

    #[test]
    fn a_task_that_came_and_went_between_two_looks_has_written() {
        let mut unused = unused();
        assert_eq!(unused.over(vec![left(0, 5000)], true, at(0)), []);
        assert_eq!(unused.over(vec![left(0, 20)], true, at(700)), []);
    }

    /// A start without reachable brokers: every directory is unused, and all are needed soon.
    #[test]
    fn nothing_goes_as_long_as_the_group_gives_us_nothing() {
        let mut unused = unused();
        let old = || vec![left(0, 5000)];
        assert_eq!(unused.over(old(), false, at(0)), []);
        assert_eq!(unused.over(old(), false, at(5000)), []);
        assert_eq!(unused.over(old(), true, at(5001)), []);
        assert_eq!(unused.over(old(), true, at(5600)), []);
        assert_eq!(unused.over(old(), true, at(5601)), old());
    }
}
