//! The settings of an app.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use eos_protocol::{AppId, CommitPolicy, FirstStart, Guarantee, LayoutHash, Limits};

use super::given::Given;
use super::{Origin, SettingsError, environment};

/// The group protocol (`group.protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The group's members compute the assignment.
    Classic,
    /// The brokers compute the assignment (KIP-848).
    Consumer,
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) app: AppId,
    /// The properties that the program set, in the order of its calls.
    pub(super) given: Vec<Given>,
    /// The properties file that the program names.
    pub(super) file: Option<PathBuf>,
    /// The app's own prefix of environment variables.
    environment_prefix: Option<String>,
    /// The set properties, by key: the value as it may be shown, and its origin.
    pub(super) told: BTreeMap<String, (String, Origin)>,
    /// Environment variables with the prefix that resemble no property.
    pub(crate) ignored: Vec<String>,

    pub(crate) bootstrap: Option<String>,
    pub(crate) guarantee: Guarantee,
    pub(crate) workers: u16,
    /// The memory limit of the databases of all tasks together, in bytes.
    pub(crate) state_memory: usize,
    /// The interval between two deletions of processed records and of expired windows in internal topics.
    pub(crate) purge_interval: Duration,
    /// The time for which the local state of a task is kept after the task moved to another process.
    pub(crate) cleanup_delay: Duration,
    pub(crate) policy: CommitPolicy,
    /// The longest wait for records of an input, to merge by time. `None`: a task never waits, not even for records
    /// that are known to be on the broker.
    pub(crate) max_task_idle: Option<Duration>,
    /// The longest time that a record's timestamp may be ahead of the machine's clock. `None`: no limit.
    pub(crate) most_ahead: Option<Duration>,
    pub(crate) first_start: FirstStart,
    pub(crate) accepted_layout: Option<String>,
    /// The ids of deleted changelogs that count as completely restored.
    pub(crate) accepted_changelogs: Vec<String>,
    pub(crate) transaction_timeout: Duration,
    pub(crate) start_deadline: Duration,
    pub(crate) protocol: Protocol,
    pub(crate) static_member: Option<bool>,
    pub(crate) session_timeout: Option<Duration>,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) max_poll_interval: Duration,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) slot: Option<u32>,
    /// The address of the metrics endpoint.
    pub(crate) metrics_at: Option<String>,
    /// The properties for librdkafka.
    pub(crate) properties: Properties,
}

/// The properties for librdkafka, by client. If a key occurs twice, the last value counts.
#[derive(Clone, Default)]
pub(crate) struct Properties {
    pub(crate) common: Vec<(String, String)>,
    pub(crate) consumer: Vec<(String, String)>,
    pub(crate) producer: Vec<(String, String)>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the properties, because they contain secrets.
        f.debug_struct("Settings")
            .field("app", &self.app)
            .field("guarantee", &self.guarantee)
            .field("workers", &self.workers)
            .field("policy", &self.policy)
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

impl Settings {
    pub(crate) fn new(app: &str) -> Self {
        Self {
            app: app.into(),
            given: Vec::new(),
            file: None,
            environment_prefix: None,
            told: BTreeMap::new(),
            ignored: Vec::new(),
            bootstrap: None,
            guarantee: Guarantee::ExactlyOnce,
            workers: 1,
            state_memory: 256 << 20,
            purge_interval: Duration::from_secs(30),
            cleanup_delay: Duration::from_secs(600),
            policy: CommitPolicy::default(),
            max_task_idle: Some(Duration::ZERO),
            most_ahead: Some(Duration::from_secs(3600)),
            first_start: FirstStart::Earliest,
            accepted_layout: None,
            accepted_changelogs: Vec::new(),
            transaction_timeout: Duration::from_secs(30),
            start_deadline: Duration::from_secs(15),
            protocol: Protocol::Classic,
            static_member: None,
            session_timeout: None,
            heartbeat: None,
            max_poll_interval: Duration::from_secs(300),
            state_dir: None,
            slot: None,
            metrics_at: None,
            properties: Properties::default(),
        }
    }

    /// Sets a property in the program. Checks happen at the start.
    pub(crate) fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.given.push(Given {
            key: key.to_owned(),
            value: value.to_string(),
            origin: Origin::Code,
        });
    }

    /// Sets a duration in the program, rounded up to milliseconds, so that a microsecond does not become zero.
    pub(crate) fn set_ms(&mut self, key: &str, value: Duration) {
        self.set(key, value.as_micros().div_ceil(1000));
    }

