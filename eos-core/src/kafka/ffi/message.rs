//! A fetched record.

use std::ffi::c_char;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use eos_protocol::{Offset, Timestamp};

use super::{Client, codes, sys};
use crate::client::{Headers, Message};

/// A record in the client's fetch buffer, which it keeps alive.
pub(crate) struct KafkaMessage {
    ptr: NonNull<sys::rd_kafka_message_t>,
    /// A message that outlives its client would be freed into nothing.
    _client: Arc<Client>,
}

// SAFETY: a message may be read and destroyed on any one thread. (Not `Sync`: headers are parsed
// on first use.)
unsafe impl Send for KafkaMessage {}

impl KafkaMessage {
    /// # Safety
    /// `message` is a live message of this client without an error, and the caller's to give away.
    pub(super) unsafe fn own(message: *mut sys::rd_kafka_message_t, client: &Arc<Client>) -> Self {
        // SAFETY: librdkafka fills batches with valid pointers.
        let ptr = unsafe { NonNull::new_unchecked(message) };
        Self {
            ptr,
            _client: Arc::clone(client),
        }
    }

    /// Whether the record has no headers for sure, without asking librdkafka: it would build and
    /// destroy a parser for each record to find that out.
    ///
    /// In a record batch of version 2, the only one that knows a leader epoch, the number of headers
    /// follows the value (KIP-82), and librdkafka's value points into the batch. (Not so an empty
    /// value: that points to nothing in particular.)
    fn is_bare(&self) -> bool {
        let raw = self.raw();
        if raw.payload.is_null() || raw.len == 0 {
            return false;
        }
        // SAFETY: a live message. The byte after the value belongs to the same record: brokers
        // check that each record has its header count before they store it.
        unsafe {
            sys::rd_kafka_message_leader_epoch(self.ptr.as_ptr()) >= 0
                && *raw.payload.cast::<u8>().add(raw.len) == 0
        }
    }

    fn raw(&self) -> &sys::rd_kafka_message_t {
        // SAFETY: live as long as `self`, and its error code is 0, which the enum knows.
        unsafe { self.ptr.as_ref() }
    }
}

impl Drop for KafkaMessage {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_message_destroy(self.ptr.as_ptr()) };
    }
}

impl fmt::Debug for KafkaMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaMessage")
            .field("partition", &self.raw().partition)
            .field("offset", &self.raw().offset)
            .finish_non_exhaustive()
    }
}

impl Message for KafkaMessage {
    fn offset(&self) -> Offset {
        Offset::new(self.raw().offset).expect("a fetched record has an offset")
    }

    fn timestamp(&self) -> Option<Timestamp> {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: a live message; librdkafka makes the kind itself from two bits.
        let time = unsafe { sys::rd_kafka_message_timestamp(self.ptr.as_ptr(), &raw mut kind) };
        let known = kind != sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        (known && time >= 0).then_some(Timestamp(time))
    }

    fn key(&self) -> Option<&[u8]> {
        // SAFETY: null, or `key_len` bytes that live as long as the message.
        unsafe { bytes(self.raw().key.cast(), self.raw().key_len) }
    }

    fn value(&self) -> Option<&[u8]> {
        // SAFETY: null, or `len` bytes that live as long as the message.
        unsafe { bytes(self.raw().payload.cast(), self.raw().len) }
    }

    fn headers(&self) -> Headers {
        let mut found = Headers::new();
        if self.is_bare() {
            return found;
        }
        let mut headers = std::ptr::null_mut();
        // SAFETY: a live message, which keeps the headers.
        let code = unsafe { codes::rd_kafka_message_headers(self.ptr.as_ptr(), &raw mut headers) };
        if code != codes::NO_ERROR {
            return found;
        }
        for at in 0.. {
            let mut name: *const c_char = std::ptr::null();
            let mut value = std::ptr::null();
            let mut size = 0;
            // SAFETY: live headers; what they point to lives as long as the message, and is copied.
            unsafe {
                let code = codes::rd_kafka_header_get_all(
                    headers,
                    at,
                    &raw mut name,
                    &raw mut value,
                    &raw mut size,
                );
                if code != codes::NO_ERROR {
                    break;
                }
                found.push(super::copy_text(name), bytes(value.cast(), size));
            }
        }
        found
    }
}

/// # Safety
/// `start` is null or points to `len` bytes that live for `'a`.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: by the caller's contract.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, len) })
}
