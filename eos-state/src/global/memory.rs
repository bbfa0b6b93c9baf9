//! The engine in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::{GlobalBatch, GlobalEngine};
use crate::StoreError;

/// Rows that end with their process, or with their last clone: a clone is the same rows.
#[derive(Debug, Clone, Default)]
pub struct GlobalMemory(Arc<RwLock<Content>>);

#[derive(Debug, Default)]
struct Content {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    mark: Option<Vec<u8>>,
}

impl GlobalEngine for GlobalMemory {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let content = self.0.read().unwrap_or_else(PoisonError::into_inner);
        value.clear();
        let found = content.rows.get(key);
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
        let mut content = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in batch {
            match value {
                Some(value) => _ = content.rows.insert(key.clone(), value.clone()),
                None => _ = content.rows.remove(key),
            }
        }
        content.mark = Some(mark.to_vec());
        Ok(())
    }

    fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let content = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Ok(content.mark.clone())
    }
}
