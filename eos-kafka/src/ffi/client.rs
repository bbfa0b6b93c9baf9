//! `rd_kafka_t`: created from settings, destroyed with its last user.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::connections::{Connections, changes_a_transaction};
use super::{Failure, c_string, codes, copy_text, sys};
use crate::config::{KafkaConfig, Setting};
use crate::log::Log;
use crate::secrets::Secrets;

/// The purpose of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Consumer,
    Producer,
    /// Queries the ends of partitions, like a consumer without a group.
    Lookup,
}

/// The data of librdkafka's callbacks. It outlives its client.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) log: Log,
    /// The secrets in librdkafka's settings, which must not appear in texts.
    secrets: Secrets,
    /// Whether a control request of the transaction protocol never got a response (design rule 7).
    unanswered: AtomicBool,
    /// Topics and partitions that no longer exist.
    gone: Mutex<Vec<Failure>>,
    /// The number of Metadata responses.
    news: AtomicU64,
    /// The open connections. Only producers record them.
    connections: Arc<Connections>,
}

/// A librdkafka instance.
pub(crate) struct Client {
    ptr: NonNull<sys::rd_kafka_t>,
    kind: Kind,
    // Boxed, because librdkafka holds its address. Fields are dropped after `Drop::drop`, and so after the instance.
    hooks: Box<Hooks>,
}

// SAFETY: librdkafka's instances are thread-safe, and may be used and destroyed from any thread
// that is not its own.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name())
            .field("kind", &self.kind)
            .finish()
    }
}

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// If librdkafka does not accept the settings. The text contains no secrets.
    pub(crate) fn new(
        kind: Kind,
        config: &KafkaConfig,
        settings: &[Setting],
    ) -> Result<Arc<Self>, Failure> {
        let secrets = Secrets::new(&config.secrets);
        let hide = |failure: Failure| Failure {
            text: secrets.hide(failure.text),
            ..failure
        };
        let hooks = Box::new(Hooks {
            log: Log::default(),
            secrets: secrets.clone(),
            unanswered: AtomicBool::new(false),
            gone: Mutex::default(),
            news: AtomicU64::new(0),
            connections: Arc::default(),
        });
        let mut conf = Conf::new();
        for (key, value) in settings {
            conf.set(key, value).map_err(hide)?;
        }
        conf.connect(kind, &hooks, config.notes_unanswered())?;
        let ptr = conf.build(kind).map_err(hide)?;
        let client = Self { ptr, kind, hooks };
        if kind == Kind::Consumer {
            // SAFETY: a live consumer. Errors of the instance come with the group's events then.
            super::check_code(unsafe { codes::rd_kafka_poll_set_consumer(client.raw()) })?;
        }
        Ok(Arc::new(client))
    }

    pub(super) fn raw(&self) -> *mut sys::rd_kafka_t {
        self.ptr.as_ptr()
    }

    /// Returns librdkafka's name of the instance: the client id and a running number.
    pub(crate) fn name(&self) -> String {
        // SAFETY: a live instance; the string lives as long and is copied.
        unsafe { copy_text(sys::rd_kafka_name(self.raw())) }
    }

    /// Returns the last reported error.
    pub(crate) fn last_complaint(&self) -> Option<String> {
        self.hooks.log.last_complaint()
    }

    pub(crate) fn unanswered(&self) -> bool {
        self.hooks.unanswered.load(Ordering::Relaxed)
    }

    /// Returns the number of Metadata responses. One response may count twice.
    pub(crate) fn news(&self) -> u64 {
        self.hooks.news.load(Ordering::Acquire)
    }

    /// Returns the connections of a producer.
    pub(crate) fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.hooks.connections)
    }

    /// Takes the topics and partitions that no longer exist, but were being read. Each is returned once.
    pub(crate) fn gone(&self) -> Vec<Failure> {
        let mut gone = self
            .hooks
            .gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let told = std::mem::take(&mut *gone).into_iter();
        told.map(|failure| self.clean(failure)).collect()
    }

    /// Returns the fatal error of the instance, if there is one.
    pub(crate) fn fatal(&self) -> Option<Failure> {
        let mut text = [0 as c_char; 512];
        // SAFETY: a live instance and a buffer of the size that is given.
        let code =
            unsafe { codes::rd_kafka_fatal_error(self.raw(), text.as_mut_ptr(), text.len()) };
        if code == codes::NO_ERROR {
            return None;
        }
        // SAFETY: librdkafka terminated the string.
        let mut failure = Failure::new(code, unsafe { copy_text(text.as_ptr()) });
        failure.fault.fatal = true;
        Some(self.clean(failure))
    }

    /// Removes the secrets that librdkafka may have put into the failure's text.
    pub(crate) fn clean(&self, failure: Failure) -> Failure {
        Failure {
            text: self.hooks.secrets.hide(failure.text),
            ..failure
        }
    }

    /// Returns the underlying failure. After a fatal error, a consumer's calls only report that there was one, without
    /// the flag. (librdkafka has already translated error events.)
    pub(crate) fn cause(&self, failure: Failure) -> Failure {
        if failure.fault.code == codes::FATAL {
            self.fatal().unwrap_or(failure)
        } else {
            failure
        }
    }
}

