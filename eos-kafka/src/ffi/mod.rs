//! Safe types around librdkafka.
//!
//! This module has all `unsafe` code of the client.
//!
//! The code is sound because of these rules:
//! - **Lifetimes by ownership.** Queues, topic handles and fetched messages each hold the
//!   [`Client`] they came from, so that the client is destroyed last. (A leaked queue or topic
//!   reference makes `rd_kafka_destroy` hang; one that outlives the client is a use after free.)
//! - **Error codes are integers.** The bindings type them as a Rust `enum`, which is undefined behaviour for a new code
//!   of a newer broker. The functions and fields with codes are therefore declared or read in [`codes`] as `c_int`. All
//!   other declarations come from the bindings.
//! - **Callbacks are minimal.** They run on librdkafka's threads, some of them under its locks. They set a flag, signal
//!   a condition variable, or write a log line, and never call librdkafka.

#![allow(unsafe_code, reason = "this module wraps librdkafka in safe types")]

mod admin;
mod client;
mod codes;
mod connections;
mod consumer;
mod create;
mod delete;
mod event;
mod list;
mod message;
#[cfg(test)]
mod mock;
mod producer;
mod queue;

use std::ffi::{CStr, CString, c_char, c_int};
use std::time::Duration;

use eos_client::ClientError;
use eos_protocol::{CallSite, Fault, code};
use rdkafka::bindings as sys;

pub(super) use admin::{ConfigOf, TopicAnswer, TopicFound};
pub(super) use client::{Client, Kind, check_property, property_names};
pub(super) use connections::Connections;
pub use consumer::Member;
pub(super) use consumer::OffsetSpec;
pub(super) use event::{Event, EventKind};
pub(super) use list::{Entry, PartitionList};
pub use message::{KafkaMessage, KafkaRecords};
#[cfg(test)]
pub(super) use mock::{MockCluster, member_of};
pub(super) use producer::Topic;
pub(super) use queue::Queue;

/// The error of a librdkafka call, without the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(code: i32, text: impl Into<String>) -> Self {
        Self {
            fault: Fault::plain(code),
            text: text.into(),
        }
    }

    /// Returns a failure with this code and librdkafka's text.
    pub(super) fn of(code: i32) -> Self {
        Self::new(code, codes::text(code))
    }

    /// Returns the failure of a system that can't create a thread for a blocking call.
    pub(super) fn no_thread(error: &std::io::Error) -> Self {
        Self::new(
            codes::CRIT_SYS_RESOURCE,
            format!("starting the query thread failed: {error}"),
        )
    }

    pub(super) fn is_time_out(&self) -> bool {
        self.fault.code == code::LOCAL_TIMED_OUT
    }

    pub(super) fn at(self, call: CallSite) -> ClientError {
        ClientError {
            call,
            fault: self.fault,
            text: self.text,
        }
    }

    /// Converts the returned error object of a call, and destroys it. Null is success.
    ///
    /// # Safety
    /// `error` is null or an error object that no other code destroys.
    unsafe fn check(error: *mut sys::rd_kafka_error_t) -> Result<(), Self> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: a live error object, ours to destroy, by the caller's contract; its string is
        // copied before that.
        let failure = unsafe {
            Self {
                fault: Fault {
                    code: codes::rd_kafka_error_code(error),
                    retriable: sys::rd_kafka_error_is_retriable(error) != 0,
                    abortable: sys::rd_kafka_error_txn_requires_abort(error) != 0,
                    fatal: sys::rd_kafka_error_is_fatal(error) != 0,
                },
                text: copy_text(sys::rd_kafka_error_string(error)),
            }
        };
        // SAFETY: as above; not used afterwards.
        unsafe { sys::rd_kafka_error_destroy(error) };
        Err(failure)
    }
}

fn check_code(code: c_int) -> Result<(), Failure> {
    if code == codes::NO_ERROR {
        Ok(())
    } else {
        Err(Failure::of(code))
    }
}

/// Returns the milliseconds, rounded up so that a short wait does not become a busy loop.
fn millis(wait: Duration) -> c_int {
    c_int::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
}

/// # Safety
/// `text` is null or a C string.
unsafe fn copy_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string, by the caller's contract.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

fn c_string(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| {
        Failure::new(
            eos_protocol::code::LOCAL_INVALID_ARG,
            format!("{text:?} contains a NUL byte"),
        )
    })
}
