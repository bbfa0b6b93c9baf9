//! Topics that change while the app runs.

use std::sync::Arc;

use eos_core::Error;

use super::TestDriver;

/// The time for which the app runs after a change, in milliseconds of the broker's time. The app compares its topics
/// every ten seconds, and a missing topic must stay missing for some time.
const LOOKS: i64 = 25_000;

impl TestDriver {
    /// Deletes a topic of the app, as `kafka-topics.sh --delete` does, and runs the app until it has compared
    /// its topics with those of its start.
    ///
    /// It may be any topic of the app: an input, an output, a dead-letter topic, or an internal topic.
    ///
    /// # Errors
    /// The error that the app ended with. [`restart`](Self::restart) starts it again.
    ///
    /// # Panics
    /// If the app has no such topic, or it does not exist any more.
    #[track_caller]
    pub fn delete_topic(&mut self, topic: &str) -> Result<(), Arc<Error>> {
        self.check_topic("delete_topic", topic);
        let outcome = self.cluster.delete_topic(topic);
        self.look_again(outcome)
    }

    /// Deletes a topic of the app and creates it again: empty, with the same partition count and settings. Runs
    /// the app until it has compared its topics with those of its start.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # use eos_testkit::TestDriver;
    /// let lines = Topic::<String, String>::plain("lines");
    /// let mut app = App::new("a");
    /// app.source(&lines).to(&Topic::plain("copies"));
    /// let mut driver = TestDriver::new(app);
    /// driver.pipe(&lines, "a", "1");
    ///
    /// let error = driver.recreate_topic("copies").unwrap_err();
    /// assert!(error.to_string().contains("the output topic copies was deleted and created again"));
    /// ```
    ///
    /// # Errors
    /// The error that the app ended with. [`restart`](Self::restart) starts it again.
    ///
    /// # Panics
    /// If the app has no such topic, or it does not exist any more.
    #[track_caller]
    pub fn recreate_topic(&mut self, topic: &str) -> Result<(), Arc<Error>> {
        self.check_topic("recreate_topic", topic);
        let outcome = self.cluster.recreate_topic(topic);
        self.look_again(outcome)
    }

    /// Raises the partition count of a topic of the app to `partitions`, as `kafka-topics.sh --alter` does. Runs
    /// the app until it has compared its topics with those of its start.
    ///
    /// The app continues if the topic is an input whose stage keeps no state, reads no other topic and writes to
    /// no repartition topic. Each new partition is then a new task.
    ///
    /// # Errors
    /// The error that the app ended with. [`restart`](Self::restart) starts it again.
    ///
    /// # Panics
    /// If the app has no such topic, or the topic already has this many partitions.
    #[track_caller]
    pub fn grow_topic(&mut self, topic: &str, partitions: i32) -> Result<(), Arc<Error>> {
        self.check_topic("grow_topic", topic);
        let outcome = self.cluster.grow_topic(topic, partitions);
        self.look_again(outcome)
    }

    #[track_caller]
    fn check_topic(&self, call: &str, topic: &str) {
        let mut topics = self.app.reads();
        topics.extend(self.app.outputs());
        topics.extend(self.app.own());
        topics.extend(self.app.globals());
        topics.sort();
        topics.dedup();
        let names: Vec<&str> = topics.iter().map(|it| it.as_str()).collect();
        assert!(
            names.contains(&topic),
            "{call}({topic:?}): the app neither reads nor writes such a topic. It has {}",
            names.join(", ")
        );
    }

    #[track_caller]
    fn look_again(&mut self, outcome: Result<(), String>) -> Result<(), Arc<Error>> {
        if let Err(why) = outcome {
            panic!("the broker refuses to change the topic: {why}");
        }
        self.elapse(LOOKS)?;
        self.go()
    }
}
