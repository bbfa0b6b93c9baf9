//! The final report: a small table, and its meaning.

use std::process::ExitCode;
use std::time::Duration;

use super::audit::Audit;
use super::kills::{Kill, median_and_longest};
use super::rebalances::Rebalances;
use super::text::{Paint, counted, grouped, seconds};
use super::watch::Discarded;

/// The kinds of violation that always have a row: the name in the audit, and the name in the table.
const NAMED: [(&str, &str); 3] = [
    ("lost", "lost"),
    ("doubled", "doubled"),
    ("skipped", "out of order"),
];

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Told {
    /// The lowest number of kills that proves something.
    pub(crate) fewest_kills: u64,
    /// The kills, in order.
    pub(crate) kills: Vec<Kill>,
    /// Processes started in all.
    pub(crate) processes: u64,
    /// Moved partitions and restored tasks.
    pub(crate) rebalances: Rebalances,
    /// Aborted transactions in the log.
    pub(crate) discarded: Discarded,
    /// The result of the audit.
    pub(crate) audit: Audit,
}

impl Told {
    fn enough_kills(&self) -> bool {
        self.kills.len() as u64 >= self.fewest_kills
    }

    /// Returns whether the audit found nothing, after enough kills.
    fn proves_it(&self) -> bool {
        self.audit.is_clean() && self.enough_kills()
    }

