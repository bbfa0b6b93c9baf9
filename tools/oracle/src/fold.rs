//! The expected result of inputs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::records::InputRecord;

/// The contents of a store, by key.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

type Step = dyn Fn(&mut Contents, &InputRecord<'_>) -> i64 + Send + Sync;

/// A second, simple implementation of an application's state for one input partition. It is a step that applies one
/// record to the contents of a store. The fold begins with an empty store and receives the records in offset order.
///
/// The step returns the running value that the record's output carries, or any number if outputs carry none. It must be
/// pure, because it is repeated to find the offset of a copy of the store.
///
/// # Example
/// ```
/// use eos_oracle::Fold;
///
/// let counts = Fold::new(|contents, record| {
///     let count = contents.entry(record.key.unwrap_or_default().to_vec()).or_insert(vec![0]);
///     count[0] += 1;
///     i64::from(count[0])
/// });
/// ```
#[derive(Clone)]
pub struct Fold(Arc<Step>);

impl Fold {
    /// Returns the fold with this step.
    pub fn new(
        step: impl Fn(&mut Contents, &InputRecord<'_>) -> i64 + Send + Sync + 'static,
    ) -> Fold {
        Fold(Arc::new(step))
    }

    /// Applies one record, and returns the running value.
    pub(super) fn step(&self, contents: &mut Contents, record: &InputRecord<'_>) -> i64 {
        (self.0)(contents, record)
    }

    /// Returns the contents of an empty store after these records.
    pub(super) fn contents(&self, records: &[InputRecord<'_>]) -> Contents {
        let mut contents = Contents::new();
        for record in records {
            self.step(&mut contents, record);
        }
        contents
    }
}

impl fmt::Debug for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fold")
    }
}
