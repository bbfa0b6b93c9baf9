//! Brokers that are killed, freeze and restart under load, on three nodes. `02-enrich` continues by itself, and each
//! record is processed exactly once.
//!
//! `cargo test -p integration-tests --test exclusive brokers:: -- --nocapture` kills the broker of one role. With
//! `EOS_FULL=1` (`cargo xtask soak brokers`) the test kills and freezes the broker of each role, restarts every node
//! and removes replicas. It does so ten times.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration_tests::faults::{Row, is_full, record};
use integration_tests::fleet::Fleet;
use integration_tests::judge::{self, Expectation, Question};
use integration_tests::kill::{Load, Watch};
use integration_tests::process::{Program, build};
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{Cluster, ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation, Node, TransactionState};

const INPUT: &str = "cities";
const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
const APP: &str = "enrich-v1";
const NODES: [u8; 3] = [1, 2, 3];
const PARTITIONS: i32 = 6;
const RATE: u64 = 2_000;

/// The number of cases of each kind, with `EOS_FULL=1`.
const TIMES: usize = 10;

/// The time limit of each wait after a fault.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit for a response of one broker. A frozen broker must not hide the others.
const ANSWER: Duration = Duration::from_secs(1);
/// Twice the time for which the controller waits for a broker's heartbeat (`broker.session.timeout.ms`).
const FROZEN: Duration = Duration::from_secs(6);
/// The time with too few replicas. It is longer than a commit may take.
const TOO_FEW: Duration = Duration::from_secs(15);

/// A role of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Leader,
    TransactionCoordinator,
    GroupCoordinator,
    Controller,
}

const ROLES: [Role; 4] = [
    Role::Leader,
    Role::TransactionCoordinator,
    Role::GroupCoordinator,
    Role::Controller,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strike {
    Kill,
    Freeze,
}

/// The cases of one kind of fault, and their durations.
struct Kind {
    case: String,
    /// The times from the fault to new committed records in every partition of the output.
    recoveries: Vec<Duration>,
    took: Duration,
}

#[test]
fn brokers_come_and_go_and_nothing_is_lost_or_doubled() -> Result<()> {
    let _alone = crate::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default().nodes(3))? else {
        return Ok(());
    };
    let mut dir = tempfile::tempdir()?;
    if std::env::var_os("EOS_KEEP_LOGS").is_some() {
        dir.disable_cleanup(true);
        eprintln!("logs and state stay in {}", dir.path().display());
    }
    let mut stage = Stage::set(cluster, dir.path())?;
    let outcome = stage.play();
    outcome.with_context(|| format!("logs:\n{}", stage.fleet.tails(25)))
}

struct Stage {
    client: Client,
    fleet: Fleet,
    load: Load,
    watch: Watch,
    kinds: Vec<Kind>,
    /// One of the app's transactional ids.
    id: String,
    /// Dropped last, because the other fields connect to it.
    cluster: Cluster,
}

impl Stage {
    fn set(cluster: Cluster, dir: &Path) -> Result<Stage> {
        let bootstrap = cluster.bootstrap();
        let mut client = Client::connect(bootstrap, PATIENCE)?.impatient(ANSWER);
        for topic in OUTPUTS.iter().chain([&INPUT]) {
            client.create_topic(topic, PARTITIONS, 3, &[])?;
        }
        let environment = [
            ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
            ("EOS_STATE_DIR", dir.join("state").display().to_string()),
            ("WORKERS", "2".to_owned()),
            // If the test fails, it prints the end of the log. A backtrace would fill it with forty lines.
            ("RUST_BACKTRACE", "0".to_owned()),
        ];
        let app = build("eos-examples", Program::Bin("02-enrich"), &[])?;
        let mut fleet = Fleet::new(&app, environment, &dir.join("logs"))?;
        fleet.start()?;
        fleet.start()?;
        let generator = env!("CARGO_BIN_EXE_generator").as_ref();
        Ok(Stage {
            client,
            fleet,
            load: Load::start(generator, bootstrap, INPUT, 60 * RATE, RATE)?,
            watch: Watch::start(bootstrap, INPUT, OUTPUTS[0])?,
            kinds: Vec::new(),
            id: String::new(),
            cluster,
        })
    }

    fn play(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.flows()?;
        self.id = self.transactional_id()?;
        if is_full() {
            for _ in 0..TIMES {
                for strike in [Strike::Kill, Strike::Freeze] {
                    for role in ROLES {
                        self.strike(strike, role)?;
                    }
                }
                self.roll()?;
                self.too_few_replicas()?;
            }
        } else {
            self.strike(Strike::Kill, ROLES[0])?;
        }
        let verdict = self.finish()?;
        eprintln!("{}after {:.1?}", verdict.text, begun.elapsed());
        for kind in &self.kinds {
            record(&kind.row(&verdict))?;
        }
        ensure!(verdict.clean, "{}", verdict.text);
        Ok(())
    }

