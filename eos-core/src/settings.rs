//! An app's settings, and what must hold between them.

use std::path::PathBuf;
use std::time::Duration;

use eos_protocol::{AppId, CommitPolicy, FirstStart, Guarantee, LayoutHash, Limits};

/// A setting is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The app's name is no name.
    #[error(
        "{name:?} is no name for an app: 1 to 200 letters, digits, dots, underscores and hyphens. \
         It becomes the consumer group, and part of transactional ids and paths"
    )]
    AppName {
        /// The name.
        name: String,
    },
    /// No worker, or too many.
    #[error("{workers} workers: at least 1, at most 256")]
    Workers {
        /// How many.
        workers: u16,
    },
    /// Time-outs that don't fit together.
    #[error("{smaller} ({small_ms} ms) must be less than {larger} ({large_ms} ms): {reason}")]
    Order {
        /// The setting that is too large.
        smaller: &'static str,
        /// Its value in milliseconds.
        small_ms: u128,
        /// The setting that is too small.
        larger: &'static str,
        /// Its value in milliseconds.
        large_ms: u128,
        /// Why.
        reason: &'static str,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) app: AppId,
    pub(crate) guarantee: Guarantee,
    pub(crate) workers: u16,
    pub(crate) policy: CommitPolicy,
    pub(crate) first_start: FirstStart,
    pub(crate) accepted_layout: Option<LayoutHash>,
    pub(crate) transaction_timeout: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) start_deadline: Duration,
    pub(crate) static_member: bool,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) slot: Option<u32>,
}

impl Settings {
    pub(crate) fn new(app: &str) -> Self {
        Self {
            app: app.into(),
            guarantee: Guarantee::ExactlyOnce,
            workers: 1,
            policy: CommitPolicy::default(),
            first_start: FirstStart::Earliest,
            accepted_layout: None,
            transaction_timeout: Duration::from_secs(30),
            session_timeout: Duration::from_secs(30),
            start_deadline: Duration::from_secs(15),
            static_member: true,
            state_dir: None,
            slot: None,
        }
    }

    /// The commit's deadline follows from the transaction time-out: what is sealed must be
    /// committed before the coordinator aborts it.
    pub(crate) fn limits(&self) -> Limits {
        let commit = (self.transaction_timeout / 3).min(Duration::from_secs(10));
        // The coordinator sweeps every ten seconds.
        let init = self.transaction_timeout * 2 + Duration::from_secs(20);
        Limits {
            commit,
            abort: commit,
            init,
            ..Limits::default()
        }
    }

    /// A revocation is answered well before `max.poll.interval.ms` and the group's patience end:
    /// one commit, and if that fails one abort.
    pub(crate) fn revoke_deadline(&self) -> Duration {
        self.limits().commit * 2
    }

    /// Another owner's transaction ends after its time-out and the coordinator's next sweep.
    pub(crate) fn offsets_deadline(&self) -> Duration {
        self.transaction_timeout * 2 + Duration::from_secs(30)
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let name = self.app.as_str();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let fine = !name.is_empty() && name.len() <= 200 && name.chars().all(legal);
        if !fine || name == "." || name == ".." {
            return Err(SettingsError::AppName {
                name: name.to_owned(),
            });
        }
        if self.workers == 0 || self.workers > 256 {
            return Err(SettingsError::Workers {
                workers: self.workers,
            });
        }
        let open = self.policy.interval + self.limits().commit;
        if open >= self.transaction_timeout {
            return Err(SettingsError::Order {
                smaller: "the commit interval with the commit's deadline",
                small_ms: open.as_millis(),
                larger: "transaction.timeout.ms",
                large_ms: self.transaction_timeout.as_millis(),
                reason: "the coordinator would abort transactions that are still in time",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(Settings::new("pricing-v1").check(), Ok(()));
    }

    #[test]
    fn a_name_becomes_a_path_and_an_id_so_it_must_be_plain() {
        for name in ["", "a b", "../up", "..", "ü", &"x".repeat(201)] {
            let error = Settings::new(name).check().unwrap_err();
            assert!(matches!(error, SettingsError::AppName { .. }), "{name:?}");
        }
    }

    #[test]
    fn a_commit_must_fit_into_the_transactions_time() {
        let mut settings = Settings::new("a");
        settings.policy.interval = Duration::from_secs(25);
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("(35000 ms) must be less than transaction.timeout.ms (30000 ms)"));
        settings.workers = 0;
        assert_eq!(settings.check(), Err(SettingsError::Workers { workers: 0 }));
    }
}
