//! One side of a comparison: a process that does the work on one input and one output.
//!
//! Each side is a separate process, which has its own CPU time and memory. The sides of this program are child
//! processes of it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::work::Work;

/// The variable with mimalloc's purge delay, in milliseconds.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// The program that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// The bare librdkafka loop, with transactions.
    Bare,
    /// eos, exactly once.
    Eos,
    /// eos, at least once.
    EosAtLeastOnce,
    /// eos with the default commit interval.
    EosDefault,
    /// eos without the quarantine of unanswered requests, which needs the feature `failpoints`.
    EosUnguarded,
    /// Kafka Streams with `exactly_once_v2`.
    Streams,
    /// Kafka Connect with Debezium's JDBC sink, which delivers at least once.
    Connect,
}

impl Side {
    /// Returns the name on the command line and in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Bare => "bare",
            Side::Eos => "eos",
            Side::EosAtLeastOnce => "eos-at-least-once",
            Side::EosDefault => "eos-default",
            Side::EosUnguarded => "eos-unguarded",
            Side::Streams => "streams",
            Side::Connect => "connect",
        }
    }

    /// Returns the side with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [
            Side::Bare,
            Side::Eos,
            Side::EosAtLeastOnce,
            Side::EosDefault,
            Side::EosUnguarded,
            Side::Streams,
            Side::Connect,
        ];
        all.into_iter().find(|side| side.name() == name)
    }
}

/// What a side is given to do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Task {
    /// Where Kafka is.
    #[arg(long)]
    pub(crate) bootstrap: String,
    /// Consumer group, and more: different for each run, so that each starts at the beginning.
    #[arg(long)]
    pub(crate) group: String,
    /// The topic that is read.
    #[arg(long)]
    pub(crate) input: String,
    /// The topic that is written.
    #[arg(long)]
    pub(crate) output: String,
    /// What is done with each record.
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    /// How many records there are; the bare loop ends after them.
    #[arg(long)]
    pub(crate) records: u64,
    /// Between two commits.
    #[arg(long, value_parser = millis, value_name = "MS")]
    pub(crate) commit_interval: Duration,
    /// What each record costs beside the work, asleep.
    #[arg(long, value_parser = micros, value_name = "US", default_value = "0")]
    pub(crate) pause: Duration,
    /// A second topic: merged with the first by time, which eos alone has, or the right side of a join.
    #[arg(long)]
    pub(crate) sibling: Option<String>,
    /// A static member of its group: it is known again when it comes back.
    #[arg(long)]
    pub(crate) stays: bool,
    /// The database to write to, instead of the output topic.
    #[arg(long, value_name = "URL")]
    pub(crate) database: Option<String>,
    /// Where a side keeps what it must keep.
    #[arg(long)]
    pub(crate) state: PathBuf,
}

fn millis(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

fn micros(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_micros)
}

impl Task {
    /// Returns the URL of the database.
    pub(crate) fn database(&self) -> Result<&str> {
        let database = self.database.as_deref();
        database.with_context(|| format!("{} needs --database", self.work.name()))
    }

    /// Returns the command that runs the task on a side of this program.
    pub(crate) fn command(&self, side: Side) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        command.args(["side", side.name()]);
        // The guide recommends this if memory is scarce: freed memory returns to the system after 10 ms instead of a
        // second.
        if self.work == Work::Stores && std::env::var_os(PURGE_DELAY).is_none() {
            command.env(PURGE_DELAY, "10");
        }
        let interval = self.commit_interval.as_millis().to_string();
        let pause = self.pause.as_micros().to_string();
        let records = self.records.to_string();
        for (name, value) in [
            ("--bootstrap", self.bootstrap.as_str()),
            ("--group", &self.group),
            ("--input", &self.input),
            ("--output", &self.output),
            ("--work", self.work.name()),
            ("--records", &records),
            ("--commit-interval", &interval),
            ("--pause", &pause),
        ] {
            command.args([name, value]);
        }
        if let Some(sibling) = &self.sibling {
            command.args(["--sibling", sibling]);
        }
        if let Some(database) = &self.database {
            command.args(["--database", database]);
        }
        if self.stays {
            command.arg("--stays");
        }
        command.arg("--state").arg(&self.state);
        Ok(command)
    }
}
