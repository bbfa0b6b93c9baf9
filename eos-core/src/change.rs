//! An update of a table's row.

/// An update of a row: the values before and after the update. `None` means that the row does not exist. But if no step of
/// the table needs the previous rows, `old` is always `None`: see `Table::changes_without_old`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change<V> {
    pub(crate) old: Option<V>,
    pub(crate) new: Option<V>,
}
