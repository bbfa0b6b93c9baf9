//! The guarantees of an app's edges, as text and drawing.

use std::fmt;

use eos_protocol::joins::JoinKind;
use eos_protocol::windows::AnyWindows;
use eos_protocol::{Guarantee, Stage, TopicName};

use super::describe::{Described, Description, Global, Role, Subtopology, Used};
use super::graph::{Graph, NodeSpec};
use super::kind::Kind;
use crate::error_policy::{ErrorPolicy, LastResort, Retry};

impl Description {
    /// Returns the guarantee of each edge as text.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees<'_> {
        Guarantees(self)
    }

    /// Returns the graph as a Mermaid flowchart with the guarantee of each edge. Edges that only failed records take
    /// are dashed and labelled.
    #[must_use]
    pub fn mermaid(&self) -> Mermaid<'_> {
        Mermaid(self)
    }
}

/// One end of an edge.
enum End<'d> {
    Topic(&'d TopicName),
    Node(&'d str),
}

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => write!(f, "{topic}"),
            Self::Node(name) => f.write_str(name),
        }
    }
}

struct Edge<'d> {
    from: End<'d>,
    to: End<'d>,
    /// The basis of the guarantee.
    how: String,
    dead_letters: bool,
}

impl Subtopology {
    fn edges(&self, guarantee: Guarantee, ledger: Option<&str>) -> Vec<Edge<'_>> {
        let nodes = self.nodes.iter();
        let letters = nodes.clone().filter_map(|node| match node.role {
            Role::Sink {
                dead_letters: true, ..
            } => Some(node.name.as_str()),
            _ => None,
        });
        let letters: Vec<&str> = letters.collect();
        nodes
            .flat_map(|node| {
                let rows = self.rows_for(node);
                rows.chain(node.edges(guarantee, ledger, &letters))
            })
            .collect()
    }

    /// Returns the edges to a join or a closure from the tables that it reads. These tables are not its parents.
    fn rows_for<'d>(&'d self, node: &'d Described) -> impl Iterator<Item = Edge<'d>> {
        let asked = node.stores().iter().filter(|used| used.changelog.is_none());
        let keeper = |used: &Used| {
            let keeps = |other: &&Described| {
                let kept = other
                    .stores()
                    .iter()
                    .filter(|kept| kept.changelog.is_some());
                kept.clone().any(|kept| kept.name == used.name)
            };
            self.nodes.iter().find(keeps)
        };
        asked.filter_map(move |used| {
            Some(Edge {
                from: End::Node(&keeper(used)?.name),
                to: End::Node(&node.name),
                how: match used.of_all_keys {
                    true => format!("in memory; rows of the store {}", used.name),
                    false => format!(
                        "in memory; the row of each record's key, of the store {}",
                        used.name
                    ),
                },
                dead_letters: false,
            })
        })
    }
}

impl Described {
    fn stores(&self) -> &[Used] {
        match &self.role {
            Role::Processor { stores } => stores,
            _ => &[],
        }
    }

    /// Returns the edges from topics to this node, and the edges from this node. `letters` are the sinks of dead
    /// letters.
    fn edges(&self, guarantee: Guarantee, ledger: Option<&str>, letters: &[&str]) -> Vec<Edge<'_>> {
        let mut edges = Vec::new();
        let mut add = |from, to, how: String, dead_letters| {
            edges.push(Edge {
                from,
                to,
                how,
                dead_letters,
            });
        };
        let here = || End::Node(&self.name);
        if let Role::Source { topic, policy, .. } = &self.role {
            let how = match guarantee {
                Guarantee::AtLeastOnce => {
                    "the offset commits once the outputs are acknowledged, and a crash in between \
                     repeats them"
                }
                Guarantee::AtMostOnce => {
                    "the offset commits before the record is processed, and a crash in between loses it"
                }
                _ => "the offset commits in the transaction of the outputs",
            };
            let how = match ledger {
                Some(ledger) => {
                    format!("the position commits in the transaction of the rows, in {ledger}")
                }
                None => how.to_owned(),
            };
            let how = format!("{how}; a record that fails {}", on_error(policy));
            add(End::Topic(topic), here(), how, false);
        }
        for (at, to) in self.to.iter().enumerate() {
            let failed = letters.contains(&to.as_str());
            let only = if failed {
                "only records that fail; "
            } else {
                ""
            };
            let promise = self.promise.as_ref();
            let promise = promise.filter(|_| !failed && at < self.promised);
            let again = match guarantee {
                Guarantee::AtLeastOnce => "; a crash may repeat results",
                _ => "",
            };
            let promise = promise.map_or(String::new(), |promise| format!("; {promise}{again}"));
            let how = format!("{only}in memory{promise}");
            add(here(), End::Node(to), how, failed);
        }
        let kept = self.stores().iter();
        let mut changelogs: Vec<&TopicName> = kept.filter_map(|s| s.changelog.as_ref()).collect();
        changelogs.dedup();
        for changelog in changelogs {
            let kept = self.stores().iter();
            let kept = kept.filter(|used| used.changelog.as_ref() == Some(changelog));
            let kept: Vec<&str> = kept.map(|used| &used.name[..]).collect();
            let kept = kept.join(" and ");
            let how = match guarantee {
                Guarantee::AtLeastOnce => format!(
                    "changes of {kept} are acknowledged before the offset commits and survive a restart, and \
                     a crash in between counts the records twice"
                ),
                _ => format!("changes of {kept} commit in that transaction and survive a restart"),
            };
            add(here(), End::Topic(changelog), how, false);
        }
        if let Role::Sink {
            topic,
            dead_letters,
        } = &self.role
        {
            let how = match ledger {
                Some(ledger) => format!("exactly once for all readers of {ledger}"),
                None => reading(guarantee).to_owned(),
            };
            add(here(), End::Topic(topic), how, *dead_letters);
        }
        edges
    }
}

