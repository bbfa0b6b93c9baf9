//! The operations on due stores.

use eos_protocol::Clock;
use eos_protocol::state::StoreId;
use proptest::prelude::*;

use super::items::{ROWS, STORES};
use crate::conformance::operation::Key;
use crate::due::MARK_KEY;

#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// Sets an item to a moment. It may come no earlier than this many milliseconds later, if given.
    Put(usize, Key, i64, Option<i64>, Vec<u8>),
    /// Writes a row that is no item.
    PutUndated(usize, Key, Vec<u8>),
    /// Writes a row. With a moment, the row is an item. If the last argument is true, it has a separate item instead, as in
    /// earlier versions of joins.
    PutDated(Key, Option<i64>, bool),
    Delete(usize, Key),
    /// Handles the due items, and sets each handled item again after these milliseconds, if given. If the last argument is
    /// false, handles only the first item and leaves its writes open.
    Work(Clock, i64, Option<i64>, bool),
    Keep,
    Drop,
    /// Applies the transaction. If true, keeps the writes of the current record first. Otherwise they stay open.
    Apply(bool),
    Discard,
    Reopen,
    /// Loads the changelog from its beginning into another database. If true, loads older versions of the rows first.
    Restore(bool, SplitLoad),
    /// Loads the changelog into the same database, as after a move to a host with an older copy.
    Reload(SplitLoad),
}

/// The part of a changelog that a restore loads separately, before or after the rest. Marks may be in another transaction. Rows
/// with moments and their items are in different changelogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SplitLoad {
    Nothing,
    MarksFirst,
    MarksLast,
    RowsFirst,
    RowsLast,
}

impl SplitLoad {
    pub(super) const ALL: [Self; 5] = [
        Self::Nothing,
        Self::MarksFirst,
        Self::MarksLast,
        Self::RowsFirst,
        Self::RowsLast,
    ];

    pub(super) fn has(self, store: StoreId, key: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::MarksFirst | Self::MarksLast => key == MARK_KEY,
            Self::RowsFirst | Self::RowsLast => store == ROWS,
        }
    }

    pub(super) fn is_first(self) -> bool {
        matches!(self, Self::MarksFirst | Self::RowsFirst)
    }
}

pub(super) fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..60)
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation as Op;
    let key = || proptest::collection::vec(proptest::sample::select(vec![0, 1, 0xff]), 0..2);
    let (store, moment) = (0..STORES.len(), -3_i64..12);
    let value = proptest::collection::vec(any::<u8>(), 0..3);
    let earliest = proptest::option::weighted(0.4, 0_i64..8);
    let again = proptest::option::weighted(0.3, -4_i64..6);
    prop_oneof![
        12 => (store.clone(), key(), moment.clone(), earliest, value.clone())
            .prop_map(|(s, k, m, e, v)| Op::Put(s, k, m, e, v)),
        1 => (store.clone(), key(), value).prop_map(|(s, k, v)| Op::PutUndated(s, k, v)),
        6 => (key(), proptest::option::weighted(0.8, moment.clone()), proptest::bool::weighted(0.2))
            .prop_map(|(k, m, own)| Op::PutDated(k, m, own)),
        3 => (store, key()).prop_map(|(s, k)| Op::Delete(s, k)),
        8 => (prop_oneof![6 => Just(Clock::Stream), 2 => Just(Clock::Wall), 1 => Just(Clock::Background)], moment, again, proptest::bool::weighted(0.8))
            .prop_map(|(clock, now, again, keeps)| Op::Work(clock, now, again, keeps)),
        6 => Just(Op::Keep),
        1 => Just(Op::Drop),
        4 => proptest::bool::weighted(0.8).prop_map(Op::Apply),
        1 => Just(Op::Discard),
        1 => Just(Op::Reopen),
        1 => (any::<bool>(), split_load()).prop_map(|(older, split)| Op::Restore(older, split)),
        1 => split_load().prop_map(Op::Reload),
    ]
}

fn split_load() -> impl Strategy<Value = SplitLoad> {
    proptest::sample::select(SplitLoad::ALL.to_vec())
}
