//! What a pipeline promises.

/// What a pipeline promises about the effects of each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Guarantee {
    /// Outputs, state and the input's offset commit in one Kafka transaction: each record takes
    /// effect exactly once, even after a crash.
    #[default]
    ExactlyOnce,
    /// Outputs are acknowledged before the offset is committed: nothing is lost, but whatever was
    /// not committed yet is repeated after a crash.
    AtLeastOnce,
}