    /// Sets the state directory in the program. It is not a property here, because a path may not be valid Unicode.
    pub(crate) fn set_state_dir(&mut self, dir: PathBuf) {
        self.given.retain(|given| given.key != "state.dir");
        self.state_dir = Some(dir);
    }

    /// Sets the properties file.
    pub(crate) fn set_file(&mut self, path: PathBuf) {
        self.file = Some(path);
    }

    /// Sets the prefix of the environment variables, with or without the `_` at its end.
    pub(crate) fn set_environment_prefix(&mut self, prefix: &str) {
        self.environment_prefix = Some(prefix.to_owned());
    }

    /// Returns the prefix of the environment variables, with the `_` at its end.
    pub(super) fn environment_prefix(&self) -> Result<String, SettingsError> {
        let Some(prefix) = &self.environment_prefix else {
            return Ok(environment::PREFIX.to_owned());
        };
        let name = prefix.strip_suffix('_').unwrap_or(prefix);
        let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let is_name =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(allowed);
        // Apps with the default prefix would read these variables, too, and find no such properties.
        if !is_name || name == "EOS" || name.starts_with(environment::PREFIX) {
            let prefix = prefix.clone();
            return Err(SettingsError::EnvironmentPrefix { prefix });
        }
        Ok(format!("{name}_"))
    }

    /// Returns the settings without the properties file of the program.
    pub(crate) fn without_file(mut self) -> Self {
        self.file = None;
        self
    }

    /// Sets the brokers, unless any other source sets them.
    pub(crate) fn set_default_brokers(&mut self, brokers: &str) {
        let (key, origin) = ("bootstrap.servers".to_owned(), Origin::Code);
        let value = brokers.to_owned();
        self.given.insert(0, Given { key, value, origin });
    }
}

impl Settings {
    /// Returns the set properties with their origins for the log, without secrets.
    pub(crate) fn told(&self) -> String {
        let told = self.told.iter();
        let told = told.map(|(key, (value, origin))| format!("{key} = {value} ({origin})"));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Returns the origin of this key, which includes the prefix of a client if it was set with one.
    pub(crate) fn origin(&self, key: &str) -> Option<&Origin> {
        self.told.get(key).map(|(_, origin)| origin)
    }

    /// Returns the deadlines of a transaction's calls. The deadline of a commit follows from the transaction timeout: a
    /// sealed transaction must be committed before the coordinator aborts it.
    pub(crate) fn limits(&self) -> Limits {
        let commit = (self.transaction_timeout / 3).min(Duration::from_secs(10));
        // The coordinator aborts expired transactions every ten seconds.
        let init = self.transaction_timeout * 2 + Duration::from_secs(20);
        Limits {
            commit,
            abort: commit,
            init,
            ..Limits::default()
        }
    }

    /// Returns the deadline of a revocation: the time of one commit, and of one abort if the commit fails. It ends well
    /// before `max.poll.interval.ms`, after which the group removes the worker.
    pub(crate) fn revoke_deadline(&self) -> Duration {
        self.limits().commit * 2
    }

    /// Returns the longest wait for committed offsets. The transaction of another owner ends after its timeout and the
    /// coordinator's next check.
    pub(crate) fn offsets_deadline(&self) -> Duration {
        self.transaction_timeout * 2 + Duration::from_secs(30)
    }

    /// Whether workers are static members. Under KIP-848 they are not: the group would refuse the successor of a killed
    /// member until its session ends (UNRELEASED_INSTANCE_ID).
    pub(crate) fn static_member(&self) -> bool {
        self.protocol == Protocol::Classic && self.static_member.unwrap_or(true)
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout.unwrap_or(Duration::from_secs(30))
    }

    /// Returns the heartbeat interval. A member detects a rebalance with its next heartbeat, and all members wait for
    /// the last one to join. With Kafka's default of 3 s, a join took 6 s.
    pub(crate) fn heartbeat(&self) -> Duration {
        let often = self.session_timeout() / 10;
        self.heartbeat
            .unwrap_or(often.clamp(Duration::from_millis(1), Duration::from_millis(500)))
    }

    /// Returns the old layout that this start accepts.
    pub(crate) fn accepted(&self) -> Result<Option<LayoutHash>, SettingsError> {
        let parse = |text: &String| {
            let plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let hash = plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
            hash.map(LayoutHash)
                .ok_or_else(|| SettingsError::Layout { text: text.clone() })
        };
        self.accepted_layout.as_ref().map(parse).transpose()
    }
}
