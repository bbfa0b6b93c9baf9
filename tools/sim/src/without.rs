//! The removal of defences.

use std::error::Error;
use std::fmt;

use super::ledger;

/// The lock that lets only one worker open a task's database. It is the only defence of the disk, not of the runtime.
pub(super) const TASK_LOCK: &str = "task_lock";

/// The compaction of changelogs, which the runtime configures, instead of the deletion of old records.
pub(super) const COMPACTION: &str = "compaction";

/// The write of a position and its data in one batch. The simulated disk provides this defence.
pub(super) const DATA_WITH_POSITION: &str = "data_with_position";

/// The error of a defence that does not exist, or cannot be removed in this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoDefence(String);

impl fmt::Display for NoDefence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NoDefence {}

/// Checks that [`Run::without`](super::Run::without) can remove a defence of this name.
///
/// # Errors
/// [`NoDefence`], with the existing names.
pub fn check_defence(name: &str) -> Result<(), NoDefence> {
    match name {
        TASK_LOCK | COMPACTION | DATA_WITH_POSITION => Ok(()),
        name if ledger::defences().any(|it| it == name) => Ok(()),
        name => take_away(name).map(drop),
    }
}

/// Checks that [`Scale::without`](super::Scale::without) can remove a defence of this name: one of the runtime.
///
/// # Errors
/// [`NoDefence`], with the existing names.
pub fn check_runtime_defence(name: &str) -> Result<(), NoDefence> {
    take_away(name).map(drop)
}

#[cfg(feature = "failpoints")]
type TakenAway = eos_core::spi::failpoints::Entered;
/// A type without values.
#[cfg(not(feature = "failpoints"))]
type TakenAway = std::convert::Infallible;

/// Removes a defence of the runtime on this thread, until the returned value is dropped.
#[cfg(feature = "failpoints")]
pub(super) fn take_away(name: &str) -> Result<TakenAway, NoDefence> {
    // The parser would also accept an empty name and a list.
    if name.trim().is_empty() || name.contains(',') {
        return Err(NoDefence(format!(
            "{name:?} is not the name of one defence"
        )));
    }
    match eos_core::spi::failpoints::Failpoints::parse("", name) {
        Ok(failpoints) => Ok(failpoints.enter()),
        Err(unreadable) => Err(NoDefence(format!(
            "{unreadable}, {TASK_LOCK}, {COMPACTION}, {DATA_WITH_POSITION}"
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
        assert_eq!(check_defence(DATA_WITH_POSITION), Ok(()));
    }

    #[cfg(feature = "failpoints")]
    #[test]
    fn what_is_no_defence_is_told_with_the_names_that_there_are() {
        assert_eq!(check_defence("rewind"), Ok(()));
        let error = check_defence("nonsense").unwrap_err().to_string();
        assert!(
            error.starts_with("\"nonsense\": unknown defence; the defences are "),
            "{error}"
        );
        assert!(
            error.contains(", rewind, ")
                && error.ends_with(", task_lock, compaction, data_with_position"),
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
