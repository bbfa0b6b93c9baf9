//! Results as Markdown, for the terminal and for the page.

use std::fmt::Write;

use crate::latency;
use crate::memory;
use crate::options::Options;
use crate::partitions;
use crate::postgres::pruning;
use crate::restart;
use crate::restore;
use crate::restore_latency;
use crate::siblings;
use crate::side::Side;
use crate::state_memory;
use crate::stats::{Latencies, median};
use crate::throughput::{Outcome, Results};
use crate::windows_memory;
use crate::work::Work;

/// The phases of a commit.
const COMMIT_PHASES: [&str; 5] = ["seal", "send_offsets", "drain", "commit", "apply"];

/// Formats a table with a row per side, then the ratios by round.
pub(crate) fn throughput(results: &Results, options: &Options) -> String {
    let mut text = format!(
        "{} records, commits every {} ms.\n\n\
         | side | records/s, median | by round | CPU µs/record | broker CPU µs/record | peak MiB | others' CPU, % of a core |\n\
         |---|---|---|---|---|---|---|\n",
        thousands(results.records as f64),
        options.interval_ms
    );
    for side in results.sides() {
        let rounds = results.of(side).into_iter();
        let rounds: Vec<_> = rounds.map(|o| thousands(o.records_per_second)).collect();
        let broker: fn(&Outcome) -> f64 = |o| o.broker_cpu_us.unwrap_or(f64::NAN);
        let foreign: fn(&Outcome) -> f64 = |o| o.foreign_percent.unwrap_or(f64::NAN);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            side.name(),
            thousands(results.median(side, |o| o.records_per_second)),
            rounds.join(" · "),
            figure(results.median(side, |o| o.cpu_us), 2),
            figure(results.median(side, broker), 2),
            figure(results.median(side, |o| o.peak_mib), 0),
            figure(results.median(side, foreign), 0),
        );
    }
    let ratios = results.ratios();
    if !ratios.is_empty() {
        text.push_str("\n| ratio | median | by round |\n|---|---|---|\n");
    }
    for ratio in ratios {
        let rounds: Vec<_> = ratio.rounds.iter().map(|r| figure(*r, 3)).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            ratio.name,
            figure(ratio.median(), 3),
            rounds.join(" · ")
        );
    }
    text
}

/// Formats a table for each work, and the duration of the phases of eos commits.
pub(crate) fn stateful(all: &[Results], options: &Options) -> String {
    let mut text = String::new();
    for results in all {
        let title = match results.work {
            Work::CountPerCommit => "The last count of each key per commit",
            Work::Dedup => "Duplicates within 30 s, one record in ten",
            Work::Tumbling => "Tumbling windows of 30 s, every update",
            Work::Hopping => "Hopping windows of 30 s, one every 7.5 s, every update",
            Work::Sessions => "Sessions with a gap of 10 s, every update",
            Work::OnClose => "Tumbling windows of 30 s, final results",
            Work::StreamTable => "A stream with a table of 50,000 rows",
            Work::Inner => "Two streams within 5 s, inner",
            Work::Left => "Two streams within 5 s, left",
            Work::TableTable => "Two tables of 100,000 rows, inner",
            Work::Foreign => "100,000 rows with 10,000 rows by a foreign key, inner",
            Work::Orders => "Orders with 10,000 customers by a foreign key, inner",
            Work::HotKey => "Two streams within 15 s, left, two keys without pairs",
            Work::ColdKeys => "Two streams within 15 s, left, 100,000 keys without pairs",
            _ => "Every update",
        };
        let cache = match results.work {
            // The store of a processor has no cache by default.
            Work::Dedup => "no cache",
            work if work.writes_every_update() => "no cache",
            Work::Inner | Work::Left | Work::HotKey | Work::ColdKeys => "its stores have no cache",
            _ => "its default cache",
        };
        let _ = writeln!(
            text,
            "**{title}** (Kafka Streams: {cache}, a heap of {} MB). {}",
            options.heap_mb(Some(results.work)),
            throughput(results, options)
        );
        let outputs = |side| {
            let outputs = results.of(side).into_iter().map(|o| o.outputs as f64);
            format!("{} {}", side.name(), thousands(median(outputs.collect())))
        };
        let outputs: Vec<_> = results.sides().into_iter().map(outputs).collect();
        let _ = writeln!(text, "Records written: {}.\n", outputs.join(", "));
        text.push_str(&commits(results));
    }
    text
}

