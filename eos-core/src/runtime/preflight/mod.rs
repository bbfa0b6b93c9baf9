//! Checks before the first worker starts.

mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use eos_protocol::state::{Family, TopicUuid};
use eos_protocol::{CallSite, Guarantee, TopicName, check_widths, code};

use crate::client::{BrokerLimits, Client, ClientError, ClusterFacts, TopicFacts, Verification};
use crate::config::{Origin, Protocol, Settings};
use crate::topology::Topology;

use super::globals::GlobalTopicFacts;
use super::internal::{Internal, UncreatedTopic, plan};
use super::missing::missing;
pub use error::PreflightError;

/// The facts of the cluster and its topics that the workers need.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// The number of partitions of each input topic.
    pub(crate) inputs: BTreeMap<TopicName, u32>,
    /// The inputs with `cleanup.policy=compact`, and those whose policy is unknown.
    pub(crate) compacted: BTreeSet<TopicName>,
    /// The number of partitions, by output of the topology.
    pub(crate) outputs: Vec<u32>,
    /// `max.message.bytes` if it is known, by output of the topology.
    pub(crate) limits: Vec<Option<usize>>,
    /// `delete.retention.ms` if it is known, by output of the topology: the time for which tombstones are kept. It
    /// matters for changelogs.
    pub(crate) delete_retention: Vec<Option<Duration>>,
    /// The facts of the global tables' topics, by global table of the topology.
    pub(crate) globals: Vec<GlobalTopicFacts>,
    /// `cluster.id`, if the cluster reports it.
    pub(crate) cluster: Option<String>,
    /// The topic ids that the brokers report. They distinguish topics of the same name.
    pub(crate) ids: BTreeMap<TopicName, TopicUuid>,
}

/// Checks the cluster and its topics, and creates the missing internal topics, within `start.deadline.ms`.
pub(crate) fn preflight<C: Client>(
    client: &C,
    topology: &Topology,
    settings: &Settings,
    bootstrap: &str,
) -> Result<Partitions, PreflightError> {
    let inputs = topology
        .stages()
        .iter()
        .flat_map(|stage| stage.topics.iter().cloned());
    let globals = topology.globals().iter().map(|table| table.topic.clone());
    let topics = inputs.chain(topology.output_topics()).chain(globals);
    let mut topics: Vec<TopicName> = topics.collect();
    topics.sort();
    topics.dedup();
    let cluster = Cluster {
        client,
        settings,
        bootstrap,
        end: Instant::now() + settings.start_deadline,
    };
    let mut facts = cluster.facts(&topics)?;
    allowed(&facts.limits, settings)?;
    check_existing(&facts, topology, settings.guarantee, bootstrap)?;
    if cluster.create(topology, &facts)? {
        facts = cluster.facts_of_all(topology, &topics)?;
    }
    fit(&facts, topology, bootstrap)
}

/// Checks the cluster and the existing topics, before missing internal topics are created.
fn check_existing(
    facts: &ClusterFacts,
    topology: &Topology,
    guarantee: Guarantee,
    bootstrap: &str,
) -> Result<(), PreflightError> {
    there(facts, topology, bootstrap)?;
    verified(facts, guarantee)?;
    under_their_names(facts, topology)?;
    let planned = plan(topology, facts);
    // Before the inputs are compared: internal topics have the former partition count of an input that grew.
    internal_topics_fit(facts, &planned, bootstrap)?;
    // Without internal topics: a missing one is created with the partition count of an input that may still grow.
    let is_planned = |topic: &TopicName| planned.iter().any(|internal| internal.name == *topic);
    equal_widths(facts, topology, bootstrap, |topic| !is_planned(topic))
}

/// The pause before the next request for the metadata of a new topic.
const PAUSE: Duration = Duration::from_millis(100);

/// The cluster, with the deadline of all requests to it.
struct Cluster<'a, C> {
    client: &'a C,
    settings: &'a Settings,
    bootstrap: &'a str,
    end: Instant,
}

