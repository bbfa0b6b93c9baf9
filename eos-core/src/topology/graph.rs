//! The declared graph of an app.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eos_protocol::state::Family;
use eos_protocol::{Clock, Stage, StageId, TopicName, stages};
use eos_state::StoreKind;

use super::error::{Mistake, Mistakes, TopologyError};
use super::follower::Follower;
use super::global_spec::GlobalSpec;
use super::internal::{Internal, Purpose};
use super::kind::Kind;
use super::node::{Entry, Node};
use super::nodes::{Read, Tee, Write};
use super::output_spec::OutputSpec;
use super::prepared_call::CallSpec;
use crate::boundary::Ledger;
use crate::codec::{Codec, Decode, Encode};
use crate::error_policy::ErrorPolicy;
use crate::store::{KeyValueStore, StoreSpec};
use crate::topic::{ReadTypes, Topic, WritableTopic};
use crate::views::SourceKeys;

pub(crate) type MakeNode = Box<dyn Fn() -> Box<dyn Node> + Send + Sync>;
type MakeEntry = Box<dyn Fn() -> Box<dyn Entry> + Send + Sync>;

/// An exit of a source or a node, which leads to the next node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Source(usize),
    Node(usize),
    /// The second exit of a node that has two.
    Rest(usize),
}

pub(super) struct SourceSpec {
    pub(super) topic: TopicName,
    pub(super) types: ReadTypes,
    /// Distinguishes the closures of `time_by`.
    pub(super) time: Option<usize>,
    /// The name of the topic's own partitioner.
    pub(super) partitioner: Option<Arc<str>>,
    pub(super) make: MakeEntry,
    /// Its keys, to find the partition of a key.
    pub(super) keys: Arc<dyn SourceKeys>,
    pub(super) out: Way,
    pub(super) policy: Arc<ErrorPolicy>,
    /// Whether the program set the policy. Otherwise it is the default.
    policy_told: bool,
    /// Set when the graph is built.
    pub(super) dead_letter: Option<usize>,
    /// The store of keys with sequenced dead letters. Set when the graph is built.
    pub(super) sequence: Option<usize>,
    /// The number of sources, nodes and outputs for `Ctx::emit` that were declared before it.
    pub(super) number: usize,
}

pub(super) struct NodeSpec {
    pub(super) kind: Kind,
    pub(super) make: MakeNode,
    pub(super) out: Way,
    /// The second exit of a node that has two.
    pub(super) rest: Way,
    pub(super) number: usize,
    /// The stores that its closure may use.
    pub(super) stores: Vec<usize>,
    /// The stores of other tables that it reads.
    pub(super) reads: Vec<usize>,
    /// Whether other nodes read the rows of its table, so that it needs no exit.
    pub(super) is_read: bool,
}

/// The path of the records that leave by one exit.
#[derive(Default)]
pub(super) struct Way {
    /// The next nodes, in the order of their declaration. Several only if the stream was cloned.
    pub(super) children: Vec<usize>,
    /// Copies a record, if the stream was cloned.
    pub(super) copy: Option<MakeNode>,
}

/// The declared graph. Children have higher indices than their parents: each call consumes its stream, so no other
/// order is possible.
pub(crate) struct Graph {
    /// The app's name, which is the prefix of its internal topics.
    app: String,
    /// Distinguishes the handles of this app from those of another app in the same process.
    token: u64,
    pub(super) sources: Vec<SourceSpec>,
    pub(super) nodes: Vec<NodeSpec>,
    pub(super) outputs: Vec<OutputSpec>,
    pub(super) stores: Vec<StoreSpec>,
    /// The sources whose records may use a store, by store.
    pub(super) users: Vec<Vec<usize>>,
    /// The timers that a step handles, once for each step.
    handled_timers: Vec<usize>,
    /// The app's internal topics, by the outputs that write to them.
    pub(super) internals: Vec<Internal>,
    /// Sources that one task reads together.
    links: Vec<(usize, usize)>,
    /// The names of stages, each with sources of its stage.
    names: Vec<(String, Vec<usize>)>,
    /// The times after which stages close idle inputs, each with sources of its stage.
    idle: Vec<(Duration, Vec<usize>)>,
    /// Sources of the stages that accept records from the future.
    trusted: Vec<usize>,
    /// The global tables.
    pub(super) globals: Vec<GlobalSpec>,
    /// The steps that have to see each row of their tables.
    pub(super) followers: Vec<Follower>,
    /// The declarations of asynchronous calls.
    pub(super) calls: Vec<CallSpec>,
    /// The store of effects and positions, if it is not Kafka.
    pub(super) ledger: Option<Arc<dyn Ledger>>,
    /// The policy of sources without a policy of their own.
    policy: Arc<ErrorPolicy>,
    /// The mistakes found during the declaration.
    pub(super) mistakes: Mistakes,
}

