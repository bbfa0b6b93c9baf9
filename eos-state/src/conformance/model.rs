//! The model that an engine is compared with.

use std::collections::BTreeMap;

use eos_protocol::state::StoreId;
use proptest::test_runner::TestCaseError;

use super::operation::Key;
use crate::StoreError;

/// The rows of all stores.
pub(super) type Model = BTreeMap<(StoreId, Key), Vec<u8>>;
/// The result of a comparison.
pub(super) type Outcome = Result<(), TestCaseError>;

pub(super) fn broke(error: StoreError) -> TestCaseError {
    TestCaseError::fail(format!("{error}: {error:?}"))
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(TestCaseError::fail(format!(
        "{what}: found {found:?}, expected {expected:?}"
    )))
}
