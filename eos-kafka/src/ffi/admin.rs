//! Queries whose responses arrive on a queue.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use eos_protocol::TopicName;
use eos_protocol::state::TopicUuid;

use super::{Client, Event, Failure, Queue, c_string, codes, copy_text, millis, sys};
use sys::rd_kafka_admin_op_t as Op;

/// The description of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicAnswer {
    pub(crate) name: String,
    pub(crate) found: Result<TopicFound, Failure>,
}

/// An existing topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicFound {
    pub(crate) partitions: u32,
    /// The lowest number of replicas of any partition.
    pub(crate) replicas: u32,
    /// `None` if the broker does not support topic ids.
    pub(crate) id: Option<TopicUuid>,
}

/// The owner of the queried settings.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConfigOf<'a> {
    Broker(i32),
    Topics(&'a [TopicName]),
}

/// The settings of a broker or a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigAnswer {
    /// The broker's id, or the topic's name.
    pub(crate) of: String,
    pub(crate) settings: Result<BTreeMap<String, String>, Failure>,
}

impl Client {
    /// Queries topics. Never creates a topic.
    pub(crate) fn ask_topics(
        &self,
        topics: &[TopicName],
        within: Duration,
        answer: &Queue,
    ) -> Result<(), Failure> {
        let names = topics
            .iter()
            .map(|t| c_string(t.as_str()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let options = Options::new(self, Op::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, within)?;
        // SAFETY: a live instance, options and queue; the collection copies the names, the call
        // copies the collection, which is ours to destroy.
        unsafe {
            let collection =
                sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            sys::rd_kafka_DescribeTopics(self.raw(), collection, options.raw(), answer.raw());
            sys::rd_kafka_TopicCollection_destroy(collection);
        }
        Ok(())
    }

    /// Returns the assignments of a group's members, as the group leader wrote them. `None` unless the group is stable.
    /// Waits for the responses of all brokers, or of those that respond in time.
    ///
    /// Does not use `rd_kafka_DescribeConsumerGroups`: if the coordinator's connection breaks during the query, that
    /// call uses freed memory, and ends the process (docs/design/0020).
    pub(crate) fn group(
        &self,
        group: &str,
        within: Duration,
    ) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let name = c_string(group)?;
        let mut list = std::ptr::null();
        // SAFETY: a live instance and a C string. If the response is complete or partial, there is a list. It has as
        // many groups and members as its counts, and is ours to destroy. The needed values are copied before.
        unsafe {
            let code = codes::rd_kafka_list_groups(
                self.raw(),
                name.as_ptr(),
                &raw mut list,
                millis(within),
            );
            if code != codes::PARTIAL {
                super::check_code(code)?;
            }
            let groups = slice((*list).groups, (*list).group_cnt);
            let found = groups.first().map(|group| {
                let code = codes::of_group(group);
                super::check_code(code)?;
                let members = slice(group.members, group.member_cnt).iter();
                let assigned = members.map(|member| {
                    let bytes = member.member_assignment.cast::<u8>();
                    slice(bytes, member.member_assignment_size).to_vec()
                });
                let is_stable = copy_text(group.state) == "Stable";
                Ok(is_stable.then(|| assigned.collect()))
            });
            sys::rd_kafka_group_list_destroy(list);
            found.unwrap_or(Ok(None))
        }
    }

    /// Returns the names of all visible topics. Waits for the response.
    pub(crate) fn topic_names(&self, within: Duration) -> Result<Vec<String>, Failure> {
        let mut metadata = std::ptr::null();
        // SAFETY: a live instance; on success the metadata is ours, and has as many topics as its count. Names are
        // copied before it is destroyed. (Codes are not read: a Rust enum could not hold each of them.)
        unsafe {
            let code = codes::rd_kafka_metadata(
                self.raw(),
                1,
                std::ptr::null_mut(),
                &raw mut metadata,
                millis(within),
            );
            super::check_code(code)?;
            let count = usize::try_from((*metadata).topic_cnt).unwrap_or(0);
            let topics = (*metadata).topics;
            let names = (0..count).map(|at| copy_text((&raw const (*topics.add(at)).topic).read()));
            let names = names.collect();
            sys::rd_kafka_metadata_destroy(metadata);
            Ok(names)
        }
    }

    pub(crate) fn ask_cluster(&self, within: Duration, answer: &Queue) -> Result<(), Failure> {
        let options = Options::new(self, Op::RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER, within)?;
        // SAFETY: a live instance, options and queue.
        unsafe { sys::rd_kafka_DescribeCluster(self.raw(), options.raw(), answer.raw()) };
        Ok(())
    }

    /// Queries the settings of one broker, or of any number of topics.
    pub(crate) fn ask_config(
        &self,
        of: &ConfigOf<'_>,
        within: Duration,
        answer: &Queue,
    ) -> Result<(), Failure> {
        let kind = match of {
            ConfigOf::Broker(_) => sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_BROKER,
            ConfigOf::Topics(_) => sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
        };
        let names = match of {
            ConfigOf::Broker(id) => vec![c_string(&id.to_string())?],
            ConfigOf::Topics(topics) => topics
                .iter()
                .map(|topic| c_string(topic.as_str()))
                .collect::<Result<_, _>>()?,
        };
        let options = Options::new(self, Op::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, within)?;
        // SAFETY: a live instance, options and queue; the names and the resources are copied, and
        // the resources ours to destroy.
        unsafe {
            let mut resources: Vec<_> = names
                .iter()
                .map(|name| sys::rd_kafka_ConfigResource_new(kind, name.as_ptr()))
                .collect();
            sys::rd_kafka_DescribeConfigs(
                self.raw(),
                resources.as_mut_ptr(),
                resources.len(),
                options.raw(),
                answer.raw(),
            );
            sys::rd_kafka_ConfigResource_destroy_array(resources.as_mut_ptr(), resources.len());
        }
        Ok(())
    }
}

impl Event<'_> {
    /// Returns the result of [`Client::ask_topics`].
    pub(crate) fn topics(&self) -> Vec<TopicAnswer> {
        // SAFETY: a live event, which keeps its result; null for other events.
        unsafe {
            let result = sys::rd_kafka_event_DescribeTopics_result(self.raw());
            let topics = results(result, sys::rd_kafka_DescribeTopics_result_topics);
            topics.iter().map(|&topic| topic_answer(topic)).collect()
        }
    }

