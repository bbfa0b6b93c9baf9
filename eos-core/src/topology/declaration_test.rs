//! Declared graphs, and the mistakes in them.

use super::tests::{Bench, app, error, text};
use crate::{App, ErrorPolicy, KeyValueStore, PlainTopic, Topic};

#[test]
fn each_mistake_has_a_line_of_its_own() {
    let error = error(|app| {
        app.store(&KeyValueStore::<String, u64>::plain("spare"));
        app.source(&text("a b")).to(&text("out"));
        let _unfinished = app.source(&text("t")).map(|v| v.len());
        app.source(&text("in")).to(&text("in"));
    });
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 5, "{error}");
    assert_eq!(lines[0], "the app has 4 mistakes:");
    for (line, part) in lines[1..]
        .iter()
        .zip(["spare", "\"a b\"", "`map`", "endlessly"])
    {
        assert!(line.starts_with("- ") && line.contains(part), "{error}");
    }
}

#[test]
fn clones_get_each_record_in_the_order_of_their_next_steps() {
    let mut bench = Bench::new(|app| {
        let (long, short) = app.source(&text("t")).branch(|v| v.len() > 1);
        let (first, third, unused) = (long.clone(), long.clone(), long.clone());
        first.map(|v| v + "1").to(&text("first"));
        // A node behind both exits of the branch.
        long.merge(short).to(&text("both"));
        third.map(|v| v + "3").to(&text("third"));
        drop(unused);
    });
    bench.check(0, "k=ab", &["first:k=ab1", "both:k=ab", "third:k=ab3"]);
    bench.check(0, "k=a", &["both:k=a"]);
    // Six nodes, and two that copy. The clone without a next node has no copying node.
    assert_eq!(bench.chains.places.len(), 8);
}

#[test]
fn a_stream_none_of_whose_clones_ends_is_a_mistake() {
    let error = error(|app| drop(app.source(&text("t")).map(|v| v).clone()));
    assert!(error.contains("ends in `map`"), "{error}");
}

#[test]
fn a_record_chooses_among_declared_topics() {
    let mut bench = Bench::new(|app| {
        let topics = ["a", "b"].map(text);
        app.source(&text("t"))
            .route(&topics, |r| (&r.value[..1]).into());
    });
    bench.check(0, "k=a1", &["a:k=a1"]);
    bench.check(0, "k=b2", &["b:k=b2"]);
    let fault = bench.run(0, "k=c3").unwrap_err().to_string();
    assert!(fault.starts_with("the closure of `route` returned \"c\", but its topics are a, b"));
    let none = error(|app| {
        let none: [PlainTopic<String, String>; 0] = [];
        app.source(&text("t"))
            .route(&none, |r| (&r.value[..]).into());
    });
    assert!(none.contains("no topics"), "{none}");
}

#[test]
fn a_default_policy_is_of_sources_without_one_of_their_own() {
    let policies = |declare: fn(&mut App)| {
        let topology = app(declare).check().unwrap();
        let sources = topology.graph.sources.iter();
        sources
            .map(|source| source.policy.to_string())
            .collect::<Vec<_>>()
    };
    let found = policies(|app| {
        app.source(&text("a")).to(&text("o"));
        app.on_error(ErrorPolicy::dead_letter("dlq"));
        app.source(&text("b")).to(&text("o"));
        app.source(&text("c"))
            .on_error(ErrorPolicy::skip())
            .to(&text("o"));
    });
    let letters = ErrorPolicy::dead_letter("dlq").to_string();
    assert_eq!(
        found,
        [letters.clone(), letters, ErrorPolicy::skip().to_string()]
    );
}

