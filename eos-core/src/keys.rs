//! Where the records of one key are.

/// All records of one key are in one task, in order: what a topic's producers see to.
#[derive(Debug, Clone, Copy)]
pub struct Partitioned;

/// Records of one key may be in several tasks: after [`Stream::key_by`](crate::Stream::key_by) and
/// [`Stream::merge`](crate::Stream::merge).
///
/// Nothing that keeps something per key exists on such a stream;
/// [`repartition`](crate::Stream::repartition), or writing it to a topic, brings the records of a key
/// together again.
#[derive(Debug, Clone, Copy)]
pub struct Scattered;

/// All records of one key are in one task: what keeps something per key asks for it. Only
/// [`Partitioned`] has it.
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
