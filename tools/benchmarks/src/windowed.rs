//! Counts by window and session as an eos app.

use eos_core::codec::{Plain, SessionWindowed, TimeWindowed};
use eos_core::state::{SessionStore, WindowStore};
use eos_core::windows::{Hopping, Session, Tumbling, Windowed};
use eos_core::{App, Topic};

use crate::side::Task;
use crate::work::{ADVANCE, COUNTS, GAP, GRACE, WINDOW, Work};

type Key = Vec<u8>;

/// Adds the topology of the work to the app.
pub(crate) fn declare(app: &mut App, task: &Task) {
    let input = Topic::<Key, Vec<u8>>::plain(&task.input);
    let records = app.source(&input).group_by_key();
    let store = WindowStore::<Key, u64>::plain(COUNTS);
    let tumbling = Tumbling::of(WINDOW).grace(GRACE);
    let counts =
        Topic::<Windowed<Key>, u64, _, _>::with(&task.output, TimeWindowed::of(WINDOW), Plain);
    match task.work {
        Work::Hopping => records
            .windowed_by(Hopping::of(WINDOW).every(ADVANCE).grace(GRACE))
            .count(&store)
            .to(&counts),
        Work::Sessions => {
            let counts = Topic::<Windowed<Key>, Option<u64>, _, _>::with(
                &task.output,
                SessionWindowed::of(Plain),
                Plain,
            );
            records
                .windowed_by(Session::gap(GAP).grace(GRACE))
                .count(&SessionStore::plain(COUNTS))
                .to(&counts);
        }
        Work::OnClose => {
            let closed = records.windowed_by(tumbling).count(&store).emit_on_close();
            closed.to(&counts);
        }
        _ => records.windowed_by(tumbling).count(&store).to(&counts),
    }
}
