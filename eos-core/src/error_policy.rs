//! What becomes of a record that can't be processed.

use std::fmt;
use std::time::Duration;

use eos_protocol::{RetryPlan, TopicName};

/// What to do with a record that can't be processed.
///
/// A record fails if its bytes can't be decoded, a closure returns an error or panics, or an output can't be encoded or
/// is larger than its topic takes. None of the record's effects count; the policy decides about the record.
///
/// ```
/// # use std::time::Duration;
/// # use eos_core::{App, Backoff, ErrorPolicy, Topic};
/// # let mut app = App::new("a");
/// # let (texts, numbers) = (Topic::<String, String>::plain("t"), Topic::<String, u64>::plain("n"));
/// let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10));
/// app.source(&texts)
///     .on_error(ErrorPolicy::retry(8, backoff).then(ErrorPolicy::dead_letter("t-dlq")))
///     .try_map(|text| Ok(text.parse::<u64>()?))
///     .to(&numbers);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorPolicy {
    retry: Option<Retry>,
    last: LastResort,
    mistake: Option<PolicyError>,
}

/// What becomes of a record that is not tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LastResort {
    #[default]
    Fail,
    Skip,
    DeadLetter(TopicName),
}

impl ErrorPolicy {
    /// The worker commits what came before the record and stops with an error that names it: the default.
    #[must_use]
    pub const fn fail() -> Self {
        Self::of(LastResort::Fail)
    }

    /// Leaves the record out: its offset is committed as if it had been processed.
    #[must_use]
    pub const fn skip() -> Self {
        Self::of(LastResort::Skip)
    }

    /// Writes the record to this topic as it was read, and goes on. The topic must exist.
    ///
    /// Headers hold the reason. `__streams.errors.` and `exception`, `message`, `stacktrace`, `topic`, `partition`,
    /// `offset` are those of KIP-1034: `exception` is the type of the error, `stacktrace` its causes. `__eos.errors.`
    /// and `app`, `attempts`, `time` are the app's name, how often the record was tried, and milliseconds since 1970.
    ///
    /// # Exactly-once
    /// The dead letter is written in the transaction that also commits the record's offset: both or none.
    #[must_use]
    pub fn dead_letter(topic: &str) -> Self {
        Self::of(LastResort::DeadLetter(topic.into()))
    }

    /// Tries the record again, at most `times` times. Then it fails, unless [`Retry::then`] names another policy.
    ///
    /// The record's task waits meanwhile; other tasks go on. Bytes that can't be decoded and
    /// [permanent failures](crate::Failure::permanent) are not tried again.
    pub fn retry(times: u32, backoff: Backoff) -> Retry {
        Retry {
            times: Some(times),
            backoff,
        }
    }

    /// As [`retry`](Self::retry), until the record gets through. What follows the retry decides about bytes that can't
    /// be decoded and [permanent failures](crate::Failure::permanent).
    pub fn retry_forever(backoff: Backoff) -> Retry {
        Retry {
            times: None,
            backoff,
        }
    }

    const fn of(last: LastResort) -> Self {
        Self {
            retry: None,
            last,
            mistake: None,
        }
    }

    /// The topic that dead letters go to, if any do.
    #[must_use]
    pub fn dead_letter_topic(&self) -> Option<&TopicName> {
        match &self.last {
            LastResort::DeadLetter(topic) => Some(topic),
            LastResort::Fail | LastResort::Skip => None,
        }
    }

    /// The tries, if there are any.
    pub(crate) fn tries(&self) -> Option<&Retry> {
        self.retry.as_ref()
    }

    pub(crate) fn last(&self) -> &LastResort {
        &self.last
    }

    /// Whether it can be carried out for a source of this topic.
    pub(crate) fn check(&self, source: &TopicName) -> Result<(), PolicyError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        if self.dead_letter_topic() == Some(source) {
            return Err(PolicyError::OwnTopic);
        }
        self.retry.as_ref().map_or(Ok(()), Retry::check)
    }
}

/// As a program writes it: `retry(3, fixed(1s)).then(dead_letter("orders-dlq"))`.
impl fmt::Display for ErrorPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.retry, &self.last) {
            (None, last) => write!(f, "{last}"),
            (Some(retry), LastResort::Fail) => write!(f, "{retry}"),
            (Some(retry), last) => write!(f, "{retry}.then({last})"),
        }
    }
}

impl fmt::Display for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail => f.write_str("fail()"),
            Self::Skip => f.write_str("skip()"),
            Self::DeadLetter(topic) => write!(f, "dead_letter({:?})", topic.as_str()),
        }
    }
}

/// A retry. See [`ErrorPolicy::retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "give it to `on_error`"]
pub struct Retry {
    /// None: without end.
    times: Option<u32>,
    backoff: Backoff,
}

impl Retry {
    /// The policy when the last try failed: anything but another retry.
    #[must_use]
    pub fn then(self, policy: impl Into<ErrorPolicy>) -> ErrorPolicy {
        let ErrorPolicy {
            retry,
            last,
            mistake,
        } = policy.into();
        ErrorPolicy {
            retry: Some(self),
            last,
            mistake: mistake.or(retry.map(|_| PolicyError::NestedRetry)),
        }
    }

