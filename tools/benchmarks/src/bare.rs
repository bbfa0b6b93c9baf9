//! The bare librdkafka loop that eos is compared with, written by hand for speed.
//!
//! One thread. A queue per partition, batch reads, a cached topic handle, copying `produceva`. It sends offsets while
//! data drains, then flushes and commits. It has no error handling: every error ends the loop.

#![allow(unsafe_code, reason = "it is the C interface that is measured")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::bindings as sys;

use crate::side::Task;
use crate::work::{View, Work};

const BATCH: usize = 500;

/// Passes all records on.
pub(crate) fn run(task: &Task) -> Result<()> {
    let consumer = consumer(task)?;
    let producer = producer(task)?;
    // SAFETY: live instances and C strings throughout; queues, topic handle and lists are destroyed
    // before their instance, at the end of `pass`.
    unsafe {
        check(sys::rd_kafka_init_transactions(producer, 30_000))?;
        pass(task, consumer, producer)?;
        sys::rd_kafka_consumer_close(consumer);
        sys::rd_kafka_destroy(producer);
        sys::rd_kafka_destroy(consumer);
        Ok(())
    }
}

/// Reads a topic to its end as a reader of committed records, and discards the records. Returns their number, and the
/// time since the first one.
pub(crate) fn read(bootstrap: &str, topic: &str, partitions: i32) -> Result<(u64, Duration)> {
    let consumer = client(
        sys::rd_kafka_type_t::RD_KAFKA_CONSUMER,
        0,
        &[
            ("bootstrap.servers", bootstrap),
            ("group.id", "bare-reader"),
            ("isolation.level", "read_committed"),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
            ("check.crcs", "true"),
        ],
    )?;
    let name = CString::new(topic)?;
    // SAFETY: a live instance and C strings; the list, the queue and the messages are ours, and are destroyed before
    // their instance.
    unsafe {
        sys::rd_kafka_poll_set_consumer(consumer);
        let all = sys::rd_kafka_topic_partition_list_new(partitions);
        for partition in 0..partitions {
            (*sys::rd_kafka_topic_partition_list_add(all, name.as_ptr(), partition)).offset = 0;
        }
        let assigned = sys::rd_kafka_assign(consumer, all);
        ensure!(
            assigned == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
            "{topic}: {assigned:?}"
        );
        sys::rd_kafka_topic_partition_list_destroy(all);
        let queue = sys::rd_kafka_queue_get_consumer(consumer);
        let mut room = vec![null_mut(); BATCH];
        let (mut records, mut open, mut began) = (0, partitions, None);
        while open > 0 {
            let count = sys::rd_kafka_consume_batch_queue(queue, 1000, room.as_mut_ptr(), BATCH);
            for &message in &room[..usize::try_from(count)?] {
                began.get_or_insert_with(Instant::now);
                match (*message).err {
                    sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => records += 1,
                    sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF => open -= 1,
                    error => bail!("{topic}: {error:?}"),
                }
                sys::rd_kafka_message_destroy(message);
            }
        }
        let took = began.map_or(Duration::ZERO, |began| began.elapsed());
        sys::rd_kafka_queue_destroy(queue);
        sys::rd_kafka_consumer_close(consumer);
        sys::rd_kafka_destroy(consumer);
        Ok((records, took))
    }
}

/// # Safety
/// Live instances.
unsafe fn pass(
    task: &Task,
    consumer: *mut sys::rd_kafka_t,
    producer: *mut sys::rd_kafka_t,
) -> Result<()> {
    // SAFETY: see `run`.
    unsafe {
        let output = CString::new(task.output.as_str())?;
        let output = sys::rd_kafka_topic_new(producer, output.as_ptr(), null_mut());
        let queues = join(task, consumer)?;
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        let mut room = vec![null_mut(); BATCH];
        let (mut done, mut written) = (0, Vec::with_capacity(256));
        while done < task.records {
            check(sys::rd_kafka_begin_transaction(producer))?;
            let end = Instant::now() + task.commit_interval;
            while done < task.records && Instant::now() < end {
                let before = done;
                for &(partition, queue) in &queues {
                    let count =
                        sys::rd_kafka_consume_batch_queue(queue, 0, room.as_mut_ptr(), BATCH);
                    for &message in &room[..usize::try_from(count)?] {
                        work(task.work, producer, output, message, &mut written)?;
                        next.insert(partition, (*message).offset + 1);
                        sys::rd_kafka_message_destroy(message);
                        done += 1;
                    }
                }
                if done == before {
                    // No partition has records. Waits for up to a millisecond.
                    sys::rd_kafka_consumer_poll(consumer, 1);
                }
            }
            commit(task, consumer, producer, &next)?;
        }
        for (_, queue) in queues {
            sys::rd_kafka_queue_destroy(queue);
        }
        sys::rd_kafka_topic_destroy(output);
        Ok(())
    }
}

