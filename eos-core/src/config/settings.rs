//! The settings of an app.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use eos_protocol::{AppId, CommitPolicy, FirstStart, Guarantee, LayoutHash, Limits};

use super::given::Given;
use super::{Origin, SettingsError, environment};

/// Which group protocol is spoken (`group.protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The group's members compute the assignment.
    Classic,
    /// The brokers do (KIP-848).
    Consumer,
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) app: AppId,
    /// What the program set, in its order.
    pub(super) given: Vec<Given>,
    /// The properties file that the program names.
    pub(super) file: Option<PathBuf>,
    /// The app's own prefix of environment variables.
    environment_prefix: Option<String>,
    /// What was set, by key: the value as it may be shown, and where.
    pub(super) told: BTreeMap<String, (String, Origin)>,
    /// Variables of the environment that look like no property at all.
    pub(crate) ignored: Vec<String>,

    pub(crate) bootstrap: Option<String>,
    pub(crate) guarantee: Guarantee,
    pub(crate) workers: u16,
    /// How much memory the databases of all tasks together may use, in bytes.
    pub(crate) state_memory: usize,
    /// How often what everybody is done with is deleted.
    pub(crate) purge_interval: Duration,
    /// How long the state of a task that is elsewhere is kept.
    pub(crate) cleanup_delay: Duration,
    pub(crate) policy: CommitPolicy,
    /// `None`: not even for what is known to be there.
    pub(crate) max_task_idle: Option<Duration>,
    /// How far a record may be ahead of the machine's clock. `None`: any distance.
    pub(crate) most_ahead: Option<Duration>,
    pub(crate) first_start: FirstStart,
    pub(crate) accepted_layout: Option<String>,
    /// Ids of changelog topics.
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
    /// Where the metrics are served.
    pub(crate) metrics_at: Option<String>,
    /// For librdkafka.
    pub(crate) properties: Properties,
}

/// What librdkafka is told, by client; of a key that is there twice the last one counts.
#[derive(Clone, Default)]
pub(crate) struct Properties {
    pub(crate) common: Vec<(String, String)>,
    pub(crate) consumer: Vec<(String, String)>,
    pub(crate) producer: Vec<(String, String)>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the properties: secrets are among them.
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

    /// What the program sets. Nothing is looked at before the start.
    pub(crate) fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.given.push(Given {
            key: key.to_owned(),
            value: value.to_string(),
            origin: Origin::Code,
        });
    }

    /// A duration that the program sets, in Kafka's resolution; rounded up, so that nothing
    /// becomes zero.
    pub(crate) fn set_ms(&mut self, key: &str, value: Duration) {
        self.set(key, value.as_micros().div_ceil(1000));
    }

    /// A path may be no text, so that it is no property when the program sets it.
    pub(crate) fn set_state_dir(&mut self, dir: PathBuf) {
        self.given.retain(|given| given.key != "state.dir");
        self.state_dir = Some(dir);
    }

    /// The properties file.
    pub(crate) fn set_file(&mut self, path: PathBuf) {
        self.file = Some(path);
    }

    /// The prefix of the environment variables, with or without the `_` at its end.
    pub(crate) fn set_environment_prefix(&mut self, prefix: &str) {
        self.environment_prefix = Some(prefix.to_owned());
    }

    /// The prefix of the environment variables, with the `_` at its end.
    pub(super) fn environment_prefix(&self) -> Result<String, SettingsError> {
        let Some(prefix) = &self.environment_prefix else {
            return Ok(environment::PREFIX.to_owned());
        };
        let name = prefix.strip_suffix('_').unwrap_or(prefix);
        let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let is_name =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(allowed);
        // The variables would be mistakes in the properties of every app without a prefix of its own.
        if !is_name || name == "EOS" || name.starts_with(environment::PREFIX) {
            let prefix = prefix.clone();
            return Err(SettingsError::EnvironmentPrefix { prefix });
        }
        Ok(format!("{name}_"))
    }

    /// The settings of the program alone.
    pub(crate) fn without_file(mut self) -> Self {
        self.file = None;
        self
    }

    /// The brokers, unless anything says otherwise.
    pub(crate) fn set_default_brokers(&mut self, brokers: &str) {
        let (key, origin) = ("bootstrap.servers".to_owned(), Origin::Code);
        let value = brokers.to_owned();
        self.given.insert(0, Given { key, value, origin });
    }
}

impl Settings {
    /// What was set and where, for the log: nothing secret.
    pub(crate) fn told(&self) -> String {
        let told = self.told.iter();
        let told = told.map(|(key, (value, origin))| format!("{key} = {value} ({origin})"));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Where this property was set, with the client before its name if there is one.
    pub(crate) fn origin(&self, key: &str) -> Option<&Origin> {
        self.told.get(key).map(|(_, origin)| origin)
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

    /// Whether workers are static members. Under KIP-848 none is: the successor of one that was
    /// killed would be refused for its session's time (UNRELEASED_INSTANCE_ID).
    pub(crate) fn static_member(&self) -> bool {
        self.protocol == Protocol::Classic && self.static_member.unwrap_or(true)
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout.unwrap_or(Duration::from_secs(30))
    }

    /// A member learns of a rebalance with its next heartbeat, and everybody who joins waits for
    /// the last one: at Kafka's 3 s a join took 6 s.
    pub(crate) fn heartbeat(&self) -> Duration {
        let often = self.session_timeout() / 10;
        self.heartbeat
            .unwrap_or(often.clamp(Duration::from_millis(1), Duration::from_millis(500)))
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
}
