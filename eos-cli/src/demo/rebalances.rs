//! Counts of moved partitions and restored tasks, from the logs of the processes.

/// Numbers of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rebalances {
    /// Assignments of partitions to a worker.
    pub(crate) assigned: u64,
    /// Revocations of partitions from a worker.
    pub(crate) revoked: u64,
    /// Tasks whose state was restored.
    pub(crate) whole: u64,
    /// Restored tasks whose local state was complete already.
    pub(crate) exact: u64,
}

impl Rebalances {
    /// Adds the log of a process. Lines with an empty list of partitions do not count, because they
    /// change nothing.
    pub(crate) fn add_log(&mut self, log: &str) {
        for line in log.lines().filter(|line| !line.contains("partitions=[]")) {
            self.assigned += u64::from(line.contains("partitions assigned"));
            self.revoked += u64::from(line.contains("partitions revoked"));
            let whole = line.contains("task restored");
            self.whole += u64::from(whole);
            self.exact += u64::from(whole && line.contains("exact=true"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_move_partitions_are_counted() {
        let mut seen = Rebalances::default();
        seen.add_log(
            "INFO eos_core: partitions assigned app=a worker=0 partitions=[cities-0, cities-1]\n\
             INFO eos_core: partitions revoked app=a worker=0 partitions=[cities-1] lost=false\n\
             INFO eos_core: partitions assigned app=a worker=0 partitions=[]\n\
             INFO eos_core: task restored app=a worker=0 task=1_0 exact=false\n\
             INFO eos_core: task restored app=a worker=0 task=1_1 exact=true\n\
             INFO eos_core: task starts\n",
        );
        seen.add_log("INFO eos_core: partitions assigned app=a worker=1 partitions=[cities-2]\n");
        let expected = Rebalances {
            assigned: 2,
            revoked: 1,
            whole: 2,
            exact: 1,
        };
        assert_eq!(seen, expected);
    }
}