    /// Returns the result of [`Client::ask_cluster`]: the cluster id and the broker ids.
    pub(crate) fn cluster(&self) -> (Option<String>, Vec<i32>) {
        // SAFETY: a live event, which keeps its result; null for other events.
        unsafe {
            let result = sys::rd_kafka_event_DescribeCluster_result(self.raw());
            if result.is_null() {
                return (None, Vec::new());
            }
            let id = copy_text(sys::rd_kafka_DescribeCluster_result_cluster_id(result));
            let nodes = results(result, sys::rd_kafka_DescribeCluster_result_nodes);
            let nodes = nodes
                .iter()
                .map(|&node| sys::rd_kafka_Node_id(node))
                .collect();
            ((!id.is_empty()).then_some(id), nodes)
        }
    }

    /// Returns the result of [`Client::ask_config`]: the settings of each broker or topic.
    pub(crate) fn configs(&self) -> Vec<ConfigAnswer> {
        // SAFETY: a live event, which keeps its result; null for other events.
        unsafe {
            let result = sys::rd_kafka_event_DescribeConfigs_result(self.raw());
            let resources = results(result, sys::rd_kafka_DescribeConfigs_result_resources);
            resources.iter().map(|&r| config_answer(r)).collect()
        }
    }
}

/// # Safety
/// `first` is null, or points to `count` elements that outlive the slice.
unsafe fn slice<'a, T>(first: *const T, count: c_int) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: by the caller's contract.
        Ok(count) if !first.is_null() => unsafe { std::slice::from_raw_parts(first, count) },
        _ => &[],
    }
}

/// # Safety
/// `resource` is live.
unsafe fn config_answer(resource: *const sys::rd_kafka_ConfigResource_t) -> ConfigAnswer {
    // SAFETY: live, by the caller's contract; strings are copied.
    unsafe {
        let code = codes::rd_kafka_ConfigResource_error(resource);
        let settings = if code == codes::NO_ERROR {
            let entries = results(resource, sys::rd_kafka_ConfigResource_configs).iter();
            Ok(entries
                .map(|&entry| {
                    let name = copy_text(sys::rd_kafka_ConfigEntry_name(entry));
                    (name, copy_text(sys::rd_kafka_ConfigEntry_value(entry)))
                })
                .collect())
        } else {
            let text = copy_text(sys::rd_kafka_ConfigResource_error_string(resource));
            Err(Failure::new(code, text))
        };
        ConfigAnswer {
            of: copy_text(sys::rd_kafka_ConfigResource_name(resource)),
            settings,
        }
    }
}

