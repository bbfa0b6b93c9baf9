//! Looks for keys in other partitions than their topic's partitioner chooses.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use eos_protocol::{Partition, TopicName, TopicPartition};

use crate::views::SourceKeys;

/// The keys of a task's inputs, if the task joins records by their keys.
pub(super) struct KeyPlaces {
    /// By input: the keys, and the number of partitions of the topic. `None` for topics that the app writes itself.
    inputs: Vec<Option<(Arc<dyn SourceKeys>, u32)>>,
}

impl KeyPlaces {
    /// Returns `None` if no input has keys to check.
    pub(super) fn of(inputs: Vec<Option<(Arc<dyn SourceKeys>, u32)>>) -> Option<Box<Self>> {
        let any = inputs.iter().any(Option::is_some);
        any.then(|| Box::new(Self { inputs }))
    }

    /// Returns the partition in which the record of an input should be, if that is another one.
    fn misplaced(
        &self,
        input: usize,
        key: Option<&[u8]>,
        partition: Partition,
    ) -> Option<Partition> {
        let (keys, partitions) = self.inputs.get(input)?.as_ref()?;
        // A codec or a partitioner that panics does so again in the record's own run, where the error policy decides.
        let expected = catch_unwind(AssertUnwindSafe(|| keys.partition(key?, *partitions)));
        let expected = expected.ok().flatten()?;
        (expected != partition).then_some(expected)
    }
}

impl fmt::Debug for KeyPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPlaces").finish_non_exhaustive()
    }
}

/// The topics whose misplaced keys were logged.
#[derive(Debug, Default)]
pub(super) struct MisplacedKeys(BTreeSet<TopicName>);

impl MisplacedKeys {
    /// Returns whether the key of a record of an input is in another partition than it should be. Logs the first one of
    /// a topic.
    pub(super) fn check(
        &mut self,
        app: &str,
        places: &KeyPlaces,
        input: usize,
        from: &TopicPartition,
        key: Option<&[u8]>,
    ) -> bool {
        let expected = places.misplaced(input, key, from.partition);
        if let Some(expected) = expected {
            self.warn(
                app,
                &from.topic,
                key.unwrap_or_default(),
                (from.partition, expected),
            );
        }
        expected.is_some()
    }

    /// Logs the first misplaced key of a topic.
    fn warn(
        &mut self,
        app: &str,
        topic: &TopicName,
        key: &[u8],
        (found, expected): (Partition, Partition),
    ) {
        if !self.0.insert(topic.clone()) {
            return;
        }
        let key = String::from_utf8_lossy(key.get(..key.len().min(100)).unwrap_or_default());
        tracing::warn!(
            app, %topic, %key, %found, %expected,
            "a key of a joined topic is in another partition than the topic's partitioner chooses (Kafka's, unless the app \
             declares another one), so its record may find no partner. Read the topic through `repartition`. If all joined \
             topics were written by the same other partitioner, declare it with `Topic::partition_by` instead. The metric \
             eos_misplaced_keys_total counts such records"
        );
    }
}
