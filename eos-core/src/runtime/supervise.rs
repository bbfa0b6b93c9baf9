//! Waits for the workers' threads, and replaces hanging ones.
//!
//! Every call has a deadline, but the client library has to keep it. If a call does not return long after all
//! deadlines, its thread is abandoned: it leaks, with its connections. Another thread replaces the worker under the
//! same ids, which fences the operations of the old one. A slow user closure is not a client call, and the supervisor
//! waits for it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::watch::Watch;
use crate::error::Error;

/// The number of checks during the patience.
const LOOKS: u32 = 40;
/// The number of replacements of one worker before the process has to be restarted.
const REPLACEMENTS: u32 = 3;

type End = Result<(), Error>;

/// A worker, and the number of its thread.
type Who = (usize, u32);

/// Creates and controls the workers' threads.
pub(super) trait Crew: Send + 'static {
    /// Starts the thread of this worker. `done` is dropped when the thread ends.
    fn spawn(
        &mut self,
        worker: usize,
        watch: Arc<Watch>,
        done: Done,
    ) -> io::Result<JoinHandle<End>>;

    /// Stops the other workers after a worker ended with an error.
    fn stop(&mut self);

    /// Whether all workers have to stop.
    fn is_stopping(&self) -> bool;

    /// Handles an abandoned thread.
    fn abandoned(&mut self, worker: usize);
}

/// Reports the end of a thread on drop.
#[derive(Debug)]
pub(super) struct Done {
    who: Who,
    to: Sender<Who>,
}

impl Drop for Done {
    fn drop(&mut self) {
        // No receiver exists once all other threads have ended.
        let _ = self.to.send(self.who);
    }
}

/// The supervisor of the workers' threads.
pub(super) struct Supervisor<C> {
    crew: C,
    /// The posts, by worker.
    posts: Vec<Post>,
    ended: (Sender<Who>, Receiver<Who>),
    /// The longest time of a call.
    patience: Duration,
}

/// The place of one worker.
struct Post {
    thread: Option<JoinHandle<End>>,
    watch: Arc<Watch>,
    /// The call in flight at the last check, and the number of checks that have found it.
    seen: (Option<u64>, u32),
    replaced: u32,
    end: Option<End>,
}

impl<C: Crew> Supervisor<C> {
    /// Starts `workers` threads.
    ///
    /// # Errors
    /// If the system can't create a thread. The running threads are stopped.
    pub(super) fn start(mut crew: C, workers: usize, patience: Duration) -> io::Result<Self> {
        let ended = channel();
        let mut posts = Vec::with_capacity(workers);
        for worker in 0..workers {
            let watch = Arc::new(Watch::default());
            let done = Done {
                who: (worker, 0),
                to: ended.0.clone(),
            };
            let thread = match crew.spawn(worker, Arc::clone(&watch), done) {
                Ok(thread) => thread,
                Err(error) => {
                    crew.stop();
                    return Err(error);
                }
            };
            posts.push(Post {
                thread: Some(thread),
                watch,
                seen: (None, 0),
                replaced: 0,
                end: None,
            });
        }
        Ok(Self {
            crew,
            posts,
            ended,
            patience,
        })
    }