impl Client {
    /// Completes the pending rebalance, and prevents further ones.
    ///
    /// librdkafka 2.12.1 never finishes the destruction of a consumer that received an assignment and has not called
    /// `assign`: `rd_kafka_destroy` waits for its main thread, which spins. (Because of the flag NO_CONSUMER_CLOSE, it
    /// calls `rd_kafka_cgrp_unassign` instead, which only responds to revocations.) With a fatal error it no longer
    /// calls the application at all, and treats any assignment as the response "none".
    fn renounce(&self) {
        self.hooks.log.silence();
        let nothing = super::PartitionList::new(0);
        // SAFETY: a live consumer and a C string, which is copied.
        unsafe {
            codes::rd_kafka_test_fatal_error(self.raw(), codes::DESTROY, c"dropped".as_ptr());
        }
        // Fails only after an error that makes the response unnecessary.
        let _ = self.incremental_assign(&nothing);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hooks.log.flush();
        if self.kind == Kind::Consumer && !self.is_closed() {
            self.renounce();
        }
        // Without the consumer's close: `Source::close` closes properly. A drop must not wait for brokers, and to the
        // group a consumer that disappears looks like a crash.
        // SAFETY: the last user of the instance; queues, topics and messages hold an `Arc` of it, so they were dropped
        // before.
        unsafe {
            sys::rd_kafka_destroy_flags(self.raw(), sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        }
    }
}

/// A configuration for a new instance.
struct Conf(NonNull<sys::rd_kafka_conf_t>);

impl Conf {
    fn new() -> Self {
        // SAFETY: no preconditions.
        let conf = unsafe { sys::rd_kafka_conf_new() };
        Self(NonNull::new(conf).expect("rd_kafka_conf_new aborts when memory is out"))
    }