/// Forwards one record: unchanged, or with the same JSON work as the other sides.
///
/// # Safety
/// Live producer, topic handle and message.
unsafe fn work(
    work: Work,
    producer: *mut sys::rd_kafka_t,
    output: *mut sys::rd_kafka_topic_t,
    message: *const sys::rd_kafka_message_t,
    written: &mut Vec<u8>,
) -> Result<()> {
    // SAFETY: by the caller's contract; the message outlives the slice.
    unsafe {
        ensure!(
            (*message).err == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
            "{:?}",
            *message
        );
        let value = &*slice_from_raw_parts((*message).payload.cast::<u8>(), (*message).len);
        match work {
            Work::Pass => forward(producer, output, message, value),
            Work::Map => {
                let view = serde_json::from_slice::<View>(value)?.with_slow();
                if !view.is_kept() {
                    return Ok(());
                }
                written.clear();
                serde_json::to_writer(&mut *written, &view)?;
                forward(producer, output, message, written)
            }
            _ => bail!("the bare loop has no state"),
        }
    }
}

/// # Safety
/// Live producer, topic handle and message.
unsafe fn forward(
    producer: *mut sys::rd_kafka_t,
    output: *mut sys::rd_kafka_topic_t,
    message: *const sys::rd_kafka_message_t,
    value: &[u8],
) -> Result<()> {
    use sys::rd_kafka_vtype_t as tag;
    type Value = sys::rd_kafka_vu_s__bindgen_ty_1;
    type Memory = sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1;
    // SAFETY: by the caller's contract; key and value are copied.
    unsafe {
        let message = &*message;
        let time = sys::rd_kafka_message_timestamp(message, null_mut());
        let arguments = [
            sys::rd_kafka_vu_t {
                vtype: tag::RD_KAFKA_VTYPE_RKT,
                u: Value { rkt: output },
            },
            sys::rd_kafka_vu_t {
                vtype: tag::RD_KAFKA_VTYPE_PARTITION,
                u: Value {
                    i32_: message.partition,
                },
            },
            sys::rd_kafka_vu_t {
                vtype: tag::RD_KAFKA_VTYPE_MSGFLAGS,
                u: Value {
                    i: sys::RD_KAFKA_MSG_F_COPY,
                },
            },
            sys::rd_kafka_vu_t {
                vtype: tag::RD_KAFKA_VTYPE_VALUE,
                u: Value {
                    mem: Memory {
                        ptr: value.as_ptr().cast_mut().cast(),
                        size: value.len(),
                    },
                },
            },
            sys::rd_kafka_vu_t {
                vtype: tag::RD_KAFKA_VTYPE_KEY,
                u: Value {
                    mem: Memory {
                        ptr: message.key,
                        size: message.key_len,
                    },
                },
            },
            sys::rd_kafka_vu_t {
                vtype: tag::RD_KAFKA_VTYPE_TIMESTAMP,
                u: Value { i64_: time },
            },
        ];
        check(sys::rd_kafka_produceva(
            producer,
            arguments.as_ptr(),
            arguments.len(),
        ))
    }
}

/// # Safety
/// Live instances.
unsafe fn commit(
    task: &Task,
    consumer: *mut sys::rd_kafka_t,
    producer: *mut sys::rd_kafka_t,
    next: &BTreeMap<i32, i64>,
) -> Result<()> {
    // SAFETY: see `run`; list and metadata are ours and copied by the call.
    unsafe {
        let topic = CString::new(task.input.as_str())?;
        let offsets = sys::rd_kafka_topic_partition_list_new(0);
        for (&partition, &offset) in next {
            (*sys::rd_kafka_topic_partition_list_add(offsets, topic.as_ptr(), partition)).offset =
                offset;
        }
        let member = sys::rd_kafka_consumer_group_metadata(consumer);
        let sent = sys::rd_kafka_send_offsets_to_transaction(producer, offsets, member, 10_000);
        sys::rd_kafka_consumer_group_metadata_destroy(member);
        sys::rd_kafka_topic_partition_list_destroy(offsets);
        check(sent)?;
        let flushed = sys::rd_kafka_flush(producer, 10_000);
        ensure!(
            flushed == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
            "{flushed:?}"
        );
        check(sys::rd_kafka_commit_transaction(producer, 10_000))
    }
}

