//! Snapshots of the text that users and their tools read.

use std::time::Duration;

use super::tests::text;
use crate::state::JoinStore;
use crate::windows::Within;
use crate::{App, Backoff, ErrorPolicy, Guarantee, KeyValueStore};

#[track_caller]
fn check(app: &App, expected: &str) {
    assert_eq!(app.describe().unwrap().to_string(), expected);
}

#[track_caller]
fn check_guarantees(app: &App, expected: &str) {
    assert_eq!(app.describe().unwrap().guarantees().to_string(), expected);
}

#[test]
fn a_chain_looks_as_in_kafka_streams() {
    let mut app = App::new("a");
    app.source(&text("in"))
        .filter(|v| !v.is_empty())
        .map(|v| v)
        .to(&text("out"));
    check(
        &app,
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in])
      --> KSTREAM-FILTER-0000000001
    Processor: KSTREAM-FILTER-0000000001 (stores: [])
      --> KSTREAM-MAPVALUES-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-MAPVALUES-0000000002 (stores: [])
      --> KSTREAM-SINK-0000000003
      <-- KSTREAM-FILTER-0000000001
    Sink: KSTREAM-SINK-0000000003 (topic: out)
      <-- KSTREAM-MAPVALUES-0000000002

",
    );
    check_guarantees(
        &app,
        "Sub-topology: 0, one task for each partition of in
  in --> KSTREAM-SOURCE-0000000000: exactly once; the offset commits in the transaction of the outputs; a record that fails stops the worker
  KSTREAM-SOURCE-0000000000 --> KSTREAM-FILTER-0000000001: exactly once; in memory
  KSTREAM-FILTER-0000000001 --> KSTREAM-MAPVALUES-0000000002: exactly once; in memory
  KSTREAM-MAPVALUES-0000000002 --> KSTREAM-SINK-0000000003: exactly once; in memory
  KSTREAM-SINK-0000000003 --> out: exactly once; for consumers with isolation.level=read_committed
",
    );
    app.check().expect("describing takes nothing away");
}

#[test]
fn branches_merges_and_stages_are_distinguished() {
    let mut app = App::new("a");
    let out = app.output(&text("log"));
    let (long, short) = app.source(&text("in")).branch(|v| v.len() > 3);
    long.union(app.source(&text("more"))).to(&text("out"));
    short.for_each(move |ctx, r| ctx.emit(&out, r.key, r.value));
    check(
        &app,
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000001 (topics: [in])
      --> KSTREAM-BRANCH-0000000002
    Processor: KSTREAM-BRANCH-0000000002 (stores: [])
      --> KSTREAM-SINK-0000000004, KSTREAM-PROCESSOR-0000000005
      <-- KSTREAM-SOURCE-0000000001
    Sink: KSTREAM-SINK-0000000004 (topic: out)
      <-- KSTREAM-BRANCH-0000000002
    Processor: KSTREAM-PROCESSOR-0000000005 (stores: [])
      --> KSTREAM-SINK-0000000000
      <-- KSTREAM-BRANCH-0000000002
    Sink: KSTREAM-SINK-0000000000 (topic: log)
      <-- KSTREAM-PROCESSOR-0000000005

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000003 (topics: [more])
      --> KSTREAM-SINK-0000000004
    Sink: KSTREAM-SINK-0000000004 (topic: out)
      <-- KSTREAM-SOURCE-0000000003

",
    );
}

#[test]
fn the_guarantee_is_that_of_the_app_and_names_what_fails() {
    let mut app = App::new("a");
    app.guarantee(Guarantee::AtLeastOnce);
    let retry = ErrorPolicy::retry(3, Backoff::fixed(Duration::from_secs(1)));
    let web = app
        .source(&text("web"))
        .on_error(retry.then(ErrorPolicy::dead_letter("dlq")));
    web.merge(app.source(&text("shop")).on_error(ErrorPolicy::skip()))
        .to(&text("sales"));
    check_guarantees(
        &app,
        "Sub-topology: 0, one task for each partition of web and shop, read together in order of time
  web --> KSTREAM-SOURCE-0000000000: at least once; the offset commits once the outputs are acknowledged, and a crash in between repeats them; a record that fails is retried 3 times at most, then goes to dlq
  KSTREAM-SOURCE-0000000000 --> KSTREAM-SINK-0000000002: at least once; in memory
  KSTREAM-SOURCE-0000000000 --> KSTREAM-DEADLETTERS-0000000000: at least once; only records that fail; in memory
  KSTREAM-DEADLETTERS-0000000000 --> dlq: at least once; a crash or a rebalance may repeat records
  shop --> KSTREAM-SOURCE-0000000001: at least once; the offset commits once the outputs are acknowledged, and a crash in between repeats them; a record that fails is skipped
  KSTREAM-SOURCE-0000000001 --> KSTREAM-SINK-0000000002: at least once; in memory
  KSTREAM-SINK-0000000002 --> sales: at least once; a crash or a rebalance may repeat records
",
    );
}

