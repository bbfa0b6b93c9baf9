//! Random sequences of operations.

use eos_protocol::state::StoreId;
use proptest::prelude::*;

use crate::{Direction, ExpiredRows, KeyRange, StoreKind};

/// The stores of the test task: both families, all kinds, adjacent ids and the last possible id.
pub(super) const STORES: [(StoreId, StoreKind); 5] = [
    (StoreId::from_be_bytes([0, 0, 0, 1]), StoreKind::Point),
    (StoreId::from_be_bytes([0, 0, 0, 2]), StoreKind::Ordered),
    (
        StoreId::from_be_bytes([0x7f, 0xff, 0xff, 0xff]),
        StoreKind::Scanned,
    ),
    (StoreId::from_be_bytes([0x80, 0, 0, 1]), StoreKind::Ordered),
    (StoreId::from_be_bytes([0xff; 4]), StoreKind::Point),
];

pub(super) type Key = Vec<u8>;

/// One step of the test task.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Put(StoreId, Key, Vec<u8>),
    Delete(StoreId, Key),
    Get(StoreId, Key),
    MultiGet(StoreId, Vec<Key>),
    Scan(StoreId, KeyRange, Direction),
    KeepRecord,
    DropRecord,
    /// An apply, with the rows to delete, if any.
    Apply(Option<ExpiredRows>),
    Discard,
    /// Writes from a changelog.
    Load(Vec<(StoreId, Key, Option<Vec<u8>>)>),
    Flush,
    Reopen,
    /// Takes a snapshot. It is compared at the end and before each reopening.
    Snapshot,
    /// Sets the number of other caches that share the store's cache memory.
    ShareCache(usize),
}

pub(super) fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..80)
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation as Op;
    let read = prop_oneof![
        row().prop_map(|(s, k)| Op::Get(s, k)),
        (store(), proptest::collection::vec(key(), 0..6)).prop_map(|(s, k)| Op::MultiGet(s, k)),
        (store(), range(), direction()).prop_map(|(s, r, d)| Op::Scan(s, r, d)),
    ];
    let write =
        (row(), proptest::option::weighted(0.7, value())).prop_map(|((store, key), value)| {
            match value {
                Some(value) => Op::Put(store, key, value),
                None => Op::Delete(store, key),
            }
        });
    let load = (row(), proptest::option::of(value()));
    let load = load.prop_map(|((store, key), value)| (store, key, value));
    prop_oneof![
        12 => write,
        6 => read,
        6 => Just(Op::KeepRecord),
        1 => Just(Op::DropRecord),
        3 => over().prop_map(Op::Apply),
        1 => Just(Op::Discard),
        1 => proptest::collection::vec(load, 0..8).prop_map(Op::Load),
        1 => Just(Op::Flush),
        1 => Just(Op::Reopen),
        2 => Just(Op::Snapshot),
        1 => (0..4_usize).prop_map(Op::ShareCache),
    ]
}

fn over() -> impl Strategy<Value = Option<ExpiredRows>> {
    let expired = (store(), range()).prop_map(|(store, range)| ExpiredRows::new(store, range));
    proptest::option::weighted(0.3, expired)
}

fn store() -> impl Strategy<Value = StoreId> {
    proptest::sample::select(STORES.map(|(id, _)| id).to_vec())
}

/// Generates one of a few keys, so that sequences use them repeatedly. Includes the empty key.
fn key() -> impl Strategy<Value = Key> {
    proptest::collection::vec(proptest::sample::select(vec![0, 1, b'k', 0xff]), 0..3)
}

/// Returns a store, and a key of it. Most keys of windowed stores begin with the start of a window.
fn row() -> impl Strategy<Value = (StoreId, Key)> {
    let start = prop_oneof![
        12 => (0..6_u64).prop_map(Some),
        1 => Just(Some(u64::MAX)),
        1 => Just(None),
    ];
    (store(), start, key()).prop_map(|(store, start, key)| match start {
        Some(start) if store.is_windowed() => (store, [&start.to_be_bytes()[..], &key].concat()),
        _ => (store, key),
    })
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => (any::<u8>(), 100..5_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        Just(KeyRange::all()),
        key().prop_map(|prefix| KeyRange::prefix(&prefix)),
        (key(), key()).prop_map(|(a, b)| KeyRange::between(&a[..]..&b[..])),
        (key(), key()).prop_map(|(a, b)| KeyRange::between(&a[..]..=&b[..])),
        key().prop_map(|from| KeyRange::between(&from[..]..)),
        (0..6_u64, 0..6_u64).prop_map(|(from, to)| {
            KeyRange::between(&from.to_be_bytes()[..]..&to.to_be_bytes()[..])
        }),
    ]
}

fn direction() -> impl Strategy<Value = Direction> {
    proptest::sample::select(vec![Direction::Forward, Direction::Reverse])
}