    /// Returns the names of all properties that have a value.
    fn names(&self) -> Vec<String> {
        let mut count = 0;
        // SAFETY: a live configuration; the array has `count` strings, keys and values in turn,
        // which are copied before it is freed.
        unsafe {
            let dump = sys::rd_kafka_conf_dump(self.0.as_ptr(), &raw mut count);
            let names = (0..count).step_by(2).map(|at| copy_text(*dump.add(at)));
            let names = names.collect();
            sys::rd_kafka_conf_dump_free(dump, count);
            names
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        let (name, text) = (c_string(key)?, CString::new(value));
        let Ok(text) = text else {
            return Err(invalid(key, "its value contains a NUL byte"));
        };
        let mut reason = [0 as c_char; 512];
        // SAFETY: a live configuration, C strings, and a buffer of the size that is given.
        let outcome = unsafe {
            sys::rd_kafka_conf_set(
                self.0.as_ptr(),
                name.as_ptr(),
                text.as_ptr(),
                reason.as_mut_ptr(),
                reason.len(),
            )
        };
        if outcome == sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK {
            return Ok(());
        }
        // SAFETY: librdkafka terminated the string.
        Err(invalid(key, &unsafe { copy_text(reason.as_ptr()) }))
    }

    /// Installs the callbacks.
    fn connect(
        &mut self,
        kind: Kind,
        hooks: &Hooks,
        notes_unanswered: bool,
    ) -> Result<(), Failure> {
        let conf = self.0.as_ptr();
        let opaque = std::ptr::from_ref(hooks).cast_mut().cast::<c_void>();
        let events = match kind {
            Kind::Consumer => {
                sys::RD_KAFKA_EVENT_ERROR
                    | sys::RD_KAFKA_EVENT_REBALANCE
                    | sys::RD_KAFKA_EVENT_OFFSET_COMMIT
            }
            // Delivery reports as events, not callbacks. With callbacks `rd_kafka_flush` sleeps in `rd_kafka_poll` for
            // up to 10 ms after the last acknowledgement. With events it waits until the count of messages is zero.
            Kind::Producer => sys::RD_KAFKA_EVENT_ERROR | sys::RD_KAFKA_EVENT_DR,
            // No code reads them, so errors are logged.
            Kind::Lookup => sys::RD_KAFKA_EVENT_NONE,
        };
        // SAFETY: a live configuration; the callbacks have the types that librdkafka requires, and `hooks` outlives the
        // instance (see `Client`).
        unsafe {
            sys::rd_kafka_conf_set_opaque(conf, opaque);
            sys::rd_kafka_conf_set_log_cb(conf, Some(on_log));
            sys::rd_kafka_conf_set_events(conf, events);
        }
        if kind == Kind::Consumer {
            // SAFETY: as above.
            unsafe { sys::rd_kafka_conf_set_error_cb(conf, Some(on_error)) };
        }
        let on_new = match kind {
            Kind::Consumer => on_new_reader,
            Kind::Producer if notes_unanswered => on_new_producer,
            Kind::Producer | Kind::Lookup => return Ok(()),
        };
        #[cfg(unix)]
        if kind == Kind::Producer {
            // SAFETY: as above.
            unsafe { sys::rd_kafka_conf_set_closesocket_cb(conf, Some(on_close)) };
        }
        // SAFETY: as above.
        let code = unsafe {
            codes::rd_kafka_conf_interceptor_add_on_new(conf, c"eos".as_ptr(), on_new, opaque)
        };
        super::check_code(code)
    }

    fn build(self, kind: Kind) -> Result<NonNull<sys::rd_kafka_t>, Failure> {
        let kind = match kind {
            Kind::Consumer | Kind::Lookup => sys::rd_kafka_type_t::RD_KAFKA_CONSUMER,
            Kind::Producer => sys::rd_kafka_type_t::RD_KAFKA_PRODUCER,
        };
        let mut reason = [0 as c_char; 512];
        // SAFETY: a live configuration, and a buffer of the size that is given.
        let rk =
            unsafe { sys::rd_kafka_new(kind, self.0.as_ptr(), reason.as_mut_ptr(), reason.len()) };
        match NonNull::new(rk) {
            Some(rk) => {
                // On success, and only then, librdkafka owns the configuration.
                std::mem::forget(self);
                Ok(rk)
            }
            // SAFETY: librdkafka terminated the string.
            None => Err(Failure::new(
                unsafe { codes::rd_kafka_last_error() },
                unsafe { copy_text(reason.as_ptr()) },
            )),
        }
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        // SAFETY: ours, because `build` forgets it when librdkafka takes it over.
        unsafe { sys::rd_kafka_conf_destroy(self.0.as_ptr()) };
    }
}

/// See [`property_names`](crate::property_names).
pub(crate) fn property_names() -> Vec<String> {
    Conf::new().names()
}

/// See [`check_property`](crate::check_property).
pub(crate) fn check_property(key: &str, value: &str) -> Result<(), Failure> {
    Conf::new().set(key, value)
}

fn invalid(key: &str, reason: &str) -> Failure {
    Failure::new(
        eos_protocol::code::LOCAL_INVALID_ARG,
        format!("{key}: {reason}"),
    )
}

/// Called on any of librdkafka's threads.
unsafe extern "C" fn on_log(
    rk: *const sys::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    text: *const c_char,
) {
    // SAFETY: librdkafka passes the instance that logs, whose opaque is its `Hooks`, and C strings.
    let (hooks, name, facility, text) = unsafe {
        let hooks = sys::rd_kafka_opaque(rk).cast::<Hooks>().as_ref();
        let name = copy_text(sys::rd_kafka_name(rk));
        (hooks, name, copy_text(facility), copy_text(text))
    };
    let Some(hooks) = hooks else { return };
    // A panic in a subscriber must not unwind into C.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let text = hooks.secrets.hide(text);
        hooks.log.write(level, &name, &facility, &text);
    }));
}