impl Graph {
    /// Returns the guarantee of a node for its results, if it exceeds the processing of each record.
    pub(super) fn promise(&self, stage: &Stage, node: &NodeSpec) -> Option<String> {
        match node.kind {
            Kind::OnClose(store) => {
                let what = match self.stores.get(store)?.windows? {
                    AnyWindows::Session(_) => "session",
                    AnyWindows::Fixed(_) | AnyWindows::Sliding(_) => "window",
                };
                let idle = self.idle_of(stage).next();
                let idle = idle.map(|after| {
                    format!(", or the clock {after:?} behind, while no records arrive")
                });
                Some(format!(
                    "each {what} once, when stream time passes its end and grace{}",
                    idle.unwrap_or_default()
                ))
            }
            Kind::JoinGlobal(_) | Kind::LeftJoinGlobal(_) => Some(
                "the row is the newest known one, and may differ if the record is repeated"
                    .to_owned(),
            ),
            Kind::JoinWithin(join) => {
                let alone = match join.kind {
                    JoinKind::Inner => return Some("each pair once".to_owned()),
                    JoinKind::Left => "each left record without a pair",
                    JoinKind::Outer => "each record without a pair",
                };
                let idle = self.idle_of(stage).next();
                let idle = idle.map(|after| {
                    format!(", or the clock {after:?} behind, while no records arrive")
                });
                Some(format!(
                    "each pair once, and {alone} once, when stream time passes its last partner and the grace{}",
                    idle.unwrap_or_default()
                ))
            }
            Kind::ForeignResult(..) => Some(
                "each update of either row once; no result is older than the one before".to_owned(),
            ),
            Kind::MapAsync(_) => Some("a call may repeat, but its result counts once".to_owned()),
            Kind::Dedup(store) => {
                let store = &self.stores.get(store)?.name;
                Some(format!(
                    "one record per id and scope is new within the window of {store}"
                ))
            }
            Kind::DedupBySequence(_) => Some(
                "at most one record per number of a producer's epoch is new, in ascending order"
                    .to_owned(),
            ),
            Kind::Newest(_) => {
                Some("only a version above all earlier ones of its key is accepted".to_owned())
            }
            Kind::ReorderByTime(_, wait) => Some(format!(
                "ordered by timestamp, except for records that are more than {wait:?} late"
            )),
            Kind::Reorder { .. } => {
                Some("ordered by number within each key, except for late records".to_owned())
            }
            _ => None,
        }
    }
}

impl Global {
    fn write_guarantees(&self, f: &mut fmt::Formatter<'_>, guarantee: Guarantee) -> fmt::Result {
        let Self { name, topic, .. } = self;
        let failed = if self.skips {
            "is skipped"
        } else {
            "stops the app"
        };
        writeln!(
            f,
            "Global table: {name}, one copy in each process, of all partitions of {topic}"
        )?;
        writeln!(
            f,
            "  {topic} --> {name}: committed records, without a transaction; a record that can't be decoded {failed}"
        )?;
        for join in &self.joins {
            writeln!(
                f,
                "  {name} --> {join}: each record is processed {}; its row is the newest known one, and may differ in a \
                 repetition",
                guarantee.name()
            )?;
        }
        Ok(())
    }
}

