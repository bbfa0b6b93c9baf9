//! The rows of stores that one loop over the input computes.

use super::remains::Left;
use eos_oracle::Contents;

/// Returns a row with its time.
pub(super) fn stamped(key: &str, value: &str, time: i64) -> (Vec<u8>, Vec<u8>) {
    let row = [&time.to_be_bytes(), value.as_bytes()].concat();
    (key.as_bytes().to_vec(), row)
}

/// Compares the changelog and the open databases of a stage with the stores of each partition.
pub(super) fn differences(
    left: Left<'_>,
    (stage, changelog): (u16, &str),
    due: &[Vec<Contents>],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (partition, due) in (0..).zip(due) {
        let due = filled(due);
        let logged = left.logged_by_store(changelog, partition);
        let logged = filled(&logged);
        if logged != due {
            wrong.push(format!(
                "VIOLATED state_changelog: {changelog}-{partition} holds {logged:?}, not {due:?}"
            ));
        }
        let open = left.databases.iter().filter(|it| {
            let (at, of) = (it.task.stage.0, it.task.partition.get());
            it.open && at == stage && of == partition
        });
        for it in open {
            let (held, task) = (filled(&it.stores), it.task);
            if held != due || !it.whole && !due.is_empty() {
                wrong.push(format!(
                    "VIOLATED state_database: that of task {task} holds {held:?}, not {due:?}; it is whole: {}",
                    it.whole
                ));
            }
        }
    }
    wrong
}

/// Returns the stores that have rows. Sorts them, because the ids are not compared.
fn filled(stores: &[Contents]) -> Vec<&Contents> {
    let mut filled: Vec<_> = stores.iter().filter(|it| !it.is_empty()).collect();
    filled.sort();
    filled
}
