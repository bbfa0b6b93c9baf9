//! The processing guarantee.

/// The guarantee of a pipeline about the effects of each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Guarantee {
    /// Outputs, state and the input's offset commit in one Kafka transaction: each record takes
    /// effect exactly once, even after a crash.
    #[default]
    ExactlyOnce,
    /// Outputs are acknowledged before the offset is committed. No record is lost, but after a crash uncommitted
    /// records are repeated.
    AtLeastOnce,
}

impl Guarantee {
    /// The value of `processing.guarantee`.
    #[must_use]
    pub const fn property_value(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly_once_v2",
            Self::AtLeastOnce => "at_least_once",
        }
    }
}
