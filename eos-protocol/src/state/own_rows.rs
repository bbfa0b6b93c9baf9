//! The stores of operators whose rows have formats of their own.

/// The content of an operator's store. It is a part of the store's id, so another operator does not find its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnRows {
    /// High watermarks of producers.
    Watermarks,
    /// The newest version of each key.
    Versions,
    /// Records that wait for their time.
    WaitingByTime,
    /// Records that wait for the records before them.
    WaitingByNumber,
}

impl OwnRows {
    /// Every content.
    pub const ALL: [Self; 4] = [
        Self::Watermarks,
        Self::Versions,
        Self::WaitingByTime,
        Self::WaitingByNumber,
    ];

    /// The mark behind the name of the store. No name contains a zero.
    pub(super) const fn mark(self) -> &'static str {
        match self {
            Self::Watermarks => "\0watermarks",
            Self::Versions => "\0versions",
            Self::WaitingByTime => "\0waiting-by-time",
            Self::WaitingByNumber => "\0waiting-by-number",
        }
    }

    /// The method that declares the operator.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Watermarks => "dedup_by_sequence",
            Self::Versions => "newest",
            Self::WaitingByTime => "reorder_by_time",
            Self::WaitingByNumber => "reorder_by",
        }
    }
}
