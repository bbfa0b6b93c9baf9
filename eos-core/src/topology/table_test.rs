//! Declared tables and joins.

use super::tests::{app, error, text};
use crate::{App, KeyValueStore, Table, Topic};

fn customers(app: &mut App) -> Table<String, String> {
    app.table(
        &Topic::<_, Option<String>>::plain("customers"),
        &KeyValueStore::plain("customers"),
    )
}

fn stages(declare: impl FnOnce(&mut App)) -> Vec<Vec<String>> {
    let topology = app(declare).check().unwrap();
    let stages = topology.stages().iter().map(|stage| &stage.topics);
    stages
        .map(|topics| topics.iter().map(ToString::to_string).collect())
        .collect()
}

/// Joins orders with their customers.
fn join_orders(app: &mut App, customers: &Table<String, String>, to: &str) {
    app.source(&text("orders"))
        .join(customers, |order, customer| order + &customer)
        .to(&text(to));
}

/// The smallest app with a join.
fn joining() -> App {
    app(|app| {
        let customers = customers(app);
        join_orders(app, &customers, "out");
    })
}

#[test]
fn one_task_reads_a_table_and_what_joins_with_it() {
    let joined = stages(|app| {
        app.source(&text("others")).to(&text("copies"));
        let customers = customers(app);
        join_orders(app, &customers, "orders-out");
        app.source(&text("refunds"))
            .left_join(&customers, |refund, _| refund)
            .to(&text("refunds-out"));
    });
    assert_eq!(
        joined,
        [vec!["customers", "orders", "refunds"], vec!["others"]]
    );
}

#[test]
fn a_result_is_joined_behind_the_topic_that_it_is_made_of() {
    let joined = stages(|app| {
        let visits = app
            .source(&text("views"))
            .group_by(|page| page.clone(), &text("views-by-page"))
            .count(&KeyValueStore::plain("visits"));
        app.source(&text("edits"))
            .key_by(|page| page.clone())
            .repartition(&text("edits-by-page"))
            .join(&visits, |page, visits| format!("{page} {visits}"))
            .to(&text("out"));
    });
    let both = vec!["a-views-by-page-repartition", "a-edits-by-page-repartition"];
    assert_eq!(joined, [both, vec!["views"], vec!["edits"]]);
}

#[test]
fn a_table_needs_no_end_and_an_unused_result_does() {
    let joined = stages(|app| drop(customers(app)));
    assert_eq!(joined, [["customers"]]);
    let count = |app: &mut App| {
        let lines = app.source(&text("in")).group_by_key();
        lines.count(&KeyValueStore::plain("counts"))
    };
    let unheard = error(|app| drop(count(app)));
    assert!(unheard.contains("ends in `count`"), "{unheard}");
    stages(|app| {
        let counts = count(app);
        app.source(&text("orders"))
            .join(&counts, |order, _| order)
            .to(&text("out"));
    });
    let unfinished = error(|app| {
        let customers = customers(app);
        let _unfinished = app.source(&text("orders")).join(&customers, |v, _| v);
    });
    let expected = "the chain that reads orders ends in `join`";
    assert!(unfinished.starts_with(expected), "{unfinished}");
}

#[test]
fn a_table_of_another_app_is_refused_by_both() {
    let (mut one, mut other) = (App::new("a"), App::new("b"));
    let customers = customers(&mut other);
    one.source(&text("orders"))
        .left_join(&customers, |order, _| order)
        .to(&text("out"));
    for app in [one, other] {
        assert_eq!(
            app.check().unwrap_err().to_string(),
            "`left_join` received a table of another app. Create both with one `App`, or connect the apps \
             by a topic"
        );
    }
}

/// The nodes have the same names as in Kafka Streams.
#[test]
fn a_table_and_its_join_look_as_in_kafka_streams() {
    assert_eq!(
        joining().describe().unwrap().to_string(),
        "Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [customers])
      --> KTABLE-SOURCE-0000000001
    Source: KSTREAM-SOURCE-0000000002 (topics: [orders])
      --> KSTREAM-JOIN-0000000003
    Processor: KTABLE-SOURCE-0000000001 (stores: [customers])
      --> none
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-JOIN-0000000003 (stores: [customers])
      --> KSTREAM-SINK-0000000004
      <-- KSTREAM-SOURCE-0000000002
    Sink: KSTREAM-SINK-0000000004 (topic: out)
      <-- KSTREAM-JOIN-0000000003

"
    );
}