    /// When a failed record is tried again.
    pub(crate) fn plan(&self, entropy: u64) -> RetryPlan {
        RetryPlan {
            backoff: self.backoff.waits,
            max: self.times,
            entropy: self.backoff.is_jittered.then_some(entropy),
        }
    }

    /// The largest number of tries; none if there is no end.
    pub(crate) fn times(&self) -> Option<u32> {
        self.times
    }

    fn check(&self) -> Result<(), PolicyError> {
        let waits = &self.backoff.waits;
        if self.times == Some(0) {
            return Err(PolicyError::NoRetry);
        }
        if waits.most < waits.first {
            return Err(PolicyError::Backoff {
                from: waits.first,
                to: waits.most,
            });
        }
        if self.times.is_none() && waits.first < Duration::from_millis(1) {
            return Err(PolicyError::NoWait);
        }
        Ok(())
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            Some(times) => write!(f, "retry({times}, {})", self.backoff),
            None => write!(f, "retry_forever({})", self.backoff),
        }
    }
}

impl From<Retry> for ErrorPolicy {
    fn from(retry: Retry) -> Self {
        retry.then(Self::fail())
    }
}

/// The waits between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    waits: eos_protocol::Backoff,
    is_jittered: bool,
}

impl Backoff {
    /// Waits this long before each try.
    #[must_use]
    pub const fn fixed(wait: Duration) -> Self {
        Self {
            waits: eos_protocol::Backoff {
                first: wait,
                most: wait,
            },
            is_jittered: false,
        }
    }

    /// Waits that double from `from` to `to`. Each one is drawn between half of it and all of it, so that tasks which
    /// failed together do not try again together.
    #[must_use]
    pub const fn exponential(from: Duration, to: Duration) -> Self {
        Self {
            waits: eos_protocol::Backoff {
                first: from,
                most: to,
            },
            is_jittered: true,
        }
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = &self.waits;
        if self.is_jittered {
            write!(f, "exponential({:?}, {:?})", waits.first, waits.most)
        } else {
            write!(f, "fixed({:?})", waits.first)
        }
    }
}

/// An error policy that can't be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A retry follows a retry.
    #[error(
        "a retry is followed by another retry: raise `times` of the first, and let `then` be \
         `fail()`, `skip()` or `dead_letter(..)`"
    )]
    NestedRetry,
    /// A retry without a try.
    #[error("0 retries: at least 1, or no retry at all")]
    NoRetry,
    /// The waits of a backoff shrink.
    #[error(
        "the waits go from {from:?} to {to:?}: the second one of `exponential(from, to)` is the longest wait"
    )]
    Backoff {
        /// The first wait.
        from: Duration,
        /// The longest one.
        to: Duration,
    },
    /// A retry without end and without a wait.
    #[error("`retry_forever` without a wait between tries: 1 ms at least")]
    NoWait,
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
            error(
                ErrorPolicy::retry(3, Backoff::fixed(SECOND))
                    .then(ErrorPolicy::retry(1, Backoff::fixed(SECOND)))
            ),
            "the error policy of the source t: a retry is followed by another retry: raise `times` \
             of the first, and let `then` be `fail()`, `skip()` or `dead_letter(..)`"
        );
        assert_eq!(
            error(ErrorPolicy::retry(0, Backoff::fixed(SECOND))),
            "the error policy of the source t: 0 retries: at least 1, or no retry at all"
        );
        assert_eq!(
            error(
                ErrorPolicy::retry(1, Backoff::fixed(SECOND)).then(ErrorPolicy::dead_letter("t"))
            ),
            "the error policy of the source t: its dead letters go to the topic itself, where they \
             would be read and fail again for ever: name another topic"
        );
        let waits = error(ErrorPolicy::retry(
            2,
            Backoff::exponential(2 * SECOND, SECOND),
        ));
        assert!(waits.contains("from 2s to 1s"), "{waits}");
        let spinning = error(ErrorPolicy::retry_forever(Backoff::fixed(Duration::ZERO)));
        assert!(spinning.contains("1 ms at least"), "{spinning}");
        let name = error(ErrorPolicy::dead_letter("no good"));
        assert!(name.starts_with("\"no good\" is no topic name"), "{name}");
    }

    /// Dead letters would vanish, unnoticed: the policy is the source's, not the branch's.
    #[test]
    fn a_second_policy_of_a_source_is_refused_with_both() {
        let mut app = App::new("a");
        let orders = app.source(&Topic::<String, String>::plain("orders"));
        let policy = ErrorPolicy::retry(3, Backoff::fixed(SECOND))
            .then(ErrorPolicy::dead_letter("orders-dlq"));
        let (small, large) = orders
            .on_error(policy.clone())
            .branch(|order| order.len() < 3);
        small.on_error(ErrorPolicy::skip()).to(&Topic::plain("out"));
        large.on_error(policy).to(&Topic::plain("out"));
        let error = app.describe().unwrap_err().to_string();
        assert_eq!(
            error,
            "the source orders has two error policies, retry(3, fixed(1s)).then(dead_letter(\"orders-dlq\")) \
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
        let policy = ErrorPolicy::from(ErrorPolicy::retry(2, Backoff::fixed(SECOND)));
        assert_eq!(policy.dead_letter_topic(), None);
        assert_eq!(
            policy,
            ErrorPolicy::retry(2, Backoff::fixed(SECOND)).then(ErrorPolicy::fail())
        );
    }
}
