//! Parses the text strictly, as a scraper does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::Progress;
use eos_protocol::{
    CommitCause, Event, Generation, Now, Offset, Partition, TaskId, TopicPartition, WorkerId,
};

use super::*;
use crate::boundary::LedgerTotals;
use crate::metrics::{
    CallMetrics, Count, Ends, RestoringMetrics, Stopwatch, TaskMetrics, WorkerMeter,
};

type Labels = BTreeMap<String, String>;

/// The samples of the text, by name and labels.
#[derive(Debug, Default)]
struct Scraped {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Scraped {
    fn of(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has to end, too");
        let mut scraped = Self::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()), "{name} is in two places");
                assert!(!help.contains('\\') && !help.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(helped.contains(name), "{name}: HELP comes first");
                assert!(["counter", "gauge", "histogram", "summary"].contains(&kind));
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                family = name.to_owned();
                scraped.kinds.insert(name.to_owned(), kind.to_owned());
            } else {
                scraped.sample(line, &family);
            }
        }
        scraped
    }

    fn sample(&mut self, line: &str, family: &str) {
        let (name, rest) = line.split_once('{').unwrap();
        let suffixes: &[&str] = match &*self.kinds[family] {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["_sum", "_count"],
            _ => &[""],
        };
        let known = suffixes.iter().any(|s| name == format!("{family}{s}"));
        assert!(known, "{name} is not of the family {family}");
        let (labels, value) = labels(rest);
        let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(value >= 0.0);
        let twice = self.samples.insert((name.to_owned(), labels), value);
        assert!(twice.is_none(), "twice: {line}");
    }

    #[track_caller]
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let common = [("app", APP)];
        let labels = labels.iter().chain(&common).map(pair).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }
}

/// Returns the labels and the text after the closing brace.
fn labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(name.bytes().all(|b| b.is_ascii_lowercase()), "{name}");
        let mut plain = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => plain.push('\n'),
                    c @ ('\\' | '"') => plain.push(c),
                    c => panic!("\\{c} is not an escape"),
                },
                (_, c) => plain.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), plain).is_none());
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').unwrap()),
        }
    }
}

/// No label of eos has such characters, but the text must be valid if one does.
const APP: &str = "a \"quoted\\\napp";

fn offset(n: i64) -> Offset {
    Offset::new(n).unwrap()
}

fn ms(n: u64) -> Now {
    Now(Duration::from_millis(n))
}

/// Two workers, of which the second one is busy.
fn metrics() -> Metrics {
    let meters = [0, 1].map(|n| Arc::new(WorkerMeter::new(WorkerId(n))));
    let busy = &meters[1];
    busy.count(Count::RecordsIn, 7);
    busy.moved(State::Open, ms(500));
    busy.stepped(ms(750));
    for end in [103, 104, 150] {
        let mut watch = Stopwatch::start(ms(100));
        watch.heard(Event::Sealed, ms(101));
        watch.heard(Event::Drained, ms(102));
        busy.committed(CommitCause::Revoke, &watch.stop(ms(end)));
    }
    let input = |n, high: Option<i64>| {
        let partition = TopicPartition::new("in", Partition::new(n).unwrap());
        let ends = Ends {
            readable: high.map(|_| offset(6)),
            high: high.map(offset),
            held_back: high.map(|high| high as u64 - 6),
        };
        InputMetrics::new(partition, offset(5), ends)
    };
    let reading = Progress {
        remaining: 40,
        ..Progress::default()
    };
    let inputs = vec![input(0, Some(8)), input(1, None)];
    let mut task = TaskMetrics::new(TaskId::default(), inputs);
    task.stream_time = Some(eos_protocol::Timestamp(1_700_000_000_500));
    task.windows_ahead = Some(Duration::from_millis(2_500));
    task.due_behind = Some(Duration::from_millis(750));
    task.parked_keys = Some(9);
    task.calls = Some(CallMetrics {
        running: 3,
        waiting: 12,
    });
    busy.tasks(
        Generation::new(4).ok(),
        vec![task],
        vec![
            RestoringMetrics::new(TaskId::default(), None),
            RestoringMetrics::new(TaskId::default(), Some(reading)),
        ],
    );
    busy.restored(RestoreKind::Replayed);
    busy.count(Count::RestoredRecords, 11);
    busy.count(Count::RestoredBytes, 1100);
    let mut metrics = Metrics::gather(APP, ms(2000), &meters);
    metrics.ledger = Some(LedgerMetrics {
        ledger: "postgres shop".into(),
        totals: LedgerTotals {
            rows: 9,
            skipped: 3,
            dead_letters: 2,
            careful_transactions: 1,
        },
    });
    metrics
}

#[test]
fn a_scraper_reads_every_number_under_its_labels() {
    let text = metrics().to_prometheus();
    let scraped = Scraped::of(&text);
    let busy = ("worker", "1");
    let value = |name, labels: &[(&str, &str)]| scraped.value(name, labels);
    assert_eq!(value("eos_records_in_total", &[busy]), Some(7.0));
    assert_eq!(value("eos_records_in_total", &[("worker", "0")]), Some(0.0));
    let cause = |cause| value("eos_commits_total", &[busy, ("cause", cause)]);
    assert_eq!((cause("revoke"), cause("interval")), (Some(3.0), Some(0.0)));
    assert_eq!(value("eos_open_transaction_seconds", &[busy]), Some(1.5));
    let last_step = |worker| value("eos_worker_last_step_age_seconds", &[("worker", worker)]);
    assert_eq!((last_step("1"), last_step("0")), (Some(1.25), None));
    assert_eq!(value("eos_group_generation", &[busy]), Some(4.0));
    assert_eq!(value("eos_group_generation", &[("worker", "0")]), None);
    assert_eq!(value("eos_tasks", &[busy]), Some(1.0));
    let state = |state| value("eos_worker_state", &[busy, ("state", state)]);
    assert_eq!((state("open"), state("idle")), (Some(1.0), Some(0.0)));
}