/// Called by the batch fetch for elements that are neither records nor errors of the fetcher:
/// `rd_kafka_topic_propagate_notexists`. Without a callback the error would only be logged, and the partition would
/// deliver no records forever.
unsafe extern "C" fn on_error(
    _rk: *mut sys::rd_kafka_t,
    code: c_int,
    reason: *const c_char,
    opaque: *mut c_void,
) {
    use eos_protocol::code::{
        LOCAL_UNKNOWN_PARTITION, LOCAL_UNKNOWN_TOPIC, UNKNOWN_TOPIC_OR_PARTITION,
    };
    // SAFETY: the `Hooks` of this instance, which outlive it, and a C string.
    let (hooks, reason) = unsafe { (opaque.cast::<Hooks>().as_ref(), copy_text(reason)) };
    let Some(hooks) = hooks else { return };
    if matches!(
        code,
        UNKNOWN_TOPIC_OR_PARTITION | LOCAL_UNKNOWN_TOPIC | LOCAL_UNKNOWN_PARTITION
    ) {
        let mut gone = hooks.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.push(Failure::new(code, reason));
    }
}

/// Adds the interceptor of a consumer, which is only possible during the creation of an instance.
unsafe extern "C" fn on_new_reader(
    rk: *mut sys::rd_kafka_t,
    _conf: *const sys::rd_kafka_conf_t,
    opaque: *mut c_void,
    _text: *mut c_char,
    _text_size: usize,
) -> c_int {
    let name = c"eos".as_ptr();
    // SAFETY: the instance that is being made; `opaque` is its `Hooks`.
    unsafe { codes::rd_kafka_interceptor_add_on_response_received(rk, name, on_response, opaque) }
}

/// Adds the interceptors of a producer.
unsafe extern "C" fn on_new_producer(
    rk: *mut sys::rd_kafka_t,
    _conf: *const sys::rd_kafka_conf_t,
    opaque: *mut c_void,
    _text: *mut c_char,
    _text_size: usize,
) -> c_int {
    let name = c"eos".as_ptr();
    // SAFETY: the instance that is being made; `opaque` is its `Hooks`.
    unsafe {
        match codes::rd_kafka_interceptor_add_on_request_sent(rk, name, on_request, opaque) {
            codes::NO_ERROR => {
                codes::rd_kafka_interceptor_add_on_response_received(rk, name, on_response, opaque)
            }
            code => code,
        }
    }
}

/// Called on broker threads, when a request is written to its socket.
unsafe extern "C" fn on_request(
    _rk: *mut sys::rd_kafka_t,
    socket: c_int,
    broker: *const c_char,
    _broker_id: i32,
    api_key: i16,
    _api_version: i16,
    _correlation: i32,
    _size: usize,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: librdkafka passes the name of its broker, which outlives the call.
    let broker = unsafe { CStr::from_ptr(broker) };
    // SAFETY: the `Hooks` of this instance, which outlive it.
    if let Some(hooks) = unsafe { opaque.cast::<Hooks>().as_ref() } {
        hooks.connections.sent(socket, broker, api_key);
    }
    codes::NO_ERROR
}

/// Called on broker threads, in place of `close`.
#[cfg(unix)]
unsafe extern "C" fn on_close(socket: c_int, opaque: *mut c_void) -> c_int {
    // SAFETY: the `Hooks` of this instance, which outlive it.
    if let Some(hooks) = unsafe { opaque.cast::<Hooks>().as_ref() } {
        hooks.connections.close(socket);
    }
    codes::NO_ERROR
}

/// Metadata: its response updates the client's topics and their ids.
const METADATA: i16 = 3;

/// Called on broker threads, and once more on the main thread for some requests.
unsafe extern "C" fn on_response(
    _rk: *mut sys::rd_kafka_t,
    _socket: c_int,
    _broker: *const c_char,
    _broker_id: i32,
    api_key: i16,
    _api_version: i16,
    _correlation: i32,
    _size: usize,
    _round_trip_us: i64,
    code: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: the `Hooks` of this instance, which outlive it.
    let Some(hooks) = (unsafe { opaque.cast::<Hooks>().as_ref() }) else {
        return codes::NO_ERROR;
    };
    hooks.connections.received(api_key);
    let answered = matches!(code, codes::NO_ERROR | codes::DESTROY);
    if !answered && changes_a_transaction(api_key) {
        hooks.unanswered.store(true, Ordering::Relaxed);
    }
    if api_key == METADATA && code == codes::NO_ERROR {
        // librdkafka calls this before it reads the response.
        hooks.news.fetch_add(1, Ordering::Release);
    }
    codes::NO_ERROR
}
