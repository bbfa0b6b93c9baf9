//! Error policies for records that fail.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{RetryPlan, TopicName};

/// The error policy of a source: fail, skip, dead letter, pause, or retry.
///
/// A record fails if its bytes can't be decoded, or if a closure returns an error or panics. It also fails if an output
/// can't be encoded or is larger than its topic allows. The effects of a failed record are dropped, and the policy
/// applies to the record.
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
    /// The store of the keys with dead letters, if these are in sequence.
    sequence: Option<Arc<str>>,
    mistake: Option<PolicyError>,
}

/// The policy for a record without further retries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LastResort {
    #[default]
    Fail,
    Skip,
    DeadLetter(TopicName),
    /// With the topic of `Resume::DeadLetter`.
    Pause(Option<TopicName>),
}

impl ErrorPolicy {
    /// Stops the app with an error that names the record. The worker commits all earlier records first. This is the
    /// default.
    #[must_use]
    pub const fn fail() -> Self {
        Self::of(LastResort::Fail)
    }

    /// Skips the record. Its offset is committed as if the record had been processed.
    #[must_use]
    pub const fn skip() -> Self {
        Self::of(LastResort::Skip)
    }

    /// Writes the record unchanged to a dead-letter topic, and continues. The topic must exist.
    ///
    /// The headers contain the reason. KIP-1034 defines the headers `__streams.errors.exception`, `.message`,
    /// `.stacktrace`, `.topic`, `.partition` and `.offset`. `exception` is the type of the error, and `stacktrace`
    /// contains its causes. eos adds `__eos.errors.app`, `.attempts` and `.time`: the name of the app, the number of
    /// attempts, and the time in milliseconds since 1970.
    ///
    /// # Exactly-once
    /// The transaction that writes the dead letter also commits the record's offset.
    #[must_use]
    pub fn dead_letter(topic: &str) -> Self {
        Self::of(LastResort::DeadLetter(topic.into()))
    }

