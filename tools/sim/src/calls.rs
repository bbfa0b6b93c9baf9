//! Asynchronous calls that end in any order, fail, or take too long.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use eos_core::calls::Call;
use eos_core::{App, Backoff, Calls, ErrorPolicy, Failure, KeyValueStore, Topic};
use eos_protocol::calls::{CallId, CallPlace};
use eos_protocol::{AppId, Offset, Partition, TopicPartition};

use super::case::Case;
use super::clocks::Clocks;
use super::loops::{self, Emitted};
use super::plain::STATELESS;
use super::record::{Draft, Given, Kind};
use super::remains::{Found, Left};
use super::topics::{APP, INPUT, OUTPUTS};
use eos_testkit::client::Cluster;
use eos_testkit::rng::Rng;

pub(super) const ASYNC: Case = Case {
    changelog: Some("sim-in-changelog"),
    draft,
    declare,
    judge,
    ..STATELESS
};

const NAME: &str = "serve";
/// The timeout of a call, and the longest time of one that is not too slow, in milliseconds.
const TIME_OUT: i64 = 150;
const LONGEST: i64 = 60;

fn draft(rng: &mut Rng, now: i64) -> Draft {
    let kind = match rng.below(60) {
        0 => Kind::Flaky,
        1 => Kind::Slow,
        2 => Kind::Bad,
        3 => Kind::Panics,
        _ => Kind::Good,
    };
    Draft {
        kind,
        ..Draft::plain(now)
    }
}

/// Writes the result of each call, and each key's results with their count.
fn declare(app: &mut App, clocks: &Clocks) {
    let [results, counts] = OUTPUTS.map(Topic::<String, String>::plain);
    let wait = Backoff::fixed(Duration::from_millis(10));
    let calls = Calls::at_once(5)
        .time_out(Duration::from_millis(TIME_OUT.unsigned_abs()))
        .retry(2, wait);
    let service = Service {
        cluster: clocks.cluster().clone(),
        tries: Arc::default(),
    };
    let served = app
        .source(&Topic::<String, String>::plain(INPUT))
        .on_error(ErrorPolicy::retry(1, wait).then(ErrorPolicy::skip()))
        .map_async_record(NAME, calls, move |call| service.clone().serve(call));
    served.clone().to(&results);
    served
        .group_by_key()
        .aggregate(
            &KeyValueStore::<String, String>::plain("counts"),
            String::new,
            |_, value, before| {
                let count = before.rsplit(' ').next().and_then(|it| it.parse().ok());
                format!("{value} {}", count.unwrap_or(0_u64) + 1)
            },
        )
        .to(&counts);
}

/// A service on the clock of the cluster.
#[derive(Clone)]
struct Service {
    cluster: Cluster,
    tries: Arc<Mutex<BTreeMap<CallId, u32>>>,
}

impl Service {
    async fn serve(self, call: Call<String, String>) -> Result<String, Failure> {
        let first = {
            let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
            let tries = tries.entry(call.id).or_default();
            *tries += 1;
            // A record never fails twice in a row.
            *tries % 3 == 1
        };
        let kind = call.value.splitn(3, ' ').nth(2).unwrap_or_default();
        let now = self.cluster.now();
        let takes = match kind {
            "slow" if first => 2 * TIME_OUT,
            _ => drawn(call.id, now),
        };
        poll_fn(|_| match self.cluster.now() < now + takes {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        match kind {
            "flaky" if first => Err(Failure::from("flaky")),
            "bad" => Err(Failure::from("bad")),
            // `resume_unwind` bypasses the panic hook, which would print the panic.
            "panics" => resume_unwind(Box::new("at the disco")),
            _ => Ok(shown(&call.value, call.id)),
        }
    }
}

/// Draws the time of a call that begins now.
fn drawn(id: CallId, now: i64) -> i64 {
    let seed = id.as_bytes().iter().fold(now.unsigned_abs(), |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    Rng::new(seed).between(0, LONGEST)
}

fn shown(value: &str, id: CallId) -> String {
    format!("{value} {id}")
}

/// One partition: one loop over the records.
#[derive(Debug, Default)]
struct Model {
    results: Vec<Emitted>,
    counts: Vec<Emitted>,
    last: BTreeMap<String, u64>,
    failed: usize,
    slow: usize,
}

impl Model {
    fn record(&mut self, it: &Given, value: &str) {
        if !it.kind.counts() {
            self.failed += 1;
            return;
        }
        self.slow += usize::from(it.kind == Kind::Slow);
        let value = shown(value, id_of(it));
        let count = self.last.entry(it.key.clone()).or_default();
        *count += 1;
        let counted = format!("{value} {count}");
        self.results.push((it.key.clone(), value, it.timestamp));
        self.counts.push((it.key.clone(), counted, it.timestamp));
    }
}

/// Returns the id of the call of a record.
fn id_of(it: &Given) -> CallId {
    let partition = Partition::new(it.partition).unwrap_or(Partition::ZERO);
    CallId::of(&CallPlace {
        app: &AppId::new(APP),
        partition: &TopicPartition::new(INPUT, partition),
        offset: Offset::new(it.offset).unwrap_or(Offset::ZERO),
        generation: 0,
        name: NAME,
        ordinal: 0,
    })
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut verdicts = Vec::new();
    for partition in 0..left.partitions {
        let mut model = Model::default();
        for it in loops::given(left, INPUT, partition) {
            let digit = it.key.bytes().last().map_or(0, |digit| digit - b'0');
            let value = it.kind.value(it.seq, digit.into());
            model.record(it, &String::from_utf8_lossy(&value));
        }
        found.saw("calls failed for good", model.failed);
        found.saw("calls took too long", model.slow);
        let [results, counts] = OUTPUTS;
        for (output, expected) in [(results, &model.results), (counts, &model.counts)] {
            verdicts.extend(loops::difference(left, output, partition, expected));
        }
    }
    Ok(verdicts)
}
