//! The calls of the transactional producer.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use eos_client::{Change, Headers, Outgoing};
use eos_protocol::{TopicName, code};

use super::{Client, Failure, Member, PartitionList, c_string, check_code, codes, millis, sys};

/// An output topic, looked up once.
#[derive(Debug)]
pub(crate) struct Topic {
    ptr: NonNull<sys::rd_kafka_topic_t>,
    client: Arc<Client>,
}

// SAFETY: topic handles are thread-safe and not tied to a thread.
unsafe impl Send for Topic {}

impl Topic {
    pub(crate) fn new(client: &Arc<Client>, name: &TopicName) -> Result<Self, Failure> {
        let text = c_string(name.as_str())?;
        // SAFETY: a live instance and a C string; null is "the default topic configuration".
        let topic =
            unsafe { sys::rd_kafka_topic_new(client.raw(), text.as_ptr(), std::ptr::null_mut()) };
        let Some(ptr) = NonNull::new(topic) else {
            // SAFETY: no preconditions.
            return Err(Failure::of(unsafe { codes::rd_kafka_last_error() }));
        };
        Ok(Self {
            ptr,
            client: Arc::clone(client),
        })
    }

    /// Copies the record into the producer's queue.
    pub(crate) fn produce(&self, record: &Outgoing<'_>) -> Result<(), Failure> {
        use sys::rd_kafka_vtype_t::{
            RD_KAFKA_VTYPE_HEADERS, RD_KAFKA_VTYPE_KEY, RD_KAFKA_VTYPE_MSGFLAGS,
            RD_KAFKA_VTYPE_PARTITION, RD_KAFKA_VTYPE_RKT, RD_KAFKA_VTYPE_TIMESTAMP,
            RD_KAFKA_VTYPE_VALUE,
        };
        type Value = sys::rd_kafka_vu_s__bindgen_ty_1;
        let argument = |vtype, u| sys::rd_kafka_vu_t { vtype, u };
        // To librdkafka 0 means "now". A record of the first millisecond of 1970 is sent with the second one, not with
        // today's time.
        let time = record.timestamp.map_or(0, |time| time.0.max(1));
        let headers = (!record.headers.is_empty()).then(|| new_headers(record.headers));
        let arguments = [
            argument(
                RD_KAFKA_VTYPE_RKT,
                Value {
                    rkt: self.ptr.as_ptr(),
                },
            ),
            argument(
                RD_KAFKA_VTYPE_PARTITION,
                Value {
                    i32_: record.partition.get(),
                },
            ),
            argument(
                RD_KAFKA_VTYPE_MSGFLAGS,
                Value {
                    i: sys::RD_KAFKA_MSG_F_COPY,
                },
            ),
            argument(
                RD_KAFKA_VTYPE_VALUE,
                Value {
                    mem: memory(record.value),
                },
            ),
            argument(
                RD_KAFKA_VTYPE_KEY,
                Value {
                    mem: memory(record.key),
                },
            ),
            argument(RD_KAFKA_VTYPE_TIMESTAMP, Value { i64_: time }),
            // The last argument, because it counts only if there are headers.
            argument(
                RD_KAFKA_VTYPE_HEADERS,
                Value {
                    headers: headers.unwrap_or(std::ptr::null_mut()),
                },
            ),
        ];
        let count = arguments.len() - usize::from(headers.is_none());
        // SAFETY: a live producer, and `count` arguments whose tags say which field is set; key
        // and value are copied (MSG_F_COPY).
        let sent = unsafe {
            Failure::check(sys::rd_kafka_produceva(
                self.client.raw(),
                arguments.as_ptr(),
                count,
            ))
        };
        if sent.is_err()
            && let Some(headers) = headers
        {
            // SAFETY: librdkafka takes the headers only if it takes the record.
            unsafe { sys::rd_kafka_headers_destroy(headers) };
        }
        sent
    }