    /// Pauses the task of the record until the program calls [`Handle::resume`](crate::Handle::resume). All earlier
    /// records are committed, and other tasks continue. The task takes no records. All its timers wait,
    /// including those of the machine's clock.
    ///
    /// [`Handle::paused`](crate::Handle::paused) lists the paused tasks of the process. After a restart, or after a
    /// move to another process, the record fails and pauses again. The metric `eos_paused_tasks` counts paused tasks.
    ///
    /// ```
    /// # use eos_core::{App, ErrorPolicy, Handle, Topic};
    /// # use eos_core::run::{Resume, ResumeError};
    /// # let mut app = App::new("a");
    /// # let (texts, numbers) = (Topic::<String, String>::plain("t"), Topic::<String, u64>::plain("n"));
    /// app.source(&texts)
    ///     .on_error(ErrorPolicy::pause().dead_letters_to("t-dlq"))
    ///     .try_map(|text| Ok(text.parse::<u64>()?))
    ///     .to(&numbers);
    ///
    /// fn give_up(handle: &Handle) -> Result<(), ResumeError> {
    ///     for paused in handle.paused() {
    ///         println!("{}: {}", paused.at, paused.error);
    ///         handle.resume(paused.id, Resume::DeadLetter)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub const fn pause() -> Pause {
        Pause { letters: None }
    }

    /// Keeps the dead letters of each key in order. Once a key has a dead letter, its later records go to the
    /// dead-letter topic as well, unprocessed. Other keys continue. `store` is the name of the store with these keys.
    ///
    /// The header `eos-sequence` of a letter has its number, which never changes. An app of
    /// [`App::replay`](crate::App::replay) writes the letters back to their origin. A replayed record is processed only
    /// if it is the next one of its key. Otherwise it becomes a dead letter again, under its own number. A letter that
    /// was processed before is dropped, so a replay may run any number of times. After the last letter, the key's
    /// records are processed again.
    ///
    /// The order is that of one topic: records of other topics that the task reads do not wait. A record without a key
    /// waits for no other record. Requires [`Guarantee::ExactlyOnce`](crate::Guarantee::ExactlyOnce).
    ///
    /// ```
    /// # use eos_core::{App, ErrorPolicy, Topic};
    /// # let mut app = App::new("a");
    /// # let (orders, paid) = (Topic::<String, String>::plain("orders"), Topic::<String, u64>::plain("paid"));
    /// app.source(&orders)
    ///     .on_error(ErrorPolicy::dead_letter("orders-dlq").in_sequence("parked-orders"))
    ///     .try_map(|order| Ok(order.parse::<u64>()?))
    ///     .to(&paid);
    /// ```
    #[must_use]
    pub fn in_sequence(mut self, store: &str) -> Self {
        if !matches!(self.last, LastResort::DeadLetter(_)) {
            self.mistake = self.mistake.or(Some(PolicyError::NoLetters));
        }
        self.sequence = Some(store.into());
        self
    }

    /// The store of the keys with sequenced dead letters, if any.
    pub(crate) fn sequence(&self) -> Option<&str> {
        self.sequence.as_deref()
    }

    /// Retries the record at most `times` times. After the last attempt the record fails, unless [`Retry::then`] sets
    /// another policy.
    ///
    /// The task of the record waits meanwhile, and other tasks continue.
    ///
    /// Some failures are not retried, because a retry is expected to fail as well:
    ///
    /// - bytes that can't be decoded, and outputs and rows of stores that can't be encoded
    /// - records without a timestamp in a window
    /// - errors of deduplication and of reordering
    /// - unknown topics of [`route`](crate::Stream::route), and partitions that do not exist
    /// - stores that the step does not have
    /// - [permanent failures](crate::Failure::permanent)
    ///
    /// A failure by [`CodecError::unavailable`](crate::codec::CodecError::unavailable) is retried.
    pub fn retry(times: u32, backoff: Backoff) -> Retry {
        Retry {
            times: Some(times),
            backoff,
        }
    }

    /// Like [`retry`](Self::retry), until the record succeeds. The policy of [`Retry::then`] applies to failures that
    /// `retry` does not retry. Without this policy, the app stops.
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
            sequence: None,
            mistake: None,
        }
    }

    /// The dead-letter topic, if any.
    #[must_use]
    pub fn dead_letter_topic(&self) -> Option<&TopicName> {
        match &self.last {
            LastResort::DeadLetter(topic) | LastResort::Pause(Some(topic)) => Some(topic),
            LastResort::Fail | LastResort::Skip | LastResort::Pause(None) => None,
        }
    }

    /// The retry, if any.
    pub(crate) fn tries(&self) -> Option<&Retry> {
        self.retry.as_ref()
    }

    pub(crate) fn last(&self) -> &LastResort {
        &self.last
    }

    /// Checks the policy for a source of this topic.
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

/// As in a program: `retry(3, fixed(1s)).then(dead_letter("orders-dlq"))`.
impl fmt::Display for ErrorPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = match &self.sequence {
            Some(store) => format!("{}.in_sequence({store:?})", self.last),
            None => self.last.to_string(),
        };
        match (&self.retry, &self.last) {
            (None, _) => f.write_str(&last),
            (Some(retry), LastResort::Fail) => write!(f, "{retry}"),
            (Some(retry), _) => write!(f, "{retry}.then({last})"),
        }
    }
}

impl fmt::Display for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail => f.write_str("fail()"),
            Self::Skip => f.write_str("skip()"),
            Self::DeadLetter(topic) => write!(f, "dead_letter({:?})", topic.as_str()),
            Self::Pause(None) => f.write_str("pause()"),
            Self::Pause(Some(topic)) => {
                write!(f, "pause().dead_letters_to({:?})", topic.as_str())
            }
        }
    }
}

/// A pause. See [`ErrorPolicy::pause`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "give it to `on_error`"]
pub struct Pause {
    letters: Option<TopicName>,
}

impl Pause {
    /// Sets the topic of [`Resume::DeadLetter`](crate::run::Resume::DeadLetter). It must exist. The task pauses in any
    /// case.
    pub fn dead_letters_to(self, topic: &str) -> Self {
        let letters = Some(topic.into());
        Self { letters }
    }
}

impl From<Pause> for ErrorPolicy {
    fn from(pause: Pause) -> Self {
        Self::of(LastResort::Pause(pause.letters))
    }
}

/// A retry. See [`ErrorPolicy::retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "give it to `on_error`"]
pub struct Retry {
    /// `None` for unlimited retries.
    times: Option<u32>,
    backoff: Backoff,
}

