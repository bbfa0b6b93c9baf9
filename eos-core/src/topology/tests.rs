//! Graphs, their stages and tasks, without a worker.

use crate::store::StateAccess;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eos_protocol::{Offset, Partition, TaskId, Timestamp, TopicPartition};

use super::{Chains, Fault, Next, Raw, Scratch, Topology};
use crate::client::Headers;
use crate::codec::{CodecError, Encode, Encoded, Field, Plain};
use crate::ctx::{Ctx, Origin};
use crate::{App, Backoff, ErrorPolicy, KeyValueStore, PlainTopic, Topic};

pub(super) fn text(name: &str) -> PlainTopic<String, String> {
    Topic::plain(name)
}

/// Declares an app.
pub(super) fn app(declare: impl FnOnce(&mut App)) -> App {
    let mut app = App::new("a");
    declare(&mut app);
    app
}

pub(super) fn error(declare: impl FnOnce(&mut App)) -> String {
    app(declare).check().unwrap_err().to_string()
}

/// One task of an app, with its outputs.
pub(super) struct Bench {
    topology: Arc<Topology>,
    pub(super) chains: Chains,
    stage: usize,
    /// The partitions of the last record's outputs.
    pub(super) partitions: Vec<i32>,
}

impl Bench {
    pub(super) fn new(declare: impl FnOnce(&mut App)) -> Self {
        Self::of_stage(0, declare)
    }

    fn of_stage(stage: usize, declare: impl FnOnce(&mut App)) -> Self {
        let topology = app(declare).check().unwrap();
        let chains = topology.instantiate(&topology.stages()[stage]);
        Self {
            topology,
            chains,
            stage,
            partitions: Vec::new(),
        }
    }

    /// Runs `key=value` of an input through all its sources. Returns `topic:key=value` of each output.
    pub(super) fn run(&mut self, input: usize, record: &str) -> Result<Vec<String>, Fault> {
        let (key, value) = record.split_once('=').unwrap();
        let topic = &self.topology.stages()[self.stage].topics[input];
        let partition = TopicPartition::new(topic.clone(), Partition::ZERO);
        let scratch = RefCell::new(Scratch::default());
        let buffers = RefCell::default();
        let mut headers = Headers::new();
        headers.push("h", Some(b"1"));
        let timestamp = Some(Timestamp(17));
        let origin = Origin {
            task: TaskId::default(),
            partition: &partition,
            offset: Offset::ZERO,
            timestamp,
            stream_time: timestamp,
            wall_clock: None,
            handled_to: None,
            takes_moments: true,
            headers: &headers,
        };
        let ctx = Ctx::new(
            self.topology.token(),
            (self.topology.outputs(), &[6; 9]),
            &scratch,
            StateAccess {
                specs: self.topology.stores(),
                task: None,
                windows: &[],
                closed: &[],
                most_ahead: None,
                buffers: &buffers,
            },
            &origin,
        );
        let raw = Raw {
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            timestamp,
            headers: &headers,
        };
        for source in &mut self.chains.inputs[input] {
            let mut next = Next::all(&mut self.chains.places, source.first);
            source.entry.enter(&ctx, &raw, &mut next)?;
        }
        let scratch = scratch.into_inner();
        let outputs = (0..scratch.len()).filter_map(|at| scratch.get(at, &[6; 9], Partition::ZERO));
        self.partitions = outputs.map(|out| out.partition.get()).collect();
        let written = (0..scratch.len()).map(|at| {
            let out = scratch.get(at, &[], Partition::ZERO).unwrap();
            assert_eq!((out.timestamp, out.headers), (timestamp, &headers));
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap()).into_owned();
            let name = &self.topology.outputs()[out.topic].name;
            format!("{name}:{}={}", text(out.key), text(out.value))
        });
        Ok(written.collect())
    }

    #[track_caller]
    pub(super) fn check(&mut self, input: usize, record: &str, outputs: &[&str]) {
        assert_eq!(self.run(input, record).unwrap(), outputs);
    }
}

