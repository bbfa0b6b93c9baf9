//! Checks of a declared graph.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use eos_protocol::{Clock, Guarantee, IdleTime, TopicName};

use super::error::{Mistake, Mistakes, TopologyError, check_name, check_store_name};
use super::graph::{Graph, NodeSpec, SourceSpec};
use super::kind::Kind;
use crate::store::StoreSpec;

impl Graph {
    /// Checks the graph, and returns all mistakes in it.
    pub(crate) fn check(&self) -> Result<(), TopologyError> {
        let mut mistakes = self.mistakes.clone();
        if self.sources.is_empty() {
            mistakes.add(Mistake::Empty);
        }
        for (at, output) in self.outputs.iter().enumerate() {
            if !self.is_place(at) {
                mistakes.check(check_name(&output.name));
            }
        }
        for (at, (store, users)) in self.stores.iter().zip(&self.users).enumerate() {
            mistakes.check(check_store_name(&store.name));
            if store.is_timer() {
                self.check_timer(at, store, &mut mistakes);
            } else if users.is_empty() {
                mistakes.add(Mistake::UnusedStore {
                    name: store.name.to_string(),
                });
            }
        }
        for (at, source) in self.sources.iter().enumerate() {
            mistakes.check(check_name(&source.topic));
            if let Some(letters) = source.policy.dead_letter_topic() {
                mistakes.check(check_name(letters));
            }
            let policy = source.policy.check(&source.topic);
            mistakes.check(policy.map_err(|reason| Mistake::ErrorPolicy {
                topic: source.topic.clone(),
                reason,
            }));
            self.check_sequence(at, source, &mut mistakes);
            self.check_ends(at, source, &mut mistakes);
        }
        self.check_globals(&mut mistakes);
        self.check_graces(&mut mistakes);
        self.check_emissions(&mut mistakes);
        self.check_reordered(&mut mistakes);
        self.check_joins(&mut mistakes);
        self.check_finals(&mut mistakes);
        self.check_idle(&mut mistakes);
        self.check_letters(&mut mistakes);
        self.check_names(&mut mistakes);
        self.check_loops(&mut mistakes);
        self.check_partitioners(&mut mistakes);
        self.check_types(&mut mistakes);
        self.check_calls(&mut mistakes);
        self.check_ledger(&mut mistakes);
        mistakes.none()
    }

    /// Checks that the guarantee allows each step.
    pub(crate) fn check_guarantee(&self, guarantee: Guarantee) -> Result<(), TopologyError> {
        let mut mistakes = Mistakes::default();
        if let Some(ledger) = &self.ledger
            && guarantee != Guarantee::ExactlyOnce
        {
            let ledger = ledger.name();
            mistakes.add(Mistake::LedgerGuarantee { ledger, guarantee });
        }
        if guarantee == Guarantee::AtLeastOnce {
            for node in self.nodes.iter().filter(|it| it.kind.compares_rows()) {
                let step = node.kind.method();
                mistakes.add(Mistake::ChangesAtLeastOnce { step });
            }
        }
        if guarantee == Guarantee::AtMostOnce {
            for calls in &self.calls {
                mistakes.add(Mistake::CallsAtMostOnce {
                    name: calls.name.to_string(),
                });
            }
        }
        for (at, store) in self.stores.iter().enumerate() {
            let own = |node: &&NodeSpec| node.kind.owns(at);
            let uses = |node: &&NodeSpec| node.stores.contains(&at);
            let mut nodes = self.nodes.iter();
            let step = nodes.clone().find(own).or_else(|| nodes.find(uses));
            let (step, kind) = match step {
                Some(node) => (node.kind.method(), Some(node.kind)),
                None => ("store", None),
            };
            let sequenced = self
                .sources
                .iter()
                .any(|source| source.sequence == Some(at));
            let step = if sequenced { "in_sequence" } else { step };
            let name = store.name.to_string();
            match guarantee {
                Guarantee::AtMostOnce => mistakes.add(Mistake::StateAtMostOnce { step, name }),
                Guarantee::AtLeastOnce
                    if sequenced || kind.is_some_and(Kind::leaves_out_repeated) =>
                {
                    mistakes.add(Mistake::DedupAtLeastOnce { step, name });
                }
                _ => {}
            }
        }
        mistakes.none()
    }

