//! The apps that are simulated.

use eos_core::{App, ErrorPolicy, Guarantee, KeyValueStore, Topic};

use super::policies::{self, Kind};
use super::rng::Rng;
use super::{joined, merged, windowed};
use crate::client::Cluster;

/// The input of every shape.
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
    /// A count by key and time window, with late records.
    Windowed,
    /// A stream that joins with a table of a sibling topic.
    Joined,
    /// Two topics that one task merges by time.
    Merged,
    /// Failed records are retried or skipped, closures take seconds, and counts are emitted once per commit.
    Skipping,
    /// The same, but records that fail permanently become dead letters.
    DeadLetters,
    /// As [`Stateless`](Self::Stateless), but records may be repeated.
    AtLeastOnce,
}

/// A record's topic, and its properties beside its key and number.
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

    /// The weight in the draw.
    pub(crate) fn weight(self) -> usize {
        match self {
            Shape::Merged | Shape::Skipping | Shape::DeadLetters => 1,
            // The only shape that commits through the consumer.
            Shape::AtLeastOnce => 2,
            Shape::Stateless | Shape::Windowed | Shape::Joined => 2,
            Shape::Counting | Shape::Repartitioned => 3,
        }
    }

    /// Draws a shape.
    pub(crate) fn drawn(rng: &mut Rng) -> Shape {
        let all = Shape::ALL.into_iter();
        let all = all.flat_map(|shape| std::iter::repeat_n(shape, shape.weight()));
        let all: Vec<_> = all.collect();
        rng.of(&all).copied().unwrap_or(Shape::Counting)
    }

    /// The name on the command line.
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

    /// Whether it keeps state.
    #[must_use]
    pub fn counts(self) -> bool {
        !matches!(self, Shape::Stateless | Shape::Merged | Shape::AtLeastOnce)
    }

    /// The input topics. The group subscribes to the first.
    pub(crate) fn inputs(self) -> &'static [&'static str] {
        match self {
            Shape::Joined => &joined::INPUTS,
            Shape::Merged => &merged::INPUTS,
            _ => &[INPUT],
        }
    }

    /// The sibling topic that records of this topic are joined with.
    pub(crate) fn sibling(self, topic: &str) -> Option<&'static str> {
        (self == Shape::Joined && topic == INPUT).then_some(joined::ROWS)
    }

    /// The output topics.
    pub(crate) fn outputs(self) -> &'static [&'static str] {
        match self {
            Shape::Windowed => &windowed::OUTPUTS,
            Shape::Skipping | Shape::DeadLetters => &policies::OUTPUTS,
            _ => &OUTPUTS,
        }
    }

    /// Draws the next record.
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

    /// The app, with the time of this cluster. Each output's value is the input's value, followed by its key's
    /// count, if there is one.
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