#[test]
fn a_graph_that_makes_no_sense_says_what_is_missing() {
    let topic = text("t");
    assert!(error(|_| {}).contains("app.source(&topic)"));
    let dangling = error(|app| {
        let _unfinished = app.source(&topic).map(|v| v.len());
    });
    assert_eq!(
        dangling,
        "the chain that reads t ends in `map`, so its records go nowhere. End it with \
         `.to(&topic)`, `.route(..)`, `.for_each(..)` or `.ignore()`"
    );
    let half = error(|app| app.source(&topic).branch(|v| v.is_empty()).0.to(&text("o")));
    assert!(half.contains("ends in `branch`"), "{half}");
    assert!(half.contains("call `.filter(..)` instead"), "{half}");
    let merged = error(|app| {
        let other = app.source(&text("u"));
        let _unfinished = app.source(&topic).union(other);
    });
    assert!(merged.contains("ends in `source`"), "{merged}");
    let name = error(|app| app.source(&topic).to(&text("white space")));
    assert!(
        name.contains("\"white space\" is not a valid topic name"),
        "{name}"
    );
}

#[test]
fn streams_of_two_apps_do_not_merge() {
    let mut other = App::new("b");
    let stranger = other.source(&text("u"));
    let refused = error(|app| app.source(&text("t")).union(stranger).to(&text("o")));
    assert!(
        refused.starts_with("`union` received a stream of another app. Create both with"),
        "{refused}"
    );
    assert!(other.check().is_err());
}

#[test]
fn chains_on_one_topic_are_one_stage_and_others_are_their_own() {
    let mut app = App::new("a");
    let (a, b) = (text("a"), text("b"));
    app.source(&a).to(&b);
    app.source(&b).filter(|v| !v.is_empty()).to(&text("c"));
    app.source(&a).map(|v| v).to(&b);
    let topology = app.check().unwrap();
    assert_eq!(topology.stages().len(), 2);
    let chains = topology.instantiate(&topology.stages()[0]);
    assert_eq!((chains.inputs.len(), chains.places.len()), (1, 3));
    let firsts: Vec<_> = chains.inputs[0].iter().map(|s| s.first).collect();
    assert_eq!(firsts, [Some(0), Some(1)]);
    assert_eq!(chains.places[1].child, Some(2));
}

#[test]
fn each_shape_does_to_records_what_its_name_says() {
    let (t, o) = (text("t"), text("o"));
    let peeked = Arc::new(AtomicUsize::new(0));
    let mut bench = Bench::new(|app| {
        let seen = Arc::clone(&peeked);
        app.source(&t)
            .peek(move |value| {
                seen.fetch_add(value.len(), Ordering::Relaxed);
            })
            .flat_map(|v| v.split(',').map(str::to_owned).collect::<Vec<_>>())
            .filter_map(|v| v.strip_prefix('+').map(str::to_owned))
            .key_by(|v| v.to_uppercase())
            .to(&o);
    });
    bench.check(0, "k=+a,b,+c", &["o:A=a", "o:C=c"]);
    assert_eq!(peeked.load(Ordering::Relaxed), 7);

    let seen = Arc::clone(&peeked);
    let mut bench = Bench::new(|app| {
        app.source(&t)
            .peek_record(move |record| {
                seen.store(record.key.len(), Ordering::Relaxed);
            })
            .try_flat_map(|v| Ok([v.parse::<u8>()?.to_string()]))
            .to(&o);
    });
    bench.check(0, "key=007", &["o:key=7"]);
    assert_eq!(peeked.load(Ordering::Relaxed), 3);
    let fault = bench.run(0, "key=x").unwrap_err();
    assert!(matches!(fault, Fault::User(_)), "{fault:?}");
}

#[test]
fn a_branch_sends_each_record_one_way_and_a_clone_both_ways() {
    let mut bench = Bench::new(|app| {
        let (long, others) = app.source(&text("t")).branch(|v| v.len() > 3);
        let (some, none) = others.branch(|v| !v.is_empty());
        long.map(|v| v.to_uppercase()).to(&text("long"));
        some.to(&text("some"));
        let twice = none.clone();
        none.to(&text("once"));
        twice.map(|v| v + "!").to(&text("twice"));
    });
    bench.check(0, "k=abcd", &["long:k=ABCD"]);
    bench.check(0, "k=ab", &["some:k=ab"]);
    bench.check(0, "k=", &["once:k=", "twice:k=!"]);
}

