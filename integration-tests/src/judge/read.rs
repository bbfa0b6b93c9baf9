//! Reads the evidence from Kafka.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use eos_oracle::{
    CONSUMER_OFFSETS, Evidence, Expectation, Input, InputError, Keys, LogEnd, OpenProducer, Output,
    Row, TransactionState, Verdict, judge, split, text,
};
use kafka_wire::{Client, Isolation, Record};
use serde::Deserialize;

use crate::wait::wait_until;

/// The location of the evidence.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The cluster.
    pub bootstrap: &'a str,
    /// The topic that the app read.
    pub input: &'a str,
    /// The topics that the app wrote.
    pub outputs: &'a [String],
    /// The consumer group of the app.
    pub group: &'a str,
    /// The prefix of the checked transactional ids.
    pub transactional_prefix: String,
    /// The time to wait for open transactions to end before the topics are read.
    pub patience: Duration,
}

impl<'a> Question<'a> {
    /// Creates the question about an app with this name.
    pub fn of_app(
        bootstrap: &'a str,
        app: &'a str,
        input: &'a str,
        outputs: &'a [String],
    ) -> Question<'a> {
        Question {
            bootstrap,
            input,
            outputs,
            group: app,
            transactional_prefix: format!("{app}-"),
            patience: TIMEOUT,
        }
    }

    /// Reads the evidence and judges it.
    ///
    /// # Errors
    /// As [`read`].
    pub fn judge(&self, expectation: Expectation) -> Result<(Evidence, Verdict)> {
        let evidence = read(self)?;
        let verdict = judge(&evidence, expectation);
        Ok((evidence, verdict))
    }

    /// Reads the evidence of an app that deduplicates, as [`split`] describes it. `repeats` is the topic of
    /// repetitions.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read_by_event(&self, repeats: &str) -> Result<[Evidence; 2]> {
        let mut outputs = self.outputs.to_owned();
        outputs.push(repeats.to_owned());
        let mut evidence = read(&Question {
            outputs: &outputs,
            ..self.clone()
        })?;
        let repeats = evidence.outputs.pop().context("the topic of repetitions")?;
        Ok(split(evidence, repeats)?)
    }

    /// Reads the evidence and checks that the verdict is clean.
    ///
    /// # Errors
    /// As [`read`]. When the verdict is not clean: the error contains the whole verdict.
    pub fn must_be_clean(&self, expectation: Expectation) -> Result<()> {
        let (evidence, verdict) = self.judge(expectation)?;
        ensure!(verdict.is_clean(), "{}", text(&evidence, &verdict));
        Ok(())
    }
}

/// The time limit of a request to the cluster.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The time to wait for the group's offsets if a transaction is known to be open.
const HELD: Duration = Duration::from_secs(2);

/// Reads the evidence of a verdict.
///
/// # Errors
/// When the cluster does not respond, a topic does not exist, or the input is invalid.
pub fn read(question: &Question<'_>) -> Result<Evidence> {
    let mut client = Client::connect(question.bootstrap, TIMEOUT)?;
    topics_are_whole(&mut client, question)?;
    let open = settle(&mut client, question)?;
    let mut keys = Keys::default();
    let input = Input::new(
        question.input,
        rows(&mut client, question.input, &mut keys)?,
        client.end_offsets(question.input, Isolation::ReadCommitted)?,
    )
    .map_err(with_fix)?;
    let outputs = question.outputs.iter();
    let outputs = outputs.map(|topic| output(&mut client, topic, &mut keys));
    let outputs = outputs.collect::<Result<_>>()?;
    let held = if open.is_empty() { TIMEOUT } else { HELD };
    let committed = client.committed_unless_held(question.group, question.input, held)?;
    let offset = |committed: Option<(i64, String)>| committed.map(|(offset, _)| offset);
    let committed = committed.map(|all| all.into_iter().map(offset).collect::<Vec<_>>());
    let hanging_offsets = match committed {
        Some(_) => Vec::new(),
        None => hanging(&mut client, CONSUMER_OFFSETS)?,
    };
    let mut commits = client.transaction_log(&question.transactional_prefix)?;
    commits.retain(|step| step.state == "PrepareCommit");
    Ok(Evidence {
        input,
        outputs,
        committed,
        open,
        commits,
        hanging_offsets,
        keys,
        // Tests with state judge it separately. They know its location and its expected content.
        state: Vec::new(),
    })
}

/// Adds a fix to the error. The oracle does not know which program wrote the input.
fn with_fix(error: InputError) -> Error {
    let fix = match error {
        InputError::Unnumbered { .. } => "produce it with the generator",
        InputError::Twice { .. } => "continue a topic with --first-seq",
        _ => return error.into(),
    };
    anyhow!("{error}: {fix}")
}

