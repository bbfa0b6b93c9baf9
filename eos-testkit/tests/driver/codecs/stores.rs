//! The suite for store engines is available here, too.

use std::path::Path;

use eos_state::{MemoryBackend, StoreBackend, StoreError};
use eos_testkit::conformance::stores::{Engine, Lasts, check};

struct InMemory;

impl Engine for InMemory {
    fn open(&self, _: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
        Ok(Box::new(MemoryBackend::default()))
    }

    fn lasts(&self) -> Lasts {
        Lasts::Process
    }
}

#[test]
fn an_engine_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    check(&InMemory, dir.path(), 50).unwrap();
}
