//! Defences that are taken away.

use std::error::Error;
use std::fmt;

/// A database of a task is open once: the one defence that is not the runtime's but the disk's.
pub(super) const TASK_LOCK: &str = "task_lock";

/// Kafka compacts changelogs instead of deleting old records, as the runtime configures it.
pub(super) const COMPACTION: &str = "compaction";

/// There is no defence of a name, or it can't be taken away here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoDefence(String);

impl fmt::Display for NoDefence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NoDefence {}

/// Whether a defence of this name can be taken away by [`Run::without`](super::Run::without).
///
/// # Errors
/// [`NoDefence`], with the names that there are.
pub fn check_defence(name: &str) -> Result<(), NoDefence> {
    match name {
        TASK_LOCK | COMPACTION => Ok(()),
        name => take_away(name).map(drop),
    }
}

#[cfg(feature = "failpoints")]
type TakenAway = eos_core::spi::failpoints::Entered;
/// Never made.
#[cfg(not(feature = "failpoints"))]
type TakenAway = std::convert::Infallible;

/// Takes a defence of the runtime away on this thread, until the answer is dropped.
#[cfg(feature = "failpoints")]
pub(super) fn take_away(name: &str) -> Result<TakenAway, NoDefence> {
    // None and a list can be read, too.
    if name.trim().is_empty() || name.contains(',') {
        return Err(NoDefence(format!(
            "{name:?} is not the name of one defence"
        )));
    }
    match eos_core::spi::failpoints::Failpoints::parse("", name) {
        Ok(failpoints) => Ok(failpoints.enter()),
        Err(unreadable) => Err(NoDefence(format!(
            "{unreadable}, {TASK_LOCK}, {COMPACTION}"
        ))),
    }
}

#[cfg(not(feature = "failpoints"))]
pub(super) fn take_away(name: &str) -> Result<TakenAway, NoDefence> {
    Err(NoDefence(format!(
        "{name:?} can't be disabled without the cargo feature `failpoints`: build eos-sim with this feature"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(feature = "failpoints"))]
    use crate::{Run, Seeds};

    #[test]
    fn what_is_not_the_runtimes_can_always_be_taken_away() {
        assert_eq!(check_defence(TASK_LOCK), Ok(()));
        assert_eq!(check_defence(COMPACTION), Ok(()));
    }

    #[cfg(feature = "failpoints")]
    #[test]
    fn what_is_no_defence_is_told_with_the_names_that_there_are() {
        assert_eq!(check_defence("rewind"), Ok(()));
        let error = check_defence("nonsense").unwrap_err().to_string();
        assert!(
            error.starts_with("\"nonsense\": no defence; there are "),
            "{error}"
        );
        assert!(
            error.contains(", rewind, ") && error.ends_with(", task_lock, compaction"),
            "{error}"
        );
        for name in ["", " ", "rewind,drain"] {
            let error = check_defence(name).unwrap_err().to_string();
            assert!(error.ends_with("is not the name of one defence"), "{error}");
        }
    }

    #[cfg(not(feature = "failpoints"))]
    #[test]
    #[should_panic(expected = "without the cargo feature `failpoints`")]
    fn a_run_that_has_the_defence_after_all_is_none() {
        let run = Run {
            without: Some("rewind"),
            ..Run::of_seed(0)
        };
        let _outcome = run.run();
    }

    #[cfg(not(feature = "failpoints"))]
    #[test]
    #[should_panic(expected = "without the cargo feature `failpoints`")]
    fn nor_are_many() {
        let seeds = Seeds {
            from: 0,
            count: 1,
            threads: 1,
            shape: None,
            without: Some("rewind"),
        };
        let _summary = seeds.run();
    }
}