/// Formats a table for each work that writes rows, with the CPU time of the database.
pub(crate) fn rows(all: &[Results], options: &Options) -> String {
    let mut text = String::new();
    for results in all {
        let title = match results.work {
            Work::Insert => "Inserts into a table without an index",
            Work::Upsert => "Upserts of 100,000 keys",
            _ => "A statement for each record, on 100,000 keys",
        };
        let _ = writeln!(text, "**{title}.** {}", throughput(results, options));
        let database: fn(&Outcome) -> f64 = |o| o.database_cpu_us.unwrap_or(f64::NAN);
        let of = |side| {
            let cpu = figure(results.median(side, database), 2);
            format!("{} {cpu}", side.name())
        };
        let of: Vec<_> = results.sides().into_iter().map(of).collect();
        let _ = writeln!(text, "CPU µs/record of PostgreSQL: {}.\n", of.join(", "));
    }
    text
}

/// Formats the duration of the phases of commits, by round.
fn commits(results: &Results) -> String {
    let mut text = String::new();
    for outcome in results.of(Side::Eos) {
        if outcome.phases.is_none() {
            continue;
        }
        if text.is_empty() {
            let _ = write!(
                text,
                "| eos, ms per commit | commits | {} |\n|---|---|{}\n",
                COMMIT_PHASES.join(" | "),
                "---|".repeat(COMMIT_PHASES.len())
            );
        }
        let ms = COMMIT_PHASES.map(|name| figure(phase(outcome, name), 1));
        let _ = writeln!(
            text,
            "| round {} | {} | {} |",
            outcome.round,
            thousands(phase(outcome, "commits")),
            ms.join(" | ")
        );
    }
    text.push('\n');
    text
}

/// Formats a table for each work, with a row per side and number of partitions.
pub(crate) fn partitions(all: &[partitions::Results], options: &Options) -> String {
    let mut text = String::new();
    for results in all {
        let title = match results.work {
            Work::Map => "JSON map and filter",
            _ => "Counting by key, every update",
        };
        let _ = writeln!(
            text,
            "**{title}** (Kafka Streams: a heap of {} MB). {} records, commits every {} ms.\n\n\
             | partitions | side | records/s, median | by round | of the first | by round | CPU µs/record | broker CPU µs/record \
             | peak MiB | files | start-up ms | rebalance ms | longest pause ms |\n|{}",
            options.heap_mb(Some(results.work)),
            thousands(results.records as f64),
            options.interval_ms,
            "---|".repeat(13)
        );
        for row in &results.rows {
            text.push_str(&partitions_row(results, row));
        }
        text.push_str(&partitions_commits(results));
    }
    text
}

