//! Runs Kafka Connect with Debezium's JDBC sink.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::database::Place;
use crate::maven::Built;
use crate::side::Task;
use crate::work::Work;

/// The heap, in MB.
const HEAP_MB: u32 = 512;

/// The most records of a fetch and of a batch. The defaults are 500.
const BATCH: u32 = 5_000;

/// The built program.
#[derive(Debug)]
pub(crate) struct Connect(Built);

impl Connect {
    pub(crate) fn build() -> Result<Self> {
        Built::of("kafka-connect").map(Self)
    }

    /// Returns the command that runs one task of the sink in standalone mode.
    pub(crate) fn command(&self, task: &Task) -> Result<Command> {
        let worker = task.state.join("worker.properties");
        let sink = task.state.join("sink.properties");
        let write = |path, text| fs::write(path, text).context("write the properties");
        write(&worker, worker_properties(task))?;
        write(&sink, sink_properties(task)?)?;
        let mut command = self.0.java(HEAP_MB);
        command
            .arg("org.apache.kafka.connect.cli.ConnectStandalone")
            .args([worker, sink]);
        Ok(command)
    }
}

fn worker_properties(task: &Task) -> String {
    format!(
        "bootstrap.servers={}\n\
         listeners=http://127.0.0.1:0\n\
         key.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n\
         value.converter=eos.bench.ViewConverter\n\
         offset.storage.file.filename={}\n\
         offset.flush.interval.ms={}\n\
         plugin.discovery=hybrid_warn\n",
        task.bootstrap,
        task.state.join("offsets").display(),
        task.commit_interval.as_millis(),
    )
}

fn sink_properties(task: &Task) -> Result<String> {
    let place = Place::of(task.database()?)?;
    let mode = match task.work {
        Work::Upsert => {
            "insert.mode=upsert\nprimary.key.mode=record_value\nprimary.key.fields=username\nuse.reduction.buffer=true\n"
        }
        _ => "insert.mode=insert\nprimary.key.mode=none\n",
    };
    Ok(format!(
        "name={group}\n\
         connector.class=io.debezium.connector.jdbc.JdbcSinkConnector\n\
         tasks.max=1\n\
         topics={}\n\
         collection.name.format=page_views\n\
         schema.evolution=none\n\
         connection.url=jdbc:postgresql://localhost/{}?reWriteBatchedInserts=true\
         &socketFactory=org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg&socketFactoryArg={}\n\
         connection.username={}\n\
         connection.password=unused\n\
         batch.size={BATCH}\n\
         consumer.override.group.id={group}\n\
         consumer.override.max.poll.records={BATCH}\n\
         consumer.override.isolation.level=read_committed\n\
         consumer.override.auto.offset.reset=earliest\n\
         {mode}",
        task.input,
        place.database,
        place.socket.display(),
        place.user,
        group = task.group,
    ))
}
