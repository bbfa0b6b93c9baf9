//! Views of a task, from its start to its close.

use eos_protocol::WorkerId;

use super::*;
use crate::views::{ViewBoard, ViewError, Viewer};

fn board() -> Arc<ViewBoard> {
    Arc::new(ViewBoard::new(1, BTreeMap::from([("in".into(), 2)])))
}

fn viewed(disk: &Disk, board: &Arc<ViewBoard>) -> WorkerSpec {
    WorkerSpec {
        views: Arc::clone(board),
        ..stateful(disk, 0)
    }
}

impl Bench {
    /// The count of a word in the first task.
    fn view(&self, word: &str) -> Result<Option<u64>, ViewError> {
        let shared = &self.worker.shared;
        let board = Arc::clone(&shared.spec.views);
        let viewer = Viewer::new(Arc::clone(&shared.topology), board, shared.env.clone());
        let counts = KeyValueStore::<String, u64>::plain("counts");
        viewer.view(&counts)?.task(0)?.get(&word.to_owned())
    }
}

#[test]
fn a_view_is_refused_until_the_state_is_restored_and_after_the_task_has_gone() {
    let (mut bench, disk) = counted();
    bench.replace(viewed(&disk, &board()), counting);
    disk.wipe();
    let mut phases: Vec<String> = Vec::new();
    let mut look = |bench: &Bench| {
        let phase = match bench.view("a") {
            Ok(count) => format!("{count:?}"),
            Err(ViewError::Starting { partition: 0, .. }) => "starting".to_owned(),
            Err(ViewError::Restoring { partition: 0, .. }) => "restoring".to_owned(),
            Err(ViewError::Elsewhere { here, .. }) => format!("elsewhere, {here:?}"),
            Err(error) => format!("{error}"),
        };
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
    };
    look(&bench);
    bench.assign(&[]);
    for _ in 0..20 {
        bench.step();
        look(&bench);
    }
    bench.assign(&[0]);
    for _ in 0..100 {
        bench.step();
        look(&bench);
    }
    bench.revoke(0, false);
    for _ in 0..20 {
        bench.step();
        look(&bench);
    }
    let elsewhere = "elsewhere, []";
    let expected = [
        "starting",
        elsewhere,
        "starting",
        "restoring",
        "Some(2)",
        elsewhere,
    ];
    assert_eq!(phases, expected);
}

/// The transaction is committed, but only the task itself sees it. A view of a part of it would be wrong, and so would
/// a view without its position.
#[test]
fn a_view_shows_a_transaction_once_the_database_has_it() {
    let (mut bench, disk) = counted();
    disk.applies.lock().unwrap().are_slow = true;
    bench.take(&["a", "b"]);
    assert!(bench.worker.tasks.is_applying());
    assert_eq!(bench.view("a").unwrap(), Some(2));
    assert_eq!(bench.view("b").unwrap(), Some(1));
    bench.take(&["c"]);
    assert_eq!(bench.view("a").unwrap(), Some(3));
    assert_eq!(bench.view("b").unwrap(), Some(2));
}

/// The thread of the replaced worker hangs, and never drops its tasks.
#[test]
fn the_tasks_of_a_replaced_worker_are_not_listed() {
    let (disk, board) = (Disk::default(), board());
    let mut bench = Bench::of(viewed(&disk, &board), counting);
    bench.feed(0, &["a"]);
    bench.assign(&[0]);
    bench.settle();
    assert_eq!(bench.view("a").unwrap(), Some(1));
    let other = Bench::of(viewed(&Disk::default(), &board), counting);
    assert_eq!(other.worker.shared.spec.id, WorkerId(0));
    let error = bench.view("a").unwrap_err();
    assert!(matches!(error, ViewError::Starting { .. }), "{error}");
}
