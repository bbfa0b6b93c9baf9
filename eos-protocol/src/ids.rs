//! Names and numbers that can't be mixed up or negative.

use std::fmt;
use std::sync::Arc;

/// A negative number, which Kafka would not send for this quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} can't be {value}: it is never negative")]
pub struct Negative {
    /// The name of the quantity.
    pub what: &'static str,
    /// The value.
    pub value: i64,
}

macro_rules! non_negative {
    ($(#[$doc:meta])* $name:ident, $int:ty, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($int);

        impl $name {
            /// The smallest one.
            pub const ZERO: Self = Self(0);

            /// Wraps the number if it is not negative.
            ///
            /// # Errors
            /// [`Negative`] if it is.
            pub const fn new(value: $int) -> Result<Self, Negative> {
                if value < 0 {
                    return Err(Negative { what: $what, value: value as i64 });
                }
                Ok(Self(value))
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

non_negative!(
    /// A partition's number within its topic.
    Partition, i32, "a partition number"
);
non_negative!(
    /// The offset of a record in a partition, or of the next record.
    Offset, i64, "an offset"
);
non_negative!(
    /// The generation (classic protocol) or member epoch (KIP-848) of a consumer group member.
    ///
    /// Brokers accept a transactional offset commit with generation −1 and an empty member id *without fencing it*,
    /// for compatibility with old clients. A `Generation` is never negative, so no code can construct such a commit.
    Generation, i32, "a group generation"
);
non_negative!(
    /// The number of initialisations of a transactional id. The broker refuses every older epoch.
    ProducerEpoch, i16, "a producer epoch"
);

impl Offset {
    /// The offset after this one, which is committed once this record is processed.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text. A clone is cheap.
            #[must_use]
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

name!(
    /// A topic's name.
    TopicName
);
name!(
    /// An application's id: its consumer group, and the prefix of its own topics and ids.
    AppId
);
name!(
    /// The lasting name of a producer across restarts (`transactional.id`).
    TransactionalId
);
name!(
    /// The lasting identity of one slot of one application on one host.
    InstanceId
);

/// One partition of one topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// The partition's number.
    pub partition: Partition,
}

impl TopicPartition {
    /// Names a partition.
    #[must_use]
    pub fn new(topic: impl Into<TopicName>, partition: Partition) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A stage's number within its application, in the order of declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StageId(pub u16);

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition number of one stage: the unit of work that moves between workers.
///
/// Shown as Kafka Streams shows it: `<stage>_<partition>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskId {
    /// The stage.
    pub stage: StageId,
    /// The partition number that all its inputs share.
    pub partition: Partition,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.stage, self.partition)
    }
}

/// A worker's number within its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WorkerId(pub u16);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl WorkerId {
    /// `<app>-<instance>-<worker>`: the id that fences this worker's transactions, and its `group.instance.id` under
    /// the classic group protocol. The id stays the same after a restart, so a restart aborts its own open
    /// transaction and moves no partition.
    #[must_use]
    pub fn identity(self, app: &AppId, instance: &InstanceId) -> TransactionalId {
        TransactionalId::new(format!("{app}-{instance}-{self}"))
    }
}

/// A record's time in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The last moment of timers, ticks and closing windows, in milliseconds since 1970: some 140,000 years later.
    pub const LAST_DUE: Self = Self(1 << 52);
}

/// The number of transactions that have touched a task since its first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// The number of the transaction after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A random number for each *attempt* at a transaction: a retry has another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nonce(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_never_negative() {
        assert_eq!(
            Generation::new(-1).unwrap_err().to_string(),
            "a group generation can't be -1: it is never negative"
        );
        assert_eq!(Generation::new(0).unwrap().get(), 0);
    }

    #[test]
    fn identities_are_the_same_after_a_restart() {
        let id = WorkerId(1).identity(&"pricing-v1".into(), &"a1b2".into());
        assert_eq!(id.as_str(), "pricing-v1-a1b2-1");
    }

    #[test]
    fn tasks_and_partitions_read_as_in_kafka() {
        let p = Partition::new(3).unwrap();
        assert_eq!(
            TaskId {
                stage: StageId(0),
                partition: p
            }
            .to_string(),
            "0_3"
        );
        assert_eq!(TopicPartition::new("orders", p).to_string(), "orders-3");
    }
}
