//! Queues of events, records and responses.

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
    /// The data of librdkafka's callback, held here because librdkafka has its address.
    hook: Option<Arc<Hook>>,
    client: Arc<Client>,
}

/// Signals when the queue gets its first element.
struct Hook {
    wake: Arc<Wake>,
    client: Arc<Client>,
    /// [`Client::news`] at the time of the first element.
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
    /// Creates a queue for responses.
    pub(crate) fn fresh(client: &Arc<Client>) -> Self {
        // SAFETY: a live instance.
        Self::own(client, unsafe { sys::rd_kafka_queue_new(client.raw()) })
            .expect("librdkafka aborts when memory is out")
    }

    /// Returns the queue of the group's and the instance's events. `None` without a group.
    pub(crate) fn consumer(client: &Arc<Client>) -> Option<Self> {
        // SAFETY: a live instance.
        Self::own(client, unsafe {
            sys::rd_kafka_queue_get_consumer(client.raw())
        })
    }

    /// Returns the queue of the instance's events.
    pub(crate) fn main(client: &Arc<Client>) -> Self {
        // SAFETY: a live instance.
        Self::own(client, unsafe {
            sys::rd_kafka_queue_get_main(client.raw())
        })
        .expect("every instance has a main queue")
    }

    /// Returns the separate queue of a partition's records. `None` if the topic name is invalid.
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

    /// Returns [`Client::news`] of the last time that a [waking](Self::waking) queue got its first element.
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

    /// Replaces a batch by up to `max` fetched records. An error of the partition, which is among the records, is
    /// passed on with its code, offset and text.
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
        // SAFETY: a live queue and our reference to it. The callback is removed before its target is dropped, under the
        // lock that is held during its calls.
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