#[test]
fn each_edge_of_a_table_and_its_join_has_its_guarantee() {
    let description = joining().describe().unwrap();
    assert_eq!(
        description.guarantees().to_string(),
        "Sub-topology: 0, one task for each partition of customers and orders, read together in order of time
  customers --> KSTREAM-SOURCE-0000000000: exactly once; the offset commits in the transaction of the outputs; a record that fails stops the worker
  KSTREAM-SOURCE-0000000000 --> KTABLE-SOURCE-0000000001: exactly once; in memory
  orders --> KSTREAM-SOURCE-0000000002: exactly once; the offset commits in the transaction of the outputs; a record that fails stops the worker
  KSTREAM-SOURCE-0000000002 --> KSTREAM-JOIN-0000000003: exactly once; in memory
  KTABLE-SOURCE-0000000001 --> a-customers-changelog: exactly once; changes of customers commit in that transaction and survive a restart
  KTABLE-SOURCE-0000000001 --> KSTREAM-JOIN-0000000003: exactly once; in memory; the row of each record's key, of the store customers
  KSTREAM-JOIN-0000000003 --> KSTREAM-SINK-0000000004: exactly once; in memory
  KSTREAM-SINK-0000000004 --> out: exactly once; for consumers with isolation.level=read_committed
"
    );
    assert_eq!(
        description.mermaid().to_string(),
        "flowchart LR
  subgraph s0[\"Sub-topology 0\"]
    s0n0[\"KSTREAM-SOURCE-0000000000\"]
    s0n1[\"KSTREAM-SOURCE-0000000002\"]
    s0n2[\"KTABLE-SOURCE-0000000001\"]
    s0n3[\"KSTREAM-JOIN-0000000003\"]
    s0n4[\"KSTREAM-SINK-0000000004\"]
  end
  t0[(\"customers\")] -->|exactly once| s0n0
  s0n0 -->|exactly once| s0n2
  t1[(\"orders\")] -->|exactly once| s0n1
  s0n1 -->|exactly once| s0n3
  s0n2 -->|exactly once| t2[(\"a-customers-changelog\")]
  s0n2 -->|exactly once| s0n3
  s0n3 -->|exactly once| s0n4
  s0n4 -->|exactly once| t3[(\"out\")]
"
    );
}

/// The names of the nodes, in order.
fn nodes_of(app: &App) -> Vec<String> {
    let text = app.describe().unwrap().to_string();
    let nodes = text.lines().filter_map(|line| {
        let (role, node) = line.trim().split_once(": ")?;
        matches!(role, "Source" | "Processor" | "Sink").then(|| node.to_owned())
    });
    nodes.collect()
}

fn rows(app: &mut App, name: &str) -> Table<String, String> {
    let topic = Topic::<_, Option<String>>::plain(name);
    app.table(&topic, &KeyValueStore::plain(name))
}

#[test]
fn steps_of_a_table_have_the_names_that_kafka_streams_gives_them() {
    let mut app = App::new("a");
    rows(&mut app, "names")
        .filter(|name| !name.is_empty())
        .map(|name| name + "!")
        .to(&Topic::plain("out"));
    assert_eq!(
        nodes_of(&app),
        [
            "KSTREAM-SOURCE-0000000000 (topics: [names])",
            "KTABLE-SOURCE-0000000001 (stores: [names])",
            "KTABLE-FILTER-0000000002 (stores: [])",
            "KTABLE-MAPVALUES-0000000003 (stores: [])",
            "KSTREAM-SINK-0000000004 (topic: out)",
        ]
    );
    let mut app = App::new("a");
    app.source(&Topic::<String, Option<String>>::plain("in"))
        .to_table(&KeyValueStore::plain("rows"))
        .to(&Topic::plain("out"));
    assert_eq!(
        nodes_of(&app),
        [
            "KSTREAM-SOURCE-0000000000 (topics: [in])",
            "KSTREAM-TOTABLE-0000000001 (stores: [rows])",
            "KSTREAM-SINK-0000000002 (topic: out)",
        ]
    );
}

/// Kafka Streams has one name for each side, for all kinds of joins. Here, there is no node for its `KTABLE-MERGE`.
#[test]
fn joins_of_tables_have_the_names_that_kafka_streams_gives_them() {
    for kind in ["join", "left_join", "outer_join"] {
        let mut app = App::new("a");
        let (left, right) = (rows(&mut app, "left"), rows(&mut app, "right"));
        let joined = match kind {
            "join" => left.join(&right, |left, _| left.clone()),
            "left_join" => left.left_join(&right, |left, _| left.clone()),
            _ => left.outer_join(&right, |_| String::new()),
        };
        joined.to(&Topic::plain("out"));
        assert_eq!(
            nodes_of(&app),
            [
                "KSTREAM-SOURCE-0000000000 (topics: [left])",
                "KSTREAM-SOURCE-0000000002 (topics: [right])",
                "KTABLE-SOURCE-0000000001 (stores: [left])",
                "KTABLE-SOURCE-0000000003 (stores: [right])",
                "KTABLE-JOINTHIS-0000000004 (stores: [right])",
                "KTABLE-JOINOTHER-0000000005 (stores: [left])",
                "KSTREAM-SINK-0000000006 (topic: out)",
            ],
            "{kind}"
        );
    }
}

#[test]
fn groups_of_a_table_have_the_names_that_kafka_streams_gives_them() {
    for (kind, node) in [
        ("count", "KTABLE-AGGREGATE"),
        ("reduce", "KTABLE-REDUCE"),
        ("aggregate", "KTABLE-AGGREGATE"),
    ] {
        let mut app = App::new("a");
        let groups = rows(&mut app, "names").group_by(&text("initials"), |_, name: &String| {
            (name.clone(), name.clone())
        });
        let (store, out) = (KeyValueStore::plain("results"), text("out"));
        match kind {
            "count" => groups
                .count(&KeyValueStore::plain("results"))
                .to(&Topic::plain("out")),
            "reduce" => groups.reduce(&store, |a, _| a, |a, _| a).to(&out),
            _ => groups
                .aggregate(&store, String::new, |_, _, a| a, |_, _, a| a)
                .to(&out),
        }
        let nodes = nodes_of(&app);
        for expected in [
            format!("{node}-0000000005 (stores: [results])"),
            "KTABLE-SELECT-0000000002 (stores: [])".to_owned(),
        ] {
            assert!(nodes.contains(&expected), "{kind}: {nodes:?}");
        }
    }
}
