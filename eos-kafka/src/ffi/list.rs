//! Lists of partitions with offsets, metadata and error codes.

use std::ffi::c_int;
use std::ptr::NonNull;

use eos_protocol::{Partition, TopicName, TopicPartition};

use super::{Failure, c_string, codes, copy_text, sys};

/// A copied element of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) partition: TopicPartition,
    /// Below zero: librdkafka's logical offsets, such as "none".
    pub(crate) offset: i64,
    pub(crate) metadata: String,
    pub(crate) code: i32,
}

/// An owned list.
#[derive(Debug)]
pub(crate) struct PartitionList(NonNull<sys::rd_kafka_topic_partition_list_t>);

// SAFETY: plain memory without ties to a thread.
unsafe impl Send for PartitionList {}

impl PartitionList {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = c_int::try_from(capacity).unwrap_or(0);
        // SAFETY: no preconditions; the capacity is a hint.
        let list = unsafe { sys::rd_kafka_topic_partition_list_new(capacity) };
        Self(NonNull::new(list).expect("librdkafka aborts when memory is out"))
    }

    /// Returns a list of these partitions, without offsets.
    pub(crate) fn of<'a>(
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<Self, Failure> {
        let mut list = Self::new(0);
        for partition in partitions {
            list.push(partition, sys::RD_KAFKA_OFFSET_INVALID.into(), None)?;
        }
        Ok(list)
    }

    /// Returns a list of topics to subscribe to.
    pub(crate) fn topics(topics: &[TopicName]) -> Result<Self, Failure> {
        let list = Self::new(topics.len());
        for topic in topics {
            let name = c_string(topic.as_str())?;
            // SAFETY: a live list; the name is copied. −1 is "no particular partition".
            unsafe { sys::rd_kafka_topic_partition_list_add(list.raw(), name.as_ptr(), -1) };
        }
        Ok(list)
    }

    pub(crate) fn push(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        metadata: Option<&str>,
    ) -> Result<(), Failure> {
        let topic = c_string(partition.topic.as_str())?;
        // SAFETY: a live list; the name is copied. The element is valid until the next push.
        let added = unsafe {
            &mut *sys::rd_kafka_topic_partition_list_add(
                self.raw(),
                topic.as_ptr(),
                partition.partition.get(),
            )
        };
        added.offset = offset;
        if let Some(metadata) = metadata {
            // One byte more, because librdkafka ends metadata with a NUL beyond its size.
            // SAFETY: librdkafka's own allocator, because the list frees the bytes. It aborts if memory is exhausted,
            // so the pointer is valid for the requested bytes.
            unsafe {
                let copy =
                    sys::rd_kafka_mem_malloc(std::ptr::null_mut(), metadata.len() + 1).cast::<u8>();
                copy.copy_from_nonoverlapping(metadata.as_ptr(), metadata.len());
                copy.add(metadata.len()).write(0);
                added.metadata = copy.cast();
            }
            added.metadata_size = metadata.len();
        }
        Ok(())
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        // SAFETY: a live list.
        unsafe { entries(self.raw()) }
    }

    pub(super) fn raw(&self) -> *mut sys::rd_kafka_topic_partition_list_t {
        self.0.as_ptr()
    }
}

impl Drop for PartitionList {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.raw()) };
    }
}

/// # Safety
/// `list` is null or a live list.
pub(super) unsafe fn entries(list: *const sys::rd_kafka_topic_partition_list_t) -> Vec<Entry> {
    // SAFETY: null or live, by the caller's contract.
    let Some(list) = (unsafe { list.as_ref() }) else {
        return Vec::new();
    };
    let count = usize::try_from(list.cnt).unwrap_or(0);
    // SAFETY: `elems` has `cnt` elements.
    (0..count)
        .filter_map(|at| unsafe { entry(list.elems.add(at)) })
        .collect()
}

/// Copies an element; `None` for one that stands for a whole topic.
///
/// # Safety
/// `element` is a live element.
pub(super) unsafe fn entry(element: *const sys::rd_kafka_topic_partition_t) -> Option<Entry> {
    // SAFETY: live, by the caller's contract. Fields are read one by one, never through a
    // reference to the whole: its error code may be one that the bindings' enum does not know.
    // The topic is a C string, the metadata null or `metadata_size` bytes.
    unsafe {
        let metadata = (*element).metadata.cast::<u8>();
        let metadata = if metadata.is_null() {
            String::new()
        } else {
            let bytes = std::slice::from_raw_parts(metadata, (*element).metadata_size);
            String::from_utf8_lossy(bytes).into_owned()
        };
        Some(Entry {
            partition: TopicPartition {
                topic: TopicName::new(copy_text((*element).topic)),
                partition: Partition::new((*element).partition).ok()?,
            },
            offset: (*element).offset,
            metadata,
            code: codes::of_partition(element),
        })
    }
}
