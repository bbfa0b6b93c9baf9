//! The processing guarantee.

/// The guarantee of a pipeline about the effects of each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Guarantee {
    /// Outputs, state and the input's offset commit in one Kafka transaction: each record takes
    /// effect exactly once, even after a crash.
    #[default]
    ExactlyOnce,
    /// Outputs and state are acknowledged before the offset is committed. No record is lost, but after a crash
    /// uncommitted records are repeated, in outputs and in state.
    AtLeastOnce,
    /// The offset is committed before the record is processed. No record is processed twice, but a crash loses the
    /// records between their commit and the acknowledgement of their outputs. Without stores only.
    AtMostOnce,
}

impl Guarantee {
    /// The value of `processing.guarantee`.
    #[must_use]
    pub const fn property_value(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly_once_v2",
            Self::AtLeastOnce => "at_least_once",
            Self::AtMostOnce => "at_most_once",
        }
    }

    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly once",
            Self::AtLeastOnce => "at least once",
            Self::AtMostOnce => "at most once",
        }
    }

    /// Returns whether outputs, state and offsets commit in one transaction. If not, the consumer commits the offsets.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        matches!(self, Self::ExactlyOnce)
    }
}
