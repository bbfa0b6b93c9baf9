//! Writing of input records.

use std::sync::Arc;

use eos_core::codec::Encode;
use eos_core::{Error, Timestamp, Topic};

use super::TestDriver;
use super::dying::panic_if_ended;
use super::input::Input;
use crate::client::Written;

impl TestDriver {
    /// Writes a record to a topic, at the driver's [`now`](Self::now), and runs the app until all records are
    /// processed and committed.
    ///
    /// # Panics
    /// If the app does not read the topic, key or value can't be encoded, or the app ends with an error.
    #[track_caller]
    pub fn pipe<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        key: impl Into<K>,
        value: impl Into<V>,
    ) where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.pipe_input(topic, Input::new(key, value));
    }

    /// Writes a record with its own time.
    ///
    /// # Panics
    /// As [`pipe`](Self::pipe).
    #[track_caller]
    pub fn pipe_at<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        key: impl Into<K>,
        value: impl Into<V>,
        timestamp: Timestamp,
    ) where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.pipe_input(topic, Input::new(key, value).at(timestamp));
    }

    /// Writes a tombstone: a null value.
    ///
    /// # Panics
    /// As [`pipe`](Self::pipe).
    #[track_caller]
    pub fn pipe_tombstone<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, Option<V>, KC, VC>,
        key: impl Into<K>,
    ) where
        KC: Encode<K>,
        VC: Encode<Option<V>>,
    {
        self.pipe_input(topic, Input::new(key, None));
    }

    /// Writes a record with all its fields: partition, headers, raw bytes.
    ///
    /// # Panics
    /// As [`pipe`](Self::pipe).
    #[track_caller]
    pub fn pipe_input<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>, record: Input<K, V>)
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let went = self.try_pipe(topic, record);
        panic_if_ended(went);
    }

    /// Writes several records before the app runs: they are processed in one transaction.
    ///
    /// # Panics
    /// As [`pipe`](Self::pipe).
    #[track_caller]
    pub fn pipe_all<K, V, KC, VC, R: Into<Input<K, V>>>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        records: impl IntoIterator<Item = R>,
    ) where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        for record in records {
            self.write(topic, &record.into());
        }
        self.go_or_panic();
    }

    /// Writes a record as [`pipe_input`](Self::pipe_input) does, for tests of errors that end an app.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # use eos_testkit::{Input, TestDriver};
    /// let numbers = Topic::<String, u64>::json("numbers");
    /// let mut app = App::new("a");
    /// app.source(&numbers).to(&Topic::json("copies"));
    /// let mut driver = TestDriver::new(app);
    ///
    /// let error = driver.try_pipe(&numbers, Input::raw(None, Some(b"poison"))).unwrap_err();
    /// assert!(error.to_string().contains("record 0 of numbers-0 could not be processed"));
    /// ```
    ///
    /// # Errors
    /// The error that ended the app. The record is in the topic: [`restart`](Self::restart) reaches it again.
    ///
    /// # Panics
    /// If the app does not read the topic, or key or value can't be encoded.
    #[track_caller]
    pub fn try_pipe<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        record: impl Into<Input<K, V>>,
    ) -> Result<(), Arc<Error>>
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.write(topic, &record.into());
        self.go()
    }

    #[track_caller]
    fn write<K, V, KC, VC>(&self, topic: &Topic<K, V, KC, VC>, record: &Input<K, V>)
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let name = topic.name();
        let inputs = self.app.inputs();
        let names: Vec<&str> = inputs.iter().map(|it| it.as_str()).collect();
        assert!(
            names.contains(&name),
            "the app does not read {name}, so nothing can be piped into it. It reads {}",
            names.join(", ")
        );
        let bytes = match record.encode(topic, self.cluster.partitions(name)) {
            Ok(bytes) => bytes,
            Err(why) => panic!("{why}"),
        };
        let headers = record.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_slice()));
        let headers: Vec<_> = headers.collect();
        let written = Written {
            timestamp: record.timestamp.unwrap_or(self.now()).0,
            key: bytes.key.as_deref(),
            value: bytes.value.as_deref(),
            headers: &headers,
        };
        let wrote = self.cluster.produce(name, bytes.partition, &written);
        if let Err(code) = wrote {
            let sizes = [bytes.key.as_ref(), bytes.value.as_ref()];
            let bytes: usize = sizes.into_iter().flatten().map(Vec::len).sum();
            panic!(
                "the broker rejects the record for {name}: error code {code}. Its key and value have {bytes} bytes; code 10 is a \
                 record above the topic's max.message.bytes (1,048,588 by default)"
            );
        }
    }
}
