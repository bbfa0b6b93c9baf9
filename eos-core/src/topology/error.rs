//! Errors of an app's graph.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::calls::CallPlanError;
use eos_protocol::identity::SeenWindowError;
use eos_protocol::windows::WindowError;
use eos_protocol::{Guarantee, TopicName};

use crate::error_policy::{ErrorPolicy, PolicyError};
use crate::reorder::OrderError;

/// The mistakes in an app's graph: all of them, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyError(Vec<Mistake>);

impl TopologyError {
    /// The mistakes; at least one.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.0
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [mistake] = &self.0[..] {
            return mistake.fmt(f);
        }
        write!(f, "the app has {} mistakes:", self.0.len())?;
        self.0
            .iter()
            .try_for_each(|mistake| write!(f, "\n- {mistake}"))
    }
}

impl std::error::Error for TopologyError {}

/// A collector of distinct mistakes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(crate) fn add(&mut self, mistake: Mistake) {
        if !self.0.contains(&mistake) {
            self.0.push(mistake);
        }
    }

    pub(super) fn check(&mut self, result: Result<(), Mistake>) {
        if let Err(mistake) = result {
            self.add(mistake);
        }
    }

    pub(super) fn none(self) -> Result<(), TopologyError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(TopologyError(self.0))
        }
    }
}