    /// Checks that the app commits either transactions of Kafka or transactions of a ledger.
    fn check_ledger(&self, mistakes: &mut Mistakes) {
        let ledger = self.ledger.as_ref().map(|ledger| ledger.name());
        for node in &self.nodes {
            let (step, outputs) = (node.kind.method(), node.kind.outputs());
            let mut names = outputs.filter_map(|at| self.outputs.get(at));
            match (&ledger, node.kind) {
                (None, Kind::ToPlace(_)) => {
                    let place = names
                        .next()
                        .map_or_else(String::new, |it| it.name.to_string());
                    mistakes.add(Mistake::PlaceWithoutLedger { place });
                }
                (None, _) | (Some(_), Kind::ToPlace(_)) => {}
                (Some(ledger), _) => {
                    for output in names {
                        mistakes.add(Mistake::TopicBesideLedger {
                            step,
                            topic: output.name.clone(),
                            ledger: ledger.clone(),
                        });
                    }
                }
            }
        }
        let Some(ledger) = ledger else {
            return;
        };
        for output in self.outputs.iter().filter(|it| it.number.is_some()) {
            mistakes.add(Mistake::TopicBesideLedger {
                step: "output",
                topic: output.name.clone(),
                ledger: ledger.clone(),
            });
        }
        for store in &self.stores {
            mistakes.add(Mistake::StateBesideLedger {
                store: store.name.to_string(),
                ledger: ledger.clone(),
            });
        }
    }