#[test]
fn a_graph_that_makes_no_sense_is_not_described() {
    let error = App::new("a").describe().unwrap_err().to_string();
    assert_eq!(
        error,
        "the app has no source. Begin with `app.source(&topic)`"
    );
}

/// Kafka Streams has no node for them, but an output topic belongs into the text.
#[test]
fn dead_letters_have_a_sink_of_their_own() {
    let mut app = App::new("a");
    let policy = ErrorPolicy::retry(3, Backoff::fixed(Duration::from_secs(1)));
    app.source(&text("in"))
        .on_error(policy.then(ErrorPolicy::dead_letter("dlq")))
        .to(&text("out"));
    check(
        &app,
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in])
      --> KSTREAM-SINK-0000000001, KSTREAM-DEADLETTERS-0000000000
    Sink: KSTREAM-DEADLETTERS-0000000000 (topic: dlq)
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000001 (topic: out)
      <-- KSTREAM-SOURCE-0000000000

",
    );
}

#[test]
fn a_drawing_has_the_promise_on_each_edge() {
    let mut app = App::new("a");
    app.source(&text("in"))
        .on_error(ErrorPolicy::dead_letter("dlq"))
        .union(app.source(&text("more")))
        .to(&text("out"));
    assert_eq!(
        app.describe().unwrap().mermaid().to_string(),
        "flowchart LR
  subgraph s0[\"Sub-topology 0\"]
    s0n0[\"KSTREAM-SOURCE-0000000000\"]
    s0n1[\"KSTREAM-DEADLETTERS-0000000000\"]
    s0n2[\"KSTREAM-SINK-0000000002\"]
  end
  t0[(\"in\")] -->|exactly once| s0n0
  s0n0 -->|exactly once| s0n2
  s0n0 -.->|exactly once, records that fail| s0n1
  s0n1 -.->|exactly once, records that fail| t1[(\"dlq\")]
  s0n2 -->|exactly once| t2[(\"out\")]
  subgraph s1[\"Sub-topology 1\"]
    s1n0[\"KSTREAM-SOURCE-0000000001\"]
    s1n1[\"KSTREAM-SINK-0000000002\"]
  end
  t3[(\"more\")] -->|exactly once| s1n0
  s1n0 -->|exactly once| s1n1
  s1n1 -->|exactly once| t2[(\"out\")]
",
    );
}

#[test]
fn stores_are_shown_where_they_are_used() {
    let mut app = App::new("a");
    let seen = app.store(&KeyValueStore::<String, u64>::plain("seen"));
    app.source(&text("in"))
        .group_by_key()
        .count(&KeyValueStore::plain("counts"))
        .to_stream()
        .with_store(&seen)
        .for_each(|_, _| {});
    app.source(&text("others"))
        .key_by(|v| v.clone())
        .repartition(&text("words"))
        .group_by_key()
        .reduce(&KeyValueStore::plain("longest"), |a, b| a.max(b))
        .to(&text("out"));
    check(
        &app,
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in])
      --> KSTREAM-AGGREGATE-0000000001
    Processor: KSTREAM-AGGREGATE-0000000001 (stores: [counts])
      --> KSTREAM-PROCESSOR-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-PROCESSOR-0000000002 (stores: [seen])
      --> none
      <-- KSTREAM-AGGREGATE-0000000001

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000006 (topics: [a-words-repartition])
      --> KSTREAM-REDUCE-0000000007
    Processor: KSTREAM-REDUCE-0000000007 (stores: [longest])
      --> KSTREAM-SINK-0000000008
      <-- KSTREAM-SOURCE-0000000006
    Sink: KSTREAM-SINK-0000000008 (topic: out)
      <-- KSTREAM-REDUCE-0000000007

  Sub-topology: 2
    Source: KSTREAM-SOURCE-0000000003 (topics: [others])
      --> KSTREAM-KEY-SELECT-0000000004
    Processor: KSTREAM-KEY-SELECT-0000000004 (stores: [])
      --> KSTREAM-SINK-0000000005
      <-- KSTREAM-SOURCE-0000000003
    Sink: KSTREAM-SINK-0000000005 (topic: a-words-repartition)
      <-- KSTREAM-KEY-SELECT-0000000004

",
    );
}

/// Kafka Streams' names.
#[test]
fn a_cogroup_looks_as_in_kafka_streams() {
    let mut app = App::new("a");
    let more = app.source(&text("more")).map(|v| v.len() as u64);
    app.source(&text("in"))
        .group_by_key()
        .cogroup(
            &KeyValueStore::plain("sums"),
            || 0_u64,
            |_, v, sum| sum + v.len() as u64,
        )
        .and(more.group_by_key(), |_, length, sum| sum + length)
        .into_table()
        .to(&crate::Topic::plain("out"));
    check(
        &app,
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [more])
      --> KSTREAM-MAPVALUES-0000000001
    Source: KSTREAM-SOURCE-0000000002 (topics: [in])
      --> COGROUPKSTREAM-AGGREGATE-0000000003
    Processor: KSTREAM-MAPVALUES-0000000001 (stores: [])
      --> COGROUPKSTREAM-AGGREGATE-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: COGROUPKSTREAM-AGGREGATE-0000000003 (stores: [sums])
      --> COGROUPKSTREAM-MERGE-0000000005
      <-- KSTREAM-SOURCE-0000000002
    Processor: COGROUPKSTREAM-AGGREGATE-0000000004 (stores: [sums])
      --> COGROUPKSTREAM-MERGE-0000000005
      <-- KSTREAM-MAPVALUES-0000000001
    Processor: COGROUPKSTREAM-MERGE-0000000005 (stores: [])
      --> KSTREAM-SINK-0000000006
      <-- COGROUPKSTREAM-AGGREGATE-0000000003, COGROUPKSTREAM-AGGREGATE-0000000004
    Sink: KSTREAM-SINK-0000000006 (topic: out)
      <-- COGROUPKSTREAM-MERGE-0000000005

",
    );
}

#[test]
fn a_join_of_streams_has_two_nodes_and_one_way_out() {
    let mut app = App::new("a");
    let (orders, shipments) = (app.source(&text("orders")), app.source(&text("shipments")));
    let store = JoinStore::<String, String, String>::plain("orders-shipments");
    orders
        .left_join_within(
            shipments,
            Within::of(Duration::from_secs(1)),
            &store,
            |l, _| l.clone(),
        )
        .to(&text("out"));
    check(
        &app,
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> KSTREAM-JOINTHIS-0000000002
    Source: KSTREAM-SOURCE-0000000001 (topics: [shipments])
      --> KSTREAM-OUTEROTHER-0000000003
    Processor: KSTREAM-JOINTHIS-0000000002 (stores: [orders-shipments])
      --> KSTREAM-MERGE-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-OUTEROTHER-0000000003 (stores: [orders-shipments])
      --> KSTREAM-MERGE-0000000004
      <-- KSTREAM-SOURCE-0000000001
    Processor: KSTREAM-MERGE-0000000004 (stores: [])
      --> KSTREAM-SINK-0000000005
      <-- KSTREAM-JOINTHIS-0000000002, KSTREAM-OUTEROTHER-0000000003
    Sink: KSTREAM-SINK-0000000005 (topic: out)
      <-- KSTREAM-MERGE-0000000004

",
    );
    check_guarantees(
        &app,
        "Sub-topology: 0, one task for each partition of orders and shipments, read together in order of time
  orders --> KSTREAM-SOURCE-0000000000: exactly once; the offset commits in the transaction of the outputs; a record that fails stops the worker
  KSTREAM-SOURCE-0000000000 --> KSTREAM-JOINTHIS-0000000002: exactly once; in memory
  shipments --> KSTREAM-SOURCE-0000000001: exactly once; the offset commits in the transaction of the outputs; a record that fails stops the worker
  KSTREAM-SOURCE-0000000001 --> KSTREAM-OUTEROTHER-0000000003: exactly once; in memory
  KSTREAM-JOINTHIS-0000000002 --> KSTREAM-MERGE-0000000004: exactly once; in memory
  KSTREAM-JOINTHIS-0000000002 --> a-orders-windowed-changelog: exactly once; changes of orders-shipments commit in that transaction and survive a restart
  KSTREAM-JOINTHIS-0000000002 --> a-orders-changelog: exactly once; changes of orders-shipments commit in that transaction and survive a restart
  KSTREAM-OUTEROTHER-0000000003 --> KSTREAM-MERGE-0000000004: exactly once; in memory
  KSTREAM-OUTEROTHER-0000000003 --> a-orders-windowed-changelog: exactly once; changes of orders-shipments commit in that transaction and survive a restart
  KSTREAM-OUTEROTHER-0000000003 --> a-orders-changelog: exactly once; changes of orders-shipments commit in that transaction and survive a restart
  KSTREAM-MERGE-0000000004 --> KSTREAM-SINK-0000000005: exactly once; in memory; each pair once, and each left record without a pair once, when stream time passes its last partner and the grace
  KSTREAM-SINK-0000000005 --> out: exactly once; for consumers with isolation.level=read_committed
",
    );
    let stores = app.describe().unwrap().stores().to_string();
    let expected =
        "orders-shipments: kept for 4.001s of stream time; changelog a-orders-windowed-changelog
orders-shipments: kept until deleted; changelog a-orders-changelog
";
    assert_eq!(stores, expected);
}
