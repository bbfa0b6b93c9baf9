//! Retries of failed records.
//!
//! No thread sleeps. The worker commits the records before the failed one and parks its task until the next try. The
//! worker's other tasks continue.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::ids::{Offset, TopicPartition};
use crate::time::Now;

/// The number and the times of the retries of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPlan {
    /// The waits between tries.
    pub backoff: Backoff,
    /// The maximum number of retries; `None` is unlimited.
    pub max: Option<u32>,
    /// A random number that spreads the wait; `None` for an exact wait.
    pub entropy: Option<u64>,
}

/// A failed record with a planned retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The record's partition.
    pub partition: TopicPartition,
    /// The record's offset.
    pub offset: Offset,
    /// The number of failures.
    pub tries: u32,
    /// The time of its next try. Its task is parked until then.
    pub next: Now,
}

impl RetryPlan {
    /// Plans the retry of a failed record. Returns `None` after the last retry; then the policy after this one
    /// decides.
    ///
    /// `before` is the last result for the task. If it was for this record, the count continues, even if the
    /// transaction before it was aborted since and its records came again.
    #[must_use]
    pub fn failed(
        &self,
        now: Now,
        partition: &TopicPartition,
        offset: Offset,
        before: Option<&Attempt>,
    ) -> Option<Attempt> {
        let before = before.filter(|b| b.offset == offset && b.partition == *partition);
        let failed_before = before.map_or(0, |b| b.tries);
        self.max.is_none_or(|max| failed_before < max).then(|| {
            let tries = failed_before.saturating_add(1);
            let wait = self.backoff.before(tries);
            let jittered = |entropy| Backoff::jitter(wait, entropy);
            Attempt {
                partition: partition.clone(),
                offset,
                tries,
                next: now.after(self.entropy.map_or(wait, jittered)),
            }
        })
    }
}

impl Attempt {
    /// Returns the time until the task is no longer parked. Zero once the next try is due.
    #[must_use]
    pub fn wait(&self, now: Now) -> Duration {
        self.next.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn tp(topic: &str) -> TopicPartition {
        TopicPartition::new(topic, Partition::ZERO)
    }

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    fn plan(max: u32) -> RetryPlan {
        let backoff = Backoff {
            first: ms(100),
            most: ms(300),
        };
        RetryPlan {
            backoff,
            max: Some(max),
            entropy: None,
        }
    }

    #[test]
    fn a_record_is_tried_as_often_as_planned_and_ever_later() {
        let mut now = Now(ms(5000));
        let mut attempt: Option<Attempt> = None;
        let mut waits = Vec::new();
        while let Some(next) = plan(4).failed(now, &tp("a"), offset(7), attempt.as_ref()) {
            waits.push(next.wait(now));
            assert_eq!(next.tries as usize, waits.len());
            now = now.after(next.wait(now));
            assert_eq!(next.wait(now), Duration::ZERO);
            attempt = Some(next);
        }
        assert_eq!(waits, [ms(100), ms(200), ms(300), ms(300)]);
        assert_eq!(
            plan(0).failed(now, &tp("a"), offset(7), None),
            None,
            "zero retries are invalid"
        );
    }

    #[test]
    fn an_endless_retry_continues_and_jitter_keeps_half_of_each_wait() {
        let now = Now::default();
        let mut attempt = Attempt {
            partition: tp("a"),
            offset: offset(7),
            tries: u32::MAX - 1,
            next: now,
        };
        for entropy in [0, 1, 77_777, u64::MAX] {
            let endless = RetryPlan {
                max: None,
                entropy: Some(entropy),
                ..plan(0)
            };
            let next = endless.failed(now, &tp("a"), offset(7), Some(&attempt));
            attempt = next.expect("an endless retry");
            let wait = attempt.wait(now);
            assert!(wait >= ms(150) && wait <= ms(300), "{wait:?}");
        }
        assert_eq!(attempt.tries, u32::MAX);
    }

    #[test]
    fn each_record_has_tries_of_its_own() {
        let now = Now::default();
        let used_up = plan(2)
            .failed(now, &tp("a"), offset(7), None)
            .and_then(|first| plan(2).failed(now, &tp("a"), offset(7), Some(&first)));
        assert_eq!(used_up.as_ref().map(|a| a.tries), Some(2));
        let failed = |topic, o| plan(2).failed(now, &tp(topic), offset(o), used_up.as_ref());
        assert_eq!(failed("a", 7), None);
        assert_eq!(failed("a", 8).map(|a| a.tries), Some(1));
        assert_eq!(failed("b", 7).map(|a| a.tries), Some(1));
    }
}
