//! A balanced, sticky and cooperative assignor (KIP-429).

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use eos_protocol::{Partition, TopicPartition};
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition as Assigned;
use kafka_protocol::messages::consumer_protocol_subscription::TopicPartition as Owned;
use kafka_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use kafka_protocol::protocol::{Decodable, Encodable};
use kafka_wire::requests::text;

/// The first version in which subscriptions carry the generation of their claim.
const SUBSCRIPTION: i16 = 2;
const ASSIGNMENT: i16 = 1;

/// The subscription and the claimed partitions of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) member: String,
    pub(super) topics: Vec<String>,
    pub(super) owned: BTreeSet<TopicPartition>,
    /// The generation of the claim.
    pub(super) generation: i32,
}

/// The partitions of each member, in the order of the claims.
///
/// A partition that moves from one member to another is not assigned this time: its owner revokes it first, and
/// rejoins.
pub(super) fn assign(
    claims: &[Claim],
    partitions_of: impl Fn(&str) -> i32,
) -> Vec<Vec<TopicPartition>> {
    let topics: BTreeSet<&String> = claims.iter().flat_map(|claim| &claim.topics).collect();
    let all = topics.into_iter().flat_map(|topic| {
        let numbers = (0..partitions_of(topic)).filter_map(|n| Partition::new(n).ok());
        numbers.map(|n| TopicPartition::new(topic.as_str(), n))
    });
    let all: Vec<TopicPartition> = all.collect();
    let owners: BTreeMap<&TopicPartition, Option<usize>> =
        all.iter().map(|it| (it, owner(claims, it))).collect();
    let mut shares: Vec<Vec<TopicPartition>> = vec![Vec::new(); claims.len()];
    let mut free = Vec::new();
    let most = all.len().div_ceil(claims.len().max(1));
    for partition in &all {
        match owners[partition] {
            Some(owner) if shares[owner].len() < most => shares[owner].push(partition.clone()),
            _ => free.push(partition.clone()),
        }
    }
    for partition in free {
        if let Some(least) = least(claims, &shares, &partition) {
            shares[least].push(partition);
        }
    }
    even_out(claims, &mut shares);
    for (member, share) in shares.iter_mut().enumerate() {
        share.retain(|it| owners[it].is_none_or(|owner| owner == member));
    }
    shares
}

/// The owner: the claimant with the newest generation; `None` if two claimants have it.
fn owner(claims: &[Claim], partition: &TopicPartition) -> Option<usize> {
    let claiming = |(_, claim): &(usize, &Claim)| claim.owned.contains(partition);
    let newest = claims.iter().enumerate().filter(claiming);
    let newest = newest.map(|(_, claim)| claim.generation).max()?;
    let mut of_it = claims.iter().enumerate().filter(claiming);
    let first = of_it.find(|(_, claim)| claim.generation == newest)?.0;
    let alone = of_it.all(|(_, claim)| claim.generation != newest);
    alone.then_some(first)
}

fn least(
    claims: &[Claim],
    shares: &[Vec<TopicPartition>],
    partition: &TopicPartition,
) -> Option<usize> {
    let wants = |member: &usize| {
        let topics = &claims[*member].topics;
        topics.iter().any(|topic| topic == partition.topic.as_str())
    };
    let members = (0..claims.len()).filter(wants);
    members.min_by_key(|member| (shares[*member].len(), claims[*member].member.clone()))
}

/// Moves partitions from members that have at least two more than another.
fn even_out(claims: &[Claim], shares: &mut [Vec<TopicPartition>]) {
    loop {
        let most = (0..shares.len()).max_by_key(|member| shares[*member].len());
        let Some(most) = most else { return };
        let movable = shares[most].iter().rev().find_map(|partition| {
            let to = least(claims, shares, partition)?;
            (shares[to].len() + 1 < shares[most].len()).then(|| (to, partition.clone()))
        });
        let Some((to, partition)) = movable else {
            return;
        };
        shares[most].retain(|it| *it != partition);
        shares[to].push(partition);
    }
}

fn by_topic<'a>(
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
) -> BTreeMap<String, Vec<i32>> {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        let numbers = topics.entry(partition.topic.as_str().to_owned());
        numbers.or_default().push(partition.partition.get());
    }
    topics
}

fn versioned(version: i16, message: &impl Encodable) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    // It fails only for fields that the version does not have.
    if message.encode(&mut bytes, version).is_err() {
        bytes.clear();
    }
    bytes.freeze()
}

