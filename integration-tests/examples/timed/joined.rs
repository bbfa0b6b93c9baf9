//! Pipelines of joins and tables. The second input is `<APP>-right`.

use std::time::Duration;

use anyhow::Result;
use eos_core::state::{ForeignJoin, JoinStore};
use eos_core::windows::{Sides, Within};
use eos_core::{App, KeyValueStore, Topic};

use crate::{Topics, ms, number};

type Texts = Topic<String, String>;
type Rows = Topic<String, Option<String>>;

fn topic(app: &str, end: &str) -> String {
    format!("{app}-{end}")
}

/// Formats a pair as `left+right`.
fn shown(sides: Sides<&String, &String>) -> String {
    match sides {
        Sides::Both(left, right) => format!("{left}+{right}"),
        Sides::Left(alone) | Sides::Right(alone) => alone.clone(),
    }
}

/// Joins of two streams. The results go to `<APP>-inner`, `<APP>-left` and `<APP>-outer`.
pub(crate) fn streams(app: &mut App, topics: &Topics, name: &str) -> Result<()> {
    let within = Within::of(Duration::ZERO)
        .before(ms("BEFORE_MS")?)
        .after(ms("AFTER_MS")?)
        .grace(ms("GRACE_MS")?);
    let left = app.source(&topics.input);
    let right = app.source(&Texts::plain(&topic(name, "right")));
    let store = JoinStore::<String, String, String>::plain;
    left.clone()
        .join_within(right.clone(), within, &store("inner"), |left, right| {
            shown(Sides::Both(left, right))
        })
        .late_to(&topics.late)
        .late_right_to(&topics.late)
        .to(&Texts::plain(&topic(name, "inner")));
    left.clone()
        .left_join_within(right.clone(), within, &store("left"), |left, right| {
            shown(right.map_or(Sides::Left(left), |right| Sides::Both(left, right)))
        })
        .late_to(&topics.late)
        .late_right_to(&topics.late)
        .to(&Texts::plain(&topic(name, "left")));
    left.outer_join_within(right, within, &store("outer"), shown)
        .late_to(&topics.late)
        .late_right_to(&topics.late)
        .to(&Texts::plain(&topic(name, "outer")));
    Ok(())
}

/// An outer join of two tables, and the left table's amounts by group, which go to `<APP>-sums`. A left row is
/// `group amount number`.
pub(crate) fn tables(app: &mut App, topics: &Topics, name: &str) {
    let left = app.table(
        &Rows::plain(topics.input.name()),
        &KeyValueStore::plain("left"),
    );
    let right = app.table(
        &Rows::plain(&topic(name, "right")),
        &KeyValueStore::plain("right"),
    );
    left.clone()
        .outer_join(&right, shown)
        .to(&Rows::plain(&topics.output));
    left.group_by(&Topic::<String, u64>::plain("groups"), |_, row: &String| {
        let mut words = row.split(' ');
        let group = words.next().unwrap_or_default().to_owned();
        let amount = words.next().and_then(|word| word.parse().ok());
        (group, amount.unwrap_or(0))
    })
    .reduce(
        &KeyValueStore::plain("sums"),
        |sum, new| sum + new,
        |sum, old| sum - old,
    )
    .to(&Topic::plain(&topic(name, "sums")));
}

/// Joins of two tables by a foreign key, which is the first word of a left row. `-` stands for no key. The results go
/// to `<APP>-inner` and `<APP>-left`.
pub(crate) fn foreign(app: &mut App, topics: &Topics, name: &str) -> Result<()> {
    let at_once = usize::try_from(number("AT_ONCE")?)?;
    let left = app.table(
        &Rows::plain(topics.input.name()),
        &KeyValueStore::plain("left"),
    );
    let right = app.table(
        &Rows::plain(&topic(name, "right")),
        &KeyValueStore::plain("right"),
    );
    let partner = |row: &String| {
        let key = row.split(' ').next().filter(|key| *key != "-");
        key.map(str::to_owned)
    };
    let join = |name| ForeignJoin::plain(name).at_once(at_once);
    left.clone()
        .join_by(&right, &join("inner"), partner, |left, right| {
            shown(Sides::Both(left, right))
        })
        .to(&Rows::plain(&topic(name, "inner")));
    left.left_join_by(&right, &join("left-by"), partner, |left, right| {
        shown(right.map_or(Sides::Left(left), |right| Sides::Both(left, right)))
    })
    .to(&Rows::plain(&topic(name, "left")));
    Ok(())
}
