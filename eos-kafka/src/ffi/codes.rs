//! Functions and fields with error codes, as plain integers.
//!
//! `rdkafka_sys` declares the same C functions with a Rust `enum` as their result. A broker may send a code that is not
//! in the enum, and a Rust enum must never have such a value. For C there is no difference: the C `enum` has negative
//! members, so its representation is `int`.

use std::ffi::{c_char, c_int, c_void};

use super::sys;

pub(super) const NO_ERROR: c_int = 0;
pub(super) const DESTROY: c_int = -197;
pub(super) const CRIT_SYS_RESOURCE: c_int = -194;
pub(super) const TIMED_OUT: c_int = -185;
pub(super) const ASSIGN_PARTITIONS: c_int = -175;
pub(super) const PARTIAL: c_int = -158;
pub(super) const PURGE_QUEUE: c_int = -152;
pub(super) const PURGE_INFLIGHT: c_int = -151;
/// The code that stands for the error of `rd_kafka_fatal_error`.
pub(super) const FATAL: c_int = -150;

pub(super) type OnNew = unsafe extern "C" fn(
    rk: *mut sys::rd_kafka_t,
    conf: *const sys::rd_kafka_conf_t,
    opaque: *mut c_void,
    text: *mut c_char,
    text_size: usize,
) -> c_int;

pub(super) type OnRequest = unsafe extern "C" fn(
    rk: *mut sys::rd_kafka_t,
    socket: c_int,
    broker: *const c_char,
    broker_id: i32,
    api_key: i16,
    api_version: i16,
    correlation: i32,
    size: usize,
    opaque: *mut c_void,
) -> c_int;

pub(super) type OnResponse = unsafe extern "C" fn(
    rk: *mut sys::rd_kafka_t,
    socket: c_int,
    broker: *const c_char,
    broker_id: i32,
    api_key: i16,
    api_version: i16,
    correlation: i32,
    size: usize,
    round_trip_us: i64,
    code: c_int,
    opaque: *mut c_void,
) -> c_int;

pub(super) type OnCommit = unsafe extern "C" fn(
    rk: *mut sys::rd_kafka_t,
    code: c_int,
    offsets: *mut sys::rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
);