fn partitions_row(results: &partitions::Results, row: &partitions::Row) -> String {
    let ratios = results.ratios(row);
    let by_round = |all: Vec<String>| all.join(" · ");
    let rates = row.outcomes.iter();
    let rates = rates.map(|o| thousands(o.records_per_second)).collect();
    let times = &row.lifecycle;
    let cells = [
        row.partitions.to_string(),
        row.side.name().to_owned(),
        thousands(row.median(|o| o.records_per_second)),
        by_round(rates),
        figure(median(ratios.clone()), 2),
        by_round(ratios.iter().map(|ratio| figure(*ratio, 2)).collect()),
        figure(row.median(|o| o.cpu_us), 2),
        figure(row.median(|o| o.broker_cpu_us.unwrap_or(f64::NAN)), 2),
        figure(row.median(|o| o.peak_mib), 0),
        figure(row.median(|o| o.files), 0),
        thousands(times.start_ms),
        thousands(times.rebalance_ms),
        thousands(times.pause_ms),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Formats the duration of the phases of eos commits, as the median of the rounds.
fn partitions_commits(results: &partitions::Results) -> String {
    let mut text = format!(
        "\n| eos, ms per commit | commits | {} |\n|---|---|{}\n",
        COMMIT_PHASES.join(" | "),
        "---|".repeat(COMMIT_PHASES.len())
    );
    for row in results.rows.iter().filter(|row| row.side == Side::Eos) {
        let of = |name: &str| {
            let values = row.outcomes.iter();
            median(values.map(|o| phase(o, name)).collect())
        };
        let ms = COMMIT_PHASES.map(|name| figure(of(name), 1));
        let _ = writeln!(
            text,
            "| {} partitions | {} | {} |",
            row.partitions,
            thousands(of("commits")),
            ms.join(" | ")
        );
    }
    text.push('\n');
    text
}

/// Returns a figure of the phases of a run's commits.
fn phase(outcome: &Outcome, name: &str) -> f64 {
    let phases = outcome.phases.as_ref();
    let value = phases.and_then(|phases| phases.get(name)?.as_f64());
    value.unwrap_or(f64::NAN)
}

/// Formats a table with a row per side and size, with a bar of a tenth of a second each.
pub(crate) fn restart(outcomes: &[restart::Outcome]) -> String {
    let mut text = String::from(
        "| side | keys | first new commit ms | every partition ms | by kill | |\n|---|---|---|---|---|---|\n",
    );
    for o in outcomes {
        let kills: Vec<_> = o.everywhere_ms.iter().map(|ms| figure(*ms, 0)).collect();
        let bars = (o.everywhere() / 100.0).round().clamp(1.0, 200.0) as usize;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            o.side.name(),
            thousands(o.keys as f64),
            figure(o.first(), 0),
            figure(o.everywhere(), 0),
            kills.join(" · "),
            "▇".repeat(bars),
        );
    }
    text
}

/// Formats a table with a row per work and number of keys.
pub(crate) fn pending(outcomes: &[restart::Pending]) -> String {
    let mut text = String::from(
        "| work | keys | restart: every partition ms, median | by kill | restart: records read | restore: records read \
         | restore ms | results | last result after ms |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for o in outcomes {
        let kills = o.kills.everywhere_ms.iter();
        let kills: Vec<_> = kills.map(|ms| figure(*ms, 0)).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | 0 | {} | {} | {} | {} |",
            o.work.name(),
            thousands(o.kills.keys as f64),
            figure(o.kills.everywhere(), 0),
            kills.join(" · "),
            thousands(o.restored as f64),
            thousands(o.restore_ms),
            thousands(o.kills.keys as f64),
            thousands(o.due_ms),
        );
    }
    text
}

/// Formats a table with a row per work and number of keys.
pub(crate) fn windows_memory(outcomes: &[windows_memory::Outcome]) -> String {
    let mut text = String::from(
        "| work | keys | records written | peak resident MiB | on disk MiB |\n|---|---|---|---|---|\n",
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            o.work.name(),
            thousands(o.keys as f64),
            thousands(o.outputs as f64),
            figure(o.peak_mib, 0),
            figure(o.disk_mib, 0)
        );
    }
    text
}

/// Formats a table with a row per round.
pub(crate) fn restore(outcomes: &[restore::Outcome]) -> String {
    let mut text = String::from(
        "| round | keys | bare reader, records/s | eos | Kafka Streams | eos / bare | eos / Kafka Streams |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            o.round,
            thousands(o.keys as f64),
            thousands(o.bare),
            thousands(o.eos),
            thousands(o.streams),
            figure(o.eos / o.bare, 2),
            figure(o.eos / o.streams, 2),
        );
    }
    text
}

/// Formats a table with a row per run.
pub(crate) fn state_memory(outcomes: &[state_memory::Outcome]) -> String {
    let mut text = String::from(
        "| tasks | keys in each of three stores | `state.memory.bytes`, MiB | peak resident MiB | on disk MiB |\n\
         |---|---|---|---|---|\n",
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            o.tasks,
            thousands(o.keys as f64),
            figure(o.budget_mib, 0),
            figure(o.peak_mib, 0),
            figure(o.disk_mib, 0)
        );
    }
    text
}