    /// Returns success only if the run proves the guarantee.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.proves_it() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Returns the table and the text below it.
pub(crate) fn render(told: &Told, took: Duration, paint: Paint) -> String {
    let rows = rows(told, paint);
    let width = rows.iter().map(|(name, ..)| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut text = String::from("\n");
    for (name, value, note) in rows {
        let pad = " ".repeat(width - name.chars().count());
        text += format!("  {name}{pad}  {value}  {note}").trim_end();
        text.push('\n');
    }
    text.push('\n');
    text += &meaning(told, paint);
    text += &format!("\nTotal time: {}.", seconds(took));
    if told.proves_it() {
        text += " Next, run a pipeline yourself: `cargo run -p eos-examples --bin 01-hello`.\n\
                 README.md says how to feed it, what exactly is guaranteed, and when.";
    }
    text.push('\n');
    text
}

/// Returns the rows of the table: name, number, explanation.
fn rows(told: &Told, paint: Paint) -> Vec<(String, String, String)> {
    let Told {
        kills,
        processes,
        rebalances,
        discarded,
        audit,
        ..
    } = told;
    let row = |name: &str, number: u64, note: String| {
        (name.to_owned(), format!("{:>9}", grouped(number)), note)
    };
    let different = format!("{} different ones", grouped(audit.different));
    let mut rows = vec![
        row("lines in", audit.input, String::new()),
        row("words in them", audit.words, different),
    ];
    for (topic, committed) in &audit.outputs {
        rows.push(row(
            "counts out",
            *committed,
            format!("committed to {topic}: each one more than the one before it"),
        ));
    }
    let open: u64 = kills.iter().map(|kill| kill.open).sum();
    let left = format!(
        "by SIGKILL, with {} open; {processes} processes were started in all",
        counted(open, "transaction")
    );
    rows.push(row("processes killed", kills.len() as u64, left));
    let times = kills.iter().filter_map(|kill| kill.recovery).collect();
    if let Some((median, longest)) = median_and_longest(times) {
        let note = format!(
            "median from SIGKILL to new output everywhere; longest {}",
            seconds(longest)
        );
        rows.push((
            "back after".to_owned(),
            format!("{:>9}", seconds(median)),
            note,
        ));
    }
    let Rebalances {
        assigned,
        revoked,
        whole,
        exact,
    } = rebalances;
    let moved = format!(
        "partitions given to a worker {} times, taken from one {} times",
        grouped(*assigned),
        grouped(*revoked)
    );
    rows.push(row("rebalance events", assigned + revoked, moved));
    let found = format!(
        "times by a task: {} had it locally, {} read the changelog",
        grouped(*exact),
        grouped(whole - exact)
    );
    rows.push(row("state taken over", *whole, found));
    let markers = format!(
        "{} in the log; {} that no reader sees",
        counted(discarded.aborts.markers(), "abort marker"),
        counted(discarded.records, "record")
    );
    rows.push(row(
        "transactions aborted",
        discarded.aborts.transactions(),
        markers,
    ));
    let mut verdict = |name: &str, count: u64| {
        let number = format!("{:>9}", grouped(count));
        let number = if count == 0 {
            paint.good(&number)
        } else {
            paint.bad(&number)
        };
        rows.push((name.to_owned(), number, String::new()));
    };
    for (kind, name) in NAMED {
        verdict(name, audit.count(kind));
    }
    let named = |kind: &str| NAMED.iter().any(|(known, _)| *known == kind);
    for finding in audit
        .findings
        .iter()
        .filter(|f| f.count > 0 && !named(f.kind))
    {
        verdict(finding.kind, finding.count);
    }
    rows
}

fn meaning(told: &Told, paint: Paint) -> String {
    if !told.audit.is_clean() {
        return paint.bad("The guarantee is broken.") + &evidence(&told.audit);
    }
    if !told.enough_kills() {
        return format!(
            "{} There was no time for {}: try again, or with more --lines.\n",
            paint.bad("Too few kills to prove anything."),
            counted(told.fewest_kills, "kill")
        );
    }
    if told.kills.is_empty() {
        return format!(
            "{} No process was killed. Without --calm, one is killed about once a second.\n",
            paint.bold("Every word is counted once.")
        );
    }
    let kills = counted(told.kills.len() as u64, "time");
    format!(
        "{} {kills} a process died in the middle of its work, and the counts do not show it.\n\
         The count of each word goes up by one, without a gap or a repeat. It ends at the number that\n\
         an independent loop over the input finds, which shares no code with the framework.\n",
        paint.bold("Exactly once.")
    )
}

/// Returns the examples of each violation, as a start for the search.
fn evidence(audit: &Audit) -> String {
    let mut text = String::from(" Please report this, with the following and the seed above:\n");
    for finding in audit.findings.iter().filter(|finding| finding.count > 0) {
        for example in &finding.examples {
            text += &format!("  {}: {example}\n", finding.kind);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::audit::Finding;
    use super::*;

    fn told(doubled: u64, kills: usize) -> Told {
        let kill = |nth: usize| Kill {
            at: Instant::now(),
            process: 1,
            pid: 9,
            open: 2,
            recovery: Some(Duration::from_millis(500 + 100 * nth as u64)),
        };
        let finding = |(kind, count): (&'static str, u64)| Finding {
            kind,
            count,
            examples: vec!["word-counts-1@7: count 2 comes again".to_owned(); count as usize],
        };
        let found = [
            ("lost", 0),
            ("doubled", doubled),
            ("skipped", 0),
            ("unreadable", 0),
        ];
        Told {
            fewest_kills: 3,
            kills: (0..kills).map(kill).collect(),
            processes: 6,
            rebalances: Rebalances {
                assigned: 12,
                revoked: 3,
                whole: 15,
                exact: 14,
            },
            discarded: Discarded::default(),
            audit: Audit {
                input: 40_000,
                words: 400_000,
                different: 2_500,
                outputs: vec![("a".to_owned(), 400_000)],
                findings: found.map(finding).into(),
            },
        }
    }

    #[test]
    fn a_clean_run_is_a_table_and_a_sentence() {
        let told = told(0, 3);
        let text = render(&told, Duration::from_secs(31), Paint::Plain);
        let expected = "
  lines in                 40,000
  words in them           400,000  2,500 different ones
  counts out              400,000  committed to a: each one more than the one before it
  processes killed              3  by SIGKILL, with 6 transactions open; 6 processes were started in all
  back after               0.60 s  median from SIGKILL to new output everywhere; longest 0.70 s
  rebalance events             15  partitions given to a worker 12 times, taken from one 3 times
  state taken over             15  times by a task: 14 had it locally, 1 read the changelog
  transactions aborted          0  0 abort markers in the log; 0 records that no reader sees
  lost                          0
  doubled                       0
  out of order                  0

Exactly once. 3 times a process died";
        assert_eq!(&text[..expected.len()], expected);
        assert_eq!(told.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn a_violation_is_shown_with_its_evidence_and_fails() {
        let told = told(1, 3);
        let text = render(&told, Duration::from_secs(31), Paint::Plain);
        assert!(text.contains("doubled                       1\n"), "{text}");
        assert!(
            text.contains("doubled: word-counts-1@7: count 2 comes again"),
            "{text}"
        );
        assert!(!text.contains("Exactly once"), "{text}");
        assert_eq!(told.exit_code(), ExitCode::FAILURE);
    }

    #[test]
    fn without_kills_the_report_has_only_counts() {
        let told = Told {
            fewest_kills: 0,
            ..told(0, 0)
        };
        let text = render(&told, Duration::from_millis(1_900), Paint::Plain);
        let expected = "Every word is counted once. No process was killed";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("Total time: 1.90 s."), "{text}");
        assert_eq!(told.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn too_few_kills_prove_nothing_and_fail() {
        let told = told(0, 2);
        let text = render(&told, Duration::from_secs(31), Paint::Plain);
        assert!(text.contains("Too few kills"), "{text}");
        assert_eq!(told.exit_code(), ExitCode::FAILURE);
    }
}