#[test]
fn a_partitioner_decides_and_a_number_that_is_too_large_fails_the_record() {
    let by_length = |name| {
        text(name).partition_by("length", |key: &String, partitions| {
            assert_eq!(partitions, 6);
            key.len() as u32
        })
    };
    let mut bench = Bench::new(|app| {
        let out = app.output(&by_length("log"));
        let lines = app.source(&text("t"));
        lines.clone().to(&by_length("out").values());
        lines.route(&[by_length("a")], |_| "a".into());
        app.source(&text("t"))
            .for_each(move |ctx, r| ctx.emit(&out, r.key, r.value));
    });
    bench.check(0, "four=v", &["out:four=v", "a:four=v", "log:four=v"]);
    assert_eq!(bench.partitions, [4, 4, 4]);
    let fault = bench.run(0, "longer=v").unwrap_err().to_string();
    assert_eq!(
        fault,
        "the partitioner of the topic out returned 6, but the topic has 6 partitions. Return a smaller number"
    );
}

#[test]
fn topics_of_one_task_have_one_partitioner() {
    let by_length =
        |name| text(name).partition_by("length", |key: &String, n| key.len() as u32 % n);
    let merged = |first: PlainTopic<String, String>, second: PlainTopic<String, String>| {
        app(|app| {
            let first = app.source(&first);
            first.merge(app.source(&second)).to(&text("out"));
        })
        .check()
        .map(drop)
    };
    assert!(merged(by_length("a"), by_length("b")).is_ok());
    let error = merged(by_length("a"), text("b")).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "one task reads a, whose partitioner is \"length\", and b, whose partitioner is Kafka's,"
        ),
        "{error}"
    );
}

#[test]
fn a_topic_is_read_as_one_type_or_as_a_view() {
    let read = |read_again: fn(&mut App, &PlainTopic<String, String>)| {
        let topic = text("t");
        app(|app| {
            app.source(&topic).to(&text("out"));
            read_again(app, &topic);
        })
        .check()
        .map(drop)
    };
    let two_types = read(|app, _| app.source(&Topic::<String, u64>::plain("t")).ignore());
    assert_eq!(
        two_types.unwrap_err().to_string(),
        "the topic t is read as Topic<alloc::string::String, alloc::string::String> and as \
         Topic<alloc::string::String, u64>, so each record fails in one of them. Give both sources the same type, or \
         read one as a view with `topic.values::<..>()`"
    );
    let other_keys = read(|app, _| app.source(&Topic::<u64, String>::plain("t")).ignore());
    assert!(other_keys.is_err());
    let nulls = read(|app, _| {
        app.source(&Topic::<String, Option<String>>::plain("t"))
            .ignore()
    });
    assert!(nulls.is_ok(), "{nulls:?}");
    let view = read(|app, topic| app.source(&topic.values::<Vec<u8>>()).ignore());
    assert!(view.is_ok(), "{view:?}");
    // A topic may be written as one type and read as another.
    let written = read(|app, _| app.source(&text("u")).map(|_| 7).to(&Topic::plain("t")));
    assert!(written.is_ok(), "{written:?}");
}

#[test]
fn a_named_stage_names_its_changelog_and_has_one_name() {
    let count = |app: &mut App, names: [&str; 2]| {
        let (one, other) = (app.source(&text("t")), app.source(&text("u")));
        one.stage(names[0])
            .merge(other.stage(names[1]))
            .group_by_key()
            .count(&KeyValueStore::plain("counts"))
            .to(&Topic::plain("counts"));
    };
    let topology = app(|app| count(app, ["sales", "sales"])).check().unwrap();
    let names = topology.output_names();
    assert!(
        names
            .iter()
            .any(|name| name.as_str() == "a-sales-changelog"),
        "{names:?}"
    );
    let two = error(|app| count(app, ["sales", "shop"]));
    assert!(
        two.starts_with("one stage has the names \"sales\" and \"shop\""),
        "{two}"
    );
    let bad = error(|app| app.source(&text("t")).stage("no good").to(&text("out")));
    assert!(
        bad.starts_with("\"no good\" is not a valid stage name"),
        "{bad}"
    );
}
