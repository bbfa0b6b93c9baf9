//! What inputs are to add up to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::records::InputRecord;

/// The contents of a store, by key.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

type Step = dyn Fn(&mut Contents, &InputRecord<'_>) -> i64 + Send + Sync;

/// What an application has to make of the inputs of one partition, told once more and as plainly as can be: a
/// step that takes one record into the contents of a store. It begins with an empty store and is given the
/// records in offset order.
///
/// The step answers the running value that the record's output carries, or anything where none does. It must
/// be pure: it is repeated to find out which offset a copy of the store is at.
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
    /// The fold with this step.
    pub fn new(
        step: impl Fn(&mut Contents, &InputRecord<'_>) -> i64 + Send + Sync + 'static,
    ) -> Fold {
        Fold(Arc::new(step))
    }

    /// Takes one record; answers the running value.
    pub(super) fn step(&self, contents: &mut Contents, record: &InputRecord<'_>) -> i64 {
        (self.0)(contents, record)
    }

    /// What these records make of an empty store.
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
