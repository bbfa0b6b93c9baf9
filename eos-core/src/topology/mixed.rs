//! Repartition topics, and warnings about sequences that they mix.

use eos_protocol::TopicName;

use super::graph::Graph;
use super::kind::Kind;

impl Graph {
    /// Returns the repartition topics, and those between the tasks of foreign-key joins.
    pub(super) fn repartitions(&self) -> impl Iterator<Item = &TopicName> {
        let internals = self.internals.iter();
        let repartitions = internals.filter(|it| it.purpose.is_read_once());
        let outputs = repartitions.filter_map(|it| self.outputs.get(it.output));
        outputs.map(|output| &output.name)
    }

    /// Whether a topic is a repartition topic.
    pub(super) fn is_repartition(&self, name: &TopicName) -> bool {
        self.repartitions().any(|repartition| repartition == name)
    }

    /// Returns a warning for each deduplication by sequence that reads a repartition topic.
    ///
    /// Several partitions write to one partition of such a topic. If they have records of one producer, a higher number can
    /// overtake a lower one, which is then dropped as a duplicate.
    pub(super) fn mixed_sequences(&self) -> impl Iterator<Item = String> {
        let sources = self.sources.iter().enumerate();
        let repartitioned = sources.filter(|(_, source)| self.is_repartition(&source.topic));
        repartitioned.flat_map(|(at, source)| {
            let behind = self.behind(&[at]);
            let stores = behind.into_iter().filter_map(|at| {
                let Kind::DedupBySequence(store) = self.nodes.get(at)?.kind else {
                    return None;
                };
                self.stores.get(store)
            });
            let warnings = stores.map(|store| {
                format!(
                    "`dedup_by_sequence` with the store {} reads the repartition topic {}, which mixes partitions. If several \
                     partitions have records of one producer, a higher number can overtake a lower one, which is then dropped \
                     as a duplicate. Call it before `repartition`, or let each partition have producer names of its own",
                    store.name, source.topic
                )
            });
            warnings.collect::<Vec<_>>()
        })
    }
}