impl Graph {
    pub(crate) fn new(app: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            app: app.to_owned(),
            token,
            sources: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            stores: Vec::new(),
            users: Vec::new(),
            handled_timers: Vec::new(),
            internals: Vec::new(),
            links: Vec::new(),
            names: Vec::new(),
            idle: Vec::new(),
            trusted: Vec::new(),
            globals: Vec::new(),
            followers: Vec::new(),
            calls: Vec::new(),
            ledger: None,
            policy: Arc::default(),
            mistakes: Mistakes::default(),
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Adds a source. Returns its index.
    pub(crate) fn source<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> usize
    where
        K: 'static,
        V: 'static,
        KC: Decode<K>,
        VC: Decode<V>,
    {
        let number = self.declared();
        let (name, topic) = (topic.name.clone(), topic.clone());
        self.sources.push(SourceSpec {
            topic: name,
            types: topic.read_types(),
            time: topic.time_id(),
            partitioner: topic.partitioner(),
            keys: Arc::new(topic.clone()),
            make: Box::new(move || Box::new(Read(topic.clone()))),
            out: Way::default(),
            policy: Arc::clone(&self.policy),
            policy_told: false,
            dead_letter: None,
            sequence: None,
            number,
        });
        self.sources.len() - 1
    }

    /// Adds a node behind all of these exits. Returns its index.
    pub(crate) fn add(
        &mut self,
        parents: &[Exit],
        kind: Kind,
        stores: &[usize],
        make: MakeNode,
    ) -> usize {
        let (at, number) = (self.nodes.len(), self.declared());
        for &parent in parents {
            if let Some(way) = self.way_mut(parent) {
                way.children.push(at);
            }
        }
        self.nodes.push(NodeSpec {
            kind,
            make,
            out: Way::default(),
            rest: Way::default(),
            number,
            stores: stores.to_vec(),
            reads: Vec::new(),
            is_read: false,
        });
        at
    }

    /// Declares the stores of other tables that a node reads.
    pub(crate) fn reads(&mut self, node: usize, stores: &[usize]) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.reads.extend(stores);
        }
    }

    /// Declares that other nodes read the rows of the table behind these exits.
    pub(crate) fn read_rows(&mut self, exits: &[Exit]) {
        for exit in exits {
            if let Exit::Node(at) | Exit::Rest(at) = *exit
                && let Some(node) = self.nodes.get_mut(at)
            {
                node.is_read = true;
            }
        }
    }

    /// Allows several nodes behind each of these exits.
    pub(crate) fn copy<K, V>(&mut self, exits: &[Exit])
    where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        for &exit in exits {
            if let Some(way) = self.way_mut(exit) {
                way.copy = Some(Box::new(|| Box::new(Tee::<K, V>(PhantomData))));
            }
        }
    }

    fn way(&self, exit: Exit) -> Option<&Way> {
        match exit {
            Exit::Source(at) => self.sources.get(at).map(|source| &source.out),
            Exit::Node(at) => self.nodes.get(at).map(|node| &node.out),
            Exit::Rest(at) => self.nodes.get(at).map(|node| &node.rest),
        }
    }

    /// Returns the nodes behind an exit, in the order of their declaration.
    pub(super) fn children(&self, exit: Exit) -> &[usize] {
        self.way(exit).map_or(&[], |way| &way.children)
    }

    /// Returns the factory of the node that copies the records of an exit.
    pub(super) fn copies(&self, exit: Exit) -> Option<&MakeNode> {
        self.way(exit)?.copy.as_ref()
    }

    fn way_mut(&mut self, exit: Exit) -> Option<&mut Way> {
        match exit {
            Exit::Source(at) => self.sources.get_mut(at).map(|source| &mut source.out),
            Exit::Node(at) => self.nodes.get_mut(at).map(|node| &mut node.out),
            Exit::Rest(at) => self.nodes.get_mut(at).map(|node| &mut node.rest),
        }
    }

    /// Returns the number of the next declaration. A global table has two, as in Kafka Streams: its source and its rows.
    pub(super) fn declared(&self) -> usize {
        let emitted = self.outputs.iter().filter(|o| o.number.is_some());
        self.sources.len() + self.nodes.len() + emitted.count() + 2 * self.globals.len()
    }

    /// Adds an output. Several outputs may write to one topic.
    pub(crate) fn output<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        emitted: bool,
    ) -> usize
    where
        K: 'static,
        V: 'static,
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let number = emitted.then(|| self.declared());
        self.outputs.push(OutputSpec {
            name: topic.name.clone(),
            topic: Box::new(Arc::new(topic.clone()) as Arc<dyn WritableTopic<K, V>>),
            number,
        });
        self.outputs.len() - 1
    }

    /// Adds a place of the app's ledger. Returns the index of its output.
    pub(crate) fn place(&mut self, name: &str) -> usize {
        if self.outputs.iter().any(|it| it.name.as_str() == name) {
            self.mistakes.add(Mistake::SamePlace { name: name.into() });
        }
        self.outputs.push(OutputSpec {
            name: TopicName::new(name),
            topic: Box::new(()),
            number: None,
        });
        self.outputs.len() - 1
    }

    /// Sets the app's ledger.
    pub(crate) fn set_ledger(&mut self, ledger: Arc<dyn Ledger>) {
        if let Some(known) = &self.ledger {
            let (first, second) = (known.name(), ledger.name());
            self.mistakes.add(Mistake::TwoLedgers { first, second });
        }
        self.ledger = Some(ledger);
    }

    /// Adds a store. Returns its index.
    pub(crate) fn keep(&mut self, store: StoreSpec) -> usize {
        // The stores of a join have its name.
        let has_name = |known: &StoreSpec| known.name == store.name && !store.shares_name();
        let is_its = |known: &&StoreSpec| known.id == store.id || has_name(known);
        if let Some(known) = self.stores.iter().find(is_its) {
            self.mistakes.add(Mistake::SameStore {
                first: known.name.to_string(),
                second: store.name.to_string(),
            });
        }
        self.stores.push(store);
        self.users.push(Vec::new());
        self.stores.len() - 1
    }

    /// Adds a declaration of asynchronous calls. Returns its index.
    pub(crate) fn add_calls(&mut self, calls: CallSpec) -> usize {
        self.calls.push(calls);
        self.calls.len() - 1
    }

    /// Allows the records of these sources to use a store. One task reads all sources of a store.
    pub(crate) fn use_store(&mut self, store: usize, sources: &[usize]) {
        if let Some(users) = self.users.get_mut(store) {
            users.extend(sources);
            let users = users.clone();
            self.link(&users);
        }
    }

    /// Emits the results of a windowed store when its windows close.
    pub(crate) fn emit_on_close(&mut self, store: usize) {
        if let Some(store) = self.stores.get_mut(store) {
            store.is_final = true;
            // Final results are visible, so their order matters.
            store.clock = store.clock.map(|_| Clock::Stream);
        }
    }

    /// Records that the next step handles the moments of these timers.
    pub(crate) fn handle_timers(&mut self, timers: &[usize]) {
        self.handled_timers.extend(timers);
    }

    /// Returns the number of steps that handle the moments of a timer.
    pub(super) fn handlers_of(&self, timer: usize) -> usize {
        let handled = self.handled_timers.iter();
        handled.filter(|handled| **handled == timer).count()
    }

    /// Adds a repartition topic behind these exits, and a source that reads it. Returns the index of the source.
    pub(crate) fn repartition<K, V, KC, VC>(
        &mut self,
        parents: &[Exit],
        topic: &Topic<K, V, KC, VC>,
        suffix: &str,
    ) -> usize
    where
        K: 'static,
        V: 'static,
        KC: Codec<K>,
        VC: Codec<V>,
    {
        let name = format!("{}-{}-{suffix}", self.app, topic.name);
        let own = topic.renamed(TopicName::new(name));
        let output = self.output(&own, false);
        if self.sources.iter().any(|source| source.topic == own.name) {
            self.mistakes.add(Mistake::SameRepartition {
                name: topic.name.to_string(),
            });
        }
        self.internals.push(Internal {
            output,
            purpose: Purpose::Repartition,
        });
        let written = own.clone();
        let make = move || -> Box<dyn Node> {
            Box::new(Write {
                output,
                topic: written.clone(),
            })
        };
        self.add(parents, Kind::Repartition(output), &[], Box::new(make));
        self.source(&own)
    }

    /// Adds an internal topic between the tasks of a foreign-key join, and a source that reads it. Returns the output and the
    /// source.
    pub(crate) fn between(&mut self, name: &str, leg: &str) -> (usize, usize) {
        let name = format!("{}-{name}-{leg}", self.app);
        let topic = Topic::<Vec<u8>, Vec<u8>>::plain(&name);
        let output = self.output(&topic, false);
        self.internals.push(Internal {
            output,
            purpose: Purpose::ForeignJoin,
        });
        (output, self.source(&topic))
    }

    /// Whether a topic is between the tasks of a foreign-key join.
    pub(super) fn is_between(&self, name: &TopicName) -> bool {
        let mut internals = self.internals.iter();
        internals.any(|it| {
            let output = self.outputs.get(it.output);
            it.purpose == Purpose::ForeignJoin && output.is_some_and(|output| output.name == *name)
        })
    }

    /// Returns the keys of these sources. Those of internal topics of joins are no keys of rows.
    pub(crate) fn source_keys(&self, sources: &[usize]) -> Arc<[Arc<dyn SourceKeys>]> {
        let sources = sources.iter().filter_map(|&at| self.sources.get(at));
        let sources = sources.filter(|source| !self.is_between(&source.topic));
        sources.map(|source| Arc::clone(&source.keys)).collect()
    }

    /// Sets the error policy of these sources. A policy of one branch holds for its whole source, so a second policy
    /// must not replace the first unnoticed.
    pub(crate) fn on_error(&mut self, sources: &[usize], policy: ErrorPolicy) {
        let policy = Arc::new(policy);
        for &at in sources {
            let Some(source) = self.sources.get_mut(at) else {
                continue;
            };
            if source.policy_told && source.policy != policy {
                let error = Mistake::TwoPolicies {
                    topic: source.topic.clone(),
                    first: Box::new((*source.policy).clone()),
                    second: Box::new((*policy).clone()),
                };
                self.mistakes.add(error);
                return;
            }
            source.policy = Arc::clone(&policy);
            source.policy_told = true;
        }
    }

    /// Sets the error policy of sources without a policy of their own.
    pub(crate) fn default_policy(&mut self, policy: ErrorPolicy) {
        self.policy = Arc::new(policy);
        for source in self.sources.iter_mut().filter(|source| !source.policy_told) {
            source.policy = Arc::clone(&self.policy);
        }
    }

    /// Names the stage of these sources.
    pub(crate) fn name(&mut self, name: &str, sources: &[usize]) {
        self.names.push((name.to_owned(), sources.to_vec()));
    }

    /// Lets stream time of these sources' stage run on when its inputs are idle for this long.
    pub(crate) fn close_when_idle(&mut self, after: Duration, sources: &[usize]) {
        self.idle.push((after, sources.to_vec()));
    }

    /// Accepts records from the future in these sources' stage.
    pub(crate) fn trust_times(&mut self, sources: &[usize]) {
        self.trusted.extend_from_slice(sources);
    }

    /// Whether a stage accepts records from the future.
    pub(super) fn trusts_times(&self, stage: &Stage) -> bool {
        self.trusted.iter().any(|at| stage.sources.contains(at))
    }

    /// Returns the times after which a stage closes idle inputs. More than one is a mistake.
    pub(super) fn idle_of<'g>(&'g self, stage: &'g Stage) -> impl Iterator<Item = Duration> {
        let idle = self.idle.iter();
        let its = idle.filter(|(_, sources)| sources.iter().any(|at| stage.sources.contains(at)));
        its.map(|(after, _)| *after)
    }

    /// Returns the names of a stage. More than one name is a mistake.
    pub(super) fn names_of<'g>(&'g self, stage: &'g Stage) -> impl Iterator<Item = &'g str> {
        let names = self.names.iter();
        let names =
            names.filter(|(_, sources)| sources.iter().any(|at| stage.sources.contains(at)));
        names.map(|(name, _)| &name[..])
    }

    /// Makes one task read these sources together.
    pub(crate) fn link(&mut self, sources: &[usize]) {
        let pairs = sources.iter().zip(sources.iter().skip(1));
        self.links.extend(pairs.map(|(&a, &b)| (a, b)));
    }

    /// Records a mistake found during the declaration.
    pub(crate) fn wrong(&mut self, mistake: Mistake) {
        self.mistakes.add(mistake);
    }

    /// Returns the nodes behind these sources, parents first.
    pub(super) fn behind(&self, sources: &[usize]) -> Vec<usize> {
        let mut found = BTreeSet::new();
        let firsts = sources.iter().filter_map(|&at| self.sources.get(at));
        let mut next: Vec<usize> = firsts.flat_map(|it| &it.out.children).copied().collect();
        while let Some(at) = next.pop() {
            if let Some(node) = self.nodes.get(at)
                && found.insert(at)
            {
                next.extend(&node.out.children);
                next.extend(&node.rest.children);
            }
        }
        found.into_iter().collect()
    }

    /// Returns the stages, those with stores first, each kind in the order of declaration. A task's directory is named
    /// after the number of its stage. Adding or removing a stage without state must not change that number.
    pub(super) fn stages(&self) -> Vec<Stage> {
        let topics: Vec<TopicName> = self.sources.iter().map(|s| s.topic.clone()).collect();
        let mut stages = stages(&topics, &self.links);
        stages.sort_by_key(|stage| self.stores_of(stage).next().is_none());
        for (stage, number) in stages.iter_mut().zip(0..) {
            stage.id = StageId(number);
        }
        stages
    }

    /// Checks the graph, adds its internal topics, and cuts it into stages.
    pub(super) fn finish(&mut self) -> Result<Vec<Stage>, TopologyError> {
        self.add_sequences();
        self.check()?;
        let stages = self.stages();
        self.mark_idle(&stages);
        self.add_changelogs(&stages);
        let mut mistakes = Mistakes::default();
        mistakes.check(self.check_internals());
        mistakes.none()?;
        self.add_dead_letters();
        Ok(stages)
    }

    /// Marks the stores of the stages that close windows while no records arrive.
    fn mark_idle(&mut self, stages: &[Stage]) {
        let idle = stages.iter().filter(|it| self.idle_of(it).next().is_some());
        let idle = idle.flat_map(|stage| self.stores_of(stage).map(|(at, _)| at));
        for at in idle.collect::<Vec<_>>() {
            self.stores[at].closes_when_idle = true;
        }
    }

    /// Adds a changelog for each stage and family of its stores. The changelog is named after the stage, or after one
    /// of its topics. A topic belongs to one stage and never changes, unlike the stage number.
    fn add_changelogs(&mut self, stages: &[Stage]) {
        for stage in stages {
            for family in Family::ALL {
                if self
                    .stores_of(stage)
                    .any(|(_, store)| store.id.family() == family)
                {
                    let name = self.changelog_name(stage, family);
                    let topic = Topic::<Vec<u8>, Option<Vec<u8>>>::plain(&name);
                    let output = self.output(&topic, false);
                    self.internals.push(Internal {
                        output,
                        purpose: Purpose::Changelog(stage.id, family),
                    });
                }
            }
        }
    }

    pub(super) fn changelog_name(&self, stage: &Stage, family: Family) -> String {
        let named = self.names_of(stage).next();
        // The order of declarations must not matter.
        let first = self.topics_of(stage).min();
        self.changelog_of(named.or(first).unwrap_or_default(), family)
    }

    /// Returns the changelog name of a stage with this name.
    pub(super) fn changelog_of(&self, stage: &str, family: Family) -> String {
        match family {
            Family::Plain => format!("{}-{stage}-changelog", self.app),
            Family::Windowed => format!("{}-{stage}-windowed-changelog", self.app),
        }
    }

    /// The app's name.
    pub(crate) fn app_name(&self) -> &str {
        &self.app
    }

    /// Returns the topics of a stage. Repartition topics are without the app's name as prefix.
    pub(super) fn topics_of<'g>(&'g self, stage: &'g Stage) -> impl Iterator<Item = &'g str> {
        let own = |topic: &'g TopicName| {
            let rest = topic.as_str().strip_prefix(self.app.as_str())?;
            rest.strip_prefix('-')
        };
        let topics = stage.topics.iter();
        topics.map(move |topic| own(topic).unwrap_or(topic.as_str()))
    }

    /// Returns the stores of a stage, with their indices.
    pub(super) fn stores_of(&self, stage: &Stage) -> impl Iterator<Item = (usize, &StoreSpec)> {
        let stores = self.stores.iter().zip(&self.users).enumerate();
        let used =
            stores.filter(|(_, (_, users))| users.iter().any(|at| stage.sources.contains(at)));
        used.map(|(at, (store, _))| (at, store))
    }

    /// Adds the stores of keys with sequenced dead letters: one for each topic. A second call changes nothing.
    pub(crate) fn add_sequences(&mut self) {
        for at in 0..self.sources.len() {
            let Some((name, topic)) = self.sources.get(at).and_then(|source| {
                let name = source.policy.sequence()?.to_owned();
                if source.sequence.is_some() {
                    return None;
                }
                Some((name, source.topic.clone()))
            }) else {
                continue;
            };
            let mut before = self.sources.iter().take(at);
            let same = before.find(|it| it.topic == topic && it.policy.sequence() == Some(&*name));
            let store = same.and_then(|source| source.sequence);
            let store = store.unwrap_or_else(|| {
                let rows = KeyValueStore::<Vec<u8>, Vec<u8>>::plain(&name);
                self.keep(rows.spec(StoreKind::Ordered))
            });
            self.use_store(store, &[at]);
            if let Some(source) = self.sources.get_mut(at) {
                source.sequence = Some(store);
            }
        }
    }

    /// Adds the dead-letter topics as outputs of raw bytes, because the producer has to know them.
    fn add_dead_letters(&mut self) {
        let declared = self.outputs.len();
        for source in &mut self.sources {
            let Some(name) = source.policy.dead_letter_topic() else {
                continue;
            };
            let known = self.outputs.iter().skip(declared);
            let at = known.map(|o| &o.name).position(|known| known == name);
            let at = at.map_or(self.outputs.len(), |at| declared + at);
            source.dead_letter = Some(at);
            if at == self.outputs.len() {
                let topic = Topic::<Option<Vec<u8>>, Option<Vec<u8>>>::plain(name.as_str());
                self.outputs.push(OutputSpec {
                    name: name.clone(),
                    topic: Box::new(topic),
                    number: None,
                });
            }
        }
    }
}
