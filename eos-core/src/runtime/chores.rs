//! Periodic background jobs, on a thread of their own.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A periodic job.
pub(super) struct Chore {
    /// The interval.
    pub(super) every: Duration,
    /// The job. The other jobs of the thread wait for its end.
    pub(super) act: Box<dyn FnMut() + Send>,
}

/// The thread of the jobs. After a drop or a [stop](Self::stop), it finishes the current job and ends.
#[derive(Debug)]
pub(super) struct Chores(Option<Thread>);

#[derive(Debug)]
struct Thread {
    going_on: Sender<()>,
    /// Disconnects when the thread has ended.
    ended: Receiver<()>,
    handle: JoinHandle<()>,
}

impl Chores {
    /// Starts the thread, if there are jobs.
    ///
    /// # Errors
    /// If the system can't create a thread.
    pub(super) fn start(chores: Vec<Chore>) -> io::Result<Self> {
        if chores.is_empty() {
            return Ok(Self(None));
        }
        let (going_on, over) = channel();
        let (at_end, ended) = channel();
        let work = move || {
            let _at_end: Sender<()> = at_end;
            run(chores, &over);
        };
        let handle = std::thread::Builder::new()
            .name("eos-chores".into())
            .spawn(work)?;
        Ok(Self(Some(Thread {
            going_on,
            ended,
            handle,
        })))
    }

    /// Starts no more jobs, and waits for the current job, but no longer than this. Returns false if the job is still
    /// running then.
    #[must_use = "a job that still runs may touch files of another process"]
    pub(super) fn stop(self, patience: Duration) -> bool {
        let Some(Thread {
            going_on,
            ended,
            handle,
        }) = self.0
        else {
            return true;
        };
        drop(going_on);
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        // The thread has finished, normally or with a panic, which is already logged.
        let _end = handle.join();
        true
    }
}

/// Runs each job at its interval, for the first time after one interval.
fn run(chores: Vec<Chore>, over: &Receiver<()>) {
    let begun = Instant::now();
    let mut due: Vec<(Instant, Chore)> = chores
        .into_iter()
        .map(|chore| (begun + chore.every, chore))
        .collect();
    while let Some((at, chore)) = due.iter_mut().min_by_key(|(at, _)| *at) {
        let wait = at.saturating_duration_since(Instant::now());
        match over.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        (chore.act)();
        *at = Instant::now() + chore.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_is_done_in_its_time_until_it_is_over() {
        let done = [0, 1].map(|_| Arc::new(AtomicU32::new(0)));
        let chore = |n: usize, every| {
            let done = Arc::clone(&done[n]);
            Chore {
                every: Duration::from_millis(every),
                act: Box::new(move || {
                    done.fetch_add(1, Ordering::Relaxed);
                }),
            }
        };
        let chores = Chores::start(vec![chore(0, 3_600_000), chore(1, 1)]).unwrap();
        let patience = Instant::now() + Duration::from_secs(30);
        while done[1].load(Ordering::Relaxed) < 5 {
            assert!(Instant::now() < patience);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(chores.stop(Duration::from_secs(30)));
        assert_eq!(Arc::strong_count(&done[0]), 1, "the thread is gone");
        assert_eq!(done[0].load(Ordering::Relaxed), 0, "not due yet");
    }

    /// Returns a running chore of this duration, and whether it is done.
    fn under_way(takes: Duration) -> (Chores, Arc<AtomicU32>) {
        let (begun, begins) = channel();
        let done = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&done);
        let act = move || {
            let _receiver_may_have_ended = begun.send(());
            std::thread::sleep(takes);
            told.fetch_add(1, Ordering::Relaxed);
        };
        let chores = Chores::start(vec![Chore {
            every: Duration::from_millis(1),
            act: Box::new(act),
        }]);
        begins.recv().unwrap();
        (chores.unwrap(), done)
    }

    #[test]
    fn a_stop_waits_for_what_is_under_way() {
        let (chores, done) = under_way(Duration::from_millis(300));
        assert!(chores.stop(Duration::from_secs(30)));
        assert_eq!(done.load(Ordering::Relaxed), 1, "and nothing is begun");
        assert_eq!(Arc::strong_count(&done), 1, "the thread is gone");
    }

    #[test]
    fn a_stop_waits_for_a_limited_time() {
        let (chores, done) = under_way(Duration::from_secs(5));
        let since = Instant::now();
        assert!(!chores.stop(Duration::from_millis(20)));
        assert!(since.elapsed() < Duration::from_secs(4));
        assert_eq!(done.load(Ordering::Relaxed), 0);
    }
}
