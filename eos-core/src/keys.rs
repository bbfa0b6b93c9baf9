//! Markers for the distribution of keys over tasks.

/// All records of one key are in one task, in order. The topic's producers ensure this.
#[derive(Debug, Clone, Copy)]
pub struct Partitioned;

/// Records of one key may be in several tasks: after a step that changes keys, such as
/// [`Stream::key_by`](crate::Stream::key_by) or [`Stream::process`](crate::Stream::process), and after
/// [`Stream::union`](crate::Stream::union).
///
/// Operators with state per key do not exist on such a stream. [`repartition`](crate::Stream::repartition), or writing
/// the stream to a topic, brings the records of a key together again.
#[derive(Debug, Clone, Copy)]
pub struct Scattered;

/// All records of one key are in one task. Operators with state per key require this trait. Only [`Partitioned`]
/// implements it.
#[diagnostic::on_unimplemented(
    message = "the records of one key may be in several tasks here, so nothing can be kept per key",
    label = "needs all records of a key in one task",
    note = "call `.repartition(&topic)` before it: that brings the records of each key together, in a \
            topic that the app creates"
)]
pub trait Colocated: sealed::Sealed {}

impl Colocated for Partitioned {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Partitioned {}
}