impl<C: Client> Cluster<'_, C> {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn facts(&self, topics: &[TopicName]) -> Result<ClusterFacts, PreflightError> {
        let facts = self.client.facts(topics, self.left());
        facts.map_err(|source| self.cause(source))
    }

    /// Returns the facts of the topics once all internal topics are visible. The controller has just created some of
    /// them, and the queried broker may receive their metadata later.
    fn facts_of_all(
        &self,
        topology: &Topology,
        topics: &[TopicName],
    ) -> Result<ClusterFacts, PreflightError> {
        loop {
            let facts = self.facts(topics)?;
            let plan = plan(topology, &facts);
            let absent = plan.iter().find(|i| facts.topic(&i.name).is_none());
            let Some(absent) = absent else {
                return Ok(facts);
            };
            if self.left() <= PAUSE {
                let text = "no broker lists the new topic yet";
                let source = ClientError::new(CallSite::Facts, code::LOCAL_TIMED_OUT, text);
                let topics = vec![UncreatedTopic::new(absent, source)];
                let bootstrap = self.bootstrap.to_owned();
                return Err(PreflightError::Uncreated { topics, bootstrap });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Creates the missing internal topics. Returns whether there were any.
    fn create(&self, topology: &Topology, facts: &ClusterFacts) -> Result<bool, PreflightError> {
        let plan = plan(topology, facts).into_iter();
        let absent: Vec<_> = plan.filter(|i| facts.topic(&i.name).is_none()).collect();
        if absent.is_empty() {
            return Ok(false);
        }
        let new: Vec<_> = absent.iter().map(Internal::to_create).collect();
        let answers = self.client.create_topics(&new, self.left());
        let answers = answers.map_err(|source| self.cause(source))?;
        let failed = absent.iter().filter_map(|topic| {
            let (_, outcome) = answers.iter().find(|(name, _)| *name == topic.name)?;
            let source = outcome.clone().err()?;
            Some(UncreatedTopic::new(topic, source))
        });
        let topics: Vec<_> = failed.collect();
        if !topics.is_empty() {
            let bootstrap = self.bootstrap.to_owned();
            return Err(PreflightError::Uncreated { topics, bootstrap });
        }
        for topic in &absent {
            tracing::info!(topic = %topic.name, partitions = topic.partitions, "created");
        }
        Ok(true)
    }

    fn cause(&self, source: ClientError) -> PreflightError {
        let origin = self.settings.origin("bootstrap.servers");
        let origin = origin.cloned().unwrap_or(Origin::Code);
        let within = self.settings.start_deadline;
        cause(source, self.bootstrap, origin, within)
    }
}

/// Returns the error for a failed request to the cluster.
fn cause(source: ClientError, bootstrap: &str, origin: Origin, within: Duration) -> PreflightError {
    let bootstrap = bootstrap.to_owned();
    match (source.call, source.fault.code) {
        (_, code::LOCAL_SSL) => PreflightError::Tls { bootstrap, source },
        (_, code::LOCAL_AUTHENTICATION) => PreflightError::Authentication { bootstrap, source },
        (CallSite::Create, _) => PreflightError::Configuration { source },
        (_, code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED) => {
            PreflightError::Refused { bootstrap, source }
        }
        _ => PreflightError::Unreachable {
            bootstrap,
            origin,
            waited_s: within.as_secs(),
            source,
        },
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Checks that the brokers accept the app's timeouts.
fn allowed(limits: &BrokerLimits, settings: &Settings) -> Result<(), PreflightError> {
    let check = |ours,
                 ours_value: Duration,
                 theirs,
                 theirs_value: Option<Duration>,
                 fits: fn(Duration, Duration) -> bool| {
        match theirs_value {
            Some(limit) if !fits(ours_value, limit) => Err(PreflightError::Limit {
                ours,
                ours_ms: in_ms(ours_value),
                theirs,
                theirs_ms: in_ms(limit),
            }),
            _ => Ok(()),
        }
    };
    if settings.guarantee == Guarantee::ExactlyOnce {
        check(
            "transaction.timeout.ms",
            settings.transaction_timeout,
            "transaction.max.timeout.ms",
            limits.max_transaction_timeout,
            |ours, limit| ours <= limit,
        )?;
    }
    if settings.protocol == Protocol::Consumer {
        return Ok(());
    }
    let (ours, session) = ("session.timeout.ms", settings.session_timeout());
    let (least, most) = (limits.min_session_timeout, limits.max_session_timeout);
    check(
        ours,
        session,
        "group.min.session.timeout.ms",
        least,
        |ours, limit| ours >= limit,
    )?;
    check(
        ours,
        session,
        "group.max.session.timeout.ms",
        most,
        |ours, limit| ours <= limit,
    )
}

/// Checks that the external topics exist.
fn there(facts: &ClusterFacts, topology: &Topology, bootstrap: &str) -> Result<(), PreflightError> {
    let topics = missing(facts, topology);
    if topics.is_empty() {
        return Ok(());
    }
    let bootstrap = bootstrap.to_owned();
    Err(PreflightError::MissingTopics { topics, bootstrap })
}

/// Checks that each stage with state has the name under which its state is kept. Otherwise the app would create an
/// empty changelog, and leave the one with its state behind.
fn under_their_names(facts: &ClusterFacts, topology: &Topology) -> Result<(), PreflightError> {
    for stage in topology.stages() {
        let changelogs = topology.changelogs(stage.id);
        let names = Family::ALL.into_iter().filter_map(|family| {
            let output = topology.outputs().get((*changelogs.get(family))?)?;
            Some((family, &output.name))
        });
        let names: Vec<_> = names.collect();
        let is_absent = |name: &TopicName| facts.topic(name).is_none();
        let Some((_, absent)) = names.iter().find(|(_, name)| is_absent(name)) else {
            continue;
        };
        let others = names.iter().filter(|(_, name)| is_absent(name));
        let others = others.flat_map(|(family, _)| topology.other_names(stage, *family));
        let others: Vec<_> = others.filter(|(_, it)| facts.others.contains(it)).collect();
        let Some((name, _)) = others.first() else {
            continue;
        };
        // Under that name, its other changelog would be absent.
        let is_split = names.iter().any(|(_, name)| !is_absent(name))
            || others.iter().any(|(other, _)| other != name);
        return Err(PreflightError::StageRenamed {
            topics: stage.topics.clone(),
            changelog: (*absent).clone(),
            found: others.iter().map(|(_, it)| it.clone()).collect(),
            name: (!is_split).then(|| (*name).to_owned()),
        });
    }
    Ok(())
}

fn verified(facts: &ClusterFacts, guarantee: Guarantee) -> Result<(), PreflightError> {
    match (guarantee, facts.verification) {
        (Guarantee::ExactlyOnce, Verification::Off) => return Err(PreflightError::NotVerified),
        (Guarantee::ExactlyOnce, Verification::Unknown) => tracing::warn!(
            "no permission to read whether the brokers verify transactions; check that \
             transaction.partition.verification.enable is on"
        ),
        _ => {}
    }
    Ok(())
}

/// Checks that the topics suit the app and each other. Returns their facts.
fn fit(
    facts: &ClusterFacts,
    topology: &Topology,
    bootstrap: &str,
) -> Result<Partitions, PreflightError> {
    let plan = plan(topology, facts);
    internal_topics_fit(facts, &plan, bootstrap)?;
    warn_of(&plan, facts);
    let count = |topic: &TopicName| facts.topic(topic).map_or(1, |found| found.partitions);
    let limit = |topic: &TopicName| {
        let bytes = facts.topic(topic)?.max_message_bytes()?;
        usize::try_from(bytes).ok()
    };
    let delete_retention = |topic: &TopicName| {
        let time = facts.topic(topic)?.setting("delete.retention.ms")?;
        Some(Duration::from_millis(time.parse().ok()?))
    };
    let stages = topology.stages().iter();
    let inputs: BTreeMap<TopicName, u32> = stages
        .flat_map(|stage| &stage.topics)
        .map(|topic| (topic.clone(), count(topic)))
        .collect();
    equal_widths(facts, topology, bootstrap, |_| true)?;
    let is_compacted = |topic: &&TopicName| {
        let found = facts.topic(topic);
        let policy = found.and_then(|found| found.setting("cleanup.policy"));
        policy.is_none_or(|policy| policy.contains("compact"))
    };
    let globals = topology.globals().iter().map(|table| {
        let topic = &table.topic;
        if let Some(risk) = facts.topic(topic).and_then(global_risk) {
            tracing::warn!(table = %table.name, %topic, "{risk}");
        }
        GlobalTopicFacts {
            partitions: count(&table.topic),
            id: facts.topic(&table.topic).and_then(|found| found.id),
            delete_retention: delete_retention(&table.topic),
        }
    });
    Ok(Partitions {
        globals: globals.collect(),
        compacted: inputs.keys().filter(is_compacted).cloned().collect(),
        inputs,
        limits: topology.outputs().iter().map(|o| limit(&o.name)).collect(),
        outputs: topology.outputs().iter().map(|o| count(&o.name)).collect(),
        delete_retention: topology
            .outputs()
            .iter()
            .map(|o| delete_retention(&o.name))
            .collect(),
        cluster: facts.cluster_id.clone(),
        ids: facts
            .topics
            .iter()
            .filter_map(|(name, found)| Some((name.clone(), found.as_ref()?.id?)))
            .collect(),
    })
}

/// Checks that the existing internal topics have the partitions and settings that the app needs.
fn internal_topics_fit(
    facts: &ClusterFacts,
    plan: &[Internal],
    bootstrap: &str,
) -> Result<(), PreflightError> {
    let unfit = plan.iter().filter_map(|i| i.unfit(facts.topic(&i.name)?));
    let topics: Vec<_> = unfit.collect();
    if topics.is_empty() {
        return Ok(());
    }
    let bootstrap = bootstrap.to_owned();
    Err(PreflightError::Unfit { topics, bootstrap })
}

/// Checks that these topics of each stage have equal partition counts. A topic that does not exist has none.
fn equal_widths(
    facts: &ClusterFacts,
    topology: &Topology,
    bootstrap: &str,
    is_checked: impl Fn(&TopicName) -> bool,
) -> Result<(), PreflightError> {
    for stage in topology.stages() {
        let topics = stage.topics.iter().filter(|topic| is_checked(topic));
        let found =
            topics.filter_map(|topic| Some((topic.clone(), facts.topic(topic)?.partitions)));
        check_widths(stage, &found.collect()).map_err(|reason| PreflightError::Widths {
            reason,
            bootstrap: bootstrap.to_owned(),
        })?;
    }
    Ok(())
}

/// Returns how a global table may lose rows, if its topic is not compacted.
fn global_risk(found: &TopicFacts) -> Option<&'static str> {
    let policy = found.setting("cleanup.policy")?;
    (!policy.contains("compact")).then_some(
        "the topic of a global table is not compacted, so a copy that is rebuilt lacks the rows that retention deleted; set \
         cleanup.policy=compact (kafka-configs.sh)",
    )
}

/// Logs warnings about unreadable and risky settings of internal topics.
fn warn_of(plan: &[Internal], facts: &ClusterFacts) {
    for internal in plan {
        let Some(found) = facts.topic(&internal.name) else {
            continue;
        };
        let topic = &internal.name;
        if let Some(risk) = risk(found) {
            tracing::warn!(%topic, "{risk}");
        }
        if found.settings.is_none() {
            tracing::warn!(
                %topic, must = ?internal.to_create().settings,
                "no permission to read the topic's configuration; check it, or give the app the \
                 right DescribeConfigs on the topic"
            );
        }
    }
}

/// Returns how acknowledged records may be lost, or why no record can be acknowledged. The brokers' configuration
/// decides about the replicas of new internal topics (`default.replication.factor`, `min.insync.replicas`).
fn risk(found: &TopicFacts) -> Option<String> {
    let least = found.setting("min.insync.replicas");
    let least = least.and_then(|text| text.parse::<u32>().ok());
    match (found.replication, least) {
        (0, _) => None,
        (has, Some(least)) if least > has => Some(format!(
            "no record can be written to the topic: min.insync.replicas is {least}, but the topic \
             has {has}; lower it (kafka-configs.sh), or add replicas \
             (kafka-reassign-partitions.sh)"
        )),
        (1, _) => Some(
            "the topic has only one replica: its data is lost if that broker's disk fails; add \
             replicas (kafka-reassign-partitions.sh)"
                .into(),
        ),
        (has, Some(1)) => Some(format!(
            "the topic has {has} replicas, but one of them is enough to acknowledge a record: \
             acknowledged records are lost if that broker's disk fails; set min.insync.replicas=2 \
             (kafka-configs.sh)"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