#[test]
fn merged_streams_of_two_topics_stay_two_stages() {
    let declare = |app: &mut App| {
        let other = app.source(&text("u")).map(|v| v + "u");
        app.source(&text("t"))
            .union(other)
            .map(|v| v + "!")
            .to(&text("o"));
    };
    Bench::of_stage(0, declare).check(0, "k=a", &["o:k=au!"]);
    let mut second = Bench::of_stage(1, declare);
    second.check(0, "k=a", &["o:k=a!"]);
    assert_eq!(second.chains.places.len(), 2, "only what it can reach");
}

#[test]
fn streams_merged_by_time_are_one_stage_with_siblings() {
    let mut bench = Bench::new(|app| {
        let web = app.source(&text("web"));
        let shop = app.source(&text("shop")).filter(|v| v != "x");
        web.merge(shop).to(&text("o"));
    });
    let stages = bench.topology.stages();
    assert_eq!(stages.len(), 1);
    assert_eq!(stages[0].driving_topic().as_str(), "web");
    assert_eq!(bench.chains.places.len(), 2);
    bench.check(0, "k=x", &["o:k=x"]);
    bench.check(1, "k=x", &[]);
    bench.check(1, "k=y", &["o:k=y"]);
}

#[test]
fn a_policy_reaches_each_source_and_each_dead_letter_topic_is_one_output() {
    let mut bench = Bench::new(|app| {
        let dlq = || ErrorPolicy::dead_letter("dlq");
        let retry = ErrorPolicy::retry(3, Backoff::fixed(Duration::from_secs(1)));
        let first = app.source(&text("t"));
        let second = app.source(&text("t")).map(|v| v);
        first
            .union(second)
            .on_error(retry.then(dlq()))
            .to(&text("o"));
        app.source(&text("t")).on_error(dlq()).to(&text("dlq"));
        app.source(&text("t")).to(&text("o"));
    });
    let names = bench.topology.output_names();
    let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
    let expected = ["o", "dlq", "o", "dlq"];
    assert_eq!(names, expected, "dead letters are raw bytes");
    let sources = &bench.chains.inputs[0];
    let dead_letters: Vec<_> = sources.iter().map(|s| s.dead_letter).collect();
    assert_eq!(dead_letters, [Some(3), Some(3), Some(3), None]);
    let tries = sources[0].policy.tries().and_then(|retry| retry.times());
    assert_eq!(tries, Some(3));
    assert_eq!(sources[0].policy, sources[1].policy);
    assert_eq!(*sources[3].policy, ErrorPolicy::fail());
    bench.check(0, "k=v", &["o:k=v", "o:k=v", "dlq:k=v", "o:k=v"]);
}

#[test]
fn an_encoding_error_of_emit_is_not_an_error_of_the_closure() {
    let numbers = Topic::<String, f64>::with("n", Plain, Unwritable);
    let mut bench = Bench::new(|app| {
        let out = app.output(&numbers);
        app.source(&text("t"))
            .for_each(move |ctx, r| ctx.emit(&out, r.key, 0.5));
    });
    let fault = bench.run(0, "k=v").unwrap_err();
    assert!(matches!(fault, Fault::Encode(_)), "{fault:?}");
    assert_eq!(
        fault.to_string(),
        "the output for topic n can't be encoded: not writable: at all"
    );
    let mut bench = Bench::new(|app| app.source(&text("t")).map(|_| 0.5).to(&numbers));
    assert!(matches!(bench.run(0, "k=v"), Err(Fault::Encode(_))));
}

#[test]
fn an_output_of_another_app_is_refused_with_the_fix() {
    let mut other = App::new("b");
    let strange = other.output(&text("o"));
    let mut bench = Bench::new(|app| {
        app.source(&text("t"))
            .for_each(move |ctx, r| ctx.emit(&strange, r.key, r.value));
    });
    assert_eq!(
        bench.run(0, "k=v").unwrap_err().to_string(),
        "the output belongs to another app. Declare it with `app.output(..)` of this app"
    );
}

struct Unwritable;
impl Encode<f64> for Unwritable {
    fn encode(&self, _: &f64, _: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
        Err(CodecError::invalid("writable", "at all"))
    }
}

