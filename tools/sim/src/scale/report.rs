//! The report of a scale run.

use std::fmt;
use std::time::Duration;

use eos_core::metrics::RestoreKind;
use kafka_protocol::messages::ApiKey;

use super::{Scale, Scenario, Settled};

/// The kinds of requests in the report.
const KEYS: [ApiKey; 15] = [
    ApiKey::Fetch,
    ApiKey::Produce,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::InitProducerId,
    ApiKey::TxnOffsetCommit,
    ApiKey::Heartbeat,
    ApiKey::OffsetFetch,
    ApiKey::JoinGroup,
    ApiKey::SyncGroup,
    ApiKey::LeaveGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
];

/// The report of a scale run.
#[derive(Debug, Clone)]
pub struct ScaleReport {
    /// The parameters.
    pub scale: Scale,
    /// The scenarios, in order.
    pub scenarios: Vec<Settled>,
    /// The number of records.
    pub records: usize,
    /// The virtual duration of the run.
    pub took: Duration,
    /// The violations of guarantees.
    pub violations: Vec<String>,
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| time.as_secs_f64();
        writeln!(
            f,
            "| scenario | processes | settled after | longest wait of a record | partitions with late records | \
             rebalances | tasks moved | tasks replayed, rebuilt | changelog records read | transactions aborted |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|")?;
        for it in &self.scenarios {
            let settled = match it.settled {
                _ if it.scenario == Scenario::Steady => "–".to_owned(),
                Some(time) => format!("{:.1} s", seconds(time)),
                None => "never".to_owned(),
            };
            writeln!(
                f,
                "| {} | {} | {settled} | {:.1} s | {} | {} | {} | {}, {} | {} | {} |",
                it.scenario.name(),
                it.processes,
                seconds(it.longest_wait),
                it.late_partitions,
                it.traffic.generations,
                it.work.moved,
                it.work.restores(RestoreKind::Replayed),
                it.work.restores(RestoreKind::Rebuilt),
                it.work.restored_records,
                it.work.aborts,
            )?;
        }
        writeln!(f)?;
        write!(f, "| requests per second |")?;
        for it in &self.scenarios {
            write!(f, " {} |", it.scenario.name())?;
        }
        writeln!(f)?;
        writeln!(f, "|---|{}", "---|".repeat(self.scenarios.len()))?;
        for key in KEYS {
            self.row(f, &format!("{key:?}"), |it| it.traffic.of(key) as f64)?;
        }
        self.row(f, "all", |it| it.traffic.all() as f64)?;
        self.row(f, "to the group's coordinator", |it| {
            it.traffic.to_group() as f64
        })?;
        self.row(f, "to the coordinators of transactions", |it| {
            it.traffic.to_transactions() as f64
        })?;
        self.row(f, "transactions", |it| it.work.commits as f64)?;
        self.row(f, "partitions in transactions (markers)", |it| {
            it.traffic.partitions as f64
        })?;
        self.row(f, "offsets in transactions", |it| it.traffic.offsets as f64)?;
        self.row(f, "bytes of offset metadata", |it| {
            it.traffic.metadata_bytes as f64
        })?;
        writeln!(f)?;
        for it in &self.scenarios {
            let least = it.shares.iter().min().copied().unwrap_or(0);
            let most = it.shares.iter().max().copied().unwrap_or(0);
            writeln!(
                f,
                "{}: {least} to {most} tasks for each process; {} killed, {} restarted; {} bytes of assignments; \
                 {:.1} s in all",
                it.scenario.name(),
                it.work.killed,
                it.work.restarted,
                it.traffic.assignment_bytes,
                seconds(it.took),
            )?;
        }
        for violation in &self.violations {
            writeln!(f, "VIOLATED {violation}")?;
        }
        let Scale {
            processes,
            partitions,
            seed,
            ..
        } = self.scale;
        writeln!(
            f,
            "{processes} processes, {partitions} partitions, seed {seed}: {} records, {:.0} s simulated, {} violations",
            self.records,
            seconds(self.took),
            self.violations.len()
        )
    }
}

impl ScaleReport {
    /// Writes a row of rates.
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        count: impl Fn(&Settled) -> f64,
    ) -> fmt::Result {
        write!(f, "| {name} |")?;
        for it in &self.scenarios {
            let rate = count(it) / it.took.as_secs_f64().max(f64::MIN_POSITIVE);
            write!(f, " {rate:.1} |")?;
        }
        writeln!(f)
    }
}
