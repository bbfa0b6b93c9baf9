//! The Kafka Streams side.

use std::process::Command;

use anyhow::Result;

use crate::maven::Built;
use crate::side::Task;

/// The built program.
#[derive(Debug)]
pub(crate) struct Streams {
    built: Built,
    /// The number of records that an application in the same JVM processes before the measured one.
    pub(crate) warm_up: u64,
    /// The heap, in MB. The other options of the JVM keep their defaults.
    heap_mb: u32,
}

impl Streams {
    /// Builds the Kafka Streams program, unless the cache has the same build.
    pub(crate) fn build(warm_up: u64, heap_mb: u32) -> Result<Self> {
        Ok(Self {
            built: Built::of("kafka-streams")?,
            warm_up,
            heap_mb,
        })
    }

    /// Returns the output topic of a warm-up.
    pub(crate) fn warm_up_output(task: &Task) -> String {
        format!("{}-warm", task.output)
    }

    pub(crate) fn command(&self, task: &Task) -> Command {
        let mut command = self.built.java(self.heap_mb);
        command.arg("eos.bench.StreamsSide");
        for (name, value) in [
            ("bootstrap", task.bootstrap.clone()),
            ("app", task.group.clone()),
            ("in", task.input.clone()),
            ("out", task.output.clone()),
            ("dir", task.state.display().to_string()),
            ("work", task.work.name().to_owned()),
            ("commit", task.commit_interval.as_millis().to_string()),
            ("threads", "1".to_owned()),
            ("warm", self.warm_up.to_string()),
            ("warmout", Self::warm_up_output(task)),
        ] {
            command.arg(format!("{name}={value}"));
        }
        if let Some(right) = &task.sibling {
            command.arg(format!("right={right}"));
        }
        if task.stays {
            command.arg("p.main.consumer.group.instance.id=bench");
        }
        if task.work.writes_every_update() {
            // With a cache, Kafka Streams does not write every update.
            command.arg("p.statestore.cache.max.bytes=0");
        }
        command
    }
}
