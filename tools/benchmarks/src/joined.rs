//! Joins of two topics, as a user of eos writes them. A result is the left value followed by the right one.

use std::ops::Range;

use eos_core::state::{ForeignJoin, JoinStore};
use eos_core::windows::Within;
use eos_core::{App, KeyValueStore, Topic};

use crate::side::Task;
use crate::work::{GRACE, HOT_REACH, REACH, Work};

/// The place of the foreign key in a value: the last digits of the user.
pub(crate) const FOREIGN: Range<usize> = 14..18;

type Bytes = Vec<u8>;
type Records = Topic<Bytes, Bytes>;
type Rows = Topic<Bytes, Option<Bytes>>;

/// Adds the topology of the work to the app.
pub(crate) fn declare(app: &mut App, task: &Task) {
    let right = task.sibling.as_deref().unwrap_or_default();
    let rows = |name: &str| KeyValueStore::<Bytes, Bytes>::plain(name);
    match task.work {
        Work::StreamTable => {
            let table = app.table(&Rows::plain(right), &rows("right"));
            app.source(&Records::plain(&task.input))
                .join(&table, |left, right| both(&left, &right))
                .to(&Records::plain(&task.output));
        }
        Work::TableTable => {
            let left = app.table(&Rows::plain(&task.input), &rows("left"));
            let right = app.table(&Rows::plain(right), &rows("right"));
            left.join(&right, |left, right| both(left, right))
                .to(&Rows::plain(&task.output));
        }
        Work::Foreign | Work::Orders => {
            let left = app.table(&Rows::plain(&task.input), &rows("left"));
            let right = app.table(&Rows::plain(right), &rows("right"));
            let foreign = |left: &Bytes| Some(left.get(FOREIGN).unwrap_or_default().to_vec());
            let join = ForeignJoin::plain("foreign");
            left.join_by(&right, &join, foreign, |left, right| both(left, right))
                .to(&Rows::plain(&task.output));
        }
        work => {
            let left = app.source(&Records::plain(&task.input));
            let right = app.source(&Records::plain(right));
            let reach = match work {
                Work::HotKey | Work::ColdKeys => HOT_REACH,
                _ => REACH,
            };
            let within = Within::of(reach).grace(GRACE);
            let store = JoinStore::plain("joined");
            let results = match work {
                Work::Inner => {
                    left.join_within(right, within, &store, |left, right| both(left, right))
                }
                _ => left.left_join_within(right, within, &store, |left, right| {
                    both(left, right.map_or(&[], Vec::as_slice))
                }),
            };
            results.to(&Records::plain(&task.output));
        }
    }
}

fn both(left: &[u8], right: &[u8]) -> Bytes {
    [left, right].concat()
}
