//! The transactional producer's calls.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::TopicName;

use super::{Client, Failure, Member, PartitionList, c_string, check_code, codes, millis, sys};
use crate::client::{Headers, Outgoing};

/// A topic to produce to, looked up once.
#[derive(Debug)]
pub(in crate::kafka) struct Topic {
    ptr: NonNull<sys::rd_kafka_topic_t>,
    client: Arc<Client>,
}

// SAFETY: topic handles are thread-safe and not tied to a thread.
unsafe impl Send for Topic {}

impl Topic {
    pub(in crate::kafka) fn new(client: &Arc<Client>, name: &TopicName) -> Result<Self, Failure> {
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

    /// Takes the record into the producer's queue, copying it.
    pub(in crate::kafka) fn produce(&self, record: &Outgoing<'_>) -> Result<(), Failure> {
        let mut arguments = Arguments::new(self, record);
        if !record.headers.is_empty() {
            arguments.add_headers(record.headers);
        }
        arguments.call(&self.client)
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: our reference.
        unsafe { sys::rd_kafka_topic_destroy(self.ptr.as_ptr()) };
    }
}

/// The variable arguments of `rd_kafka_produceva`.
struct Arguments {
    list: [sys::rd_kafka_vu_t; 7],
    count: usize,
    headers: *mut sys::rd_kafka_headers_t,
}

impl Arguments {
    fn new(topic: &Topic, record: &Outgoing<'_>) -> Self {
        use sys::rd_kafka_vtype_t::{
            RD_KAFKA_VTYPE_END, RD_KAFKA_VTYPE_KEY, RD_KAFKA_VTYPE_MSGFLAGS,
            RD_KAFKA_VTYPE_PARTITION, RD_KAFKA_VTYPE_RKT, RD_KAFKA_VTYPE_TIMESTAMP,
            RD_KAFKA_VTYPE_VALUE,
        };
        type Value = sys::rd_kafka_vu_s__bindgen_ty_1;
        let unused = sys::rd_kafka_vu_t {
            vtype: RD_KAFKA_VTYPE_END,
            u: Value { i: 0 },
        };
        let mut all = Self {
            list: [unused; 7],
            count: 0,
            headers: std::ptr::null_mut(),
        };
        all.push(
            RD_KAFKA_VTYPE_RKT,
            Value {
                rkt: topic.ptr.as_ptr(),
            },
        );
        all.push(
            RD_KAFKA_VTYPE_PARTITION,
            Value {
                i32_: record.partition.get(),
            },
        );
        all.push(
            RD_KAFKA_VTYPE_MSGFLAGS,
            Value {
                i: sys::RD_KAFKA_MSG_F_COPY,
            },
        );
        all.push(
            RD_KAFKA_VTYPE_VALUE,
            Value {
                mem: memory(record.value),
            },
        );
        all.push(
            RD_KAFKA_VTYPE_KEY,
            Value {
                mem: memory(record.key),
            },
        );
        if let Some(time) = record.timestamp {
            // To librdkafka 0 means "now"; a record of the first millisecond of 1970 is sent as
            // one of the second, rather than as one of today.
            all.push(
                RD_KAFKA_VTYPE_TIMESTAMP,
                Value {
                    i64_: if time.0 == 0 { 1 } else { time.0 },
                },
            );
        }
        all
    }

    fn push(&mut self, kind: sys::rd_kafka_vtype_t, value: sys::rd_kafka_vu_s__bindgen_ty_1) {
        self.list[self.count] = sys::rd_kafka_vu_t {
            vtype: kind,
            u: value,
        };
        self.count += 1;
    }

    fn add_headers(&mut self, headers: &Headers) {
        // SAFETY: no preconditions; the object is ours until the call has taken it.
        self.headers = unsafe { sys::rd_kafka_headers_new(headers.len()) };
        for header in headers {
            let value = memory(header.value.as_deref());
            // SAFETY: live headers; name and value are copied, with the sizes given.
            unsafe {
                codes::rd_kafka_header_add(
                    self.headers,
                    header.name.as_ptr().cast(),
                    header.name.len().cast_signed(),
                    value.ptr,
                    value.size.cast_signed(),
                );
            }
        }
        self.push(
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS,
            sys::rd_kafka_vu_s__bindgen_ty_1 {
                headers: self.headers,
            },
        );
    }

    fn call(self, client: &Client) -> Result<(), Failure> {
        // SAFETY: a live producer, and `count` arguments whose tags say which field is set; key
        // and value are copied (MSG_F_COPY).
        let sent = unsafe {
            Failure::check(sys::rd_kafka_produceva(
                client.raw(),
                self.list.as_ptr(),
                self.count,
            ))
        };
        if sent.is_err() && !self.headers.is_null() {
            // SAFETY: librdkafka takes the headers only if it takes the record.
            unsafe { sys::rd_kafka_headers_destroy(self.headers) };
        }
        sent
    }
}

/// Null for nothing; a non-null pointer for empty bytes, which are not nothing.
fn memory(bytes: Option<&[u8]>) -> sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    let (start, size) = match bytes {
        Some(bytes) => (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len()),
        None => (std::ptr::null_mut(), 0),
    };
    sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: start, size }
}

impl Client {
    pub(in crate::kafka) fn init_transactions(&self, at_most: Duration) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_init_transactions(self.raw(), millis(at_most))) }
    }

    pub(in crate::kafka) fn begin_transaction(&self) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_begin_transaction(self.raw())) }
    }

    pub(in crate::kafka) fn send_offsets(
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

    pub(in crate::kafka) fn commit_transaction(&self, at_most: Duration) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe {
            Failure::check(sys::rd_kafka_commit_transaction(
                self.raw(),
                millis(at_most),
            ))
        }
    }

    pub(in crate::kafka) fn abort_transaction(&self, at_most: Duration) -> Result<(), Failure> {
        // SAFETY: a live producer; the error is ours.
        unsafe { Failure::check(sys::rd_kafka_abort_transaction(self.raw(), millis(at_most))) }
    }

    /// Whether everything was acknowledged, or given up, within the time.
    pub(in crate::kafka) fn flush(&self, at_most: Duration) -> Result<bool, Failure> {
        // SAFETY: a live producer.
        match unsafe { codes::rd_kafka_flush(self.raw(), millis(at_most)) } {
            codes::TIMED_OUT => Ok(false),
            code => check_code(code).map(|()| true),
        }
    }

    /// Drops everything that is queued or under way, without waiting.
    pub(in crate::kafka) fn purge(&self) {
        let flags = sys::RD_KAFKA_PURGE_F_QUEUE
            | sys::RD_KAFKA_PURGE_F_INFLIGHT
            | sys::RD_KAFKA_PURGE_F_NON_BLOCKING;
        // SAFETY: a live producer. It fails only for other flags or instances.
        unsafe { codes::rd_kafka_purge(self.raw(), flags) };
    }
}
