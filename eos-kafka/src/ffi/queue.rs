//! Queues: the group's events, a partition's records, and answers to queries.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eos_protocol::TopicPartition;

use super::{Client, Event, KafkaRecords, c_string, millis, sys};
use crate::wake::Wake;

/// A queue of a client.
pub(crate) struct Queue {
    ptr: NonNull<sys::rd_kafka_queue_t>,
    /// What librdkafka's callback touches; held here because librdkafka holds its address.
    hook: Option<Arc<Hook>>,
    client: Arc<Client>,
}

/// Notes when the queue gets its first element.
struct Hook {
    wake: Arc<Wake>,
    client: Arc<Client>,
    /// [`Client::news`] at that moment.
    news: AtomicU64,
}

// SAFETY: librdkafka's queues are thread-safe and not tied to a thread.
unsafe impl Send for Queue {}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish()
    }
}

impl Queue {
    /// A queue of our own, for answers.
    pub(crate) fn fresh(client: &Arc<Client>) -> Self {
        // SAFETY: a live instance.
        Self::own(client, unsafe { sys::rd_kafka_queue_new(client.raw()) })
            .expect("librdkafka aborts when memory is out")
    }

    /// What the group and the instance report. `None` without a group.
    pub(crate) fn consumer(client: &Arc<Client>) -> Option<Self> {
        // SAFETY: a live instance.
        Self::own(client, unsafe {
            sys::rd_kafka_queue_get_consumer(client.raw())
        })
    }

    /// What the instance reports.
    pub(crate) fn main(client: &Arc<Client>) -> Self {
        // SAFETY: a live instance.
        Self::own(client, unsafe {
            sys::rd_kafka_queue_get_main(client.raw())
        })
        .expect("every instance has a main queue")
    }

    /// A partition's records, kept apart from those of all others. `None` if the name is no
    /// topic's.
    pub(crate) fn partition(client: &Arc<Client>, of: &TopicPartition) -> Option<Self> {
        let topic = c_string(of.topic.as_str()).ok()?;
        // SAFETY: a live instance and a C string.
        let queue = unsafe {
            sys::rd_kafka_queue_get_partition(client.raw(), topic.as_ptr(), of.partition.get())
        };
        let queue = Self::own(client, queue)?;
        // "Forwarded to nothing, by the application": librdkafka does not forward it to the
        // consumer's queue when the fetcher starts, nor ever after.
        // SAFETY: a live queue.
        unsafe { sys::rd_kafka_queue_forward(queue.raw(), std::ptr::null_mut()) };
        Some(queue)
    }

    fn own(client: &Arc<Client>, queue: *mut sys::rd_kafka_queue_t) -> Option<Self> {
        Some(Self {
            ptr: NonNull::new(queue)?,
            hook: None,
            client: Arc::clone(client),
        })
    }

    pub(super) fn raw(&self) -> *mut sys::rd_kafka_queue_t {
        self.ptr.as_ptr()
    }

    /// Signals whenever the queue gets its first element: on the edge from empty to not empty.
    #[must_use]
    pub(crate) fn waking(mut self, wake: &Arc<Wake>) -> Self {
        let hook = Arc::new(Hook {
            wake: Arc::clone(wake),
            client: Arc::clone(&self.client),
            news: AtomicU64::new(0),
        });
        let opaque = Arc::as_ptr(&hook).cast_mut().cast::<c_void>();
        // SAFETY: a live queue; `drop` removes the callback while `self.hook` keeps its target.
        unsafe { sys::rd_kafka_queue_cb_event_enable(self.raw(), Some(on_event), opaque) };
        self.hook = Some(hook);
        self
    }

    /// [`Client::news`] of the moment when a [waking](Self::waking) queue last got its first element.
    pub(crate) fn news(&self) -> u64 {
        let hook = self.hook.as_ref();
        hook.map_or(0, |hook| hook.news.load(Ordering::Acquire))
    }

    pub(crate) fn len(&self) -> usize {
        // SAFETY: a live queue.
        unsafe { sys::rd_kafka_queue_length(self.raw()) }
    }

    /// Takes the next event.
    pub(crate) fn poll(&self, at_most: Duration) -> Option<Event<'_>> {
        // SAFETY: a live queue; the event is ours.
        Event::own(unsafe { sys::rd_kafka_queue_poll(self.raw(), millis(at_most)) })
    }

    /// Replaces a batch by up to `max` records that are here already. An error of the partition,
    /// which stands among the records, is handed on with its code, offset and text.
    pub(crate) fn take(
        &self,
        max: usize,
        into: &mut KafkaRecords,
        error: impl FnMut(i32, i64, String),
    ) {
        // SAFETY: a live queue, and room for `max` pointers, of which librdkafka writes the first
        // `count`; each is a message of this client, and ours.
        unsafe {
            into.refill(
                &self.client,
                max,
                |room| {
                    let count = sys::rd_kafka_consume_batch_queue(self.raw(), 0, room, max);
                    usize::try_from(count).unwrap_or(0)
                },
                error,
            );
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: a live queue and our reference to it. The callback is removed, under the lock
        // that it is called with, before what it touches goes away.
        unsafe {
            if self.hook.is_some() {
                sys::rd_kafka_queue_cb_event_enable(self.raw(), None, std::ptr::null_mut());
            }
            sys::rd_kafka_queue_destroy(self.raw());
        }
    }
}

/// Called on librdkafka's threads, with the queue locked.
unsafe extern "C" fn on_event(_rk: *mut sys::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: the `Hook` of the queue that this callback belongs to.
    if let Some(hook) = unsafe { opaque.cast::<Hook>().as_ref() } {
        hook.news.store(hook.client.news(), Ordering::Release);
        hook.wake.signal();
    }
}