#[test]
fn a_context_knows_the_time_and_the_headers() {
    let mut bench = Bench::new(|app| {
        let out = app.output(&text("o"));
        app.source(&text("t")).for_each(move |ctx, record| {
            let time = ctx.timestamp().map(|t| t.0);
            let header = ctx.headers().get("h").map(<[u8]>::len);
            ctx.emit(&out, record.key, format!("{time:?} {header:?}"))
        });
    });
    bench.check(0, "k=v", &["o:k=Some(17) Some(1)"]);
}

#[test]
fn an_output_too_large_says_what_to_do() {
    let fault = Fault::Oversize {
        topic: "o".into(),
        bytes: 2_000_000,
        limit: 1_048_588,
    };
    assert_eq!(
        fault.to_string(),
        "the output for topic o has 2000000 bytes, but its max.message.bytes is 1048588. Make it \
         smaller, or raise the limit (kafka-configs.sh --alter --topic o --add-config \
         max.message.bytes=..)"
    );
}

/// A task's directory is named after its stage's number.
#[test]
fn a_stage_without_state_does_not_move_one_with_state() {
    let number = |in_front: bool| {
        let mut app = App::new("a");
        if in_front {
            app.source(&text("new")).to(&text("elsewhere"));
        }
        app.source(&text("in"))
            .group_by_key()
            .count(&KeyValueStore::plain("counts"))
            .to(&Topic::plain("out"));
        let topology = app.check().unwrap();
        let mut stages = topology.stages().iter();
        let stage = stages.find(|stage| stage.driving_topic().as_str() == "in");
        stage.unwrap().id
    };
    assert_eq!(number(true), number(false));
}

#[test]
fn a_topic_that_is_written_back_to_its_source_is_refused() {
    let error = error(|app| {
        let topic = text("t");
        app.source(&topic).map(|v| v).to(&topic);
    });
    assert!(
        error.starts_with("records of the source t are written to t again"),
        "{error}"
    );
    // Another source of the app may read the output of this one.
    let mut app = App::new("a");
    app.source(&text("t")).to(&text("u"));
    app.source(&text("u")).to(&text("v"));
    assert!(app.check().is_ok());
}

#[test]
fn a_topic_that_is_written_back_through_other_sources_is_refused() {
    let outputs = error(|app| {
        app.source(&text("t")).to(&text("u"));
        app.source(&text("u")).filter(|_| true).to(&text("v"));
        app.source(&text("v")).to(&text("t"));
    });
    let through = "records of the source t are written to t again through the sources u, v, so";
    assert!(outputs.starts_with(through), "{outputs}");
    let letters = error(|app| {
        let policy = ErrorPolicy::dead_letter;
        app.source(&text("a"))
            .on_error(policy("b"))
            .to(&text("out"));
        app.source(&text("b"))
            .on_error(policy("a"))
            .to(&text("out"));
    });
    let through = "records of the source a are written to a again through the source b, so";
    assert!(letters.starts_with(through), "{letters}");
    // The source of a dead-letter topic may have another one.
    let mut app = App::new("a");
    let policy = ErrorPolicy::dead_letter;
    app.source(&text("a"))
        .on_error(policy("b"))
        .to(&text("out"));
    app.source(&text("b"))
        .on_error(policy("c"))
        .to(&text("out"));
    assert!(app.check().is_ok());
}

fn keep_counts(app: &mut App, policy: ErrorPolicy) {
    app.source(&text("t"))
        .on_error(policy)
        .group_by_key()
        .count(&KeyValueStore::plain("counts"))
        .to(&Topic::plain("counts"));
}

#[test]
fn an_output_with_the_name_of_an_own_topic_is_refused() {
    let changelog = error(|app| {
        keep_counts(app, ErrorPolicy::fail());
        app.source(&text("u")).to(&text("a-t-changelog"));
    });
    let repartition = error(|app| {
        app.source(&text("t"))
            .key_by(|v: &String| v.clone())
            .repartition(&text("by-value"))
            .to(&text("out"));
        app.source(&text("u")).to(&text("a-by-value-repartition"));
    });
    let letters = error(|app| keep_counts(app, ErrorPolicy::dead_letter("a-t-changelog")));
    for (error, name) in [
        (changelog, "a-t-changelog"),
        (repartition, "a-by-value-repartition"),
        (letters, "a-t-changelog"),
    ] {
        let expected = format!("the app writes to {name}, which is one of its own internal topics");
        assert!(error.starts_with(&expected), "{error}");
    }
}
