//! The gap that KIP-890 closes, and that librdkafka leaves open: if a request of one transaction arrives during the
//! next one, the broker applies it to the next one.
//!
//! A bare librdkafka loop behind the proxy shows the damage. Then the runtime runs behind the same proxy, which holds
//! each request of a transaction until it was sent again, and delivers it during the next transaction. At last, the
//! runtime runs without its defence (quarantine, rule 7).
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test exclusive kip890_gap:: -- --nocapture` runs at least 100
//! cases of each; without, 10.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_launcher::ClusterOptions;
use kafka_wire::{Client, Isolation};

use crate::common::PATIENCE;
use crate::proxied::{Found, Settings, Subject, in_parallel};
use anyhow::{Context, Result, bail, ensure};
use eos_broker::EmbeddedKafka;
use integration_tests::faults::{Row, is_full, record};
use integration_tests::proxy::{Act, ApiKey, Hold, Proxy, Rule, behind};
use integration_tests::wait::wait_until;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

const POINT: &str = "1 KIP-890 gap";
const POINT_EMBEDDED: &str = "1 KIP-890 gap, embedded broker";
const COMMAND: &str = "cargo test -p integration-tests --test exclusive kip890_gap::";

/// Kafka's error code for a member of an older generation. It causes an abort of the transaction, and nothing else.
const ILLEGAL_GENERATION: i16 = 22;
/// The error codes for a producer that has a successor.
const FENCED: [i16; 2] = [47, 90];

/// The requests of a transaction. With each are the responses that the client must get before the held request is
/// delivered. After these, the request was sent again, its transaction has ended, and the next transaction is open and
/// has content that can be damaged.
const HELD: [(ApiKey, [ApiKey; 2]); 5] = [
    (ApiKey::EndTxn, [ApiKey::EndTxn, ApiKey::Produce]),
    (
        ApiKey::TxnOffsetCommit,
        [ApiKey::EndTxn, ApiKey::TxnOffsetCommit],
    ),
    (
        ApiKey::AddOffsetsToTxn,
        [ApiKey::EndTxn, ApiKey::AddPartitionsToTxn],
    ),
    (
        ApiKey::AddPartitionsToTxn,
        [ApiKey::EndTxn, ApiKey::AddPartitionsToTxn],
    ),
    (ApiKey::Produce, [ApiKey::EndTxn, ApiKey::Produce]),
];

#[test]
fn a_bare_loop_shows_a_record_that_it_aborted() -> Result<()> {
    let _alone = crate::alone();
    on_both(|proxy, bootstrap, point| {
        let start = Instant::now();
        let cases = if is_full() { 100 } else { 10 };
        ensure!(
            bare(proxy, bootstrap, "unhurt", false)? == ["kept"],
            "without a fault an aborted record stays hidden"
        );
        let names: Vec<String> = (0..cases).map(|n| format!("bare-{n}")).collect();
        let outcomes = in_parallel(6, &names, |name| bare(proxy, bootstrap, name, true));
        let mut torn = 0;
        for (seen, _) in outcomes {
            let seen = seen?;
            ensure!(seen == ["kept", "aborted"], "{seen:?}");
            torn += 1;
        }
        record(&Row {
            point: point.into(),
            case: "EndTxn held, bare librdkafka loop (control)".into(),
            cases,
            fired: torn,
            verdict: format!(
                "red: {torn} records of aborted transactions visible to read_committed, every \
                 call answered Ok, the late EndTxn with NONE"
            ),
            seconds: start.elapsed().as_secs_f64(),
            command: COMMAND.into(),
        })
    })
}

/// Commits "kept", then aborts "aborted" and "more". Returns the records that a `read_committed` reader sees.
///
/// With a fault, the EndTxn of the first transaction is held and its connection is cut. librdkafka sends it again, and
/// the commit returns without error. The held request is delivered when the first record of the second transaction is
/// written, and commits this record. The second record begins a transaction that the client does not know. The abort
/// ends that transaction, without error.
fn bare(proxy: &Proxy, bootstrap: &str, name: &str, faulty: bool) -> Result<Vec<String>> {
    const LONG: Duration = Duration::from_secs(30);
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    client.create_topic(name, 2, 1, &[])?;
    let hold = Hold::cut().until([ApiKey::EndTxn, ApiKey::Produce]);
    let rule = Rule::on(ApiKey::EndTxn).of(&format!("{name}-client"));
    let rule = rule.nth(if faulty { 1 } else { u64::MAX });
    let rule = proxy.add(rule.then(Act::Hold(hold)));

    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", format!("{name}-client"))
        .set("transactional.id", name)
        .create()?;
    let send = |partition: i32, value: &str| -> Result<()> {
        let record = BaseRecord::to(name).key("k").payload(value);
        let record = record.partition(partition);
        producer.send(record).map_err(|(error, _)| error)?;
        Ok(producer.flush(LONG)?)
    };
    producer.init_transactions(LONG)?;
    producer.begin_transaction()?;
    send(0, "kept")?;
    producer.commit_transaction(LONG).context("the commit")?;
    producer.begin_transaction()?;
    send(0, "aborted")?;
    send(1, "more")?;
    producer.abort_transaction(LONG).context("the abort")?;

    if faulty {
        let (fired, late) = (proxy.fired(rule), proxy.late(rule));
        ensure!(fired == 1 && late.len() == 1, "{fired}, {late:?}");
        ensure!(late[0].code == Some(0), "{late:?}");
    }
    let mut seen = Vec::new();
    client.read_all(name, Isolation::ReadCommitted, |_, record| {
        let value = record.value.as_deref().unwrap_or_default();
        seen.push(String::from_utf8_lossy(value).into_owned());
    })?;
    Ok(seen)
}

#[test]
fn the_runtime_is_whole_whatever_arrives_late() -> Result<()> {
    let _alone = crate::alone();
    let size = match is_full() {
        true => Size {
            apps: 10,
            rounds: 10,
        },
        false => Size { apps: 2, rounds: 5 },
    };
    on_both(|proxy, bootstrap, point| {
        for outcome in sweep(proxy, bootstrap, size, Settings::default())? {
            let Outcome { api, found, .. } = &outcome;
            let cases = size.apps * size.rounds;
            outcome.record(point, "quarantine on")?;
            ensure!(found.is_clean(), "{api:?}: {found}\n{}", found.said);
            ensure!(outcome.fired == cases, "{api:?}: {outcome:?}");
            ensure!(
                outcome.quarantines >= cases,
                "{api:?}: {} quarantines in {cases} cases",
                outcome.quarantines
            );
            let refused = |code: &Option<i16>| code.is_some_and(|code| FENCED.contains(&code));
            ensure!(
                outcome.codes.keys().all(refused),
                "{api:?}: the late ones were answered {:?}",
                outcome.codes
            );
        }
        Ok(())
    })
}

/// The control of the test above.
#[test]
fn without_quarantine_it_is_torn() -> Result<()> {
    let _alone = crate::alone();
    let size = match is_full() {
        true => Size { apps: 5, rounds: 4 },
        false => Size { apps: 2, rounds: 2 },
    };
    on_both(|proxy, bootstrap, point| {
        let settings = Settings {
            undefended: "quarantine",
            ..Settings::default()
        };
        for outcome in sweep(proxy, bootstrap, size, settings)? {
            let api = outcome.api;
            outcome.record(point, "quarantine off (control)")?;
            let must_be_red = matches!(api, ApiKey::EndTxn | ApiKey::TxnOffsetCommit);
            ensure!(
                outcome.is_red() || !must_be_red,
                "{api:?}: no harm without the defence, the late ones were answered {:?}",
                outcome.codes
            );
        }
        Ok(())
    })
}

/// The number of apps for each request, and the number of faults of each app.
#[derive(Debug, Clone, Copy)]
struct Size {
    apps: u64,
    rounds: u64,
}

/// The outcome of all cases that hold one kind of request.
#[derive(Debug)]
struct Outcome {
    api: ApiKey,
    found: Found,
    cases: u64,
    fired: u64,
    /// Apps that continued only after a restart. This happens only without the defence.
    stuck: u64,
    quarantines: u64,
    /// The number of replaced producers, for any reason.
    rebuilds: u64,
    /// The broker's error codes for the late requests, with their numbers.
    codes: BTreeMap<Option<i16>, u64>,
    seconds: f64,
}

impl Outcome {
    fn of(api: ApiKey) -> Outcome {
        Outcome {
            api,
            found: Found::default(),
            cases: 0,
            fired: 0,
            stuck: 0,
            quarantines: 0,
            rebuilds: 0,
            codes: BTreeMap::new(),
            seconds: 0.0,
        }
    }

    fn add(&mut self, other: Outcome) {
        self.found.add(other.found);
        self.cases += other.cases;
        self.fired += other.fired;
        self.stuck += other.stuck;
        self.quarantines += other.quarantines;
        self.rebuilds += other.rebuilds;
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        self.seconds = self.seconds.max(other.seconds);
    }

    fn is_red(&self) -> bool {
        !self.found.is_clean() || self.stuck > 0
    }

    fn record(&self, point: &str, defence: &str) -> Result<()> {
        let name = |code: &Option<i16>| match code {
            Some(0) => "NONE".to_owned(),
            Some(code) => {
                let known = kafka_wire::protocol::ResponseError::try_from_code(*code);
                known.map_or_else(|| code.to_string(), |error| format!("{error:?}"))
            }
            None => "no answer".to_owned(),
        };
        let codes = self.codes.iter();
        let codes: Vec<String> = codes.map(|(c, n)| format!("{} ({n})", name(c))).collect();
        let stuck = match self.stuck {
            0 => String::new(),
            apps => format!(", {apps} apps could not go on"),
        };
        let verdict = format!(
            "{}{stuck}; quarantines {} among {} producers replaced; the broker's answer to the late \
             ones: {}",
            self.found,
            self.quarantines,
            self.rebuilds,
            codes.join(", ")
        );
        let cases = self.cases;
        record(&Row {
            point: point.into(),
            case: format!("{:?} held, {defence}", self.api),
            cases,
            fired: self.fired,
            verdict,
            seconds: self.seconds,
            command: COMMAND.into(),
        })?;
        ensure!(self.fired > 0, "{:?}: no fault happened", self.api);
        Ok(())
    }
}

/// Runs the cases of each request, with several apps at the same time.
fn sweep(proxy: &Proxy, bootstrap: &str, size: Size, settings: Settings) -> Result<Vec<Outcome>> {
    let jobs: Vec<_> = (0..size.apps)
        .flat_map(|n| HELD.map(|(api, until)| (n, api, until)))
        .collect();
    let done = in_parallel(10, &jobs, |(n, api, until)| {
        let name = format!("held-{api:?}-{n}").to_lowercase();
        let subject = Subject::start(proxy, bootstrap, &name, settings.clone())?;
        one(subject, *api, *until, size.rounds).with_context(|| name)
    });
    let mut outcomes: Vec<Outcome> = HELD.iter().map(|(api, _)| Outcome::of(*api)).collect();
    for ((_, api, _), (outcome, after)) in jobs.iter().zip(done) {
        let mut outcome = outcome?;
        outcome.seconds = after.as_secs_f64();
        let all = outcomes.iter_mut().find(|all| all.api == *api);
        all.context("one of them")?.add(outcome);
    }
    Ok(outcomes)
}

/// Runs one app with this number of faults.
fn one(mut subject: Subject<'_>, api: ApiKey, until: [ApiKey; 2], rounds: u64) -> Result<Outcome> {
    let mut outcome = Outcome::of(api);
    let went = go_through(&mut subject, until, rounds, &mut outcome);
    if went.is_err() && subject.is_undefended() {
        outcome.stuck = 1;
        // The damage is judged once the app is stopped and its successor has caught up.
        if let Err(error) = subject.stop() {
            eprintln!("{}: {error:#}", subject.case.app);
        }
        subject.restart()?;
        subject.await_offsets(PATIENCE)?;
        subject.stop()?;
    } else {
        went?;
    }
    outcome.found = subject.judge()?;
    Ok(outcome)
}

fn go_through(
    subject: &mut Subject<'_>,
    until: [ApiKey; 2],
    rounds: u64,
    outcome: &mut Outcome,
) -> Result<()> {
    // Without the defence, an app continues soon, or it is known to be stuck.
    let patience = match subject.is_undefended() {
        true => Duration::from_secs(15),
        false => PATIENCE,
    };
    for _ in 0..rounds {
        outcome.cases += 1;
        let hurt = hurt(subject, outcome, until, patience);
        let totals = subject.totals();
        outcome.quarantines = totals.quarantines;
        outcome.rebuilds = totals.rebuilds;
        hurt?;
    }
    // If offsets were committed without their outputs, or outputs without their offsets, a restart shows it.
    subject.restart()?;
    subject.await_offsets(patience)?;
    subject.stop()
}

/// Sends two lots. A request of the transaction of the first lot is held, and delivered during the transaction of the
/// second lot. Then the second transaction is aborted, so that records that the late request has committed are
/// processed again. If the late request contains offsets or records, there is no abort, because these do harm only if
/// they are committed.
fn hurt(
    subject: &mut Subject<'_>,
    outcome: &mut Outcome,
    until: [ApiKey; 2],
    patience: Duration,
) -> Result<()> {
    let (proxy, clients, api) = (subject.proxy, subject.clients(), outcome.api);
    let hold = Hold::cut().until(until);
    let held = proxy.add(Rule::on(api).of(&clients).nth(1).then(Act::Hold(hold)));
    subject.lot()?;
    wait_until(patience, "a request is held", || Ok(proxy.fired(held) == 1))?;
    outcome.fired += 1;
    subject.await_outputs(patience)?;
    let is_aborted = !matches!(api, ApiKey::TxnOffsetCommit | ApiKey::Produce);
    let abort = is_aborted.then(|| {
        let rule = Rule::on(ApiKey::TxnOffsetCommit).of(&clients);
        let rule = rule.after([until[1]]).nth(1);
        proxy.add(rule.then(Act::Answer(ILLEGAL_GENERATION)))
    });
    subject.lot()?;
    wait_until(patience, "the late request is delivered", || {
        Ok(proxy.late(held).len() == 1)
    })?;
    let code = proxy.late(held)[0].code;
    *outcome.codes.entry(code).or_default() += 1;
    subject.await_outputs(patience)?;
    if let Some(abort) = abort {
        wait_until(patience, "the transaction is aborted", || {
            Ok(proxy.fired(abort) == 1)
        })?;
        // The lot is processed again.
        subject.await_offsets(patience)?;
    }
    Ok(())
}

/// Runs a test on a real Kafka, and then on the embedded broker. The last argument of the test is the group of its row.
fn on_both(test: impl Fn(&Proxy, &str, &str) -> Result<()>) -> Result<()> {
    crate::common::log::init();
    if let Some((proxy, cluster)) = behind(&ClusterOptions::default())? {
        told(&proxy, test(&proxy, cluster.bootstrap(), POINT)).context("on Kafka")?;
    }
    let proxy = Proxy::start(1)?;
    let [port] = proxy.ports()[..] else {
        bail!("one broker, one port");
    };
    let kafka = EmbeddedKafka::builder().advertised_port(port).start()?;
    proxy.forward_to(&[kafka.bootstrap()])?;
    let outcome = test(&proxy, &format!("127.0.0.1:{port}"), POINT_EMBEDDED);
    told(&proxy, outcome).context("on the embedded broker")
}

/// Prints the log of the proxy if the test failed.
fn told(proxy: &Proxy, outcome: Result<()>) -> Result<()> {
    if outcome.is_err() {
        for entry in proxy.log() {
            eprintln!("{entry}");
        }
    }
    outcome
}
