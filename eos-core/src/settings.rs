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
    /// The layout to accept is none.
    #[error(
        "{text:?} is no layout: 16 hexadecimal digits, as the error message names it that asks for \
         `accept_layout`"
    )]
    Layout {
        /// What was given.
        text: String,
    },
    /// A property that the guarantee rests on.
    #[error("the property {key} can't be set: {reason}")]
    Property {
        /// The property.
        key: String,
        /// Why, and what to use instead.
        reason: &'static str,
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

const TRANSACTIONS: &str = "every effect goes through the runtime's transactions";
const OFFSETS: &str = "the runtime commits offsets in its transactions, and nothing else may";
const IDENTITY: &str = "it is derived from the app's name and the slot, so that a restart fences \
                        what was before it; use `App::new`, `slot` or `static_membership`";

/// The properties that the guarantee rests on, and why they are not the user's.
const OWNED: &[(&str, &str)] = &[
    ("enable.auto.commit", OFFSETS),
    ("enable.auto.offset.store", OFFSETS),
    (
        "auto.offset.reset",
        "offsets are never reset silently; use `first_start`",
    ),
    (
        "isolation.level",
        "uncommitted records may never have happened",
    ),
    ("enable.idempotence", TRANSACTIONS),
    ("acks", TRANSACTIONS),
    ("request.required.acks", TRANSACTIONS),
    ("delivery.report.only.error", TRANSACTIONS),
    ("transactional.id", IDENTITY),
    ("group.id", IDENTITY),
    ("group.instance.id", IDENTITY),
    ("group.protocol", "only the classic protocol is spoken yet"),
    (
        "partition.assignment.strategy",
        "rebalances are answered incrementally",
    ),
    (
        "transaction.timeout.ms",
        "other deadlines follow from it; use `transaction_timeout`",
    ),
    ("session.timeout.ms", "use `session_timeout`"),
    (
        "max.poll.interval.ms",
        "the deadlines of a rebalance are made to fit into it",
    ),
    (
        "socket.timeout.ms",
        "the deadline of a commit is made of it",
    ),
    (
        "message.timeout.ms",
        "a transaction's records live as long as the transaction",
    ),
    (
        "bootstrap.servers",
        "it is the argument of `run` and `start`",
    ),
];

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) app: AppId,
    pub(crate) guarantee: Guarantee,
    pub(crate) workers: u16,
    pub(crate) policy: CommitPolicy,
    pub(crate) first_start: FirstStart,
    pub(crate) accepted_layout: Option<String>,
    /// For librdkafka, as they are.
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) transaction_timeout: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) start_deadline: Duration,
    pub(crate) static_member: bool,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) slot: Option<u32>,
    /// Where the metrics are served.
    #[cfg(feature = "prometheus")]
    pub(crate) metrics_at: Option<String>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the properties: secrets are among them.
        f.debug_struct("Settings")
            .field("app", &self.app)
            .field("guarantee", &self.guarantee)
            .field("workers", &self.workers)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
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
            properties: Vec::new(),
            transaction_timeout: Duration::from_secs(30),
            session_timeout: Duration::from_secs(30),
            start_deadline: Duration::from_secs(15),
            static_member: true,
            state_dir: None,
            slot: None,
            #[cfg(feature = "prometheus")]
            metrics_at: None,
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

    /// The old layout that is accepted once.
    pub(crate) fn accepted(&self) -> Result<Option<LayoutHash>, SettingsError> {
        let parse = |text: &String| {
            let plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let hash = plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
            hash.map(LayoutHash)
                .ok_or_else(|| SettingsError::Layout { text: text.clone() })
        };
        self.accepted_layout.as_ref().map(parse).transpose()
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        self.accepted()?;
        for (key, _) in &self.properties {
            if let Some((_, reason)) = OWNED.iter().find(|(owned, _)| owned == key) {
                let key = key.clone();
                return Err(SettingsError::Property { key, reason });
            }
        }
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
    fn a_property_that_the_guarantee_rests_on_is_refused_with_the_reason() {
        let mut settings = Settings::new("a");
        settings.properties = vec![("client.rack".into(), "a".into())];
        assert_eq!(settings.check(), Ok(()));
        settings
            .properties
            .push(("isolation.level".into(), "read_uncommitted".into()));
        let error = settings.check().unwrap_err().to_string();
        assert!(
            error.starts_with("the property isolation.level can't be set: "),
            "{error}"
        );
    }

    #[test]
    fn a_layout_that_is_none_is_not_ignored() {
        let mut settings = Settings::new("a");
        settings.accepted_layout = Some("91f0".into());
        assert!(matches!(
            settings.check(),
            Err(SettingsError::Layout { .. })
        ));
        settings.accepted_layout = Some("91f0a2b3c4d5e6f7".into());
        assert_eq!(
            settings.accepted(),
            Ok(Some(LayoutHash(0x91f0_a2b3_c4d5_e6f7)))
        );
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