    /// Whether an output is a place of the ledger.
    pub(super) fn is_place(&self, output: usize) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| matches!(node.kind, Kind::ToPlace(at) if at == output))
    }

    /// Checks that exactly one step handles a timer.
    fn check_timer(&self, at: usize, timer: &StoreSpec, mistakes: &mut Mistakes) {
        let name = timer.name.to_string();
        match self.handlers_of(at) {
            0 => mistakes.add(Mistake::UnhandledTimer { name }),
            1 => {}
            _ => mistakes.add(Mistake::TwoTimerHandlers { name }),
        }
    }

    /// Checks that all chains of a topic agree on sequenced dead letters: a record has one policy, the strictest.
    fn check_sequence(&self, at: usize, source: &SourceSpec, mistakes: &mut Mistakes) {
        let mut before = self.sources.iter().take(at);
        let differs = |it: &&SourceSpec| {
            it.topic == source.topic
                && it.policy != source.policy
                && (it.policy.sequence().is_some() || source.policy.sequence().is_some())
        };
        if let Some(other) = before.find(differs) {
            mistakes.add(Mistake::SequenceOfOneChain {
                topic: source.topic.clone(),
                first: Box::new((*other.policy).clone()),
                second: Box::new((*source.policy).clone()),
            });
        }
    }

    /// Checks that the chain of a source has an end.
    fn check_ends(&self, at: usize, source: &SourceSpec, mistakes: &mut Mistakes) {
        let mut dangling = |kind| {
            mistakes.add(Mistake::Dangling {
                topic: source.topic.clone(),
                kind,
            });
        };
        if source.out.children.is_empty() {
            dangling("source");
        }
        for node in self.behind(&[at]).iter().filter_map(|&n| self.nodes.get(n)) {
            let rest_ends = node.rest.children.is_empty();
            let of_a_table = !rest_ends && node.kind.exits() == 1;
            let ends = node.out.children.is_empty() && !of_a_table && !self.is_a_table(node);
            if node.kind.exits() > 0 && ends || node.kind.exits() > 1 && rest_ends {
                dangling(node.kind.method());
            }
        }
    }

    /// Checks that no step emits updates of a store with final results.
    fn check_finals(&self, mistakes: &mut Mistakes) {
        for node in &self.nodes {
            if let Kind::PerCommit(store) = node.kind
                && let Some(store) = self.stores.get(store).filter(|store| store.is_final)
            {
                mistakes.add(Mistake::UpdatesOfFinal {
                    store: store.name.to_string(),
                });
            }
        }
    }

    /// Checks the times after which stages close idle inputs.
    fn check_idle(&self, mistakes: &mut Mistakes) {
        for stage in self.stages() {
            let mut idle = self.idle_of(&stage);
            let Some(after) = idle.next() else {
                continue;
            };
            if after < IdleTime::LEAST {
                mistakes.add(Mistake::IdleTooShort { after });
            }
            if let Some(other) = idle.find(|other| *other != after) {
                mistakes.add(Mistake::TwoIdleTimes {
                    first: after,
                    second: other,
                });
            }
            let on_wall = Some(Clock::Wall);
            let mut stores = self.stores_of(&stage).map(|(_, store)| store);
            if !stores.any(|it| it.expiry.is_some() || (it.clock.is_some() && it.clock != on_wall))
            {
                mistakes.add(Mistake::IdleWithoutTime { after });
            }
            let written = self.outputs.iter().map(|output| &output.name);
            let letters = self.sources.iter();
            let letters = letters.filter_map(|source| source.policy.dead_letter_topic());
            let mut written = written.chain(letters);
            if let Some(topic) = written.find(|topic| stage.topics.contains(topic)) {
                mistakes.add(Mistake::IdleOwnTopic {
                    topic: topic.clone(),
                });
            }
        }
    }

    /// Checks that a stage whose due items may fail has one dead-letter topic.
    fn check_letters(&self, mistakes: &mut Mistakes) {
        for stage in self.stages() {
            let mut stores = self.stores_of(&stage).map(|(_, store)| store);
            if !stores.any(StoreSpec::has_items_that_fail) {
                continue;
            }
            let sources = stage.sources.iter().filter_map(|&at| self.sources.get(at));
            let mut topics = sources.filter_map(|source| source.policy.dead_letter_topic());
            let Some(first) = topics.next() else {
                continue;
            };
            if let Some(second) = topics.find(|topic| *topic != first) {
                mistakes.add(Mistake::TwoDeadLetterTopics {
                    first: first.clone(),
                    second: second.clone(),
                });
            }
        }
    }

    /// Checks that windows behind final results wait for these. Topics between stages are not checked.
    fn check_graces(&self, mistakes: &mut Mistakes) {
        let windows_of =
            |store: usize| Some((self.stores.get(store)?, self.stores.get(store)?.windows?));
        for node in &self.nodes {
            let Kind::OnClose(store) = node.kind else {
                continue;
            };
            let Some((before, results)) = windows_of(store) else {
                continue;
            };
            self.visit_behind(&node.out.children, Duration::ZERO, |node, more| {
                // The results of a later store come with times of its own.
                if matches!(node.kind, Kind::OnClose(_)) {
                    return false;
                }
                let Some((store, windows)) = node.kind.aggregates().and_then(windows_of) else {
                    return true;
                };
                let least = windows.least_grace_behind(&results).saturating_add(more);
                if windows.grace() < least {
                    mistakes.add(Mistake::ShortGrace {
                        store: store.name.to_string(),
                        before: before.name.to_string(),
                        least,
                    });
                }
                true
            });
        }
    }

    /// Checks that no step behind `emit_per_commit` drops late records. All results of a commit see the stream time at its
    /// end, so it would depend on the commits which of them are late.
    fn check_emissions(&self, mistakes: &mut Mistakes) {
        for node in &self.nodes {
            let Kind::PerCommit(before) = node.kind else {
                continue;
            };
            let mut next = node.out.children.clone();
            while let Some(node) = next.pop().and_then(|at| self.nodes.get(at)) {
                next.extend(node.out.children.iter().chain(&node.rest.children));
                let windows = |store: &usize| Some(self.stores.get(*store)?.windows.is_some());
                let late = match node.kind {
                    Kind::JoinThis(join) | Kind::JoinOther(join) => Some(join.rows),
                    Kind::ReorderByTime(store, _) => Some(store),
                    kind => kind.aggregates().filter(|it| windows(it) == Some(true)),
                };
                let stores = (late.and_then(|at| self.stores.get(at))).zip(self.stores.get(before));
                if let Some((store, before)) = stores {
                    mistakes.add(Mistake::BehindPerCommit {
                        store: store.name.to_string(),
                        before: before.name.to_string(),
                    });
                }
            }
        }
    }

    /// Checks that a stage has at most one name, which is valid as a part of a topic name.
    fn check_names(&self, mistakes: &mut Mistakes) {
        for stage in self.stages() {
            let mut names = self.names_of(&stage);
            let Some(first) = names.next() else {
                continue;
            };
            if check_store_name(first).is_err() {
                mistakes.add(Mistake::StageName {
                    name: first.to_owned(),
                });
            }
            if let Some(second) = names.find(|name| *name != first) {
                mistakes.add(Mistake::TwoStageNames {
                    first: first.to_owned(),
                    second: second.to_owned(),
                });
            }
        }
    }

    /// Checks that each topic is read as one type, with one time for each record.
    fn check_types(&self, mistakes: &mut Mistakes) {
        for (at, source) in self.sources.iter().enumerate() {
            let mut before = self.sources.iter().take(at);
            let other_time = |it: &SourceSpec| it.topic == source.topic && it.time != source.time;
            if before.clone().any(other_time) {
                mistakes.add(Mistake::TwoTimes {
                    topic: source.topic.clone(),
                });
            }
            let disagrees =
                |it: &&SourceSpec| it.topic == source.topic && !it.types.agree(&source.types);
            if let Some(other) = before.find(disagrees) {
                mistakes.add(Mistake::TwoTypes {
                    topic: source.topic.clone(),
                    first: other.types.to_string(),
                    second: source.types.to_string(),
                });
            }
        }
    }

    /// Checks that the topics of a stage have the same partitioner.
    fn check_partitioners(&self, mistakes: &mut Mistakes) {
        for stage in self.stages() {
            let sources = stage.sources.iter().filter_map(|&at| self.sources.get(at));
            // The joins choose the partitions of their internal topics.
            let sources = sources.filter(|source| !self.is_between(&source.topic));
            let mut sources = sources.peekable();
            let Some(&first) = sources.peek() else {
                continue;
            };
            if let Some(other) = sources.find(|it| it.partitioner != first.partitioner) {
                let of = |source: &SourceSpec| (source.topic.clone(), source.partitioner.clone());
                mistakes.add(Mistake::Partitioners {
                    first: of(first),
                    second: of(other),
                });
            }
        }
    }

    /// Checks that no record of a source can come back to it, directly or through other sources: as an output of the
    /// graph or as a dead letter. Closures that emit to an output are not checked, because they may do so once only.
    fn check_loops(&self, mistakes: &mut Mistakes) {
        let mut topics: Vec<&TopicName> = self.sources.iter().map(|it| &it.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        for &topic in &topics {
            let Some(through) = self.way_back(topic) else {
                continue;
            };
            // The loop is reported once, for its first topic.
            if through.iter().all(|other| topic < other) {
                mistakes.add(Mistake::Loop {
                    topic: topic.clone(),
                    through,
                });
            }
        }
    }

    /// Returns the topics on the shortest way by which records of a topic come back to it.
    fn way_back(&self, topic: &TopicName) -> Option<Vec<TopicName>> {
        let mut ways = VecDeque::from([Vec::new()]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let last = way.last().unwrap_or(topic);
            for next in self.written_from(last) {
                if next == *topic {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    let mut longer = way.clone();
                    longer.push(next);
                    ways.push_back(longer);
                }
            }
        }
        None
    }

    /// Returns the topics to which records of this topic go: outputs and dead letters.
    fn written_from(&self, topic: &TopicName) -> BTreeSet<TopicName> {
        let sources = self.sources.iter().enumerate();
        let sources = sources.filter(|(_, source)| source.topic == *topic);
        let mut written = BTreeSet::new();
        for (at, source) in sources {
            let nodes = self.behind(&[at]);
            let nodes = nodes.iter().filter_map(|&node| self.nodes.get(node));
            let outputs = nodes.flat_map(|node| node.kind.outputs());
            let outputs = outputs.filter_map(|output| self.outputs.get(output));
            written.extend(outputs.map(|output| output.name.clone()));
            // The check of the policy refuses dead letters to the source itself.
            let letters = source.policy.dead_letter_topic();
            written.extend(letters.filter(|letters| *letters != topic).cloned());
        }
        written
    }

    /// Whether it stores rows that need no exit: those of a topic, or those that a join or a closure reads.
    fn is_a_table(&self, node: &NodeSpec) -> bool {
        let kind = node.kind;
        let is_read = |store| {
            let mut nodes = self.nodes.iter();
            nodes.any(|node| {
                let by_closure = node.kind.has_context() && node.stores.contains(&store);
                node.reads.contains(&store) || by_closure
            })
        };
        match kind {
            _ if node.is_read => true,
            Kind::Table(_) | Kind::ToTable(_) => true,
            Kind::CogroupMerge(store) => is_read(store),
            // Final results and new records are forwarded once, so they need an exit.
            Kind::OnClose(_) | Kind::Dedup(_) => false,
            Kind::DedupBySequence(_) | Kind::Newest(_) => false,
            Kind::ReorderByTime(..) | Kind::Reorder { .. } => false,
            _ => kind.own_store().is_some_and(is_read),
        }
    }

    /// Checks that each internal topic has one writer: records of two writers could not be distinguished.
    pub(super) fn check_internals(&self) -> Result<(), Mistake> {
        let internals = self.internals.iter();
        let names = internals.filter_map(|internal| self.outputs.get(internal.output));
        let mut seen = BTreeSet::new();
        for output in names {
            if !seen.insert(&output.name) {
                return Err(Mistake::SameInternal {
                    name: output.name.clone(),
                });
            }
        }
        let is_internal = |at: usize| self.internals.iter().any(|it| it.output == at);
        let outputs = self.outputs.iter().enumerate();
        let outputs = outputs.filter(|(at, _)| !is_internal(*at));
        let written = outputs.map(|(_, output)| &output.name);
        let letters = self.sources.iter();
        let letters = letters.filter_map(|source| source.policy.dead_letter_topic());
        match written.chain(letters).find(|name| seen.contains(name)) {
            Some(name) => Err(Mistake::OutputIsInternal { name: name.clone() }),
            None => Ok(()),
        }
    }
}
