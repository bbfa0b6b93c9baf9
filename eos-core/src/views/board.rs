//! The tasks of a process that can be viewed. Workers add tasks, and views look them up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use eos_protocol::views::{ViewPhase, Whereabouts, whereabouts};
use eos_protocol::{Now, Partition, StageId, TaskId, TopicName, WorkerId};
use eos_state::StateReader;

/// The tasks of a process with their readers, and the waiting views. Workers lock the board when a task starts, is
/// restored, commits or closes, but not for a record.
#[derive(Debug, Default)]
pub struct ViewBoard {
    board: Mutex<Board>,
    /// The number of waiting views. Workers read this number in each step, without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Board {
    workers: usize,
    /// The number of partitions of each input topic.
    widths: BTreeMap<TopicName, u32>,
    tasks: BTreeMap<TaskId, Entry>,
    /// By worker, the tasks whose start offsets are being read. A worker has an entry once it has an assignment.
    starting: BTreeMap<WorkerId, BTreeSet<TaskId>>,
    next: u64,
    waiters: BTreeMap<u64, (Now, Waker)>,
    is_stopping: bool,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    worker: WorkerId,
    /// Present once the state is restored.
    state: Option<Restored>,
}

/// The restored state of a task. An engine may have no reader.
type Restored = Option<StateReader>;

/// The result of a lookup of a stage's partition.
#[derive(Debug)]
pub(crate) enum Found {
    Ready(Restored),
    Not(Whereabouts),
    /// The task is not in this process, because the app is stopping or has stopped.
    Stopped,
}

impl ViewBoard {
    pub(crate) fn new(workers: u16, widths: BTreeMap<TopicName, u32>) -> Self {
        let board = Board {
            workers: usize::from(workers),
            widths,
            ..Board::default()
        };
        Self {
            board: Mutex::new(board),
            waiting: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a task.
    pub(crate) fn find(&self, task: TaskId, partitions: u32) -> Found {
        let board = self.lock();
        let reader = board.tasks.get(&task).and_then(|it| it.state.as_ref());
        if let Some(reader) = reader {
            return Found::Ready(reader.clone());
        }
        let joined = board.starting.len() >= board.workers;
        let phases = board.phases(task.stage);
        match whereabouts(task.partition, partitions, &phases, joined) {
            Whereabouts::Starting | Whereabouts::Elsewhere { .. } if board.is_stopping => {
                Found::Stopped
            }
            not => Found::Not(not),
        }
    }

    /// Returns the partitions of a stage whose tasks are in this process and ready.
    pub(crate) fn ready(&self, stage: StageId) -> Vec<Partition> {
        let phases = self.lock().phases(stage).into_iter();
        let ready = phases.filter(|(_, phase)| *phase == ViewPhase::Ready);
        ready.map(|(partition, _)| partition).collect()
    }

    /// Returns the number of partitions of an input topic.
    pub(crate) fn width(&self, topic: &TopicName) -> u32 {
        self.lock().widths.get(topic).copied().unwrap_or(0)
    }

    /// Whether the app is stopping or has stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Records that the app is stopping or has stopped.
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.changed();
    }

    /// Records that an input topic has more partitions.
    pub(crate) fn grew(&self, topic: TopicName, partitions: u32) {
        self.lock().widths.insert(topic, partitions);
    }

    /// Records the tasks of a worker whose start offsets are being read. Call it once the worker has an assignment.
    pub(crate) fn starting(&self, worker: WorkerId, tasks: BTreeSet<TaskId>) {
        self.lock().starting.insert(worker, tasks);
    }

    /// Adds a task whose state is being restored. The task remains on the board until the ticket is dropped.
    pub(crate) fn begin(self: &Arc<Self>, worker: WorkerId, task: TaskId) -> ViewTicket {
        let mut board = self.lock();
        let number = board.number();
        let entry = Entry {
            number,
            worker,
            state: None,
        };
        board.tasks.insert(task, entry);
        drop(board);
        ViewTicket {
            number,
            task,
            board: Arc::clone(self),
        }
    }

    /// Removes the tasks of a replaced worker. Its thread may hang and therefore drop no ticket.
    pub(crate) fn clear(&self, worker: WorkerId) {
        let mut board = self.lock();
        board.tasks.retain(|_, it| it.worker != worker);
        board.starting.remove(&worker);
    }

    /// Wakes all waiting views, which then check again.
    pub(crate) fn changed(&self) {
        self.wake(|_| true);
    }

    /// Wakes the waiting views whose deadline has passed. Cheap if no view waits.
    #[inline]
    pub(crate) fn wake_overdue(&self, now: impl FnOnce() -> Now) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let now = now();
            self.wake(|deadline| deadline <= now);
        }
    }

    fn wake(&self, is_due: impl Fn(Now) -> bool) {
        // Pairs with the fence in `wait`: either the view is registered here, or its check sees the change.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let board = self.lock();
        let due = board.waiters.values().filter(|(at, _)| is_due(*at));
        let due: Vec<Waker> = due.map(|(_, waker)| waker.clone()).collect();
        drop(board);
        // A waker may take other locks.
        due.iter().for_each(Waker::wake_by_ref);
    }

    /// Adds a waiting view. The board wakes the view until the ticket is dropped.
    pub(crate) fn wait(self: &Arc<Self>, deadline: Now, waker: &Waker) -> WaitTicket {
        let mut board = self.lock();
        let number = board.number();
        board.waiters.insert(number, (deadline, waker.clone()));
        self.waiting.store(board.waiters.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        drop(board);
        WaitTicket {
            number,
            board: Arc::clone(self),
        }
    }
}

