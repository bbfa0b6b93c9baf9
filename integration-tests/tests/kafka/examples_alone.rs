//! Each example without Kafka, Java or settings, on the embedded broker that it starts. The test sends Ctrl-C once the
//! example has printed all results of its sample.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::process::{ChildGuard, Program, build};
use integration_tests::wait::wait_until;
use kafka_launcher::os::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

/// An example, and the number of its results by topic.
type Case = (&'static str, &'static [(&'static str, usize)]);

const CASES: [Case; 15] = [
    ("01-hello", &[("greetings", 120)]),
    (
        "02-enrich",
        &[("cities-enriched", 120), ("cities-audit", 120)],
    ),
    // All cities but two whose names are too short, and one good order of five.
    ("03-errors", &[("tags", 119), ("tag-orders-dlq", 4)]),
    ("04-two-topics", &[("trips", 120)]),
    ("05-configuration", &[("city-names", 120)]),
    ("07-page-views", &[("page-views-per-minute", 6)]),
    ("08-enriched-orders", &[("enriched-orders", 5)]),
    // The results come after five seconds.
    ("09-heartbeats", &[("silent-devices", 3)]),
    ("10-visits", &[("visits", 3)]),
    ("11-payments-dedup", &[("accepted", 5), ("repeated", 2)]),
    (
        "12-enrich-async",
        &[("orders-in-euros", 6), ("orders-dlq", 1)],
    ),
    // Three orders of emmy wait for a price, and are replayed.
    ("13-dead-letters", &[("paid", 6), ("tea-orders-dlq", 3)]),
    // A user moves, and another one is deleted.
    (
        "14-clicks-by-region",
        &[("users-of-regions", 8), ("clicks-of-regions", 7)],
    ),
    // Three pairs, and after five seconds two orders and a shipment without a partner.
    ("15-orders-shipments", &[("shipped", 6)]),
    // The customer of the fourth order does not exist.
    ("16-orders-customers", &[("addresses", 3)]),
];

#[test]
fn examples_bring_what_they_need() -> Result<()> {
    for (bin, expected) in CASES {
        alone(bin, expected).with_context(|| bin.to_owned())?;
    }
    Ok(())
}

/// There is one result for each word of the book in the file.
#[test]
fn word_count_counts_its_book() -> Result<()> {
    let book = kafka_launcher::workspace_root().join("examples/06-word-count/alice.txt");
    let book = fs::read_to_string(book)?;
    let words = book.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let words = words.filter(|word| word.contains(|c| c != '\'')).count();
    ensure!(words > 20_000, "{words} words: is the book whole?");
    alone("06-word-count", &[("word-counts", words)])
}

/// The worker of the inventory is killed 20 times, within a minute. The test needs an installed PostgreSQL, or
/// `EOS_POSTGRES_URL`.
#[test]
fn inventory_is_exact() -> Result<()> {
    let program = Program::Bin("17-inventory");
    let built = build("eos-examples", program, &["--features=postgres"])?;
    let start = Instant::now();
    let output = Command::new(built).output()?;
    let took = start.elapsed();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(output.status.success(), "{}: {out}{err}", output.status);
    ensure!(took < Duration::from_secs(60), "it took {took:?}: {out}");
    let eos = out.lines().find(|line| line.starts_with("eos:"));
    ensure!(
        eos.is_some_and(|line| line.ends_with("200 pens left, 800 bookings (lost 0, doubled 0)")),
        "{out}"
    );
    // The plain loop must double orders. Otherwise no kill came at a critical moment, and the example shows nothing.
    let plain = out.lines().find(|line| line.starts_with("plain-loop:"));
    ensure!(
        plain.is_some_and(|line| line.contains("lost 0") && !line.contains("doubled 0")),
        "{out}"
    );
    Ok(())
}

fn alone(bin: &str, expected: &[(&str, usize)]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let mut command = Command::new(build("eos-examples", Program::Bin(bin), &[])?);
    // The example must not find another state directory, Java or Kafka by chance.
    command
        .current_dir(dir.path())
        .env_clear()
        .env("EOS_STATE_DIR", dir.path().join("state"))
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?);
    let mut child = ChildGuard::spawn(command)?;
    let expected: BTreeMap<_, _> = expected.iter().copied().collect();
    let mut text = String::new();
    let waited = wait_until(PATIENCE, "it has printed all results", || {
        ensure!(child.is_running()?, "it ended by itself");
        text = fs::read_to_string(&out)?;
        Ok(results(&text, &expected) == expected)
    });
    let printed = results(&text, &expected);
    let said = || fs::read_to_string(&err).unwrap_or_default();
    waited.with_context(|| {
        format!(
            "it printed {printed:?} of {expected:?}; its log:\n{}",
            said()
        )
    })?;
    child.signal(Signal::Interrupt)?;
    let status = child.wait(PATIENCE)?;
    ensure!(
        status.success(),
        "Ctrl-C ended it with {status}: {}",
        said()
    );
    Ok(())
}

/// Returns the number of printed results by topic: `topic partition@offset ..` is one, `topic .. and N more` are N.
fn results<'t>(text: &'t str, of: &BTreeMap<&str, usize>) -> BTreeMap<&'t str, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((topic, rest)) = line.split_once(' ') else {
            continue;
        };
        let more = rest.strip_prefix(".. and ");
        let more = more.and_then(|more| more.strip_suffix(" more")?.parse().ok());
        if of.contains_key(topic) {
            *counts.entry(topic).or_default() += more.unwrap_or(1);
        }
    }
    counts
}
