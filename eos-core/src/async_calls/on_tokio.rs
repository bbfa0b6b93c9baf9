//! The production executor: a tokio runtime with its own threads.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use eos_protocol::TaskId;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, block_in_place};

use super::executor::{CallFuture, CallKey, EndedCall, Executor, MakeExecutor, poll_call};

/// The threads on which the calls of a process run.
///
/// A closure that blocks holds one of these threads, but no worker and no thread of the program's own runtime. Other calls
/// continue: each poll runs in `block_in_place`, so tokio moves the other calls to another thread. Otherwise, one
/// blocked call per core would stop all calls of the process until they time out. `block_in_place` costs about 10 us per
/// poll.
pub(crate) struct CallRuntime(Option<Runtime>);

impl CallRuntime {
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.thread_name("eos-calls").enable_all().build()?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    /// Returns the function that creates the executor of a worker.
    pub(crate) fn executors(self: &Arc<Self>) -> MakeExecutor {
        let runtime = Arc::clone(self);
        Arc::new(move |waker| {
            Box::new(OnTokio {
                runtime: Arc::clone(&runtime),
                running: BTreeMap::new(),
                ended: Arc::new(Mutex::new(Ended {
                    calls: Vec::new(),
                    waker,
                })),
            })
        })
    }
}

impl Drop for CallRuntime {
    fn drop(&mut self) {
        // A blocked closure must not delay the end of the process.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct OnTokio {
    runtime: Arc<CallRuntime>,
    running: BTreeMap<CallKey, AbortHandle>,
    ended: Arc<Mutex<Ended>>,
}

/// The calls that have ended, and the waker of the worker's current consumer.
struct Ended {
    calls: Vec<EndedCall>,
    waker: Waker,
}

impl OnTokio {
    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor for OnTokio {
    fn start(&mut self, key: CallKey, mut call: CallFuture) {
        let Some(runtime) = &self.runtime.0 else {
            return;
        };
        let ended = Arc::clone(&self.ended);
        let task = runtime.spawn(async move {
            let result = poll_fn(|cx| block_in_place(|| poll_call(&mut call, cx))).await;
            let mut all = ended.lock().unwrap_or_else(PoisonError::into_inner);
            all.calls.push((key, result));
            let waker = all.waker.clone();
            drop(all);
            waker.wake();
        });
        self.running.insert(key, task.abort_handle());
    }

    fn wake_by(&mut self, waker: Waker) {
        let mut ended = self.ended();
        if !ended.waker.will_wake(&waker) {
            ended.waker = waker;
        }
    }

    fn abort(&mut self, key: CallKey) {
        if let Some(task) = self.running.remove(&key) {
            task.abort();
        }
    }

    fn abort_task(&mut self, task: TaskId) {
        self.running.retain(|key, running| {
            let stays = key.task != task;
            if !stays {
                running.abort();
            }
            stays
        });
    }

    fn take_ended(&mut self) -> Vec<EndedCall> {
        let ended = std::mem::take(&mut self.ended().calls);
        for (key, _) in &ended {
            self.running.remove(key);
        }
        ended
    }

    fn nap(&self) -> Option<Duration> {
        None
    }
}

impl Drop for OnTokio {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;

    use eos_protocol::calls::Ticket;

    use super::*;
    use crate::async_calls::executor::CallResult;
    use crate::failure::Failure;

    struct Sends(mpsc::Sender<&'static str>, &'static str);

    impl Wake for Sends {
        fn wake(self: Arc<Self>) {
            _ = self.0.send(self.1);
        }
    }

    fn key(call: u32) -> CallKey {
        CallKey {
            task: TaskId::default(),
            ticket: Ticket {
                incarnation: 0,
                record: 0,
                call,
                attempt: 0,
            },
        }
    }

    fn nothing() -> Result<CallResult, Failure> {
        Ok(Box::new(()))
    }

    /// A program that calls a synchronous client must not lose the calls of other records.
    #[test]
    fn calls_that_block_their_threads_leave_others_alone() {
        let runtime = CallRuntime::start().unwrap();
        let (woken, wakes) = mpsc::channel();
        let waker = Waker::from(Arc::new(Sends(woken, "ended")));
        let mut executor = runtime.executors()(waker);
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let blocked =
            4 * u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
        for call in 0..blocked {
            let wait = Arc::clone(&wait);
            let blocks = async move {
                // The first one waits in the channel, and the others for the first one.
                _ = wait.lock().unwrap().recv();
                nothing()
            };
            executor.start(key(call), Box::pin(blocks));
        }
        executor.start(key(blocked), Box::pin(async { nothing() }));
        let limit = Duration::from_secs(30);
        assert_eq!(wakes.recv_timeout(limit), Ok("ended"));
        let ended = executor.take_ended();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, key(blocked));
        drop(release);
    }

    /// After a rejoin, the worker waits for another consumer.
    #[test]
    fn an_ended_call_wakes_the_present_consumer() {
        let runtime = CallRuntime::start().unwrap();
        let (woken, wakes) = mpsc::channel();
        let waker = |name| Waker::from(Arc::new(Sends(woken.clone(), name)));
        let mut executor = runtime.executors()(waker("before"));
        let (release, wait) = tokio::sync::oneshot::channel::<()>();
        let key = key(0);
        let call = async move {
            _ = wait.await;
            Ok(Box::new(7) as Box<dyn std::any::Any + Send>)
        };
        executor.start(key, Box::pin(call));
        executor.wake_by(waker("after"));
        release.send(()).unwrap();
        let limit = Duration::from_secs(30);
        assert_eq!(wakes.recv_timeout(limit), Ok("after"));
        assert_eq!(executor.take_ended().len(), 1);
        assert!(wakes.try_recv().is_err());
    }
}