    /// Copies the changes into the producer's queue with one call of `rd_kafka_produce_batch`, which reads the clock
    /// and looks up the partition once for all changes. Returns the number of copied changes before the first one that
    /// did not fit.
    pub(crate) fn produce_changes(
        &self,
        partition: i32,
        changes: &[Change<'_>],
    ) -> Result<usize, Failure> {
        let message = |change: &Change<'_>| {
            let (key, value) = (memory(Some(change.key)), memory(change.value));
            // SAFETY: null pointers and zeros are valid for all fields; error code 0 is a variant of the enum.
            let mut message: sys::rd_kafka_message_t = unsafe { std::mem::zeroed() };
            (message.payload, message.len) = (value.ptr, value.size);
            (message.key, message.key_len) = (key.ptr, key.size);
            message
        };
        let mut messages: Vec<_> = changes.iter().map(message).collect();
        // SAFETY: a live topic of this producer, and as many messages as given; key and value are copied (MSG_F_COPY).
        unsafe {
            sys::rd_kafka_produce_batch(
                self.ptr.as_ptr(),
                partition,
                sys::RD_KAFKA_MSG_F_COPY,
                messages.as_mut_ptr(),
                c_int::try_from(messages.len()).unwrap_or(c_int::MAX),
            );
        }
        for (copied, message) in messages.iter().enumerate() {
            // SAFETY: the field of a live message, read as a number: the enum does not know all codes.
            let code = unsafe { (&raw const message.err).cast::<c_int>().read() };
            match code {
                codes::NO_ERROR => {}
                code::LOCAL_QUEUE_FULL => return Ok(copied),
                code => return Err(Failure::of(code)),
            }
        }
        Ok(messages.len())
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: our reference.
        unsafe { sys::rd_kafka_topic_destroy(self.ptr.as_ptr()) };
    }
}

/// Returns the headers in librdkafka's form. The caller owns them.
fn new_headers(headers: &Headers) -> *mut sys::rd_kafka_headers_t {
    // SAFETY: no preconditions.
    let made = unsafe { sys::rd_kafka_headers_new(headers.len()) };
    for header in headers {
        let value = memory(header.value());
        // SAFETY: live headers; name and value are copied, with the sizes given.
        unsafe {
            codes::rd_kafka_header_add(
                made,
                header.name().as_ptr().cast(),
                header.name().len().cast_signed(),
                value.ptr,
                value.size.cast_signed(),
            );
        }
    }
    made
}

/// Returns null for `None`, and a non-null pointer for empty bytes, which differ from `None`.
fn memory(bytes: Option<&[u8]>) -> sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    let (start, size) = match bytes {
        Some(bytes) => (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len()),
        None => (std::ptr::null_mut(), 0),
    };
    sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: start, size }
}

impl Client {
    pub(crate) fn init_transactions(&self, at_most: Duration) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_init_transactions(self.raw(), millis(at_most))) }
    }

    pub(crate) fn begin_transaction(&self) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_begin_transaction(self.raw())) }
    }

    pub(crate) fn send_offsets(
        &self,
        offsets: &PartitionList,
        member: &Member,
        at_most: Duration,
    ) -> Result<(), Failure> {
        // SAFETY: a live producer, list and member, both of which are copied; the error is ours.
        unsafe {
            Failure::check(sys::rd_kafka_send_offsets_to_transaction(
                self.raw(),
                offsets.raw(),
                member.raw(),
                millis(at_most),
            ))
        }
    }

    pub(crate) fn commit_transaction(&self, at_most: Duration) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe {
            Failure::check(sys::rd_kafka_commit_transaction(
                self.raw(),
                millis(at_most),
            ))
        }
    }

    pub(crate) fn abort_transaction(&self, at_most: Duration) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_abort_transaction(self.raw(), millis(at_most))) }
    }

    /// Waits until all records are acknowledged or have failed. Returns whether that happened within the time.
    pub(crate) fn flush(&self, at_most: Duration) -> Result<bool, Failure> {
        // SAFETY: a live producer.
        match unsafe { codes::rd_kafka_flush(self.raw(), millis(at_most)) } {
            codes::TIMED_OUT => Ok(false),
            code => check_code(code).map(|()| true),
        }
    }

    /// Drops all records that are queued or in flight. Waits until the brokers' threads have done so: after that,
    /// responses to these records are ignored.
    pub(crate) fn purge(&self) {
        let flags = sys::RD_KAFKA_PURGE_F_QUEUE | sys::RD_KAFKA_PURGE_F_INFLIGHT;
        // SAFETY: a live producer. It fails only for other flags or instances.
        unsafe { codes::rd_kafka_purge(self.raw(), flags) };
    }
}