impl Board {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn phases(&self, stage: StageId) -> BTreeMap<Partition, ViewPhase> {
        let starting = self.starting.values().flatten();
        let starting = starting.map(|task| (*task, ViewPhase::Starting));
        let tasks = self.tasks.iter().map(|(task, entry)| {
            let phase = match entry.state {
                Some(_) => ViewPhase::Ready,
                None => ViewPhase::Restoring,
            };
            (*task, phase)
        });
        let all = starting.chain(tasks);
        let its = all.filter(|(task, _)| task.stage == stage);
        its.map(|(task, phase)| (task.partition, phase)).collect()
    }
}

/// The entry of a task on the board. Its drop removes the task.
#[derive(Debug)]
pub(crate) struct ViewTicket {
    number: u64,
    task: TaskId,
    board: Arc<ViewBoard>,
}

impl ViewTicket {
    /// Records that the state is restored.
    pub(crate) fn restored(&self, reader: Option<StateReader>) {
        let mut board = self.board.lock();
        let entry = board.tasks.get_mut(&self.task);
        if let Some(entry) = entry.filter(|it| it.number == self.number) {
            entry.state = Some(reader);
        }
        drop(board);
        self.board.changed();
    }
}

impl Drop for ViewTicket {
    fn drop(&mut self) {
        let mut board = self.board.lock();
        let entry = board.tasks.get(&self.task);
        // The task may have a successor in another worker.
        if entry.is_some_and(|it| it.number == self.number) {
            board.tasks.remove(&self.task);
        }
        drop(board);
        self.board.changed();
    }
}

/// The entry of a waiting view on the board. Its drop removes the view.
#[derive(Debug)]
pub(crate) struct WaitTicket {
    number: u64,
    board: Arc<ViewBoard>,
}

impl Drop for WaitTicket {
    fn drop(&mut self) {
        let mut board = self.board.lock();
        board.waiters.remove(&self.number);
        let waiting = board.waiters.len();
        self.board.waiting.store(waiting, Ordering::Relaxed);
    }
}

/// Records the stop of the app when it is dropped.
#[derive(Debug)]
pub(crate) struct StopsViews(pub(crate) Arc<ViewBoard>);

impl Drop for StopsViews {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn task(partition: i32) -> TaskId {
        TaskId {
            stage: StageId(0),
            partition: Partition::new(partition).unwrap(),
        }
    }

    fn is(board: &ViewBoard, partition: i32) -> String {
        match board.find(task(partition), 4) {
            Found::Ready(_) => "ready".to_owned(),
            Found::Not(not) => format!("{not:?}"),
            Found::Stopped => "stopped".to_owned(),
        }
    }

    #[test]
    fn a_task_is_listed_from_its_start_to_its_close() {
        let board = Arc::new(ViewBoard::new(1, BTreeMap::new()));
        assert_eq!(is(&board, 0), "Starting", "the worker has not joined");
        board.starting(WorkerId(0), BTreeSet::from([task(0)]));
        assert_eq!(is(&board, 0), "Starting");
        assert_eq!(is(&board, 1), "Elsewhere { here: [Partition(0)] }");
        board.starting(WorkerId(0), BTreeSet::new());
        let ticket = board.begin(WorkerId(0), task(0));
        assert_eq!(is(&board, 0), "Restoring");
        assert!(board.ready(StageId(0)).is_empty());
        ticket.restored(None);
        assert_eq!(is(&board, 0), "ready");
        assert_eq!(board.ready(StageId(0)), [task(0).partition]);
        drop(ticket);
        assert_eq!(is(&board, 0), "Elsewhere { here: [] }");
        board.stop();
        assert_eq!(is(&board, 0), "stopped");
        assert_eq!(is(&board, 7), "Missing");
    }

    /// The thread of the replaced worker hangs, and ends later or not at all.
    #[test]
    fn the_ticket_of_a_replaced_worker_does_not_remove_its_successor() {
        let board = Arc::new(ViewBoard::new(1, BTreeMap::new()));
        let hung = board.begin(WorkerId(0), task(0));
        hung.restored(None);
        board.clear(WorkerId(0));
        assert_eq!(is(&board, 0), "Starting");
        let successor = board.begin(WorkerId(0), task(0));
        hung.restored(None);
        assert_eq!(is(&board, 0), "Restoring");
        drop(hung);
        successor.restored(None);
        assert_eq!(is(&board, 0), "ready");
    }

    #[test]
    fn a_waiting_view_is_woken_by_changes_and_at_its_deadline() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let woken = || count.0.load(Ordering::Relaxed);
        let at = |ms| Now(Duration::from_millis(ms));
        let board = Arc::new(ViewBoard::new(1, BTreeMap::new()));
        board.changed();
        board.wake_overdue(|| panic!("no reader waits, so no clock is read"));
        let ticket = board.wait(at(10), &Waker::from(Arc::clone(&count)));
        board.wake_overdue(|| at(9));
        assert_eq!(woken(), 0);
        board.wake_overdue(|| at(10));
        assert_eq!(woken(), 1);
        board.changed();
        assert_eq!(woken(), 2);
        drop(board.begin(WorkerId(0), task(0)));
        assert_eq!(woken(), 3);
        drop(ticket);
        board.changed();
        assert_eq!(woken(), 3);
    }
}