fn read<T: Decodable>(bytes: &Bytes) -> Option<T> {
    let mut bytes = bytes.clone();
    let version = (bytes.len() >= 2).then(|| bytes.get_i16())?;
    T::decode(&mut bytes, version).ok()
}

/// The metadata of a member in JoinGroup.
pub(super) fn subscription(claim: &Claim) -> Bytes {
    let owned = by_topic(&claim.owned).into_iter().map(|(topic, numbers)| {
        Owned::default()
            .with_topic(text(&topic).into())
            .with_partitions(numbers)
    });
    let message = ConsumerProtocolSubscription::default()
        .with_topics(claim.topics.iter().map(|topic| text(topic)).collect())
        .with_owned_partitions(owned.collect())
        .with_generation_id(claim.generation);
    versioned(SUBSCRIPTION, &message)
}

/// Reads the metadata.
pub(super) fn claim(member: &str, bytes: &Bytes) -> Claim {
    let message: ConsumerProtocolSubscription = read(bytes).unwrap_or_default();
    let owned = message.owned_partitions.iter();
    let owned = owned.flat_map(|it| partitions(&it.topic, &it.partitions));
    Claim {
        member: member.to_owned(),
        topics: message.topics.iter().map(ToString::to_string).collect(),
        owned: owned.collect(),
        generation: message.generation_id,
    }
}

/// A member's share in SyncGroup.
pub(super) fn assignment(share: &[TopicPartition]) -> Bytes {
    let topics = by_topic(share).into_iter().map(|(topic, numbers)| {
        Assigned::default()
            .with_topic(text(&topic).into())
            .with_partitions(numbers)
    });
    let message = ConsumerProtocolAssignment::default().with_assigned_partitions(topics.collect());
    versioned(ASSIGNMENT, &message)
}

/// Reads the share.
pub(super) fn share(bytes: &Bytes) -> BTreeSet<TopicPartition> {
    let message: ConsumerProtocolAssignment = read(bytes).unwrap_or_default();
    let topics = message.assigned_partitions.iter();
    topics
        .flat_map(|it| partitions(&it.topic, &it.partitions))
        .collect()
}

fn partitions<'a>(topic: &'a str, numbers: &'a [i32]) -> impl Iterator<Item = TopicPartition> + 'a {
    let numbers = numbers.iter().filter_map(|n| Partition::new(*n).ok());
    numbers.map(move |n| TopicPartition::new(topic, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, owned: &[i32], generation: i32) -> Claim {
        Claim {
            member: name.into(),
            topics: vec!["t".into()],
            owned: owned.iter().map(|n| tp(*n)).collect(),
            generation,
        }
    }

    fn tp(partition: i32) -> TopicPartition {
        TopicPartition::new("t", Partition::new(partition).expect("not negative"))
    }

    fn numbers(shares: Vec<Vec<TopicPartition>>) -> Vec<Vec<i32>> {
        let plain = |share: Vec<TopicPartition>| {
            let mut plain: Vec<i32> = share.iter().map(|it| it.partition.get()).collect();
            plain.sort_unstable();
            plain
        };
        shares.into_iter().map(plain).collect()
    }

    #[test]
    fn a_new_member_gets_only_what_its_owner_has_given_back() {
        let (old, new) = (member("a", &[0, 1, 2, 3], 5), member("b", &[], -1));
        let first = numbers(assign(&[old.clone(), new.clone()], |_| 4));
        assert_eq!(first, [vec![0, 1], vec![]]);
        let second = numbers(assign(&[member("a", &[0, 1], 6), new], |_| 4));
        assert_eq!(second, [vec![0, 1], vec![2, 3]]);
        assert_eq!(numbers(assign(&[old], |_| 4)), [vec![0, 1, 2, 3]]);
    }

    #[test]
    fn of_two_owners_of_a_partition_the_newer_generation_keeps_it() {
        let shares = assign(&[member("a", &[0], 3), member("b", &[0], 4)], |_| 2);
        assert_eq!(numbers(shares), [vec![1], vec![0]]);
        let shares = assign(&[member("a", &[0], 4), member("b", &[0], 4)], |_| 1);
        assert_eq!(numbers(shares).concat(), [0]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let it = member("a", &[0, 7], 9);
        assert_eq!(claim("a", &subscription(&it)), it);
        let owned: Vec<_> = it.owned.iter().cloned().collect();
        assert_eq!(share(&assignment(&owned)), it.owned);
        assert_eq!(share(&Bytes::new()), BTreeSet::new());
    }
}