#[allow(
    clashing_extern_declarations,
    reason = "on purpose: the other declarations answer with an enum that cannot hold every code"
)]
unsafe extern "C" {
    pub(super) fn rd_kafka_last_error() -> c_int;
    pub(super) fn rd_kafka_err2str(code: c_int) -> *const c_char;
    pub(super) fn rd_kafka_error_code(error: *const sys::rd_kafka_error_t) -> c_int;
    pub(super) fn rd_kafka_get_watermark_offsets(
        rk: *mut sys::rd_kafka_t,
        topic: *const c_char,
        partition: i32,
        low: *mut i64,
        high: *mut i64,
    ) -> c_int;
    pub(super) fn rd_kafka_position(
        rk: *mut sys::rd_kafka_t,
        partitions: *mut sys::rd_kafka_topic_partition_list_t,
    ) -> c_int;
    pub(super) fn rd_kafka_fatal_error(
        rk: *mut sys::rd_kafka_t,
        text: *mut c_char,
        text_size: usize,
    ) -> c_int;
    pub(super) fn rd_kafka_test_fatal_error(
        rk: *mut sys::rd_kafka_t,
        code: c_int,
        reason: *const c_char,
    ) -> c_int;
    pub(super) fn rd_kafka_event_error(event: *mut sys::rd_kafka_event_t) -> c_int;
    pub(super) fn rd_kafka_poll_set_consumer(rk: *mut sys::rd_kafka_t) -> c_int;
    pub(super) fn rd_kafka_subscribe(
        rk: *mut sys::rd_kafka_t,
        topics: *const sys::rd_kafka_topic_partition_list_t,
    ) -> c_int;
    pub(super) fn rd_kafka_unsubscribe(rk: *mut sys::rd_kafka_t) -> c_int;
    pub(super) fn rd_kafka_committed(
        rk: *mut sys::rd_kafka_t,
        partitions: *mut sys::rd_kafka_topic_partition_list_t,
        timeout_ms: c_int,
    ) -> c_int;
    pub(super) fn rd_kafka_offsets_for_times(
        rk: *mut sys::rd_kafka_t,
        partitions: *mut sys::rd_kafka_topic_partition_list_t,
        timeout_ms: c_int,
    ) -> c_int;
    pub(super) fn rd_kafka_commit_queue(
        rk: *mut sys::rd_kafka_t,
        offsets: *const sys::rd_kafka_topic_partition_list_t,
        queue: *mut sys::rd_kafka_queue_t,
        callback: Option<OnCommit>,
        opaque: *mut c_void,
    ) -> c_int;
    pub(super) fn rd_kafka_metadata(
        rk: *mut sys::rd_kafka_t,
        all_topics: c_int,
        only: *mut sys::rd_kafka_topic_t,
        metadata: *mut *const sys::rd_kafka_metadata_t,
        timeout_ms: c_int,
    ) -> c_int;
    pub(super) fn rd_kafka_list_groups(
        rk: *mut sys::rd_kafka_t,
        group: *const c_char,
        list: *mut *const sys::rd_kafka_group_list,
        timeout_ms: c_int,
    ) -> c_int;
    pub(super) fn rd_kafka_flush(rk: *mut sys::rd_kafka_t, timeout_ms: c_int) -> c_int;
    pub(super) fn rd_kafka_purge(rk: *mut sys::rd_kafka_t, flags: c_int) -> c_int;
    pub(super) fn rd_kafka_message_headers(
        message: *const sys::rd_kafka_message_t,
        headers: *mut *mut sys::rd_kafka_headers_t,
    ) -> c_int;
    pub(super) fn rd_kafka_header_get_all(
        headers: *const sys::rd_kafka_headers_t,
        index: usize,
        name: *mut *const c_char,
        value: *mut *const c_void,
        size: *mut usize,
    ) -> c_int;
    pub(super) fn rd_kafka_header_add(
        headers: *mut sys::rd_kafka_headers_t,
        name: *const c_char,
        name_size: isize,
        value: *const c_void,
        value_size: isize,
    ) -> c_int;
    pub(super) fn rd_kafka_TopicDescription_error(
        topic: *const sys::rd_kafka_TopicDescription_t,
    ) -> *const sys::rd_kafka_error_t;
    pub(super) fn rd_kafka_ConfigResource_error(
        resource: *const sys::rd_kafka_ConfigResource_t,
    ) -> c_int;
    pub(super) fn rd_kafka_AdminOptions_set_request_timeout(
        options: *mut sys::rd_kafka_AdminOptions_t,
        timeout_ms: c_int,
        text: *mut c_char,
        text_size: usize,
    ) -> c_int;
    pub(super) fn rd_kafka_AdminOptions_set_operation_timeout(
        options: *mut sys::rd_kafka_AdminOptions_t,
        timeout_ms: c_int,
        text: *mut c_char,
        text_size: usize,
    ) -> c_int;
    pub(super) fn rd_kafka_NewTopic_set_config(
        topic: *mut sys::rd_kafka_NewTopic_t,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int;
    pub(super) fn rd_kafka_topic_result_error(result: *const sys::rd_kafka_topic_result_t)
    -> c_int;
    pub(super) fn rd_kafka_conf_interceptor_add_on_new(
        conf: *mut sys::rd_kafka_conf_t,
        name: *const c_char,
        on_new: OnNew,
        opaque: *mut c_void,
    ) -> c_int;
    pub(super) fn rd_kafka_interceptor_add_on_request_sent(
        rk: *mut sys::rd_kafka_t,
        name: *const c_char,
        on_request: OnRequest,
        opaque: *mut c_void,
    ) -> c_int;
    pub(super) fn rd_kafka_interceptor_add_on_response_received(
        rk: *mut sys::rd_kafka_t,
        name: *const c_char,
        on_response: OnResponse,
        opaque: *mut c_void,
    ) -> c_int;
}

/// Returns librdkafka's text for a code.
pub(super) fn text(code: c_int) -> String {
    // SAFETY: accepts any integer and returns a static string. For unknown codes the string is thread-local; it is
    // copied at once.
    unsafe { super::copy_text(rd_kafka_err2str(code)) }
}

/// Returns the code of a message, without a Rust enum.
///
/// # Safety
/// `message` points to a live message.
pub(super) unsafe fn of_message(message: *const sys::rd_kafka_message_t) -> c_int {
    // SAFETY: live, by the caller's contract; the C field is an enum with the layout of an int.
    unsafe { (&raw const (*message).err).cast::<c_int>().read() }
}

/// Returns the code of a partition in a list, without a Rust enum.
///
/// # Safety
/// `partition` points to a live element.
pub(super) unsafe fn of_partition(partition: *const sys::rd_kafka_topic_partition_t) -> c_int {
    // SAFETY: live, by the caller's contract; the C field is an enum with the layout of an int.
    unsafe { (&raw const (*partition).err).cast::<c_int>().read() }
}

/// Returns the code of a group in a list, without a Rust enum.
///
/// # Safety
/// `group` points to a live element.
pub(super) unsafe fn of_group(group: *const sys::rd_kafka_group_info) -> c_int {
    // SAFETY: live, by the caller's contract; the C field is an enum with the layout of an int.
    unsafe { (&raw const (*group).err).cast::<c_int>().read() }
}
