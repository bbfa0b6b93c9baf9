//! Ids of chosen fields.

use eos_protocol::identity::ContentHash;
use serde::Serialize;

use crate::failure::Failure;
use crate::topology::Fault;

/// An id of chosen fields, for [`Dedup::by_content`](super::Dedup::by_content).
#[derive(Debug)]
pub struct ContentId {
    hash: ContentHash,
    /// The first error of a field.
    error: Option<serde_json::Error>,
}

impl ContentId {
    /// Creates an id of this namespace, without fields.
    pub(super) fn new(hash: ContentHash) -> Self {
        Self { hash, error: None }
    }

    pub(super) fn write(self, into: &mut Vec<u8>) -> Result<bool, Fault> {
        match self.error {
            Some(error) => Err(Fault::User(Failure::permanent(error))),
            None => {
                into.extend_from_slice(&self.hash.finish());
                Ok(true)
            }
        }
    }
}

impl ContentId {
    /// Adds a field as JSON. The order of the calls is a part of the id. Do not add a `HashMap` or a `HashSet`: equal
    /// ones serialize in different orders, so duplicates are not found. Use a `BTreeMap` or a sorted `Vec`.
    ///
    /// If serde can't serialize a field, the record fails.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "it adds a field, and the operator `+` would say something else"
    )]
    pub fn add(mut self, field: impl Serialize) -> Self {
        match serde_json::to_vec(&field) {
            Ok(bytes) => self.hash.add(&bytes),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self
    }
}