#[test]
fn restores_are_counted_by_kind_with_their_remaining_offsets() {
    let scraped = Scraped::of(&metrics().to_prometheus());
    let busy = ("worker", "1");
    let value = |name, labels: &[(&str, &str)]| scraped.value(name, labels);
    let kind = |kind| value("eos_restores_total", &[busy, ("kind", kind)]);
    assert_eq!((kind("replayed"), kind("exact")), (Some(1.0), Some(0.0)));
    assert_eq!(value("eos_restored_records_total", &[busy]), Some(11.0));
    assert_eq!(value("eos_restored_bytes_total", &[busy]), Some(1100.0));
    let idle = ("worker", "0");
    for (name, one, other) in [
        ("eos_restoring_tasks", 2.0, 0.0),
        ("eos_restore_remaining_offsets", 40.0, 0.0),
    ] {
        assert_eq!(value(name, &[busy]), Some(one), "{name}");
        assert_eq!(value(name, &[idle]), Some(other), "{name}");
    }
}

#[test]
fn the_times_of_tasks_are_in_seconds() {
    let scraped = Scraped::of(&metrics().to_prometheus());
    let task = [("worker", "1"), ("task", "0_0")];
    let value = |name| scraped.value(name, &task);
    assert_eq!(value("eos_stream_time_seconds"), Some(1_700_000_000.5));
    assert_eq!(value("eos_windows_ahead_seconds"), Some(2.5));
    assert_eq!(value("eos_due_behind_seconds"), Some(0.75));
}

#[test]
fn calls_and_parked_keys_are_reported_per_task() {
    let scraped = Scraped::of(&metrics().to_prometheus());
    let value = |name| scraped.value(name, &[("worker", "1"), ("task", "0_0")]);
    assert_eq!(value("eos_parked_keys"), Some(9.0));
    assert_eq!(value("eos_async_running"), Some(3.0));
    assert_eq!(value("eos_async_waiting"), Some(12.0));
}

#[test]
fn a_ledger_reports_refused_records_by_outcome() {
    let scraped = Scraped::of(&metrics().to_prometheus());
    let ledger = ("ledger", "postgres shop");
    let value = |name, labels: &[(&str, &str)]| scraped.value(name, labels);
    assert_eq!(value("eos_ledger_rows_total", &[ledger]), Some(9.0));
    let refused = |outcome| {
        let labels = [ledger, ("outcome", outcome)];
        value("eos_ledger_refused_records_total", &labels)
    };
    assert_eq!(refused("skipped"), Some(3.0));
    assert_eq!(refused("dead_letter"), Some(2.0));
    let careful = value("eos_ledger_careful_transactions_total", &[ledger]);
    assert_eq!(careful, Some(1.0));
    // Apps without a ledger have none of these.
    let mut without = metrics();
    without.ledger = None;
    assert!(!without.to_prometheus().contains("eos_ledger"));
}

#[test]
fn unknown_values_of_an_input_are_absent() {
    let scraped = Scraped::of(&metrics().to_prometheus());
    let input = |name, partition| {
        let labels = [("worker", "1"), ("topic", "in"), ("partition", partition)];
        scraped.value(name, &labels)
    };
    assert_eq!(input("eos_input_next_offset", "0"), Some(5.0));
    assert_eq!(input("eos_input_lag_offsets", "0"), Some(3.0));
    assert_eq!(input("eos_input_held_back_offsets", "0"), Some(2.0));
    assert_eq!(input("eos_input_next_offset", "1"), Some(5.0));
    assert_eq!(input("eos_input_lag_offsets", "1"), None);
    assert_eq!(input("eos_input_held_back_offsets", "1"), None);
}

#[test]
fn the_buckets_of_a_commit_add_up() {
    let scraped = Scraped::of(&metrics().to_prometheus());
    let busy = ("worker", "1");
    let upto = |le| {
        let labels = [busy, ("le", le)];
        scraped.value("eos_commit_seconds_bucket", &labels)
    };
    assert_eq!(upto("0.002"), Some(0.0));
    assert_eq!(upto("0.003"), Some(1.0));
    assert_eq!(upto("0.005"), Some(2.0));
    assert_eq!(upto("0.05"), Some(3.0));
    assert_eq!(upto("+Inf"), Some(3.0));
    let count = scraped.value("eos_commit_seconds_count", &[busy]);
    assert_eq!(count, Some(3.0));
    let sum = scraped.value("eos_commit_seconds_sum", &[busy]).unwrap();
    assert!((sum - 0.057).abs() < 1e-9, "{sum}");
    let phase = |suffix, phase| {
        let name = format!("eos_commit_phase_seconds_{suffix}");
        scraped.value(&name, &[busy, ("phase", phase)]).unwrap()
    };
    assert_eq!(phase("count", "seal"), 3.0);
    assert!((phase("sum", "seal") - 0.003).abs() < 1e-9);
    assert!((phase("sum", "commit") - 0.051).abs() < 1e-9);
}

/// The page that lists the names lists all of them.
#[test]
fn the_documentation_knows_every_name() {
    let page = include_str!("../../../docs/metrics.md");
    let scraped = Scraped::of(&metrics().to_prometheus());
    let families = scraped.kinds.keys().map(String::as_str);
    let causes = CommitCause::ALL.map(CommitCause::name);
    let phases = Phase::ALL.map(Phase::name);
    let kinds = RestoreKind::ALL.map(RestoreKind::name);
    for name in families.chain(causes).chain(phases).chain(kinds) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not there");
    }
}
