//! librdkafka's mock cluster, for cases that need exact timing.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Client, Member, copy_text, sys};

unsafe extern "C" {
    // Declared here, because the bindings return a Rust enum.
    fn rd_kafka_mock_coordinator_set(
        cluster: *mut sys::rd_kafka_mock_cluster_t,
        key_type: *const c_char,
        key: *const c_char,
        broker: i32,
    ) -> c_int;
    fn rd_kafka_mock_topic_create(
        cluster: *mut sys::rd_kafka_mock_cluster_t,
        topic: *const c_char,
        partitions: c_int,
        replicas: c_int,
    ) -> c_int;
    fn rd_kafka_mock_broker_decommission(
        cluster: *mut sys::rd_kafka_mock_cluster_t,
        broker: i32,
    ) -> c_int;
}

/// A cluster that lives as long as the client that runs it.
#[derive(Debug)]
pub(crate) struct MockCluster {
    ptr: NonNull<sys::rd_kafka_mock_cluster_t>,
    _client: Arc<Client>,
}

// SAFETY: the functions of a mock cluster lock it.
unsafe impl Send for MockCluster {}
// SAFETY: as above.
unsafe impl Sync for MockCluster {}

impl MockCluster {
    pub(crate) fn new(client: &Arc<Client>, brokers: i32) -> Self {
        // SAFETY: a live instance.
        let ptr = unsafe { sys::rd_kafka_mock_cluster_new(client.raw(), brokers) };
        Self {
            ptr: NonNull::new(ptr).expect("a mock cluster"),
            _client: Arc::clone(client),
        }
    }

    pub(crate) fn bootstrap(&self) -> String {
        // SAFETY: a live cluster; the string is copied.
        unsafe { copy_text(sys::rd_kafka_mock_cluster_bootstraps(self.ptr.as_ptr())) }
    }

    /// Creates a topic with one partition.
    pub(crate) fn create_topic(&self, name: &CStr) {
        // SAFETY: a live cluster and a C string, which is copied.
        let code = unsafe { rd_kafka_mock_topic_create(self.ptr.as_ptr(), name.as_ptr(), 1, 1) };
        assert_eq!(code, 0);
    }

    /// Makes a broker the coordinator of a `group` or a `transaction`.
    pub(crate) fn set_coordinator(&self, kind: &CStr, key: &CStr, broker: i32) {
        // SAFETY: a live cluster and C strings, which are copied.
        let code = unsafe {
            rd_kafka_mock_coordinator_set(self.ptr.as_ptr(), kind.as_ptr(), key.as_ptr(), broker)
        };
        assert_eq!(code, 0);
    }

    /// Removes a broker: its connections are closed, and metadata no longer names it.
    pub(crate) fn decommission(&self, broker: i32) {
        // SAFETY: a live cluster.
        let code = unsafe { rd_kafka_mock_broker_decommission(self.ptr.as_ptr(), broker) };
        assert_eq!(code, 0);
    }
}

impl Drop for MockCluster {
    fn drop(&mut self) {
        // SAFETY: a live cluster, whose client is alive as well.
        unsafe { sys::rd_kafka_mock_cluster_destroy(self.ptr.as_ptr()) };
    }
}

/// Returns a member of a group, without joining it.
pub(crate) fn member_of(group: &CStr) -> Member {
    // SAFETY: C strings, which are copied; no instance id.
    let made = unsafe {
        sys::rd_kafka_consumer_group_metadata_new_with_genid(
            group.as_ptr(),
            1,
            c"member".as_ptr(),
            std::ptr::null(),
        )
    };
    Member::own(made).expect("group metadata")
}