/// A mistake in an app's graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// The app has no source.
    #[error("the app has no source. Begin with `app.source(&topic)`")]
    Empty,
    /// A replay decides about letters of a topic that it does not write to.
    #[error(
        "the replay decides about letters of the topic {topic}, but its topics are [{known}]. Correct the name, or add \
         `.to({topic:?})`"
    )]
    ReplayTopic {
        /// The topic of the decision.
        topic: String,
        /// The topics of the replay.
        known: String,
    },
    /// A replay writes to no topic.
    #[error("the replay has no topic of origin. Name the topics of its letters with `.to(topic)`")]
    ReplayWithoutTopic,
    /// A step writes to a place of a ledger, and the app has none.
    #[error(
        "a step writes rows to {place}, but the app has no ledger, which would commit them. Declare it with \
         `app.ledger(&ledger)`"
    )]
    PlaceWithoutLedger {
        /// The place.
        place: String,
    },
    /// An app has two ledgers.
    #[error(
        "the app has the ledgers {first} and {second}, but one transaction commits in one of them only. Use two apps, with \
         a topic between them"
    )]
    TwoLedgers {
        /// The first one.
        first: String,
        /// The second one.
        second: String,
    },
    /// Two steps write to one place.
    #[error(
        "two steps write to {name}, but the rows of a transaction are sorted for each step. Merge the streams, or write to \
         two tables"
    )]
    SamePlace {
        /// The place.
        name: String,
    },
    /// A step writes to a topic, and the app has a ledger.
    #[error(
        "the step `{step}` writes to the topic {topic}, but the app commits its transactions in {ledger}, and no transaction \
         includes both. Write both to topics in an app without a ledger, and let a second app write the rows to {ledger}"
    )]
    TopicBesideLedger {
        /// The step.
        step: &'static str,
        /// The topic.
        topic: TopicName,
        /// The ledger.
        ledger: String,
    },
    /// A step keeps state, and the app has a ledger.
    #[error(
        "the app keeps state in {store}, but it commits its transactions in {ledger}, and a changelog is not part of them. \
         Keep the state in an app without a ledger, and let this app read its output topic"
    )]
    StateBesideLedger {
        /// The store.
        store: String,
        /// The ledger.
        ledger: String,
    },
    /// An app has a ledger, and its guarantee is not exactly once.
    #[error(
        "the app commits its transactions in {ledger}, which is always exactly once, but processing.guarantee = {name}. \
         Remove the setting", name = guarantee.property_value()
    )]
    LedgerGuarantee {
        /// The ledger.
        ledger: String,
        /// The guarantee.
        guarantee: Guarantee,
    },
    /// A step keeps state, and the guarantee is at most once.
    #[error(
        "the step `{step}` keeps state in {name}, but processing.guarantee = at_most_once is for apps without state: \
         a crash would lose records from the state. Use Guarantee::AtLeastOnce or Guarantee::ExactlyOnce, or remove \
         the step"
    )]
    StateAtMostOnce {
        /// The step.
        step: &'static str,
        /// The name of its store or timer.
        name: String,
    },
    /// A step makes asynchronous calls, and the guarantee is at most once.
    #[error(
        "the calls {name} of `map_async` start before the offsets of their records are committed, so a crash may repeat \
         them, but processing.guarantee = at_most_once. Make the call in `try_map`, or use Guarantee::AtLeastOnce or \
         Guarantee::ExactlyOnce"
    )]
    CallsAtMostOnce {
        /// The name of the calls.
        name: String,
    },
    /// A step drops repeated records, and the guarantee is at least once.
    #[error(
        "the step `{step}` remembers records in {name}, but under processing.guarantee = at_least_once a record that is \
         repeated after a crash would count as its own duplicate or as late, and would be lost. Use \
         Guarantee::ExactlyOnce, or remove the step"
    )]
    DedupAtLeastOnce {
        /// The step.
        step: &'static str,
        /// The name of its store.
        name: String,
    },
    /// A step compares a record with its state to find its results, and the guarantee is at least once.
    #[error(
        "the step `{step}` compares each record with the rows before it, but under processing.guarantee = at_least_once a \
         crash may keep the new row and lose the result, and no repetition of the record has that result again. Use \
         Guarantee::ExactlyOnce, or remove the step"
    )]
    ChangesAtLeastOnce {
        /// The step.
        step: &'static str,
    },
    /// A step needs the rows of a table in a store, and the table has none.
    #[error(
        "`{method}` needs a table with a store, but this table is derived from other tables. Add `.stored(&store)` \
         before `.{method}(..)`"
    )]
    NotStored {
        /// The method.
        method: &'static str,
    },
    /// Two joined tables are derived from the same table, and the join has no store.
    #[error(
        "`{method}` joins two tables that are derived from the same table. An update of that table changes both rows at \
         once, so only a store has the previous result. Add `.stored(&store)` after `.{method}(..)`"
    )]
    RelatedTables {
        /// The method.
        method: &'static str,
    },
    /// A chain has no end.
    #[error(
        "the chain that reads {topic} ends in `{kind}`, so its records go nowhere. End it with \
         `.to(&topic)`, `.route(..)`, `.for_each(..)` or `.ignore()`{}",
        if *kind == "branch" {
            "; to use only one of the two streams, call `.filter(..)` instead"
        } else {
            ""
        }
    )]
    Dangling {
        /// The source's topic.
        topic: TopicName,
        /// The kind of the last node.
        kind: &'static str,
    },
    /// A topic's name is not valid in Kafka.
    #[error(
        "{topic:?} is not a valid topic name. Use 1 to 249 letters, digits, dots, underscores and hyphens, but \
         neither \".\" nor \"..\""
    )]
    TopicName {
        /// The name.
        topic: TopicName,
    },
    /// An error policy is invalid.
    #[error("the error policy of the source {topic}: {reason}")]
    ErrorPolicy {
        /// The source's topic.
        topic: TopicName,
        /// The cause.
        reason: PolicyError,
    },
    /// A source has two error policies.
    #[error(
        "the source {topic} has two error policies, {first} and {second}. A policy applies to the whole \
         source and to every branch of it. Keep one call of `on_error`. If a branch needs its own \
         policy, write it to a topic and read that with `app.source(..)`"
    )]
    TwoPolicies {
        /// The source's topic.
        topic: TopicName,
        /// The policy that was set first.
        first: Box<ErrorPolicy>,
        /// The other policy.
        second: Box<ErrorPolicy>,
    },
    /// A store's name is not valid.
    #[error(
        "{name:?} is not a valid store name. Use 1 to 100 letters, digits, dots, underscores and hyphens"
    )]
    StoreName {
        /// The name.
        name: String,
    },
    /// Two stores have the same name or the same number.
    #[error(
        "{}",
        if first == second {
            format!(
                "two stores are called {first}. Give one of them another name. To share one store, declare it once, and \
                 pass the handle of `app.store(..)` or the same table to both steps"
            )
        } else {
            format!(
                "the stores {first} and {second} would have the same number in the changelog. Give one of them another name"
            )
        }
    )]
    SameStore {
        /// The store that was declared first.
        first: String,
        /// The other store.
        second: String,
    },
    /// No step handles a timer.
    #[error(
        "no step handles the timer {name}. Add `.on_timer(&{name}, |ctx, due| ..)` before the closure that sets it, \
         add `.with_timer(&{name})` before the `Processor` that sets it, or remove the timer"
    )]
    UnhandledTimer {
        /// The timer.
        name: String,
    },
    /// Several steps handle a timer, or one step handles it twice.
    #[error(
        "the timer {name} has several handlers. Keep one of them, or declare another timer for each step"
    )]
    TwoTimerHandlers {
        /// The timer.
        name: String,
    },
    /// The period of a tick is too short.
    #[error(
        "the period of the tick {name} is less than a millisecond. Use at least one millisecond"
    )]
    TickPeriod {
        /// The tick.
        name: String,
    },
    /// No stream uses a store.
    #[error(
        "no stream has the store {name}. Add `.with_store(&{name})` before the closure that uses it, \
         or remove the store"
    )]
    UnusedStore {
        /// The store.
        name: String,
    },
    /// Windows have an invalid size or grace.
    #[error("the windows of the store {store}: {reason}")]
    Windows {
        /// The store with their results.
        store: String,
        /// The cause.
        reason: WindowError,
    },
    /// A `SeenIds` has invalid durations.
    #[error("the SeenIds {store}: {reason}")]
    SeenIds {
        /// The name of the `SeenIds`.
        store: String,
        /// The cause.
        reason: SeenWindowError,
    },
    /// A store's retention is shorter than its windows.
    #[error(
        "the store {store} keeps windows for {retention:?} after their start, but they accept records for \
         {least:?} (size plus grace). Remove `.retention(..)`, or make it at least that long"
    )]
    Retention {
        /// The store.
        store: String,
        /// The declared retention.
        retention: Duration,
        /// The minimum retention.
        least: Duration,
    },
    /// An order of records is invalid.
    #[error("the order with the store {store}: {reason}")]
    Order {
        /// The store of the waiting records.
        store: String,
        /// The cause.
        reason: OrderError,
    },
    /// Windows or a join would drop results of an earlier join as late.
    #[error(
        "the store {store} would drop results of the store {before} as late: these results are emitted up to {least:?} \
         after their timestamps. Give the windows or the join of {store} a grace of at least {needed:?}"
    )]
    ShortGraceOfJoin {
        /// The store of the windows or the later join.
        store: String,
        /// The store of the earlier step.
        before: String,
        /// How long the earlier step holds results back.
        least: Duration,
        /// The minimum grace.
        needed: Duration,
    },
    /// A step that drops late records is behind `emit_per_commit`, in one stage.
    #[error(
        "the store {store} receives results of `emit_per_commit` of the store {before} in one stage. All results of a commit \
         see the stream time at the end of the commit, so it depends on the commits which results are late. Remove \
         `emit_per_commit`, or put a `repartition` between them"
    )]
    BehindPerCommit {
        /// The store of the windows, the join or the order.
        store: String,
        /// The store of the results.
        before: String,
    },
    /// Windows would drop final results of earlier windows as late.
    #[error(
        "the windows of the store {store} would drop final results of the store {before}: these come after their windows \
         have closed. Give the windows of {store} a grace of at least {least:?}"
    )]
    ShortGrace {
        /// The store of the later windows.
        store: String,
        /// The store of the earlier windows.
        before: String,
        /// The minimum grace.
        least: Duration,
    },
    /// A table emits updates per commit, and then only final results.
    #[error(
        "the table of the store {store} has both `emit_per_commit` and `emit_on_close`, but `emit_on_close` emits no updates. Remove \
         `emit_per_commit`"
    )]
    UpdatesOfFinal {
        /// The store.
        store: String,
    },
    /// The time of `close_when_idle` is too short.
    #[error(
        "`close_when_idle({after:?})` is too short: the worker queries inputs every half second. Use at least {:?}",
        eos_protocol::IdleTime::LEAST
    )]
    IdleTooShort {
        /// The configured time.
        after: Duration,
    },
    /// A stage has two times for `close_when_idle`.
    #[error(
        "one stage has `close_when_idle({first:?})` and `close_when_idle({second:?})`, but its topics have one stream time. \
         Use one of them"
    )]
    TwoIdleTimes {
        /// The first time.
        first: Duration,
        /// The second time.
        second: Duration,
    },
    /// Two chains read a topic, and their policies differ although one has sequenced dead letters.
    #[error(
        "the topic {topic} is read twice, with the error policies {first} and {second}. A record becomes a sequenced dead \
         letter for all chains that read it. Give both the same policy"
    )]
    SequenceOfOneChain {
        /// The topic.
        topic: TopicName,
        /// The policy of the first source.
        first: Box<ErrorPolicy>,
        /// The policy of the second source.
        second: Box<ErrorPolicy>,
    },
    /// A stage with timers, final results, waiting records or foreign keys has two dead-letter topics.
    #[error(
        "one stage has timers, final results, records that wait for their turn, or updates of a foreign-key join, and its \
         sources name the dead-letter topics {first} and {second}. Such an item belongs to no source if it fails. Name the \
         same topic in each `on_error`"
    )]
    TwoDeadLetterTopics {
        /// The first topic.
        first: TopicName,
        /// The second topic.
        second: TopicName,
    },
    /// A stage with `close_when_idle` has nothing that depends on stream time.
    #[error(
        "`close_when_idle({after:?})` has no effect: its stage has no windows, no event-time timers or ticks, and no rows that \
         expire. A stage ends at `repartition`. Remove `close_when_idle`, or write the stream to a topic with `to`, and read \
         that topic with `close_when_idle` in another app"
    )]
    IdleWithoutTime {
        /// The configured time.
        after: Duration,
    },
    /// A stage with `close_when_idle` reads a topic that the app writes.
    #[error(
        "a stage with `close_when_idle` reads {topic}, which the app itself writes. An idle topic does not prove that the \
         writing stage has nothing more to write, so later records may be late. Remove `close_when_idle` from this stage, or write {topic} in \
         another app"
    )]
    IdleOwnTopic {
        /// The topic.
        topic: TopicName,
    },
    /// The time after which rows expire is too short.
    #[error(
        "`expire_after({after:?})` of the store {store} is too short: the minimum is 1 ms. Pass at least \
         `Duration::from_millis(1)`"
    )]
    ExpireAfter {
        /// The store.
        store: String,
        /// The configured time.
        after: Duration,
    },
    /// The store of an operator expires rows.
    #[error(
        "the store {store} belongs to an operator, which does not expire rows. Remove `.expire_after(..)`, or keep the rows in \
         a closure with `ctx.store(..)`"
    )]
    ExpiringOperator {
        /// The store.
        store: String,
    },
    /// A topic is read with different times.
    #[error(
        "the sources of the topic {topic} have different `time_by` closures, or only some have one. A task reads each record \
         once, with one timestamp. Use one definition of the topic, or clones of it, for all sources"
    )]
    TwoTimes {
        /// The topic.
        topic: TopicName,
    },
    /// A window store of a closure has no retention.
    #[error(
        "the window store {store} has no retention. Add `.retention(..)` of at least 1 ms; it has no default in \
         stores of closures"
    )]
    NoRetention {
        /// The store.
        store: String,
    },
    /// Two internal topics would have the same name.
    #[error(
        "two internal topics would have the name {name}. The changelog topic of a stage is named after the app \
         and the first of the stage's topics in alphabetical order, without the app's name in front of that. Name the \
         stage with `.stage(\"..\")`"
    )]
    SameInternal {
        /// The name.
        name: TopicName,
    },
    /// The app writes to one of its own internal topics.
    #[error(
        "the app writes to {name}, which is one of its own internal topics, so its output would mix with \
         internal records. Give the output or the dead-letter topic another name"
    )]
    OutputIsInternal {
        /// The name.
        name: TopicName,
    },
    /// The app writes records of a source back to the source's topic.
    #[error(
        "records of the source {topic} are written to {topic} again{}, so the app would process them endlessly. \
         Write them to another topic",
        match &through[..] {
            [] => String::new(),
            [one] => format!(" through the source {one}"),
            more => {
                let names: Vec<&str> = more.iter().map(TopicName::as_str).collect();
                format!(" through the sources {}", names.join(", "))
            }
        }
    )]
    Loop {
        /// The topic.
        topic: TopicName,
        /// The topics of the other sources on the way.
        through: Vec<TopicName>,
    },
    /// A stage's name is not valid in a topic name.
    #[error(
        "{name:?} is not a valid stage name. Use 1 to 100 letters, digits, dots, underscores and hyphens"
    )]
    StageName {
        /// The name.
        name: String,
    },
    /// One stage has two names.
    #[error(
        "one stage has the names {first:?} and {second:?}. Streams that are merged, joined or share a store are one \
         stage. Keep one call of `stage`"
    )]
    TwoStageNames {
        /// The name that was declared first.
        first: String,
        /// The other name.
        second: String,
    },
    /// Two sources read a topic with different types.
    #[error(
        "the topic {topic} is read as {first} and as {second}, so each record fails in one of them. Give both sources \
         the same type, or read one as a view with `topic.values::<..>()`"
    )]
    TwoTypes {
        /// The topic.
        topic: TopicName,
        /// The types that were declared first.
        first: String,
        /// The other types.
        second: String,
    },
    /// Topics that one task reads together have different partitioners.
    #[error(
        "one task reads {} and {}, so the records of one key would be in different tasks. Give both topics the same \
         `partition_by`, or repartition one of the streams",
        partitioned(first),
        partitioned(second)
    )]
    Partitioners {
        /// A topic, and the name of its partitioner; `None` is Kafka's.
        first: (TopicName, Option<Arc<str>>),
        /// Another topic of the same task.
        second: (TopicName, Option<Arc<str>>),
    },
    /// A call of `route` has no topics.
    #[error("`route` has no topics. Pass the topics that its closure can return")]
    NoRoute,
    /// The limits of asynchronous calls are invalid.
    #[error("the calls {name:?} of `map_async`: {reason}")]
    Calls {
        /// The name of the calls.
        name: String,
        /// The cause.
        reason: CallPlanError,
    },
    /// The name of asynchronous calls is not valid.
    #[error(
        "{name:?} is not a valid name for calls. Use 1 to 100 letters, digits, dots, underscores and hyphens"
    )]
    CallName {
        /// The name.
        name: String,
    },
    /// Two `map_async` have the same name.
    #[error(
        "two `map_async` are called {name}, so their calls would have the same ids. Give one of them another name"
    )]
    SameCalls {
        /// The name.
        name: String,
    },
    /// A stage has two `map_async`.
    #[error(
        "one stage has the calls {first} and {second}, but a task has one limit of calls. Write the records to a topic between \
         them, with `.to(&topic)` and `app.source(&topic)`, or make both calls in one closure"
    )]
    TwoCalls {
        /// The name of the calls that were declared first.
        first: String,
        /// The name of the other calls.
        second: String,
    },
    /// A stage with asynchronous calls has sequenced dead letters.
    #[error(
        "one stage has the calls {name} of `map_async` and the sequenced dead letters {store:?}. The call of a record starts \
         before earlier records of its key are processed, so later records would not wait for a dead letter. To keep the order \
         of failed calls, use `ErrorPolicy::pause()`, or make the call in `try_map`, which blocks the task. If only other steps \
         need the order, move `map_async` into another stage: write the results of these steps to a topic, and read that topic"
    )]
    SequenceWithCalls {
        /// The name of the calls.
        name: String,
        /// The store of the keys with dead letters.
        store: String,
    },
    /// A step comes before asynchronous calls, which is not allowed for its kind.
    #[error(
        "`{method}` comes before the calls {name} of `map_async` in one stage. The calls of a record start before earlier records \
         have passed `{method}`. Move it behind `map_async`, or write the records to a topic between them, with \
         `.to(&topic)` and `app.source(&topic)`"
    )]
    BeforeCalls {
        /// The name of the calls.
        name: String,
        /// The method of the step.
        method: &'static str,
    },
    /// A stream is cloned before asynchronous calls.
    #[error(
        "a stream is cloned before the calls {name} of `map_async` in one stage. Clone it behind `map_async`, or read the \
         topic with another `app.source(&topic)` instead of the clone"
    )]
    CloneBeforeCalls {
        /// The name of the calls.
        name: String,
    },
    /// Two global tables have the same name.
    #[error(
        "two global tables have the name {name}, which is also the name of their directory. Give one of them another \
         name, or use one table for both joins"
    )]
    SameGlobal {
        /// The name.
        name: String,
    },
    /// No stream is joined with a global table.
    #[error(
        "no stream is joined with the global table {name}, but each process would read and store its whole topic. Call \
         `stream.join_global(&table, ..)`, or remove the table"
    )]
    UnusedGlobal {
        /// The name.
        name: String,
    },
    /// A global table has a policy that needs a transaction or a task.
    #[error(
        "the global table {name} has the error policy {policy:?}, but it is read outside of all transactions and tasks, so a \
         dead letter could be written twice or never. Use `ErrorPolicy::fail()`, which is the default, or \
         `ErrorPolicy::skip()`"
    )]
    GlobalPolicy {
        /// The name.
        name: String,
        /// The policy.
        policy: Box<ErrorPolicy>,
    },
    /// Two repartition topics have the same name.
    #[error("two calls of `repartition` use the topic name {name}. Give one of them another name")]
    SameRepartition {
        /// The name.
        name: String,
    },
    /// A method received a stream, table or store of another app.
    #[error(
        "`{method}` received a {what} of another app. Create both with one `App`, or connect the apps \
         by a topic"
    )]
    OtherApp {
        /// The method.
        method: &'static str,
        /// The kind of its argument.
        what: &'static str,
    },
}

fn partitioned((topic, partitioner): &(TopicName, Option<Arc<str>>)) -> String {
    match partitioner {
        Some(name) => format!("{topic}, whose partitioner is {name:?},"),
        None => format!("{topic}, whose partitioner is Kafka's,"),
    }
}

/// Checks a store's name, which appears in messages, metrics and topic names.
pub(super) fn check_store_name(name: &str) -> Result<(), Mistake> {
    let fine = name.len() <= 100 && check_name(&name.into()).is_ok();
    if fine {
        Ok(())
    } else {
        Err(Mistake::StoreName { name: name.into() })
    }
}

/// Kafka's rule for topic names (`org.apache.kafka.common.internals.Topic#validate`).
pub(super) fn check_name(name: &TopicName) -> Result<(), Mistake> {
    let text = name.as_str();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fine = !text.is_empty() && text.len() <= 249 && text.chars().all(legal);
    if fine && text != "." && text != ".." {
        Ok(())
    } else {
        Err(Mistake::TopicName {
            topic: name.clone(),
        })
    }
}