    /// Kills or freezes the broker that has a role. Another broker must take the role over, and the stream must
    /// continue.
    fn strike(&mut self, strike: Strike, role: Role) -> Result<()> {
        self.flows()?;
        let victim = self.holder(role)?;
        let begun = Instant::now();
        match strike {
            Strike::Kill => self.cluster.kill_node(victim)?,
            Strike::Freeze => self.cluster.freeze(victim)?,
        }
        self.wait(&format!("node {victim} is no {role} any more"), |stage| {
            Ok(stage.holder(role)? != victim)
        })?;
        // The stream must recover without the killed node.
        let recovery = match strike {
            Strike::Kill => {
                let recovery = self.recovery(begun)?;
                self.cluster.start_node(victim)?;
                recovery
            }
            Strike::Freeze => {
                thread::sleep(FROZEN.saturating_sub(begun.elapsed()));
                self.cluster.thaw(victim)?;
                self.recovery(begun)?
            }
        };
        self.is_whole()?;
        self.happened(format!("{strike} of the {role}"), recovery, begun);
        Ok(())
    }

    /// Restarts every node, one after the other.
    fn roll(&mut self) -> Result<()> {
        for node in NODES {
            self.flows()?;
            let begun = Instant::now();
            self.cluster.stop_node(node)?;
            let recovery = self.recovery(begun)?;
            self.cluster.start_node(node)?;
            self.is_whole()?;
            self.happened("rolling restart, each node".to_owned(), recovery, begun);
        }
        Ok(())
    }

    /// Makes the output require more replicas than there are, for longer than a commit may take.
    fn too_few_replicas(&mut self) -> Result<()> {
        const WANTED: &str = "min.insync.replicas";
        self.flows()?;
        let begun = Instant::now();
        self.client.configure_topic(OUTPUTS[1], WANTED, "3")?;
        self.cluster.kill_node(NODES[2])?;
        self.wait("no partition has all its replicas", |stage| {
            let cluster = stage.client.metadata(Some(&[OUTPUTS[1]]))?;
            let mut partitions = cluster.topics.values().flatten();
            Ok(partitions.all(|partition| partition.in_sync.len() < 3))
        })?;
        // Earlier records may still be committed.
        thread::sleep(Duration::from_secs(1));
        let mut before = self.watch.latest()?.context("nothing was seen")?;
        let mut since = Instant::now();
        self.wait(
            "nothing is committed for long enough, and input comes",
            |stage| {
                let now = stage.watch.latest()?.context("nothing was seen")?;
                if now.committed() > before.committed() {
                    (before, since) = (now, Instant::now());
                    return Ok(false);
                }
                Ok(since.elapsed() >= TOO_FEW && now.input > before.input)
            },
        )?;
        let back = Instant::now();
        self.cluster.start_node(NODES[2])?;
        let recovery = self.recovery(back)?;
        self.client.configure_topic(OUTPUTS[1], WANTED, "2")?;
        self.is_whole()?;
        let case = format!("too few replicas of an output for {TOO_FEW:?}");
        self.happened(case, recovery, begun);
        Ok(())
    }

    fn happened(&mut self, case: String, recovery: Duration, begun: Instant) {
        let took = begun.elapsed();
        eprintln!("{case}: recovered after {recovery:.2?}, whole again after {took:.1?}");
        match self.kinds.iter_mut().find(|kind| kind.case == case) {
            Some(kind) => {
                kind.recoveries.push(recovery);
                kind.took += took;
            }
            None => self.kinds.push(Kind {
                case,
                recoveries: vec![recovery],
                took,
            }),
        }
    }

    /// Returns the node that has a role now.
    fn holder(&mut self, role: Role) -> Result<u8> {
        let client = &mut self.client;
        let node = match role {
            Role::Leader => client.broker_of(Node::Leader(OUTPUTS[0], 0))?,
            Role::GroupCoordinator => client.broker_of(Node::Group(APP))?,
            Role::Controller => client.controller()?,
            Role::TransactionCoordinator => client.broker_of(Node::Transaction(&self.id))?,
        };
        u8::try_from(node).context("a node id")
    }

