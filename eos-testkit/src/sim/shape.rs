//! The apps that are simulated.

use eos_core::{App, ErrorPolicy, Guarantee, KeyValueStore, Topic};

use super::policies::{self, Kind};
use super::rng::Rng;
use super::{joined, merged, windowed};
use crate::client::Cluster;

/// The input that all of them have.
pub(crate) const INPUT: &str = "in";
/// Every record leads to one in each of these: what is in one and not in the other was torn apart.
pub(crate) const OUTPUTS: [&str; 2] = ["out", "copy"];
/// The app's name, and its group.
pub(crate) const APP: &str = "sim";

/// What an app does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Two outputs, nothing kept.
    Stateless,
    /// A count by key in a store.
    Counting,
    /// A count by another key than the input's, through a repartition topic.
    Repartitioned,
    /// A count by key and window of time, for records that come late, too.
    Windowed,
    /// A stream that joins with a table of a sibling topic.
    Joined,
    /// Two topics that one task reads in order of time.
    Merged,
    /// Records that fail and are tried again or left out, closures that take seconds, and counts that go on once
    /// per commit.
    Skipping,
    /// The same, and what fails for good goes to another topic.
    DeadLetters,
    /// As the first, and records may be repeated.
    AtLeastOnce,
}

/// Where a record goes, and what it has beside its key and its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) topic: &'static str,
    pub(crate) timestamp: i64,
    /// It deletes the row of its key.
    pub(crate) tombstone: bool,
    pub(crate) kind: Kind,
}

impl Shape {
    /// Every one.
    pub const ALL: [Shape; 9] = [
        Shape::Stateless,
        Shape::Counting,
        Shape::Repartitioned,
        Shape::Windowed,
        Shape::Joined,
        Shape::Merged,
        Shape::Skipping,
        Shape::DeadLetters,
        Shape::AtLeastOnce,
    ];

    /// How often it is drawn, beside the others.
    pub(crate) fn weight(self) -> usize {
        match self {
            Shape::Merged | Shape::Skipping | Shape::DeadLetters => 1,
            // The only one that commits through the consumer.
            Shape::AtLeastOnce => 2,
            Shape::Stateless | Shape::Windowed | Shape::Joined => 2,
            Shape::Counting | Shape::Repartitioned => 3,
        }
    }

    /// The one that a seed has.
    pub(crate) fn drawn(rng: &mut Rng) -> Shape {
        let all = Shape::ALL.into_iter();
        let all = all.flat_map(|shape| std::iter::repeat_n(shape, shape.weight()));
        let all: Vec<_> = all.collect();
        rng.of(&all).copied().unwrap_or(Shape::Counting)
    }

    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Stateless => "stateless",
            Shape::Counting => "counting",
            Shape::Repartitioned => "repartitioned",
            Shape::Windowed => "windowed",
            Shape::Joined => "joined",
            Shape::Merged => "merged",
            Shape::Skipping => "skipping",
            Shape::DeadLetters => "dead_letters",
            Shape::AtLeastOnce => "at_least_once",
        }
    }

    /// The shape of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Shape> {
        Shape::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Whether it keeps anything.
    #[must_use]
    pub fn counts(self) -> bool {
        !matches!(self, Shape::Stateless | Shape::Merged | Shape::AtLeastOnce)
    }

    /// The topics that records come into. The group subscribes to the first.
    pub(crate) fn inputs(self) -> &'static [&'static str] {
        match self {
            Shape::Joined => &joined::INPUTS,
            Shape::Merged => &merged::INPUTS,
            _ => &[INPUT],
        }
    }

    /// The topic that a record of this one finds something in.
    pub(crate) fn sibling(self, topic: &str) -> Option<&'static str> {
        (self == Shape::Joined && topic == INPUT).then_some(joined::ROWS)
    }

    /// The topics that exist for what it writes.
    pub(crate) fn outputs(self) -> &'static [&'static str] {
        match self {
            Shape::Windowed => &windowed::OUTPUTS,
            Shape::Skipping | Shape::DeadLetters => &policies::OUTPUTS,
            _ => &OUTPUTS,
        }
    }

    /// The next record.
    pub(crate) fn draft(self, rng: &mut Rng, now: i64) -> Draft {
        let plain = Draft {
            topic: INPUT,
            timestamp: now,
            tombstone: false,
            kind: Kind::Good,
        };
        match self {
            Shape::Stateless | Shape::Counting | Shape::Repartitioned | Shape::AtLeastOnce => plain,
            Shape::Windowed => Draft {
                timestamp: windowed::time(rng, now),
                ..plain
            },
            Shape::Joined => joined::draft(rng, now),
            Shape::Merged => merged::draft(rng, now),
            Shape::Skipping | Shape::DeadLetters => Draft {
                kind: Kind::drawn(rng),
                ..plain
            },
        }
    }

    /// The key that a record of the input ends up under. The input's is a letter and a digit.
    pub(crate) fn key(self, key: &str) -> String {
        match self {
            Shape::Repartitioned => key.chars().skip(1).collect(),
            _ => key.to_owned(),
        }
    }

    /// The app, for which time passes on this cluster. Each output's value is the input's, and behind it its key's count, if there is one.
    pub(crate) fn app(self, cluster: &Cluster) -> App {
        let mut app = App::new(APP)
            .set("commit.interval.ms", 40)
            .set("session.timeout.ms", 3_000)
            .set("heartbeat.interval.ms", 300)
            .set("transaction.timeout.ms", 6_000);
        let input = Topic::<String, String>::plain(INPUT);
        let [first, second] = OUTPUTS.map(Topic::<String, String>::plain);
        match self {
            Shape::Stateless | Shape::AtLeastOnce => {
                if self == Shape::AtLeastOnce {
                    app = app.guarantee(Guarantee::AtLeastOnce);
                }
                let (one, other) = app.source(&input).tee();
                one.to(&first);
                other.to(&second);
            }
            Shape::Counting | Shape::Repartitioned => {
                let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
                let (first, second) = (app.output(&first), app.output(&second));
                let count =
                    move |ctx: &eos_core::Ctx<'_>, record: eos_core::Record<String, String>| {
                        let counts = ctx.store(&counts);
                        let count = counts.update(&record.key, |before| before.unwrap_or(0) + 1)?;
                        let value = format!("{} {count}", record.value);
                        ctx.emit(&first, record.key.clone(), value.clone())?;
                        ctx.emit(&second, record.key, value)
                    };
                let source = app.source(&input);
                if self == Shape::Repartitioned {
                    // The record brings its new key along.
                    source
                        .key_by(|value| value.split(' ').nth(1).unwrap_or_default().to_owned())
                        .repartition(&Topic::plain("by-digit"))
                        .with_store(&counts)
                        .process(count);
                } else {
                    source.with_store(&counts).process(count);
                }
            }
            Shape::Windowed => windowed::declare(&mut app),
            Shape::Joined => joined::declare(&mut app),
            Shape::Merged => merged::declare(&mut app),
            Shape::Skipping => policies::declare(&mut app, cluster, ErrorPolicy::skip()),
            Shape::DeadLetters => {
                let letters = ErrorPolicy::dead_letter(policies::DEAD);
                policies::declare(&mut app, cluster, letters);
            }
        }
        app
    }
}
