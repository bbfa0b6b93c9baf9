//! The names of due items in the search for the cause of aborts.

use crate::fnv::Fnv;
use crate::ids::{TaskId, Timestamp, TopicPartition};
use crate::state::StoreId;

/// The beginning of the names of partitions of due items. No topic has such a name.
const ITEMS: &str = "due/";

/// The name of a due item in the search for the cause of aborts (rule 9). Items may come in another order after an abort,
/// and others may come in between, so a number would not identify them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemName(u64);

impl ItemName {
    /// The name of the item with this key and moment.
    #[must_use]
    pub fn of(store: StoreId, key: &[u8], due: Timestamp) -> Self {
        let mut hash = Fnv::new();
        hash.write(&store.to_be_bytes());
        hash.write(&due.0.to_be_bytes());
        hash.write(key);
        Self(hash.finish())
    }

    /// Returns the partition as which [`TaskProgress::taken`](crate::TaskProgress::taken) lists the item, at offset 0. It is no
    /// partition of a topic.
    #[must_use]
    pub fn partition(self, task: TaskId) -> TopicPartition {
        let name = format!("{ITEMS}{}/{:016x}", task.stage.0, self.0);
        TopicPartition::new(&*name, task.partition)
    }

    /// Returns whether this is the [partition](Self::partition) of a due item.
    #[must_use]
    pub fn is_item(partition: &TopicPartition) -> bool {
        partition.topic.as_str().starts_with(ITEMS)
    }

    /// Returns whether this is the [partition](Self::partition) of a due item of this task.
    #[must_use]
    pub fn is_item_of(partition: &TopicPartition, task: TaskId) -> bool {
        let item = partition.topic.as_str().strip_prefix(ITEMS);
        let stage = item.and_then(|item| item.split_once('/'));
        let stage = stage.and_then(|(stage, _)| stage.parse().ok());
        partition.partition == task.partition && stage == Some(task.stage.0)
    }
}
