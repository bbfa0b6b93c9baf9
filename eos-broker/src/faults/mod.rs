//! Faults on purpose: which requests, what happens to them, how often it did.
//!
//! ```text
//!   request ─► a rule that matches? ─► before: drop, disconnect, refuse, hold back
//!                     │                after:  keep the answer, delay it, disconnect, apply it twice
//!                     └─► counted: a test asserts that its fault fired
//! ```
//! A rule is part of the model, so a simulation hurts itself in the same way at the same place.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, RequestKind};

mod about;

pub(crate) use about::About;

/// What happens to a request that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// It is applied this many milliseconds later, even if its client is gone by then.
    DelayRequest(i64),
    /// It is applied at once, and answered this many milliseconds later.
    DelayAnswer(i64),
    /// It never arrives. The connection stays open, and nothing that is sent behind it arrives either, until
    /// its client closes it: TCP delivers in order or not at all.
    DropRequest,
    /// It is applied, but its answer never arrives. The connection stays open, and nothing that is sent behind
    /// it is applied or answered, until its client closes it: a broker takes no request from a connection
    /// before the answer to the one before has left.
    DropAnswer,
    /// It is applied twice; the first answer counts.
    Duplicate,
    /// It is not applied, and answered with this error. Where an answer has no place for an error of its
    /// own (those about topics and configurations that one request names many of) the connection is closed.
    Refuse(ResponseError),
    /// Its connection is closed before it is applied.
    DisconnectBefore,
    /// Its connection is closed after it was applied, instead of an answer.
    DisconnectAfter,
}

/// Which requests, and what happens to them.
///
/// # Example
/// ```
/// use eos_broker::faults::{Act, Rule};
/// use kafka_protocol::messages::ApiKey;
///
/// // The second EndTxn from client ids that begin with "copy" loses its response.
/// let rule = Rule::on(ApiKey::EndTxn, Act::DropAnswer).client("copy").skip(1).times(1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Rule {
    keys: Vec<ApiKey>,
    act: Act,
    client: Option<String>,
    partition: Option<(String, Option<i32>)>,
    name: Option<String>,
    skip: u64,
    times: Option<u64>,
    until: Option<i64>,
}

impl Rule {
    /// Every request of one kind.
    pub fn on(key: ApiKey, act: Act) -> Rule {
        Rule::on_any(&[key], act)
    }

    /// Every request of several kinds.
    pub fn on_any(keys: &[ApiKey], act: Act) -> Rule {
        Rule {
            keys: keys.to_vec(),
            act,
            client: None,
            partition: None,
            name: None,
            skip: 0,
            times: None,
            until: None,
        }
    }

    /// The coordinators have moved elsewhere, until a moment: everything that goes to one is answered
    /// with NOT_COORDINATOR.
    pub fn not_coordinator(until: i64) -> Rule {
        let keys = [
            ApiKey::InitProducerId,
            ApiKey::AddPartitionsToTxn,
            ApiKey::AddOffsetsToTxn,
            ApiKey::TxnOffsetCommit,
            ApiKey::EndTxn,
            ApiKey::JoinGroup,
            ApiKey::SyncGroup,
            ApiKey::Heartbeat,
            ApiKey::LeaveGroup,
            ApiKey::OffsetCommit,
            ApiKey::OffsetFetch,
            ApiKey::OffsetDelete,
            ApiKey::DescribeGroups,
            ApiKey::DeleteGroups,
            ApiKey::DescribeTransactions,
        ];
        Rule::on_any(&keys, Act::Refuse(ResponseError::NotCoordinator)).until(until)
    }

    /// Only of clients whose `client.id` begins so.
    pub fn client(mut self, prefix: impl Into<String>) -> Rule {
        self.client = Some(prefix.into());
        self
    }

    /// Only what touches a topic: one of its partitions, it as a whole, or all topics there are. What names it
    /// by its id is not found.
    pub fn topic(mut self, topic: impl Into<String>) -> Rule {
        self.partition = Some((topic.into(), None));
        self
    }

    /// Only what touches a partition, be it with its topic as a whole.
    pub fn partition(mut self, topic: impl Into<String>, partition: i32) -> Rule {
        self.partition = Some((topic.into(), Some(partition)));
        self
    }

    /// Only of this group or transactional id.
    pub fn name(mut self, name: impl Into<String>) -> Rule {
        self.name = Some(name.into());
        self
    }

    /// Lets the first ones pass.
    pub fn skip(mut self, count: u64) -> Rule {
        self.skip = count;
        self
    }

    /// No more often than this.
    pub fn times(mut self, count: u64) -> Rule {
        self.times = Some(count);
        self
    }

    /// Until this moment, in milliseconds since the epoch.
    pub fn until(mut self, moment: i64) -> Rule {
        self.until = Some(moment);
        self
    }

    fn matches(&self, key: ApiKey, client: &str, about: &About, now: i64) -> bool {
        self.keys.contains(&key)
            && self.until.is_none_or(|until| now < until)
            && self.client.as_ref().is_none_or(|it| client.starts_with(it))
            && self.name.as_ref().is_none_or(|it| about.names.contains(it))
            && self
                .partition
                .as_ref()
                .is_none_or(|(topic, partition)| about.touches(topic, *partition))
    }
}

/// Names a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(usize);

#[derive(Debug)]
struct Active {
    rule: Rule,
    passed: u64,
    fired: u64,
    removed: bool,
}

/// All rules of one broker.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Active>,
    active: usize,
}

impl Faults {
    pub(crate) fn add(&mut self, rule: Rule) -> RuleId {
        self.rules.push(Active {
            rule,
            passed: 0,
            fired: 0,
            removed: false,
        });
        self.active += 1;
        RuleId(self.rules.len() - 1)
    }

    pub(crate) fn remove(&mut self, id: RuleId) {
        if let Some(active) = self.rules.get_mut(id.0)
            && !active.removed
        {
            active.removed = true;
            self.active -= 1;
        }
    }

    pub(crate) fn fired(&self, id: RuleId) -> u64 {
        self.rules.get(id.0).map_or(0, |active| active.fired)
    }

    /// What happens to a request: the first rule that matches says so.
    pub(crate) fn on(
        &mut self,
        key: ApiKey,
        client: &str,
        request: &RequestKind,
        now: i64,
    ) -> Option<Act> {
        if self.active == 0 {
            return None;
        }
        let about = About::of(request);
        for active in self.rules.iter_mut().filter(|it| !it.removed) {
            let spent = active.rule.times.is_some_and(|times| active.fired >= times);
            if spent || !active.rule.matches(key, client, &about, now) {
                continue;
            }
            if active.passed < active.rule.skip {
                active.passed += 1;
                continue;
            }
            active.fired += 1;
            return Some(active.rule.act.clone());
        }
        None
    }
}
