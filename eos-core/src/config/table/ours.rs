//! The properties that the runtime uses itself.

use std::time::Duration;

use eos_protocol::{FirstStart, Guarantee, Pace};

use super::{Clients, Kind, Property, Status, Value, number};
use crate::config::{Protocol, Settings};

const DAY_MS: i64 = 86_400_000;

#[rustfmt::skip] // A table: one row per line.
pub(super) const ROWS: &[Property] = &[
    ours("bootstrap.servers", Clients::All, Kind::Brokers, "", |s, v| s.bootstrap = Some(text(v)),
        "The brokers to contact first, as `host:port`, separated by commas; the argument of `run` if it is not set."),
    ours("processing.guarantee", Clients::Runtime, Kind::OneOf(&["exactly_once_v2", "at_least_once", "at_most_once"]), "exactly_once_v2", |s, v| s.guarantee = guarantee(v),
        "The processing guarantee."),
    ours("num.stream.threads", Clients::Runtime, number(1, 256), "1", |s, v| s.workers = u16::try_from(count(v)).unwrap_or(1),
        "How many workers (threads) this process runs."),
    ours("commit.interval.ms", Clients::Runtime, number(1, DAY_MS), "100", |s, v| s.policy.interval = time(v),
        "How long a transaction stays open at most."),
    ours("commit.pace", Clients::Runtime, Kind::OneOf(&["adaptive", "fixed"]), "adaptive", |s, v| s.policy.pace = pace(v),
        "When to commit: `adaptive` as soon as the worker's time and the brokers allow (after 10 ms at the earliest, for a tenth of its time, 2,000 partitions a second), `fixed` after `commit.interval.ms`."),
    ours("max.task.idle.ms", Clients::Runtime, number(-1, DAY_MS), "0", |s, v| s.max_task_idle = (count(v) >= 0).then(|| time(v)),
        "How long a task waits for records of an input that is read to its end, to merge by time; 0 waits only for records that are known to be on the broker, -1 never waits (KIP-695)."),
    ours("max.timestamp.ahead.ms", Clients::Runtime, number(-1, 1 << 50), "3600000", |s, v| s.most_ahead = (count(v) >= 0).then(|| time(v)),
        "How far the timestamp of a record may be ahead of the machine's clock, in a stage that depends on stream time: windows, sessions, event-time timers, rows that expire, deduplication. A record beyond it fails, and the error policy of its source decides. -1 accepts every timestamp."),
    ours("state.dir", Clients::Runtime, Kind::Text, "", |s, v| s.state_dir = Some(text(v).into()),
        "Where the identity of this process and the state of its tasks are kept; by default `eos` in the user's state directory."),
    ours("state.memory.bytes", Clients::Runtime, number(8 << 20, 1 << 50), "268435456", |s, v| s.state_memory = usize::try_from(count(v)).unwrap_or(usize::MAX),
        "How much memory the databases of all tasks of this process may use together."),
    ours("state.cleanup.delay.ms", Clients::Runtime, number(1000, 30 * DAY_MS), "600000", |s, v| s.cleanup_delay = time(v),
        "How long the local state of a task is kept after the task moved to another process. A task that returns in time restores little or nothing."),
    ours("repartition.purge.interval.ms", Clients::Runtime, number(100, DAY_MS), "30000", |s, v| s.purge_interval = time(v),
        "How often the app deletes processed and committed records of repartition topics, and the records of expired windows at the beginning of windowed changelogs."),
    ours("slot", Clients::Runtime, number(0, 4_294_967_295), "", |s, v| s.slot = u32::try_from(count(v)).ok(),
        "Which slot of the state directory to use; by default the first free one."),
    ours("accept.layout", Clients::Runtime, Kind::Text, "", |s, v| s.accepted_layout = Some(text(v)),
        "The old layout whose offsets to accept, as an error message names it; for one start."),
    ours("accept.changelog", Clients::Runtime, Kind::Text, "", |s, v| s.accepted_changelogs = text(v).split(',').map(|id| id.trim().to_owned()).collect(),
        "Ids of deleted changelog topics that you restored completely, separated by commas, as the error message names them; for one start."),
    ours("start.deadline.ms", Clients::Runtime, number(1, DAY_MS), "15000", |s, v| s.start_deadline = time(v),
        "How long to wait for a broker at the start."),
    ours("transaction.timeout.ms", Clients::Producer, number(1000, DAY_MS), "30000", |s, v| s.transaction_timeout = time(v),
        "After how long the brokers abort a transaction that its worker left open; the deadlines of commits and rebalances are derived from it."),
    ours("group.protocol", Clients::Consumer, Kind::OneOf(&["classic", "consumer"]), "classic", |s, v| s.protocol = protocol(v),
        "The group protocol; `consumer` is KIP-848's and needs Kafka 4.0."),
    ours("static.membership", Clients::Consumer, Kind::Flag, "", |s, v| s.static_member = Some(*v == Value::Flag(true)),
        "Whether workers are static members of the group; true under `group.protocol=classic`, impossible under `consumer`."),
    ours("session.timeout.ms", Clients::Consumer, number(1, 3_600_000), "30000", |s, v| s.session_timeout = Some(time(v)),
        "After how long without a heartbeat the group reassigns a worker's partitions; under `group.protocol=consumer` the brokers set it."),
    ours("heartbeat.interval.ms", Clients::Consumer, number(1, 3_600_000), "", |s, v| s.heartbeat = Some(time(v)),
        "How often a worker sends a heartbeat, and learns of rebalances; a tenth of `session.timeout.ms` by default, 500 at most."),
    ours("max.poll.interval.ms", Clients::Consumer, number(1, DAY_MS), "300000", |s, v| s.max_poll_interval = time(v),
        "After how long in one closure a worker leaves the group."),
    ours("auto.offset.reset", Clients::Consumer, Kind::OneOf(&["earliest", "latest", "group"]), "earliest", |s, v| s.first_start = first_start(v),
        "Where the very first start begins. Later starts continue at the committed offsets: a missing or invalid offset is an error, never a silent jump."),
    ours("application.id", Clients::Runtime, Kind::Text, "", |_, _| (),
        "The name of the app, as in the program; for files that Kafka Streams reads too."),
];

const fn ours(
    name: &'static str,
    clients: Clients,
    kind: Kind,
    default: &'static str,
    set: fn(&mut Settings, &Value),
    doc: &'static str,
) -> Property {
    Property {
        name,
        clients,
        kind,
        default,
        status: Status::Ours(set),
        doc,
    }
}

// A value has the kind of its property, so the other arms are never taken.

fn count(value: &Value) -> i64 {
    match value {
        Value::Number(number) => *number,
        _ => 0,
    }
}

fn time(value: &Value) -> Duration {
    Duration::from_millis(u64::try_from(count(value)).unwrap_or(0))
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    }
}

fn guarantee(value: &Value) -> Guarantee {
    match text(value).as_str() {
        "at_least_once" => Guarantee::AtLeastOnce,
        "at_most_once" => Guarantee::AtMostOnce,
        _ => Guarantee::ExactlyOnce,
    }
}

fn pace(value: &Value) -> Pace {
    match text(value).as_str() {
        "fixed" => Pace::Fixed,
        _ => Pace::default(),
    }
}

fn protocol(value: &Value) -> Protocol {
    match text(value).as_str() {
        "consumer" => Protocol::Consumer,
        _ => Protocol::Classic,
    }
}

fn first_start(value: &Value) -> FirstStart {
    match text(value).as_str() {
        "latest" => FirstStart::Latest,
        "group" => FirstStart::Group,
        _ => FirstStart::Earliest,
    }
}
