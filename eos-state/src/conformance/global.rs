//! The test of engines for global tables: random writes and snapshots, compared with a model.

use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Lasts, Violation, run_sequences};
use crate::StoreError;
use crate::global::{GlobalBatch, GlobalEngine, GlobalRows, GlobalSnapshot, GlobalWriter};

/// An engine for global tables, under test.
pub trait GlobalUnderTest {
    /// Opens the rows in this directory, or creates them.
    ///
    /// # Errors
    /// As the engine's own.
    fn open(&self, dir: &Path) -> Result<Box<dyn GlobalEngine>, StoreError>;

    /// Returns the durability of written rows.
    fn lasts(&self) -> Lasts;
}

#[derive(Debug, Clone)]
enum Step {
    Write(GlobalBatch),
    /// Takes a snapshot.
    Take,
    /// Drops the oldest snapshot.
    Drop,
    /// Closes the engine and opens it again.
    Reopen,
}

/// A snapshot, and the rows that it has to show.
type Taken = (GlobalSnapshot, GlobalBatch);

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        vec(any::<u8>(), 1..3),
        vec(0_u8..2, 1..4),
        Just(vec![0xff; 9])
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let value = option::weighted(0.7, vec(any::<u8>(), 0..20));
    prop_oneof![
        6 => btree_map(key(), value, 0..6).prop_map(Step::Write),
        3 => Just(Step::Take),
        2 => Just(Step::Drop),
        1 => Just(Step::Reopen),
    ]
}

/// Compares the engine and its snapshots with a model in this many random sequences of writes.
///
/// # Errors
/// The failure, with the shortest sequence found that shows it.
pub fn check_global(
    engine: &dyn GlobalUnderTest,
    dir: &Path,
    sequences: u32,
) -> Result<(), Violation> {
    run_sequences(dir, sequences, &vec(step(), 1..40), |dir, steps| {
        run(engine, dir, steps)
    })
}

fn failed(error: impl std::fmt::Display) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// The engine and the model beside it.
struct Run {
    writer: GlobalWriter,
    rows: GlobalRows,
    model: GlobalBatch,
    mark: Option<Vec<u8>>,
    taken: Vec<Taken>,
}

fn open(
    engine: &dyn GlobalUnderTest,
    dir: &Path,
) -> Result<(GlobalWriter, GlobalRows), TestCaseError> {
    let mut writer = GlobalWriter::new(engine.open(dir).map_err(failed)?);
    let rows = writer.serve();
    Ok((writer, rows))
}

fn run(engine: &dyn GlobalUnderTest, dir: &Path, steps: &[Step]) -> Result<(), TestCaseError> {
    std::fs::create_dir_all(dir).map_err(failed)?;
    let (writer, rows) = open(engine, dir)?;
    let mut run = Run {
        writer,
        rows,
        model: GlobalBatch::new(),
        mark: None,
        taken: Vec::new(),
    };
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Write(batch) => {
                let mark = number.to_be_bytes().to_vec();
                run.writer.write(batch, &mark).map_err(failed)?;
                run.model.extend(batch.clone());
                run.mark = Some(mark);
            }
            Step::Take => run.taken.push((run.rows.snapshot(), run.model.clone())),
            Step::Drop if !run.taken.is_empty() => drop(run.taken.remove(0)),
            Step::Drop => {}
            Step::Reopen => run = reopened(run, engine, dir)?,
        }
        run.compare()?;
    }
    Ok(())
}

fn reopened(run: Run, engine: &dyn GlobalUnderTest, dir: &Path) -> Result<Run, TestCaseError> {
    let Run {
        writer,
        rows,
        model,
        mark,
        taken,
    } = run;
    // The engine closes with its last reader.
    drop((taken, rows, writer));
    let lasts = engine.lasts() == Lasts::Disk;
    let (writer, rows) = open(engine, dir)?;
    Ok(Run {
        writer,
        rows,
        model: if lasts { model } else { GlobalBatch::new() },
        mark: mark.filter(|_| lasts),
        taken: Vec::new(),
    })
}

impl Run {
    fn compare(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.writer.mark().map_err(failed)?, &self.mark);
        let newest = (self.rows.snapshot(), self.model.clone());
        for (snapshot, rows) in self.taken.iter().chain([&newest]) {
            // Keys that the model has now, and keys that the snapshot's model has.
            for key in self.model.keys().chain(rows.keys()) {
                let mut value = vec![0xaa];
                let found = snapshot.get(key, &mut value).map_err(failed)?;
                let expected = rows.get(key).cloned().flatten();
                prop_assert_eq!(&found.then_some(value), &expected, "key {:?}", key);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tempfile::tempdir;

    use super::*;
    use crate::global::GlobalMemory;

    struct Memory;

    impl GlobalUnderTest for Memory {
        fn open(&self, _: &Path) -> Result<Box<dyn GlobalEngine>, StoreError> {
            Ok(Box::new(GlobalMemory::default()))
        }

        fn lasts(&self) -> Lasts {
            Lasts::Process
        }
    }

    #[test]
    fn the_engine_in_memory_conforms() {
        check_global(&Memory, tempdir().unwrap().path(), 300).unwrap();
    }

    const BUGS: [&str; 3] = [
        "deletes are forgotten",
        "an empty value is no value",
        "the mark comes one write too late",
    ];

    #[derive(Debug)]
    struct Faulty {
        inner: GlobalMemory,
        bug: &'static str,
        late: Mutex<Option<Vec<u8>>>,
    }

    impl GlobalEngine for Faulty {
        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
            let found = self.inner.get(key, value)?;
            Ok(found && !(self.bug == BUGS[1] && value.is_empty()))
        }

        fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
            let mut batch = batch.clone();
            batch.retain(|_, value| self.bug != BUGS[0] || value.is_some());
            let before = self.late.lock().unwrap().replace(mark.to_vec());
            match before.filter(|_| self.bug == BUGS[2]) {
                Some(before) => self.inner.write(&batch, &before),
                None => self.inner.write(&batch, mark),
            }
        }

        fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
            self.inner.mark()
        }
    }

    struct Planted(&'static str);

    impl GlobalUnderTest for Planted {
        fn open(&self, _: &Path) -> Result<Box<dyn GlobalEngine>, StoreError> {
            Ok(Box::new(Faulty {
                inner: GlobalMemory::default(),
                bug: self.0,
                late: Mutex::default(),
            }))
        }

        fn lasts(&self) -> Lasts {
            Lasts::Process
        }
    }

    #[test]
    fn planted_bugs_fail() {
        for bug in BUGS {
            let checked = check_global(&Planted(bug), tempdir().unwrap().path(), 300);
            assert!(checked.is_err(), "{bug}");
        }
    }
}