/// Returns the meaning of a guarantee for the consumers of an output.
fn reading(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::AtLeastOnce => "a crash or a rebalance may repeat records",
        Guarantee::AtMostOnce => "a crash may lose records",
        _ => "for consumers with isolation.level=read_committed",
    }
}

fn on_error(policy: &ErrorPolicy) -> String {
    let last = match policy.last() {
        LastResort::Fail => "stops the worker".into(),
        LastResort::Skip => "is skipped".into(),
        LastResort::DeadLetter(topic) if policy.sequence().is_some() => {
            format!("goes to {topic}, with the later records of its key")
        }
        LastResort::DeadLetter(topic) => format!("goes to {topic}"),
        LastResort::Pause(None) => "pauses its task".into(),
        LastResort::Pause(Some(topic)) => {
            format!("pauses its task; `Resume::DeadLetter` writes it to {topic}")
        }
    };
    match policy.tries().map(Retry::times) {
        None => last,
        Some(Some(times)) => format!("is retried {times} times at most, then {last}"),
        Some(None) => {
            format!("is retried until it succeeds; if no retry can help, it {last}")
        }
    }
}

/// The guarantee of each edge of an app. Returned by [`Description::guarantees`].
#[derive(Debug, Clone, Copy)]
pub struct Guarantees<'d>(&'d Description);

impl fmt::Display for Guarantees<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guarantee = self.0.guarantee;
        for (id, subtopology) in self.0.subtopologies.iter().enumerate() {
            let topics: Vec<&str> = subtopology.topics.iter().map(TopicName::as_str).collect();
            let siblings = if topics.len() > 1 {
                ", read together in order of time"
            } else {
                ""
            };
            let topics = topics.join(" and ");
            writeln!(
                f,
                "Sub-topology: {id}, one task for each partition of {topics}{siblings}"
            )?;
            for edge in subtopology.edges(guarantee, self.0.ledger.as_deref()) {
                let Edge { from, to, how, .. } = edge;
                writeln!(f, "  {from} --> {to}: {}; {how}", guarantee.name())?;
            }
        }
        for table in &self.0.globals {
            table.write_guarantees(f, guarantee)?;
        }
        if let Some(ledger) = &self.0.ledger {
            writeln!(
                f,
                "note: after a failover of {ledger} that loses commits, the app writes rows again, as long as Kafka keeps \
                 their records"
            )?;
        }
        for topic in &self.0.fed {
            writeln!(
                f,
                "warning: closures may write to {topic}, which the app reads, so a record could be processed endlessly"
            )?;
        }
        Ok(())
    }
}

/// A drawing of an app. Returned by [`Description::mermaid`].
#[derive(Debug, Clone, Copy)]
pub struct Mermaid<'d>(&'d Description);

impl fmt::Display for Mermaid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guarantee = self.0.guarantee;
        let mut topics: Vec<&TopicName> = Vec::new();
        writeln!(f, "flowchart LR")?;
        for (id, subtopology) in self.0.subtopologies.iter().enumerate() {
            writeln!(f, "  subgraph s{id}[\"Sub-topology {id}\"]")?;
            for (at, node) in subtopology.nodes.iter().enumerate() {
                writeln!(f, "    s{id}n{at}[\"{}\"]", node.name)?;
            }
            writeln!(f, "  end")?;
            for edge in subtopology.edges(guarantee, self.0.ledger.as_deref()) {
                // A node may be in several sub-topologies, but a topic is the same in all of them.
                let mut name = |end| match end {
                    End::Node(name) => {
                        let at = subtopology.nodes.iter().position(|n| n.name == name);
                        format!("s{id}n{}", at.unwrap_or_default())
                    }
                    End::Topic(topic) => {
                        let known = topics.iter().position(|t| *t == topic);
                        let at = known.unwrap_or(topics.len());
                        if known.is_none() {
                            topics.push(topic);
                        }
                        format!("t{at}[(\"{topic}\")]")
                    }
                };
                let (from, to) = (name(edge.from), name(edge.to));
                let (line, which) = if edge.dead_letters {
                    ("-.->", ", records that fail")
                } else {
                    ("-->", "")
                };
                writeln!(f, "  {from} {line}|{}{which}| {to}", guarantee.name())?;
            }
            for (number, table) in self.0.globals.iter().enumerate() {
                let nodes = subtopology.nodes.iter().enumerate();
                for (at, _) in nodes.filter(|(_, node)| table.joins.contains(&node.name)) {
                    let (name, topic) = (&table.name, &table.topic);
                    writeln!(
                        f,
                        "  g{number}[(\"{topic}\")] -->|newest row of {name}| s{id}n{at}"
                    )?;
                }
            }
        }
        Ok(())
    }
}