/// Joins the group and assigns every partition, each with a queue of its own.
///
/// # Safety
/// A live consumer.
unsafe fn join(
    task: &Task,
    consumer: *mut sys::rd_kafka_t,
) -> Result<Vec<(i32, *mut sys::rd_kafka_queue_t)>> {
    // SAFETY: see `run`.
    unsafe {
        sys::rd_kafka_poll_set_consumer(consumer);
        let topic = CString::new(task.input.as_str())?;
        let topics = sys::rd_kafka_topic_partition_list_new(1);
        sys::rd_kafka_topic_partition_list_add(topics, topic.as_ptr(), -1);
        sys::rd_kafka_subscribe(consumer, topics);
        sys::rd_kafka_topic_partition_list_destroy(topics);

        let events = sys::rd_kafka_queue_get_consumer(consumer);
        let event = loop {
            let event = sys::rd_kafka_queue_poll(events, 30_000);
            ensure!(!event.is_null(), "no assignment within 30 s");
            if sys::rd_kafka_event_type(event) == sys::RD_KAFKA_EVENT_REBALANCE {
                break event;
            }
            sys::rd_kafka_event_destroy(event);
        };
        let assigned = sys::rd_kafka_event_topic_partition_list(event);
        let mut queues = Vec::new();
        for at in 0..usize::try_from((*assigned).cnt)? {
            let element = &mut *(*assigned).elems.add(at);
            element.offset = 0;
            let queue =
                sys::rd_kafka_queue_get_partition(consumer, topic.as_ptr(), element.partition);
            sys::rd_kafka_queue_forward(queue, null_mut());
            queues.push((element.partition, queue));
        }
        check(sys::rd_kafka_incremental_assign(consumer, assigned))?;
        sys::rd_kafka_event_destroy(event);
        sys::rd_kafka_queue_destroy(events);
        Ok(queues)
    }
}

fn consumer(task: &Task) -> Result<*mut sys::rd_kafka_t> {
    client(
        sys::rd_kafka_type_t::RD_KAFKA_CONSUMER,
        sys::RD_KAFKA_EVENT_REBALANCE,
        &[
            ("bootstrap.servers", &task.bootstrap),
            ("group.id", &task.group),
            ("isolation.level", "read_committed"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("fetch.wait.max.ms", "100"),
            ("fetch.queue.backoff.ms", "10"),
            ("check.crcs", "true"),
            ("enable.metrics.push", "false"),
        ],
    )
}

fn producer(task: &Task) -> Result<*mut sys::rd_kafka_t> {
    client(
        sys::rd_kafka_type_t::RD_KAFKA_PRODUCER,
        sys::RD_KAFKA_EVENT_DR,
        &[
            ("bootstrap.servers", &task.bootstrap),
            ("transactional.id", &task.group),
            ("transaction.timeout.ms", "10000"),
            ("delivery.report.only.error", "true"),
            ("linger.ms", "20"),
            ("batch.size", "1000000"),
            ("batch.num.messages", "10000"),
            ("queue.buffering.max.messages", "0"),
            ("queue.buffering.max.kbytes", "262144"),
            ("retry.backoff.ms", "10"),
            ("retry.backoff.max.ms", "200"),
            ("enable.metrics.push", "false"),
        ],
    )
}

fn client(
    kind: sys::rd_kafka_type_t,
    events: c_int,
    settings: &[(&str, &str)],
) -> Result<*mut sys::rd_kafka_t> {
    let mut reason: [c_char; 512] = [0; 512];
    // SAFETY: a live configuration, C strings, and a buffer of the size that is given; the
    // configuration passes to the instance.
    unsafe {
        let conf = sys::rd_kafka_conf_new();
        for (key, value) in settings {
            let (key, value) = (CString::new(*key)?, CString::new(*value)?);
            let outcome = sys::rd_kafka_conf_set(
                conf,
                key.as_ptr(),
                value.as_ptr(),
                reason.as_mut_ptr(),
                reason.len(),
            );
            if outcome != sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK {
                bail!(
                    "{key:?}: {}",
                    CStr::from_ptr(reason.as_ptr()).to_string_lossy()
                );
            }
        }
        sys::rd_kafka_conf_set_events(conf, events);
        let rk = sys::rd_kafka_new(kind, conf, reason.as_mut_ptr(), reason.len());
        (!rk.is_null()).then_some(rk).with_context(|| {
            CStr::from_ptr(reason.as_ptr())
                .to_string_lossy()
                .into_owned()
        })
    }
}

/// # Safety
/// `error` is null or an error object that no other code destroys.
unsafe fn check(error: *mut sys::rd_kafka_error_t) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: by the caller's contract.
    unsafe {
        let text = CStr::from_ptr(sys::rd_kafka_error_string(error))
            .to_string_lossy()
            .into_owned();
        sys::rd_kafka_error_destroy(error);
        bail!(text)
    }
}
