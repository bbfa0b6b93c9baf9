//! Topics that change while the app runs.

use std::sync::Arc;

use eos_core::Error;

use super::TestDriver;

/// For so many milliseconds of the broker's time the app runs on after a change: it compares its topics every ten
/// seconds, and a topic that is missing has to stay away for a while.
const LOOKS: i64 = 25_000;

impl TestDriver {
    /// Deletes a topic of the app, as `kafka-topics.sh --delete` does, and lets the app run on until it has
    /// compared its topics with what it started with.
    ///
    /// It may be any topic of the app: of its inputs and outputs, of its dead letters, and of its own.
    ///
    /// # Errors
    /// What the app ended with. [`restart`](Self::restart) starts it again.
    ///
    /// # Panics
    /// If the app has no such topic, or it is deleted already.
    #[track_caller]
    pub fn delete_topic(&mut self, topic: &str) -> Result<(), Arc<Error>> {
        self.check_topic("delete_topic", topic);
        let outcome = self.cluster.delete_topic(topic);
        self.look_again(outcome)
    }

    /// Deletes a topic of the app and creates it again, empty, with as many partitions and the same settings, and
    /// lets the app run on until it has compared its topics with what it started with.
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
    /// What the app ended with. [`restart`](Self::restart) starts it again.
    ///
    /// # Panics
    /// If the app has no such topic, or it is deleted already.
    #[track_caller]
    pub fn recreate_topic(&mut self, topic: &str) -> Result<(), Arc<Error>> {
        self.check_topic("recreate_topic", topic);
        let outcome = self.cluster.recreate_topic(topic);
        self.look_again(outcome)
    }

    /// Gives a topic of the app more partitions, so many in all, as `kafka-topics.sh --alter` does, and lets the
    /// app run on until it has compared its topics with what it started with.
    ///
    /// An app may go on with more partitions of an input if each is a task of its own: its stage keeps no state,
    /// reads nothing else, and writes to no repartition topic.
    ///
    /// # Errors
    /// What the app ended with. [`restart`](Self::restart) starts it again.
    ///
    /// # Panics
    /// If the app has no such topic, or the topic has as many partitions or more.
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
