//! Deduplication by an id in the value, as a user of eos writes it.

use std::ops::Range;

use eos_core::identity::SeenIds;
use eos_core::{App, Topic};

use crate::side::Task;
use crate::work::{SEEN, WINDOW};

/// The place of the id in a value.
pub(crate) const ID: Range<usize> = 7..23;

type Bytes = Vec<u8>;

/// Adds the topology to the app. The store of Kafka Streams' side has one scope per partition, too.
pub(crate) fn declare(app: &mut App, task: &Task) {
    app.source(&Topic::<Bytes, Bytes>::plain(&task.input))
        .dedup(&SeenIds::fixed(SEEN, WINDOW).per_partition())
        .by(|value| value.get(ID).unwrap_or_default().to_vec())
        .to(&Topic::plain(&task.output));
}
