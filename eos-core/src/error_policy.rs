//! What becomes of a record that can't be processed.

use std::fmt;
use std::time::Duration;

use eos_protocol::TopicName;

/// What to do with a record that can't be processed.
///
/// All of these count: bytes that are no value of the topic's type, an error that your closure
/// answers, a panic, an output that can't be encoded, an output that is larger than its topic
/// takes. Whatever such a record wanted to emit is gone; the policy decides about the record.
///
/// ```
/// # use std::time::Duration;
/// # use eos_core::{App, ErrorPolicy, Topic};
/// # let mut app = App::new("a");
/// # let (texts, numbers) = (Topic::<String, String>::plain("t"), Topic::<String, u64>::plain("n"));
/// app.source(&texts)
///     .on_error(ErrorPolicy::retry(Duration::from_secs(1), 3).then(ErrorPolicy::dead_letter("t-dlq")))
///     .try_map(|text| Ok(text.parse::<u64>()?))
///     .to(&numbers);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ErrorPolicy {
    /// The worker commits what came before the record and stops with an error that names it.
    #[default]
    Fail,
    /// The record is left out: its offset is committed as if it had been processed.
    Skip,
    /// The record is tried again. Its task waits meanwhile; other tasks go on. Bytes that can't be decoded and
    /// [permanent failures](crate::Failure::permanent) are not tried again: `then` decides at once.
    Retry {
        /// How long to wait before each try.
        backoff: Duration,
        /// How many more tries there are after the first.
        max: u32,
        /// What to do when the last one failed: anything but another retry.
        then: Box<ErrorPolicy>,
    },
    /// The record is written to this topic as it was read, with the reason in its headers
    /// (KIP-1034's names).
    ///
    /// # Exactly-once
    /// In the transaction that also commits the record's offset: both or none.
    DeadLetter(TopicName),
}

impl ErrorPolicy {
    /// Stop with an error that names the record: the default.
    #[must_use]
    pub const fn fail() -> Self {
        Self::Fail
    }

    /// Leave the record out.
    #[must_use]
    pub const fn skip() -> Self {
        Self::Skip
    }

    /// Write the record to this topic and go on. The topic has to exist.
    #[must_use]
    pub fn dead_letter(topic: &str) -> Self {
        Self::DeadLetter(topic.into())
    }

    /// Try the record again, at most `max` times, and wait `backoff` before each try. Then fail,
    /// unless [`Retry::then`] names another policy. A failure that no try can avoid is not tried again: see
    /// [`Failure::permanent`](crate::Failure::permanent).
    pub fn retry(backoff: Duration, max: u32) -> Retry {
        Retry { backoff, max }
    }

    /// The topic that dead letters go to, if any do.
    #[must_use]
    pub fn dead_letter_topic(&self) -> Option<&TopicName> {
        match self {
            Self::DeadLetter(topic) => Some(topic),
            Self::Retry { then, .. } => then.dead_letter_topic(),
            Self::Fail | Self::Skip => None,
        }
    }

    /// Whether it can be carried out for a source of this topic.
    pub(crate) fn check(&self, source: &TopicName) -> Result<(), PolicyError> {
        if self.dead_letter_topic() == Some(source) {
            return Err(PolicyError::OwnTopic);
        }
        match self {
            Self::Retry { max: 0, .. } => Err(PolicyError::NoRetry),
            Self::Retry { then, .. } if matches!(**then, Self::Retry { .. }) => {
                Err(PolicyError::NestedRetry)
            }
            _ => Ok(()),
        }
    }
}

/// As a program writes it: `retry(1s, 3).then(dead_letter("orders-dlq"))`.
impl fmt::Display for ErrorPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail => f.write_str("fail()"),
            Self::Skip => f.write_str("skip()"),
            Self::DeadLetter(topic) => write!(f, "dead_letter({:?})", topic.as_str()),
            Self::Retry { backoff, max, then } => {
                write!(f, "retry({backoff:?}, {max})")?;
                match **then {
                    Self::Fail => Ok(()),
                    ref then => write!(f, ".then({then})"),
                }
            }
        }
    }
}

/// A retry, and what comes after it. See [`ErrorPolicy::retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "give it to `Stream::on_error`"]
pub struct Retry {
    backoff: Duration,
    max: u32,
}