/// Checks that every topic exists and still has its first records. Without them, many records would look lost or
/// foreign.
fn topics_are_whole(client: &mut Client, question: &Question<'_>) -> Result<()> {
    let cluster = client.metadata(None)?;
    let outputs = question.outputs.iter().map(String::as_str);
    for topic in outputs.chain([question.input]) {
        if !cluster.topics.contains_key(topic) {
            bail!("topic {topic} does not exist: check the names given");
        }
        let starts = client.start_offsets(topic)?;
        if let Some(partition) = starts.iter().position(|start| *start > 0) {
            bail!(
                "{topic}-{partition} begins at offset {}: its first records are deleted, judge a \
                 run on new topics, before retention",
                starts[partition]
            );
        }
    }
    Ok(())
}

/// Waits until all transactions have ended, at most for the patience. Returns the transactions that are still open.
fn settle(client: &mut Client, question: &Question<'_>) -> Result<Vec<TransactionState>> {
    let deadline = Instant::now() + question.patience;
    let mut open = Vec::new();
    wait_until(
        question.patience + TIMEOUT,
        "transactions are listed",
        || {
            open = client.transactions()?;
            open.retain(|t| {
                t.is_open()
                    && t.transactional_id
                        .starts_with(&question.transactional_prefix)
            });
            let settled = open.is_empty() && decided(client, question.outputs)?;
            Ok(settled || Instant::now() >= deadline)
        },
    )?;
    Ok(open)
}

/// Returns whether no open transaction holds back an output.
fn decided(client: &mut Client, outputs: &[String]) -> Result<bool> {
    for topic in outputs {
        let ends = ends(client, topic)?;
        if ends.iter().any(|end| end.last_stable < end.high_watermark) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn output(client: &mut Client, topic: &str, keys: &mut Keys) -> Result<Output> {
    let spans = client.spans(topic)?;
    let ends = ends(client, topic)?;
    let decided = ends.iter().all(|end| end.last_stable >= end.high_watermark);
    Ok(Output {
        topic: topic.to_owned(),
        rows: rows(client, topic, keys)?,
        uncommitted: spans.iter().flatten().map(|s| u64::from(s.records)).sum(),
        spans,
        hanging: match decided {
            true => Vec::new(),
            false => hanging(client, topic)?,
        },
        ends,
        running: None,
    })
}

/// Returns the transactions that are open in a topic and that no coordinator knows. Reads the topic before and after
/// the coordinators, so that a transaction that ends or begins in between does not count.
fn hanging(client: &mut Client, topic: &str) -> Result<Vec<OpenProducer>> {
    let mut open = client.open_producers(topic)?;
    let known = client.transactions()?;
    let known = known.iter().filter(|transaction| transaction.is_open());
    let known: HashSet<i64> = known.map(|transaction| transaction.producer_id).collect();
    let still = client.open_producers(topic)?;
    open.retain(|found| !known.contains(&found.producer_id) && still.contains(found));
    Ok(open)
}

/// Returns the ends of each partition. Reads the last stable offsets first, so that records that arrive in between
/// can't hide an open transaction. They could only show one that does not exist, but the run is over by then.
fn ends(client: &mut Client, topic: &str) -> Result<Vec<LogEnd>> {
    let stable = client.end_offsets(topic, Isolation::ReadCommitted)?;
    let high = client.end_offsets(topic, Isolation::ReadUncommitted)?;
    let end = |(last_stable, high_watermark)| LogEnd {
        last_stable,
        high_watermark,
    };
    Ok(stable.into_iter().zip(high).map(end).collect())
}

fn rows(client: &mut Client, topic: &str, keys: &mut Keys) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    client
        .read_all(topic, Isolation::ReadCommitted, |partition, record| {
            let number = number(record);
            rows.push(Row {
                seq: number.map(|it| it.seq),
                key: keys.intern(record.key.as_deref()),
                partition,
                offset: record.offset,
                value: number.map_or(0, Numbered::event),
            });
        })
        .with_context(|| format!("read {topic}"))?;
    Ok(rows)
}

/// The numbers in a record's value.
#[derive(Clone, Copy, Deserialize)]
struct Numbered {
    seq: u64,
    event: Option<u64>,
}

impl Numbered {
    /// Returns the number of the record's event. A record without this field is an event of its own.
    fn event(self) -> i64 {
        self.event.unwrap_or(self.seq) as i64
    }
}

/// Returns the numbers in a record's value, or `None` if it is not JSON with a `seq`.
fn number(record: &Record) -> Option<Numbered> {
    serde_json::from_slice(record.value.as_deref()?).ok()
}
