//! The internal topics of foreign-key joins.

use std::sync::Arc;

use super::Stream;
use crate::views::SourceKeys;

impl<K: 'static, V: 'static> Stream<K, V> {
    /// Adds an internal topic between the tasks of a foreign-key join. Returns the output that writes it, and the stream that
    /// reads it.
    pub(crate) fn between(&self, name: &str, leg: &str) -> (usize, Stream<Vec<u8>, Vec<u8>>) {
        let (output, source) = self.graph().between(name, leg);
        (output, Stream::new(Arc::clone(&self.graph), source))
    }

    /// Lets the next node use a store of the app.
    pub(crate) fn uses(&self, store: usize) {
        self.graph().use_store(store, &self.sources);
    }

    /// Returns the keys of its sources.
    pub(crate) fn source_keys(&self) -> Arc<[Arc<dyn SourceKeys>]> {
        self.graph().source_keys(&self.sources)
    }
}
