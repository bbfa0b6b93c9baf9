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
    /// The sessions of each key.
    Sessions,
    /// The sliding windows of each key.
    Sliding,
    /// Rows that expire.
    Expiring,
    /// The next moment of a tick.
    Tick,
    /// The records of a join of streams.
    Joined,
    /// The moments at which records of a join go out alone.
    Alone,
    /// The left rows of a foreign-key join.
    ForeignLeft,
    /// The subscribers of a foreign-key join.
    ForeignRight,
    /// The progress of updates through the subscribers of a foreign-key join.
    ForeignFanOut,
}

impl OwnRows {
    /// Every content.
    pub const ALL: [Self; 13] = [
        Self::Watermarks,
        Self::Versions,
        Self::WaitingByTime,
        Self::WaitingByNumber,
        Self::Sessions,
        Self::Sliding,
        Self::Expiring,
        Self::Tick,
        Self::Joined,
        Self::Alone,
        Self::ForeignLeft,
        Self::ForeignRight,
        Self::ForeignFanOut,
    ];

    /// The mark behind the name of the store. No name contains a zero.
    pub(super) const fn mark(self) -> &'static str {
        match self {
            Self::Watermarks => "\0watermarks",
            Self::Versions => "\0versions",
            Self::WaitingByTime => "\0waiting-by-time",
            Self::WaitingByNumber => "\0waiting-by-number",
            Self::Sessions => "\0sessions",
            Self::Sliding => "\0sliding",
            Self::Expiring => "\0expiring",
            Self::Tick => "\0tick",
            Self::Joined => "\0joined",
            Self::Alone => "\0alone",
            Self::ForeignLeft => "\0foreign-left",
            Self::ForeignRight => "\0foreign-right",
            Self::ForeignFanOut => "\0foreign-fan-out",
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
            Self::Sessions => "windowed_by(Session)",
            Self::Sliding => "windowed_by(Sliding)",
            Self::Expiring => "expire_after",
            Self::Tick => "on_tick",
            Self::Joined => "join_within",
            Self::Alone => "left_join_within or outer_join_within",
            Self::ForeignLeft | Self::ForeignRight | Self::ForeignFanOut => {
                "join_by or left_join_by"
            }
        }
    }

    /// Returns whether the rows are in a windowed store.
    #[must_use]
    pub const fn are_windowed(self) -> bool {
        matches!(self, Self::Joined)
    }

    /// Returns whether the rows are records that wait for their turn.
    #[must_use]
    pub const fn are_waiting(self) -> bool {
        matches!(self, Self::WaitingByTime | Self::WaitingByNumber)
    }

    /// Returns whether the store has the name of another one, which belongs to the same operator.
    #[must_use]
    pub const fn share_a_name(self) -> bool {
        matches!(self, Self::Alone | Self::ForeignRight | Self::ForeignFanOut)
    }
}
