//! Fetched records.

use std::ffi::c_char;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use eos_client::{Headers, Message, Records};
use eos_protocol::{Offset, Timestamp};

use super::{Client, codes, copy_text, sys};

/// A batch of records of one partition.
#[derive(Default)]
pub struct KafkaRecords {
    /// The messages of `rd_kafka_consume_batch_queue`. Messages before `at` are freed.
    messages: Vec<KafkaMessage>,
    at: usize,
    /// The client of all messages. A message that outlives its client would be a use after free. One reference is
    /// enough, because no message leaves the batch.
    client: Option<Arc<Client>>,
}

impl KafkaRecords {
    /// Replaces the batch. `fill` writes messages of this client, owned by the batch, from the beginning of the given
    /// room, and returns their number. Errors among them are passed to `error` with their code and text.
    ///
    /// # Safety
    /// `fill` fulfils this contract.
    pub(super) unsafe fn refill(
        &mut self,
        client: &Arc<Client>,
        room: usize,
        fill: impl FnOnce(*mut *mut sys::rd_kafka_message_t) -> usize,
        mut error: impl FnMut(i32, i64, String),
    ) {
        self.clear();
        self.messages.reserve(room);
        let count = fill(self.messages.as_mut_ptr().cast());
        // SAFETY: `count` messages were written, and a message is its pointer (`repr(transparent)`).
        unsafe { self.messages.set_len(count) };
        if self.client.as_ref().is_none_or(|c| !Arc::ptr_eq(c, client)) {
            self.client = Some(Arc::clone(client));
        }
        self.messages.retain(|message| {
            // SAFETY: a live message.
            let code = unsafe { codes::of_message(message.0.as_ptr()) };
            if code != codes::NO_ERROR {
                // SAFETY: as above; the text is copied.
                let (offset, text) = unsafe {
                    let message = message.0.as_ptr();
                    (
                        (*message).offset,
                        copy_text(sys::rd_kafka_message_errstr(message)),
                    )
                };
                error(code, offset, text);
            }
            code == codes::NO_ERROR
        });
    }
}

impl Records for KafkaRecords {
    type Message = KafkaMessage;

    #[inline]
    fn first(&self) -> Option<&KafkaMessage> {
        self.messages.get(self.at)
    }

    fn last(&self) -> Option<&KafkaMessage> {
        self.messages.get(self.at..)?.last()
    }

    #[inline]
    fn drop_first(&mut self) {
        if let Some(message) = self.messages.get_mut(self.at) {
            // SAFETY: ours, and not accessed again: `at` is past it from here on, and `clear` forgets the messages
            // before `at`.
            unsafe { std::ptr::drop_in_place(message) };
            self.at += 1;
        }
    }

    #[inline]
    fn clear(&mut self) {
        while self.at < self.messages.len() {
            self.drop_first();
        }
        // SAFETY: each is freed already.
        unsafe { self.messages.set_len(0) };
        self.at = 0;
    }
}

impl Drop for KafkaRecords {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for KafkaRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.messages.iter().skip(self.at))
            .finish()
    }
}

/// A record in the client's fetch buffer, which it keeps alive. It exists only in its batch.
#[repr(transparent)]
pub struct KafkaMessage(NonNull<sys::rd_kafka_message_t>);

// SAFETY: a message may be read and destroyed on any one thread. (Not `Sync`: headers are parsed
// on first use.)
unsafe impl Send for KafkaMessage {}

impl KafkaMessage {
    /// Returns whether the record certainly has no headers, without a librdkafka call. That call would build and
    /// destroy a parser for each record.
    ///
    /// Only a record batch of version 2 has a leader epoch. In it, the number of headers follows the value (KIP-82),
    /// and librdkafka's value points into the batch. (An empty value points elsewhere.) librdkafka keeps the epoch for
    /// the rest of a fetch. But an older format never follows version 2 in a log: brokers stopped writing it with Kafka
    /// 3.0 (KIP-724).
    fn is_bare(&self) -> bool {
        let raw = self.raw();
        if raw.payload.is_null() || raw.len == 0 {
            return false;
        }
        // SAFETY: a live message. The byte after the value belongs to the same record: brokers
        // check that each record has its header count before they store it.
        unsafe {
            sys::rd_kafka_message_leader_epoch(self.0.as_ptr()) >= 0
                && *raw.payload.cast::<u8>().add(raw.len) == 0
        }
    }

    #[inline]
    fn raw(&self) -> &sys::rd_kafka_message_t {
        // SAFETY: live as long as `self`, and its error code is 0, which the enum knows.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for KafkaMessage {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_message_destroy(self.0.as_ptr()) };
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
    #[inline]
    fn offset(&self) -> Offset {
        Offset::new(self.raw().offset).expect("a fetched record has an offset")
    }

    #[inline]
    fn timestamp(&self) -> Option<Timestamp> {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: a live message; librdkafka makes the kind itself from two bits.
        let time = unsafe { sys::rd_kafka_message_timestamp(self.0.as_ptr(), &raw mut kind) };
        let known = kind != sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        (known && time >= 0).then_some(Timestamp(time))
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        // SAFETY: null, or `key_len` bytes that live as long as the message.
        unsafe { bytes(self.raw().key.cast(), self.raw().key_len) }
    }

    #[inline]
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
        let code = unsafe { codes::rd_kafka_message_headers(self.0.as_ptr(), &raw mut headers) };
        if code != codes::NO_ERROR {
            return found;
        }
        for at in 0.. {
            let mut name: *const c_char = std::ptr::null();
            let mut value = std::ptr::null();
            let mut size = 0;
            // SAFETY: live headers; their names and values live as long as the message, and are copied.
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
