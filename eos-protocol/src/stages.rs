//! Groups of sources: stages by connected components.
//!
//! Sources that share a topic, a join or a store form one stage, so a topic belongs to exactly one stage. Two owners
//! of one committed offset would double records in spite of every fence.

use crate::fnv::Fnv;
use crate::ids::{StageId, TopicName};
use crate::name::LayoutHash;

/// A set of sources that one task per partition number reads together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its number.
    pub id: StageId,
    /// Its topics in the order of declaration, each once. The first one *drives*: the group
    /// subscribes to it, and its siblings' partitions follow.
    pub topics: Vec<TopicName>,
    /// Its sources, as indices into the declaration.
    pub sources: Vec<usize>,
}

impl Stage {
    /// The topic that the group subscribes to.
    #[must_use]
    pub fn driving_topic(&self) -> &TopicName {
        &self.topics[0]
    }

    /// The layout in every offset's metadata: topics and driving topic, by FNV-1a (64 bit). The order of siblings
    /// does not matter; the choice of the driving topic does.
    #[must_use]
    pub fn layout(&self) -> LayoutHash {
        let mut siblings: Vec<&str> = self.topics[1..].iter().map(TopicName::as_str).collect();
        siblings.sort_unstable();
        let mut hash = Fnv::new();
        add(&mut hash, self.driving_topic().as_str());
        for sibling in siblings {
            add(&mut hash, sibling);
        }
        LayoutHash(hash.finish())
    }
}

/// Zero-terminated: no topic name holds a zero byte, so no two lists collide by concatenation.
fn add(hash: &mut Fnv, text: &str) {
    hash.write(text.as_bytes());
    hash.write(&[0]);
}

/// A hash that identifies a subscription: the driving topics in any order, by FNV-1a.
///
/// It is part of a static member's `group.instance.id`. A coordinator gives a member that returns under its old id
/// its old partitions, even if its subscription has changed (KIP-345). No member would read new topics, and removed
/// topics would stay with the member.
#[must_use]
pub fn subscription(stages: &[Stage]) -> u32 {
    let mut topics: Vec<&str> = stages.iter().map(|s| s.driving_topic().as_str()).collect();
    topics.sort_unstable();
    topics.dedup();
    let mut hash = Fnv::new();
    for topic in topics {
        add(&mut hash, topic);
    }
    let [a, b, c, d, e, f, g, h] = hash.finish().to_be_bytes();
    u32::from_be_bytes([a ^ e, b ^ f, c ^ g, d ^ h])
}

/// Groups sources into stages.
///
/// `sources` are topics in the order of declaration; `links` are pairs of sources that meet in a
/// join or a store. Links to sources that don't exist are ignored.
#[must_use]
pub fn stages(sources: &[TopicName], links: &[(usize, usize)]) -> Vec<Stage> {
    // The first source of a component names it, so stages keep declaration order.
    let mut component: Vec<usize> = (0..sources.len()).collect();
    let mut join = |a: usize, b: usize| {
        let (a, b) = (component[a], component[b]);
        let (first, other) = (a.min(b), a.max(b));
        for c in &mut component {
            if *c == other {
                *c = first;
            }
        }
    };
    for (at, topic) in sources.iter().enumerate() {
        if let Some(same) = sources[..at].iter().position(|t| t == topic) {
            join(same, at);
        }
    }
    for &(a, b) in links {
        if a < sources.len() && b < sources.len() {
            join(a, b);
        }
    }

    let mut stages: Vec<(usize, Stage)> = Vec::new();
    for (source, &first) in component.iter().enumerate() {
        if first == source {
            let id = StageId(u16::try_from(stages.len()).unwrap_or(u16::MAX));
            stages.push((
                first,
                Stage {
                    id,
                    topics: Vec::new(),
                    sources: Vec::new(),
                },
            ));
        }
        let Some((_, stage)) = stages.iter_mut().find(|(f, _)| *f == first) else {
            continue;
        };
        stage.sources.push(source);
        if !stage.topics.contains(&sources[source]) {
            stage.topics.push(sources[source].clone());
        }
    }
    stages.into_iter().map(|(_, stage)| stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn topics(names: &[&str]) -> Vec<TopicName> {
        names.iter().map(|&n| n.into()).collect()
    }

    #[test]
    fn a_subscription_is_identified_by_its_driving_topics_alone() {
        let of =
            |names: &[&str], links: &[(usize, usize)]| subscription(&stages(&topics(names), links));
        assert_eq!(of(&["a", "b"], &[]), of(&["b", "a"], &[]));
        assert_ne!(of(&["a", "b"], &[]), of(&["a"], &[]));
        assert_ne!(of(&["ab"], &[]), of(&["a", "b"], &[]));
        assert_eq!(of(&["a", "b"], &[(0, 1)]), of(&["a"], &[]), "b follows");
    }

    #[test]
    fn sources_that_share_nothing_are_stages_of_their_own() {
        let found = stages(&topics(&["a", "b"]), &[]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].driving_topic().as_str(), "b");
        assert_eq!(found[1].id, StageId(1));
    }

    #[test]
    fn a_shared_topic_or_link_makes_one_stage() {
        let found = stages(
            &topics(&["a", "b", "a", "c", "d"]),
            &[(1, 3), (2, 3), (9, 0)],
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].topics, topics(&["a", "b", "c"]));
        assert_eq!(found[0].sources, [0, 1, 2, 3]);
        assert_eq!(found[1].topics, topics(&["d"]));
    }

    #[test]
    fn the_layout_is_pinned_and_knows_its_driver() {
        let stage = |names: &[&str]| Stage {
            id: StageId(0),
            topics: topics(names),
            sources: vec![],
        };
        assert_eq!(stage(&["orders"]).layout(), LayoutHash(0xddc04b9f33c6b224));
        assert_eq!(
            stage(&["a", "b", "c"]).layout(),
            stage(&["a", "c", "b"]).layout()
        );
        assert_ne!(stage(&["a", "b"]).layout(), stage(&["b", "a"]).layout());
        assert_ne!(stage(&["a", "b"]).layout(), stage(&["a"]).layout());
        assert_ne!(stage(&["ab"]).layout(), stage(&["a", "b"]).layout());
    }

    proptest! {
        /// A topic in two stages would have two owners of one committed offset.
        #[test]
        fn each_topic_is_in_one_stage_and_each_source_too(
            picks in proptest::collection::vec(0usize..5, 1..8),
            links in proptest::collection::vec((0usize..8, 0usize..8), 0..6),
        ) {
            let names = ["a", "b", "c", "d", "e"];
            let sources: Vec<TopicName> = picks.iter().map(|&p| names[p].into()).collect();
            let found = stages(&sources, &links);
            for topic in &sources {
                prop_assert_eq!(found.iter().filter(|s| s.topics.contains(topic)).count(), 1);
            }
            for source in 0..sources.len() {
                prop_assert_eq!(found.iter().filter(|s| s.sources.contains(&source)).count(), 1);
            }
            for &(a, b) in &links {
                if a < sources.len() && b < sources.len() {
                    prop_assert!(found.iter().any(|s| s.sources.contains(&a) && s.sources.contains(&b)));
                }
            }
        }
    }
}
