//! Faults of requests, which rules inject and count.
//!
//! ```text
//!   request ─► a rule that matches? ─► before: drop, disconnect, refuse, hold back
//!                     │                after:  keep the response, delay it, disconnect, apply it twice
//!                     └─► counted: a test asserts that its fault fired
//! ```
//! A rule is part of the model, so a simulation has the same fault at the same place in each run.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, RequestKind};

mod about;

pub(crate) use about::About;

/// The effect of a rule on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// The request is applied this many milliseconds later, even if its client has disconnected by then.
    DelayRequest(i64),
    /// The request is applied at once, and its response comes this many milliseconds later.
    DelayAnswer(i64),
    /// The request never arrives. The connection stays open, but no later request on it arrives either, until its
    /// client closes it. TCP delivers in order or not at all.
    DropRequest,
    /// The request is applied, but its response never arrives. The connection stays open, but no later request on it is
    /// applied or has a response, until its client closes it. A broker takes no request from a connection before it has
    /// sent the response to the previous one.
    DropAnswer,
    /// The request is applied twice. Only the first response is sent.
    Duplicate,
    /// The request is not applied, and the response has this error. Some responses have no field for an error of their
    /// own, such as those of requests that name several topics or configurations. For these requests, the connection is
    /// closed.
    Refuse(ResponseError),
    /// The connection is closed before the request is applied.
    DisconnectBefore,
    /// The connection is closed after the request was applied, instead of a response.
    DisconnectAfter,
}

/// A rule: the requests that it matches, and its effect on them.
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
    /// Returns a rule for every request of one kind.
    pub fn on(key: ApiKey, act: Act) -> Rule {
        Rule::on_any(&[key], act)
    }

    /// Returns a rule for every request of several kinds.
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

    /// Returns a rule that moves the coordinators away until a moment. All requests to a coordinator fail with
    /// NOT_COORDINATOR.
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

    /// Matches only clients whose `client.id` begins with `prefix`.
    pub fn client(mut self, prefix: impl Into<String>) -> Rule {
        self.client = Some(prefix.into());
        self
    }

    /// Matches only requests about a topic: one of its partitions, the whole topic, or all topics. Does not match
    /// requests that name the topic by its id.
    pub fn topic(mut self, topic: impl Into<String>) -> Rule {
        self.partition = Some((topic.into(), None));
        self
    }

    /// Matches only requests about a partition, including those about its whole topic.
    pub fn partition(mut self, topic: impl Into<String>, partition: i32) -> Rule {
        self.partition = Some((topic.into(), Some(partition)));
        self
    }

    /// Matches only this group or transactional id.
    pub fn name(mut self, name: impl Into<String>) -> Rule {
        self.name = Some(name.into());
        self
    }

    /// Skips the first `count` matching requests.
    pub fn skip(mut self, count: u64) -> Rule {
        self.skip = count;
        self
    }

    /// Limits how often the fault fires.
    pub fn times(mut self, count: u64) -> Rule {
        self.times = Some(count);
        self
    }

    /// Limits the rule to the time before this moment, in milliseconds since the epoch.
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

/// The id of an added rule.
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

    /// Returns the effect on a request, from the first rule that matches.
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