impl Retry {
    /// What to do when the last try failed: anything but another retry.
    #[must_use]
    pub fn then(self, policy: impl Into<ErrorPolicy>) -> ErrorPolicy {
        ErrorPolicy::Retry {
            backoff: self.backoff,
            max: self.max,
            then: Box::new(policy.into()),
        }
    }
}

impl From<Retry> for ErrorPolicy {
    fn from(retry: Retry) -> Self {
        retry.then(Self::Fail)
    }
}

/// An error policy that can't be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A retry follows a retry.
    #[error(
        "a retry is followed by another retry: raise `max` of the first, and let `then` be \
         `fail()`, `skip()` or `dead_letter(..)`"
    )]
    NestedRetry,
    /// A retry without a try.
    #[error("0 retries: at least 1, or no retry at all")]
    NoRetry,
    /// A dead letter would be read and fail again, for ever.
    #[error(
        "its dead letters go to the topic itself, where they would be read and fail again for ever: \
         name another topic"
    )]
    OwnTopic,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Topic};

    const SECOND: Duration = Duration::from_secs(1);

    fn error(policy: impl Into<ErrorPolicy>) -> String {
        let mut app = App::new("a");
        let topic = Topic::<String, String>::plain("t");
        app.source(&topic).on_error(policy).to(&Topic::plain("out"));
        app.check().unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_fix() {
        assert_eq!(
            error(ErrorPolicy::retry(SECOND, 3).then(ErrorPolicy::retry(SECOND, 1))),
            "the error policy of the source t: a retry is followed by another retry: raise `max` of \
             the first, and let `then` be `fail()`, `skip()` or `dead_letter(..)`"
        );
        assert_eq!(
            error(ErrorPolicy::retry(SECOND, 0)),
            "the error policy of the source t: 0 retries: at least 1, or no retry at all"
        );
        assert_eq!(
            error(ErrorPolicy::retry(SECOND, 1).then(ErrorPolicy::dead_letter("t"))),
            "the error policy of the source t: its dead letters go to the topic itself, where they \
             would be read and fail again for ever: name another topic"
        );
        let name = error(ErrorPolicy::dead_letter("no good"));
        assert!(name.starts_with("\"no good\" is no topic name"), "{name}");
    }

    /// Dead letters would vanish, unnoticed: the policy is the source's, not the branch's.
    #[test]
    fn a_second_policy_of_a_source_is_refused_with_both() {
        let mut app = App::new("a");
        let orders = app.source(&Topic::<String, String>::plain("orders"));
        let policy = ErrorPolicy::retry(SECOND, 3).then(ErrorPolicy::dead_letter("orders-dlq"));
        let (small, large) = orders
            .on_error(policy.clone())
            .branch(|order| order.len() < 3);
        small.on_error(ErrorPolicy::skip()).to(&Topic::plain("out"));
        large.on_error(policy).to(&Topic::plain("out"));
        let error = app.describe().unwrap_err().to_string();
        assert_eq!(
            error,
            "the source orders has two error policies, retry(1s, 3).then(dead_letter(\"orders-dlq\")) \
             and skip(). A policy is its source's, whatever branch it is said of, so one of them would \
             replace the other: keep one call of `on_error`. For a branch to have its own, write it to \
             a topic and read that with `app.source(..)`"
        );
        assert_eq!(app.check().unwrap_err().to_string(), error);
    }

    #[test]
    fn the_same_policy_twice_is_one() {
        let mut app = App::new("a");
        let topic = Topic::<String, String>::plain("t");
        app.source(&topic)
            .on_error(ErrorPolicy::skip())
            .map(|v| v)
            .on_error(ErrorPolicy::skip())
            .to(&Topic::plain("out"));
        assert!(app.check().is_ok());
    }

    #[test]
    fn a_retry_fails_in_the_end_unless_told_otherwise() {
        let policy = ErrorPolicy::from(ErrorPolicy::retry(SECOND, 2));
        assert_eq!(policy.dead_letter_topic(), None);
        assert_eq!(
            policy,
            ErrorPolicy::retry(SECOND, 2).then(ErrorPolicy::Fail)
        );
    }
}
