//! A checked graph, cut into stages.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::{Family, PerFamily};
use eos_protocol::{Stage, StageId, TopicName};

use super::chains::{Chains, Source};
use super::error::TopologyError;
use super::global_spec::GlobalSpec;
use super::graph::{Exit, Graph};
use super::internal::{Internal, Purpose};
use super::layout::Layout;
use super::output_spec::OutputSpec;
use super::prepared_call::CallSpec;
use crate::boundary::Ledger;
use crate::store::StoreSpec;
use crate::views::SourceKeys;

/// A checked graph.
pub(crate) struct Topology {
    pub(super) stages: Vec<Stage>,
    pub(super) graph: Graph,
    /// By stage: a store because of which the stage refuses records that are far ahead of the machine's clock.
    refuse_future: Vec<Option<Arc<str>>>,
}

impl Topology {
    /// Checks a graph and cuts it into stages.
    pub(crate) fn of(mut graph: Graph) -> Result<Self, TopologyError> {
        let stages = graph.finish()?;
        let refuses = |stage: &Stage| {
            let mut stores = graph.stores_of(stage).map(|(_, store)| store);
            let store = stores.find(|store| store.refuses_future());
            let store = store.filter(|_| !graph.trusts_times(stage));
            store.map(|store| Arc::clone(&store.name))
        };
        let refuse_future = stages.iter().map(refuses).collect();
        Ok(Self {
            stages,
            graph,
            refuse_future,
        })
    }

    pub(crate) fn token(&self) -> u64 {
        self.graph.token()
    }

    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Returns the topics of the group's subscription.
    pub(crate) fn driving_topics(&self) -> Vec<TopicName> {
        let topics = self.stages.iter().map(|s| s.driving_topic().clone());
        topics.collect()
    }

    /// Returns whether a worker reads more than one topic, apart from changelogs.
    pub(crate) fn reads_several_topics(&self) -> bool {
        self.stages.iter().flat_map(|s| &s.topics).nth(1).is_some()
    }

    pub(crate) fn stage(&self, id: StageId) -> Option<&Stage> {
        self.stages.get(usize::from(id.0))
    }

    /// Returns the time after which a stage closes idle inputs, if it does.
    pub(crate) fn idle_of(&self, stage: &Stage) -> Option<Duration> {
        self.graph.idle_of(stage).next()
    }

    /// Returns the asynchronous calls of a stage, if it has some.
    pub(crate) fn calls_of(&self, stage: &Stage) -> Option<&CallSpec> {
        let (at, _) = self.graph.calls_of(stage).next()?;
        self.graph.calls.get(at)
    }

    /// Whether the app makes asynchronous calls.
    pub(crate) fn has_calls(&self) -> bool {
        !self.graph.calls.is_empty()
    }