impl Retry {
    /// Sets the policy after the last attempt. It must not be another retry.
    #[must_use]
    pub fn then(self, policy: impl Into<ErrorPolicy>) -> ErrorPolicy {
        let ErrorPolicy {
            retry,
            last,
            sequence,
            mistake,
        } = policy.into();
        ErrorPolicy {
            retry: Some(self),
            last,
            sequence,
            mistake: mistake.or(retry.map(|_| PolicyError::NestedRetry)),
        }
    }

    /// The schedule of retries.
    pub(crate) fn plan(&self, entropy: u64) -> RetryPlan {
        RetryPlan {
            backoff: self.backoff.waits,
            max: self.times,
            entropy: self.backoff.is_jittered.then_some(entropy),
        }
    }

    /// The maximum number of retries; `None` if unlimited.
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

    /// Doubles the wait after each try, from `from` to `to`. Each wait is a random time between half of that value and
    /// all of it, so that tasks that failed together do not retry together.
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

impl Backoff {
    /// The waits, and whether they are random between half and all of their length.
    pub(crate) const fn waits(self) -> (eos_protocol::Backoff, bool) {
        (self.waits, self.is_jittered)
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

/// An invalid error policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A retry follows a retry.
    #[error(
        "a retry is followed by another retry. Raise `times` of the first, and pass `fail()`, `skip()`, \
         `dead_letter(..)` or `pause()` to `then`"
    )]
    NestedRetry,
    /// A retry with 0 attempts.
    #[error("it has 0 retries. Set at least 1, or remove the retry")]
    NoRetry,
    /// The waits of a backoff shrink.
    #[error(
        "the waits go from {from:?} to {to:?}, but the second argument of `exponential(from, to)` is the longest wait. \
         Set `to` to at least {from:?}"
    )]
    Backoff {
        /// The first wait.
        from: Duration,
        /// The longest wait.
        to: Duration,
    },
    /// A retry without end and without a wait.
    #[error("`retry_forever` has no wait between attempts. Wait at least 1 ms")]
    NoWait,
    /// A policy without dead letters has them in sequence.
    #[error("`in_sequence` needs dead letters. Write `dead_letter(..).in_sequence(..)`")]
    NoLetters,
    /// Dead letters would be read again from the same topic and fail forever.
    #[error(
        "its dead letters go to the source's own topic, where they would fail again forever. \
         Name another topic"
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
            "the error policy of the source t: a retry is followed by another retry. Raise `times` \
             of the first, and pass `fail()`, `skip()`, `dead_letter(..)` or `pause()` to `then`"
        );
        assert_eq!(
            error(ErrorPolicy::retry(0, Backoff::fixed(SECOND))),
            "the error policy of the source t: it has 0 retries. Set at least 1, or remove the retry"
        );
        assert_eq!(
            error(
                ErrorPolicy::retry(1, Backoff::fixed(SECOND)).then(ErrorPolicy::dead_letter("t"))
            ),
            "the error policy of the source t: its dead letters go to the source's own topic, where \
             they would fail again forever. Name another topic"
        );
        let waits = error(ErrorPolicy::retry(
            2,
            Backoff::exponential(2 * SECOND, SECOND),
        ));
        assert!(waits.contains("from 2s to 1s"), "{waits}");
        let spinning = error(ErrorPolicy::retry_forever(Backoff::fixed(Duration::ZERO)));
        assert!(spinning.contains("at least 1 ms"), "{spinning}");
        let name = error(ErrorPolicy::dead_letter("no good"));
        assert!(
            name.starts_with("\"no good\" is not a valid topic name"),
            "{name}"
        );
    }

    /// Dead letters would be lost silently: a policy belongs to the source, not to the branch.
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
             and skip(). A policy applies to the whole source and to every branch of it. Keep one call of \
             `on_error`. If a branch needs its own policy, write it to a topic and read that with \
             `app.source(..)`"
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
    fn a_retry_ends_in_fail_by_default() {
        let policy = ErrorPolicy::from(ErrorPolicy::retry(2, Backoff::fixed(SECOND)));
        assert_eq!(policy.dead_letter_topic(), None);
        assert_eq!(
            policy,
            ErrorPolicy::retry(2, Backoff::fixed(SECOND)).then(ErrorPolicy::fail())
        );
    }
}