/// # Safety
/// `topic` is live.
unsafe fn topic_answer(topic: *const sys::rd_kafka_TopicDescription_t) -> TopicAnswer {
    // SAFETY: live, by the caller's contract; strings are copied. The error belongs to the topic.
    unsafe {
        let error = codes::rd_kafka_TopicDescription_error(topic);
        let code = if error.is_null() {
            codes::NO_ERROR
        } else {
            codes::rd_kafka_error_code(error)
        };
        let found = if code == codes::NO_ERROR {
            let partitions = results(topic, sys::rd_kafka_TopicDescription_partitions);
            let replicas = partitions.iter().map(|&partition| {
                let mut count = 0;
                sys::rd_kafka_TopicPartitionInfo_replicas(partition, &raw mut count);
                count
            });
            let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            Ok(TopicFound {
                partitions: number(partitions.len()),
                replicas: number(replicas.min().unwrap_or(0)),
                id: topic_id(topic),
            })
        } else {
            Err(Failure::new(
                code,
                copy_text(sys::rd_kafka_error_string(error)),
            ))
        };
        TopicAnswer {
            name: copy_text(sys::rd_kafka_TopicDescription_name(topic)),
            found,
        }
    }
}

/// # Safety
/// `topic` is live.
unsafe fn topic_id(topic: *const sys::rd_kafka_TopicDescription_t) -> Option<TopicUuid> {
    // SAFETY: live, by the caller's contract; the id belongs to the topic.
    let (high, low) = unsafe {
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return None;
        }
        (
            sys::rd_kafka_Uuid_most_significant_bits(id),
            sys::rd_kafka_Uuid_least_significant_bits(id),
        )
    };
    let id = u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned());
    // Kafka's `Uuid.ZERO_UUID` means "none".
    (id != 0).then_some(TopicUuid(id))
}

/// Reads one of librdkafka's "array and its length" results; empty for null.
///
/// # Safety
/// `of` is null or live, `read` is its accessor, and `'a` ends before the object does.
pub(super) unsafe fn results<'a, R, T>(
    of: *const R,
    read: unsafe extern "C" fn(*const R, *mut usize) -> *mut *const T,
) -> &'a [*const T] {
    if of.is_null() {
        return &[];
    }
    let mut count = 0;
    // SAFETY: live, by the caller's contract; the array has `count` elements if it is not null.
    unsafe {
        let array = read(of, &raw mut count);
        if array.is_null() {
            &[]
        } else {
            std::slice::from_raw_parts(array, count)
        }
    }
}

/// The type of functions that set a time in [`Options`].
type SetTime = unsafe extern "C" fn(
    options: *mut sys::rd_kafka_AdminOptions_t,
    timeout_ms: c_int,
    text: *mut c_char,
    text_size: usize,
) -> c_int;

/// The options of a query.
pub(super) struct Options(NonNull<sys::rd_kafka_AdminOptions_t>);

impl Options {
    pub(super) fn new(client: &Client, operation: Op, within: Duration) -> Result<Self, Failure> {
        // SAFETY: a live instance.
        let options = unsafe { sys::rd_kafka_AdminOptions_new(client.raw(), operation) };
        let Some(options) = NonNull::new(options).map(Self) else {
            return Err(Failure::of(codes::CRIT_SYS_RESOURCE));
        };
        options.set(within, codes::rd_kafka_AdminOptions_set_request_timeout)?;
        Ok(options)
    }

    /// Sets the time limit of the controller's response, which is earlier if all brokers know the topics.
    pub(super) fn propagated(self, within: Duration) -> Result<Self, Failure> {
        self.set(within, codes::rd_kafka_AdminOptions_set_operation_timeout)?;
        Ok(self)
    }

    fn set(&self, time: Duration, setter: SetTime) -> Result<(), Failure> {
        let mut reason = [0 as c_char; 256];
        // librdkafka accepts at most an hour.
        let time = millis(time.clamp(Duration::from_millis(1), Duration::from_secs(3600)));
        // SAFETY: live options and a buffer of the size that is given.
        super::check_code(unsafe { setter(self.raw(), time, reason.as_mut_ptr(), reason.len()) })
    }

    pub(super) fn raw(&self) -> *mut sys::rd_kafka_AdminOptions_t {
        self.0.as_ptr()
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_AdminOptions_destroy(self.raw()) };
    }
}