    /// Returns the warnings about costs of stores, and about sequences that may lose their order.
    #[cfg_attr(
        not(feature = "kafka"),
        allow(dead_code, reason = "without the adapter no app starts")
    )]
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.graph.warnings().collect()
    }

    /// Returns all stores of the app.
    pub(crate) fn stores(&self) -> &[StoreSpec] {
        &self.graph.stores
    }

    /// Returns the names of all stores. The stores of one operator may share a name, which is listed once.
    pub(crate) fn store_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for store in self.stores() {
            if !names.iter().any(|name| **name == *store.name) {
                names.push(store.name.to_string());
            }
        }
        names
    }

    /// Returns the store because of which a stage refuses records that are far ahead of the machine's clock, if it does.
    pub(crate) fn refuses_future(&self, stage: StageId) -> Option<&Arc<str>> {
        self.refuse_future.get(usize::from(stage.0))?.as_ref()
    }

    /// Returns the global tables.
    pub(crate) fn globals(&self) -> &[GlobalSpec] {
        &self.graph.globals
    }

    /// Returns the stores of one stage.
    pub(crate) fn stores_of(&self, stage: &Stage) -> impl Iterator<Item = &StoreSpec> {
        self.graph.stores_of(stage).map(|(_, store)| store)
    }

    /// Returns the keys of a stage's sources.
    pub(crate) fn keys_of<'t>(
        &'t self,
        stage: &'t Stage,
    ) -> impl Iterator<Item = &'t dyn SourceKeys> {
        let sources = stage.sources.iter();
        let sources = sources.filter_map(|&at| self.graph.sources.get(at));
        let sources = sources.filter(|source| !self.graph.is_between(&source.topic));
        sources.map(|source| &*source.keys)
    }

    /// Returns the keys of a stage's topics whose partitions decide which records are joined: `None` for topics that the app
    /// writes itself, and for all topics of a stage without joins.
    pub(crate) fn joined_keys(&self, stage: &Stage) -> Vec<Option<Arc<dyn SourceKeys>>> {
        let joins = self.joins_by_key(stage);
        let topics = stage.topics.iter();
        let keys = topics.map(|topic| {
            let mut sources = stage
                .sources
                .iter()
                .filter_map(|&at| self.graph.sources.get(at));
            let source = sources.find(|it| joins && it.topic == *topic && !self.is_internal(topic));
            source.map(|source| Arc::clone(&source.keys))
        });
        keys.collect()
    }

    fn joins_by_key(&self, stage: &Stage) -> bool {
        let nodes = self.graph.behind(&stage.sources).into_iter();
        let mut nodes = nodes.filter_map(|at| self.graph.nodes.get(at));
        nodes.any(|node| node.kind.joins_by_key())
    }

    /// Returns the app's internal topics.
    pub(crate) fn internals(&self) -> &[Internal] {
        &self.graph.internals
    }

    /// Whether a topic is an internal topic of the app.
    pub(crate) fn is_internal(&self, name: &TopicName) -> bool {
        let mut internals = self.graph.internals.iter();
        internals.any(|internal| {
            let output = self.graph.outputs.get(internal.output);
            output.is_some_and(|output| output.name == *name)
        })
    }

    /// Whether a topic is a repartition topic of the app. Only the app writes and reads it.
    pub(crate) fn is_repartition(&self, name: &TopicName) -> bool {
        self.graph.is_repartition(name)
    }

    /// Returns the app's repartition topics.
    pub(crate) fn repartitions(&self) -> impl Iterator<Item = &TopicName> {
        self.graph.repartitions()
    }

    /// Returns the outputs to a stage's changelogs.
    pub(crate) fn changelogs(&self, stage: StageId) -> PerFamily<Option<usize>> {
        let mut found = PerFamily::default();
        for internal in &self.graph.internals {
            match internal.purpose {
                Purpose::Changelog(of, family) if of == stage => {
                    *found.get_mut(family) = Some(internal.output);
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the names that an earlier version of the app may have given to a stage, with their changelogs. Without a
    /// name of its own, a stage has the name of one of its topics.
    pub(crate) fn other_names<'t>(
        &'t self,
        stage: &'t Stage,
        family: Family,
    ) -> impl Iterator<Item = (&'t str, TopicName)> {
        let current = self.graph.changelog_name(stage, family);
        let names = self.graph.topics_of(stage);
        let names = names.map(move |name| (name, self.graph.changelog_of(name, family)));
        names.filter_map(move |(name, changelog)| {
            let changelog = (changelog != current).then(|| TopicName::new(changelog))?;
            // Another stage may have this name today.
            (!self.is_internal(&changelog)).then_some((name, changelog))
        })
    }

    /// Returns the stages that write to an output.
    pub(crate) fn writers(&self, output: usize) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(move |stage| {
            let nodes = self.graph.behind(&stage.sources);
            let mut nodes = nodes.iter().filter_map(|&at| self.graph.nodes.get(at));
            nodes.any(|node| node.kind.outputs().contains(&output))
        })
    }

    /// Returns the outputs. Those of dead letters come last.
    pub(crate) fn outputs(&self) -> &[OutputSpec] {
        &self.graph.outputs
    }

    /// Returns the app's ledger.
    pub(crate) fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.graph.ledger.as_ref()
    }

    /// Returns the names of all output topics. Those of a ledger are places.
    pub(crate) fn output_topics(&self) -> Vec<TopicName> {
        match self.graph.ledger {
            Some(_) => Vec::new(),
            None => self.output_names(),
        }
    }

    /// Whether this output receives only dead letters.
    pub(crate) fn is_dead_letter(&self, output: usize) -> bool {
        let mut sources = self.graph.sources.iter();
        sources.any(|source| source.dead_letter == Some(output))
    }

    /// Returns the dead-letter topics.
    pub(crate) fn dead_letter_names(&self) -> impl Iterator<Item = &TopicName> {
        let sources = self.graph.sources.iter();
        sources.filter_map(|source| source.policy.dead_letter_topic())
    }

    /// Returns the output topics of chains and closures, without dead-letter topics.
    pub(crate) fn written_names(&self) -> impl Iterator<Item = &TopicName> {
        let letters: BTreeSet<usize> = self
            .graph
            .sources
            .iter()
            .filter_map(|source| source.dead_letter)
            .collect();
        let outputs = self.graph.outputs.iter().enumerate();
        outputs.filter_map(move |(at, output)| (!letters.contains(&at)).then_some(&output.name))
    }

    /// Returns the topics of the outputs.
    pub(crate) fn output_names(&self) -> Vec<TopicName> {
        self.graph.outputs.iter().map(|o| o.name.clone()).collect()
    }

    /// Creates the nodes for one task of a stage. A node behind several of its sources is created once.
    pub(crate) fn instantiate(&self, stage: &Stage) -> Chains {
        let layout = Layout::new(&self.graph, stage);
        let mut chains = Chains {
            inputs: Vec::new(),
            places: layout.places(),
        };
        chains.inputs.resize_with(stage.topics.len(), Vec::new);
        for &at in &stage.sources {
            let Some(source) = self.graph.sources.get(at) else {
                continue;
            };
            let input = stage.topics.iter().position(|t| *t == source.topic);
            if let Some(inputs) = input.and_then(|i| chains.inputs.get_mut(i)) {
                inputs.push(Source {
                    entry: (source.make)(),
                    first: layout.first(Exit::Source(at)),
                    makes_calls: self.graph.makes_calls(at),
                    policy: Arc::clone(&source.policy),
                    dead_letter: source.dead_letter,
                    sequence: source
                        .sequence
                        .and_then(|at| self.graph.stores.get(at))
                        .map(|store| store.id),
                });
            }
        }
        chains
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}
