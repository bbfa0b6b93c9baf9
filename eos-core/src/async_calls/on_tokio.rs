//! The executor of production: a tokio runtime with threads of its own.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use eos_protocol::TaskId;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use super::executor::{CallFuture, CallKey, EndedCall, Executor, MakeExecutor, poll_call};

/// The threads of the calls of a process.
///
/// A closure that blocks holds one of these threads, but no worker and no thread of the program's own runtime.
pub(crate) struct CallRuntime(Option<Runtime>);

impl CallRuntime {
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.thread_name("eos-calls").enable_all().build()?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    /// Returns the maker of the workers' executors.
    pub(crate) fn executors(self: &Arc<Self>) -> MakeExecutor {
        let runtime = Arc::clone(self);
        Arc::new(move |waker| {
            Box::new(OnTokio {
                runtime: Arc::clone(&runtime),
                running: BTreeMap::new(),
                ended: Arc::default(),
                waker,
            })
        })
    }
}

impl Drop for CallRuntime {
    fn drop(&mut self) {
        // A blocked closure must not hold up the end of the process.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct OnTokio {
    runtime: Arc<CallRuntime>,
    running: BTreeMap<CallKey, AbortHandle>,
    ended: Arc<Mutex<Vec<EndedCall>>>,
    waker: Waker,
}

impl Executor for OnTokio {
    fn start(&mut self, key: CallKey, mut call: CallFuture) {
        let Some(runtime) = &self.runtime.0 else {
            return;
        };
        let (ended, waker) = (Arc::clone(&self.ended), self.waker.clone());
        let task = runtime.spawn(async move {
            let result = poll_fn(|cx| poll_call(&mut call, cx)).await;
            let mut all = ended.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((key, result));
            drop(all);
            waker.wake();
        });
        self.running.insert(key, task.abort_handle());
    }

    fn wake_by(&mut self, waker: Waker) {
        if !self.waker.will_wake(&waker) {
            self.waker = waker;
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
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::take(&mut *ended);
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
