//! A step that must process each row of its table, and the stores of these rows.

use std::sync::Arc;

use eos_protocol::joins::JoinKind;
use eos_protocol::state::AddedStep;

/// The stores from whose rows a table is derived.
#[derive(Debug, Clone)]
pub(crate) enum MadeOf {
    Store(usize),
    Both(Arc<[MadeOf; 2]>),
    Either(Arc<[MadeOf; 2]>),
}

impl MadeOf {
    pub(super) fn joined(kind: JoinKind, left: &Self, right: &Self) -> Self {
        match kind {
            JoinKind::Inner => Self::Both(Arc::new([left.clone(), right.clone()])),
            JoinKind::Left => left.clone(),
            JoinKind::Outer => Self::Either(Arc::new([left.clone(), right.clone()])),
        }
    }

    /// Returns a store that has rows, if the table may have rows.
    pub(super) fn filled<E>(
        &self,
        has_rows: &impl Fn(usize) -> Result<bool, E>,
    ) -> Result<Option<usize>, E> {
        match self {
            Self::Store(store) => Ok(has_rows(*store)?.then_some(*store)),
            Self::Both(sides) => {
                let [left, right] = &**sides;
                match left.filled(has_rows)? {
                    Some(store) => Ok(right.filled(has_rows)?.map(|_| store)),
                    None => Ok(None),
                }
            }
            Self::Either(sides) => {
                let [left, right] = &**sides;
                match left.filled(has_rows)? {
                    Some(store) => Ok(Some(store)),
                    None => right.filled(has_rows),
                }
            }
        }
    }
}

/// A step that must process each row of its table.
pub(crate) struct Follower {
    pub(super) step: AddedStep,
    pub(super) rows: MadeOf,
    /// A store of the table's stage.
    pub(super) store: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_table_has_rows_as_its_kind_says() {
        let [left, right] = [MadeOf::Store(0), MadeOf::Store(1)];
        let filled = |kind, stores: &[usize]| {
            let has_rows = |store| Ok::<_, ()>(stores.contains(&store));
            MadeOf::joined(kind, &left, &right).filled(&has_rows)
        };
        for (kind, none, one, other, both) in [
            (JoinKind::Inner, None, None, None, Some(0)),
            (JoinKind::Left, None, Some(0), None, Some(0)),
            (JoinKind::Outer, None, Some(0), Some(1), Some(0)),
        ] {
            assert_eq!(filled(kind, &[]), Ok(none), "{kind:?}");
            assert_eq!(filled(kind, &[0]), Ok(one), "{kind:?}");
            assert_eq!(filled(kind, &[1]), Ok(other), "{kind:?}");
            assert_eq!(filled(kind, &[0, 1]), Ok(both), "{kind:?}");
        }
    }
}