/// Formats a table with a row per run.
pub(crate) fn latency(outcomes: &[latency::Outcome], options: &Options) -> String {
    let mut text = format!(
        "{} records/s for {} s, after {} s that don't count. `eos-default` sets no interval; the \
         others commit every {} ms.\n\n\
         | side | round | p50 ms | p99 ms | max ms | CPU, % of a core | generator behind, max ms |\n\
         |---|---|---|---|---|---|---|\n",
        thousands(options.rate as f64),
        options.seconds,
        options.warm_up_seconds,
        options.interval_ms
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            o.side.name(),
            o.round,
            figure(o.p50, 1),
            figure(o.p99, 1),
            figure(o.max, 1),
            figure(o.cpu_percent, 1),
            figure(o.generator_behind, 1),
        );
    }
    text
}

/// Formats a table with a row per round.
pub(crate) fn restore_latency(outcomes: &[restore_latency::Outcome], options: &Options) -> String {
    let mut text = format!(
        "{} records/s on six partitions, default settings. Three tasks restore, three go on.\n\n\
         | round | keys | restore ms | before: p50 ms | p99 ms | max ms | during: records | p50 ms | p99 ms | max ms | p99, during / before |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        thousands(options.rate as f64),
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            o.round,
            thousands(o.keys as f64),
            figure(o.restore_ms, 0),
            latencies(&o.calm, 0),
            thousands(o.restoring.count as f64),
            latencies(&o.restoring, 0),
            figure(o.ratio(), 2),
        );
    }
    text
}

/// Formats three cells: median, 99th percentile and maximum.
fn latencies(of: &Latencies, digits: usize) -> String {
    let cells = [of.p50, of.p99, of.max].map(|ms| figure(ms, digits));
    cells.join(" | ")
}

/// Formats a table with a row per round.
pub(crate) fn pruning(outcomes: &[pruning::Outcome]) -> String {
    let mut text = format!(
        "{} messages/s: each claims an id and inserts a row in one transaction.\n\n\
         | round | deleted ids | ids/s | before: p50 ms | p99 ms | max ms | during: messages | p50 ms | p99 ms | max ms | p99, during / before |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        pruning::RATE,
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            o.round,
            thousands(o.deleted as f64),
            thousands(o.deleted as f64 / o.took.as_secs_f64()),
            latencies(&o.calm, 1),
            thousands(o.pruning.count as f64),
            latencies(&o.pruning, 1),
            figure(o.ratio(), 2),
        );
    }
    text
}

/// Formats a table with one row.
pub(crate) fn memory(outcome: &memory::Outcome) -> String {
    format!(
        "A closure that sleeps 1 ms a record.\n\n\
         | records waiting | seconds | records passed | peak MiB |\n|---|---|---|---|\n\
         | {} | {} | {} | {} |\n",
        thousands(outcome.waiting as f64),
        outcome.seconds,
        thousands(outcome.passed as f64),
        figure(outcome.peak_mib, 0)
    )
}

/// Formats a table with one row.
pub(crate) fn siblings(outcome: &siblings::Outcome) -> String {
    format!(
        "| partitions | records | records/s | late records through after ms | of the full topic left then | peak MiB |\n\
         |---|---|---|---|---|---|\n\
         | {} | {} | {} | {} | {} % | {} |\n",
        siblings::PARTITIONS,
        thousands(outcome.records as f64),
        thousands(outcome.records_per_second),
        figure(outcome.late_ms, 0),
        figure(outcome.left * 100.0, 0),
        figure(outcome.peak_mib, 0)
    )
}

fn figure(value: f64, digits: usize) -> String {
    if value.is_nan() {
        "–".to_owned()
    } else {
        format!("{value:.digits$}")
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(thousands(999.6), "1,000");
        assert_eq!(thousands(12.0), "12");
        assert_eq!(thousands(10_000_000.0), "10,000,000");
        assert_eq!(figure(1.256, 2), "1.26");
        assert_eq!(figure(f64::NAN, 2), "–");
    }
}
