//! The case of each shape.

use super::case::Case;
use super::shape::Shape;
use super::{
    calls, cogroup, dedup, expiring, foreign_keys, guarantees, idle, joined, joins, ledger, merged,
    on_close, parked, plain, policies, reorder, sequences, sessions, sliding, tables, timers,
    wall_timers, windowed,
};

pub(super) fn of(shape: Shape) -> Case {
    match shape {
        Shape::Stateless => plain::STATELESS,
        Shape::Counting => plain::COUNTING,
        Shape::Repartitioned => plain::REPARTITIONED,
        Shape::Windowed => windowed::WINDOWED,
        Shape::Joined => joined::JOINED,
        Shape::Merged => merged::MERGED,
        Shape::Skipping => policies::SKIPPING,
        Shape::DeadLetters => policies::DEAD_LETTERS,
        Shape::Pausing => policies::PAUSING,
        Shape::AtLeastOnce => plain::AT_LEAST_ONCE,
        Shape::AtMostOnce => guarantees::AT_MOST_ONCE,
        Shape::CountedAtLeastOnce => guarantees::COUNTED_AT_LEAST_ONCE,
        Shape::Timers => timers::TIMERS,
        Shape::OnClose => on_close::ON_CLOSE,
        Shape::Sessions => sessions::SESSIONS,
        Shape::Dedup => dedup::DEDUP,
        Shape::Async => calls::ASYNC,
        Shape::Parked => parked::PARKED,
        Shape::Sequences => sequences::SEQUENCES,
        Shape::Reorder => reorder::REORDER,
        Shape::WallTimers => wall_timers::WALL_TIMERS,
        Shape::Expiring => expiring::EXPIRING,
        Shape::Sliding => sliding::SLIDING,
        Shape::Idle => idle::IDLE,
        Shape::Joins => joins::JOINS,
        Shape::Tables => tables::TABLES,
        Shape::Ledger => ledger::LEDGER,
        Shape::Foreign => foreign_keys::FOREIGN,
        Shape::Cogroup => cogroup::COGROUP,
    }
}