    /// Waits until every worker has ended. Returns the first error, if there is one.
    pub(super) fn run(mut self) -> End {
        while self.posts.iter().any(|post| post.end.is_none()) {
            match self.ended.1.recv_timeout(self.patience / LOOKS) {
                Ok(who) => self.joined(who),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let mut ends = self.posts.into_iter().filter_map(|post| post.end);
        ends.find(Result::is_err).unwrap_or(Ok(()))
    }

    fn joined(&mut self, (worker, turn): Who) {
        // An abandoned thread that ends also reports its end.
        let mut posts = self.posts.iter_mut().enumerate();
        let post = posts.find(|(n, post)| *n == worker && post.replaced == turn);
        let Some((post, thread)) = post.and_then(|(_, post)| {
            let thread = post.thread.take()?;
            Some((post, thread))
        }) else {
            return;
        };
        let end = thread.join().unwrap_or(Err(Error::Gone));
        if end.is_err() {
            // The other workers also stop, because the whole process is restarted.
            self.crew.stop();
        }
        post.end = Some(end);
    }

    /// Checks for a call that every check has found for too long. It counts checks, not time: a process that was
    /// suspended for a while makes no checks meanwhile.
    fn look(&mut self) {
        for worker in 0..self.posts.len() {
            let Some(post) = self.posts.get_mut(worker) else {
                continue;
            };
            if post.end.is_some() {
                continue;
            }
            let call = post.watch.call();
            post.seen = match (call, post.seen) {
                (Some(now), (Some(before), looks)) if now == before => (call, looks + 1),
                _ => (call, 0),
            };
            if call.is_some() && post.seen.1 >= LOOKS {
                self.abandon(worker);
            }
        }
    }

    fn abandon(&mut self, worker: usize) {
        let Some(post) = self.posts.get_mut(worker) else {
            return;
        };
        post.watch.abandon();
        post.thread = None;
        post.replaced += 1;
        let waited_s = self.patience.as_secs();
        tracing::error!(
            worker,
            waited_s,
            "a call of the Kafka client hangs; abandoning its thread and starting another one"
        );
        self.crew.abandoned(worker);
        if self.crew.is_stopping() {
            post.end = Some(Err(Error::StopTimedOut { waited_s }));
            return;
        }
        if post.replaced > REPLACEMENTS {
            post.end = Some(Err(Error::Hangs {
                worker,
                times: post.replaced,
            }));
            self.crew.stop();
            return;
        }
        post.watch = Arc::new(Watch::default());
        post.seen = (None, 0);
        let done = Done {
            who: (worker, post.replaced),
            to: self.ended.0.clone(),
        };
        match self.crew.spawn(worker, Arc::clone(&post.watch), done) {
            Ok(thread) => post.thread = Some(thread),
            Err(error) => {
                post.end = Some(Err(Error::Thread(error)));
                self.crew.stop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use eos_protocol::CallSite;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    type Body = Box<dyn Fn(u32, &Watch) -> End + Send + Sync>;

    /// A crew of one worker, whose threads run the test's code.
    struct One {
        body: Arc<Body>,
        turn: u32,
        stopping: Arc<AtomicBool>,
        abandoned: Arc<Mutex<u32>>,
    }

    impl Crew for One {
        fn spawn(
            &mut self,
            _: usize,
            watch: Arc<Watch>,
            done: Done,
        ) -> io::Result<JoinHandle<End>> {
            let (body, turn) = (Arc::clone(&self.body), self.turn);
            self.turn += 1;
            Ok(std::thread::spawn(move || {
                let _done = done;
                body(turn, &watch)
            }))
        }
        fn stop(&mut self) {
            self.stopping.store(true, Ordering::Relaxed);
        }
        fn is_stopping(&self) -> bool {
            self.stopping.load(Ordering::Relaxed)
        }
        fn abandoned(&mut self, _: usize) {
            *self.abandoned.lock().unwrap() += 1;
        }
    }

    fn run(
        stopping: bool,
        body: impl Fn(u32, &Watch) -> End + Send + Sync + 'static,
    ) -> (End, u32, Duration) {
        let abandoned = Arc::new(Mutex::new(0));
        let crew = One {
            body: Arc::new(Box::new(body)),
            turn: 0,
            stopping: Arc::new(AtomicBool::new(stopping)),
            abandoned: Arc::clone(&abandoned),
        };
        let start = Instant::now();
        let supervisor = Supervisor::start(crew, 1, PATIENCE).unwrap();
        let end = supervisor.run();
        let abandoned = *abandoned.lock().unwrap();
        (end, abandoned, start.elapsed())
    }

    fn hang(watch: &Watch) -> ! {
        let _under_way = watch.enter(CallSite::Commit);
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_thread_that_hangs_in_a_call_is_replaced() {
        let (end, abandoned, _) = run(false, |turn, watch| match turn {
            0 => hang(watch),
            _ => Ok(()),
        });
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(abandoned, 1);
    }

    #[test]
    fn one_that_works_on_or_makes_many_short_calls_is_left_alone() {
        let (end, abandoned, took) = run(false, |_, watch| {
            std::thread::sleep(PATIENCE * 2);
            let start = Instant::now();
            while start.elapsed() < PATIENCE * 2 {
                let _under_way = watch.enter(CallSite::Commit);
                std::thread::sleep(PATIENCE / 20);
            }
            Ok(())
        });
        assert!(end.is_ok() && abandoned == 0, "{end:?}");
        assert!(took >= PATIENCE * 4);
    }

    #[test]
    fn one_that_hangs_again_and_again_ends_the_app_with_an_error() {
        let (end, abandoned, _) = run(false, |_, watch| hang(watch));
        assert!(matches!(end, Err(Error::Hangs { times: 4, .. })), "{end:?}");
        assert_eq!(abandoned, 4);
    }

    #[test]
    fn one_that_hangs_while_the_app_stops_is_not_replaced() {
        let (end, abandoned, took) = run(true, |_, watch| hang(watch));
        assert!(matches!(end, Err(Error::StopTimedOut { .. })), "{end:?}");
        assert_eq!(abandoned, 1);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn reports_of_an_abandoned_thread_are_ignored() {
        thread_local! {
            /// Dropped at the end of its thread. The supervisor has received the thread's report by then.
            static TO_THE_END: Cell<Option<Sender<()>>> = const { Cell::new(None) };
        }
        let (begins, begun) = channel();
        let (ends, ended) = channel();
        let (begun, ends, ended) = (Mutex::new(begun), Mutex::new(Some(ends)), Mutex::new(ended));
        let (end, abandoned, _) = run(false, move |turn, watch| match turn {
            0 => {
                TO_THE_END.set(ends.lock().unwrap().take());
                let _under_way = watch.enter(CallSite::Commit);
                // The thread is certainly abandoned once its replacement has started.
                let minute = Duration::from_secs(60);
                begun.lock().unwrap().recv_timeout(minute).unwrap();
                Err(Error::Gone)
            }
            _ => {
                begins.send(()).unwrap();
                // No message arrives. The call fails when the first thread ends.
                ended.lock().unwrap().recv().unwrap_err();
                Ok(())
            }
        });
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(abandoned, 1);
    }
}