    fn transactional_id(&mut self) -> Result<String> {
        let all = self.client.transactions()?.into_iter();
        let ids = all.map(|transaction| transaction.transactional_id);
        let ours = ids.filter(|id| id.starts_with(&format!("{APP}-")));
        ours.min().context("the app has no transactional id")
    }

    /// Waits until every partition has new committed output.
    fn flows(&mut self) -> Result<()> {
        self.wait("the topics were seen", |stage| {
            Ok(stage.watch.latest()?.is_some())
        })?;
        let begun = Instant::now();
        self.recovery(begun).map(drop)
    }

    /// Waits until every partition has new committed output since `since`. Returns the time that this took.
    fn recovery(&mut self, since: Instant) -> Result<Duration> {
        let mut recovery = None;
        let waited = self.wait("every partition has new committed output", |stage| {
            recovery = stage.watch.recovery(since);
            Ok(recovery.is_some())
        });
        waited.with_context(|| self.evidence())?;
        recovery.context("it recovered at no time")
    }

    /// Describes what a stalled stream may wait for: open transactions and the state of its topics.
    fn evidence(&mut self) -> String {
        let transactions = self.client.transactions().map(|mut all| {
            all.retain(TransactionState::is_open);
            all
        });
        let seen = self.watch.latest();
        let mut evidence = format!("{seen:?}; open transactions {transactions:?}");
        for topic in ["__consumer_offsets", OUTPUTS[0], OUTPUTS[1]] {
            let client = &mut self.client;
            let open = client.open_producers(topic);
            let stable = client.end_offsets(topic, Isolation::ReadCommitted);
            let end = client.end_offsets(topic, Isolation::ReadUncommitted);
            let metadata = client
                .metadata(Some(&[topic]))
                .map(|cluster| cluster.topics);
            evidence += &format!(
                ";\n{topic}: open {open:?}, stable up to {stable:?}, ends {end:?}, {metadata:?}"
            );
        }
        evidence
    }

    /// Waits until every replica of every topic is in sync. Otherwise the next fault would be a second one at the same
    /// time.
    fn is_whole(&mut self) -> Result<()> {
        self.wait("every replica is in sync", |stage| {
            let cluster = stage.client.metadata(None)?;
            let mut partitions = cluster.topics.values().flatten();
            Ok(partitions.all(|partition| partition.in_sync.len() == NODES.len()))
        })
    }

    /// Waits until `is_so`, and keeps records flowing. Fails if a process of the app ends.
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        wait_until(PATIENCE, what, || {
            self.fleet.check()?;
            self.load.keep_going()?;
            self.watch.latest()?;
            is_so(self)
        })
    }

    /// Waits until everything is committed, stops the app, and returns the verdict of the judge.
    fn finish(&mut self) -> Result<Verdict> {
        self.load.finish()?;
        wait_until(PATIENCE, "all of the input is committed", || {
            self.fleet.check()?;
            is_through(&mut self.client, APP, INPUT)
        })?;
        self.fleet.stop_all(Signal::Term)?;
        let outputs = OUTPUTS.map(str::to_owned);
        let question = Question::of_app(self.cluster.bootstrap(), APP, INPUT, &outputs);
        let (evidence, verdict) = question.judge(Expectation::Finished)?;
        Ok(Verdict {
            clean: verdict.is_clean(),
            counts: format!(
                "lost {}, doubled {}, torn {}",
                verdict.lost.count, verdict.doubled.count, verdict.torn.count
            ),
            text: judge::text(&evidence, &verdict),
        })
    }
}

struct Verdict {
    clean: bool,
    counts: String,
    text: String,
}

impl Kind {
    fn row(&self, verdict: &Verdict) -> Row {
        let mut recoveries = self.recoveries.clone();
        recoveries.sort_unstable();
        let median = recoveries[recoveries.len() / 2];
        let longest = recoveries[recoveries.len() - 1];
        let recovery = match recoveries.len() {
            1 => format!("recovery {longest:.1?}"),
            _ => format!("recovery {median:.1?}, longest {longest:.1?}"),
        };
        Row {
            point: "4 brokers".to_owned(),
            case: self.case.clone(),
            cases: recoveries.len() as u64,
            fired: recoveries.len() as u64,
            verdict: format!("{}; {recovery}", verdict.counts),
            seconds: self.took.as_secs_f64(),
            command: "cargo xtask faults brokers".to_owned(),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Leader => "leader of an output",
            Role::TransactionCoordinator => "transaction coordinator",
            Role::GroupCoordinator => "group coordinator",
            Role::Controller => "controller",
        })
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strike::Kill => f.write_str("kill -9"),
            Strike::Freeze => write!(f, "freeze ({FROZEN:?})"),
        }
    }
}
