//! Removes the defences of rows one by one. The same schedule is exact with the defence, and loses or doubles orders
//! without it. The judge finds this within a minute, and names the orders.
//!
//! `cargo test -p integration-tests --test kafka ledger_controls:: -- --nocapture`; `EOS_CASE=rewind` runs the cases
//! whose name contains `rewind`.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_postgres::testing::{Cluster, value};
use integration_tests::faults::{Row, record};
use integration_tests::shop::Verdict;
use integration_tests::sweep::{Act, each};
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;

use crate::bookings::{Scene, Start, program};
use crate::common::PATIENCE;

const COMMAND: &str = "cargo test -p integration-tests --test kafka ledger_controls::";
const AT_ONCE: usize = 4;
/// The orders that are sent at once, and those once the fault is over.
const AROUND: u64 = 400;
const AFTER: u64 = 40;
/// The deadline of the faults.
const FIRE_LIMIT: Duration = Duration::from_secs(30);
/// A program with a bug may never come to the end of its input.
const BUG_PATIENCE: Duration = Duration::from_secs(10);
/// The time from the faults to the verdict about a program with a bug.
const LIMIT: Duration = Duration::from_secs(60);

/// The defence that a bug removes.
#[derive(Debug, Clone, Copy)]
enum Defence {
    /// A defence of the worker.
    Worker(&'static str),
    /// A defence of the ledger.
    Ledger(&'static str),
}

/// The kind of violation that the judge must find in a program with a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Lost,
    Doubled,
}

#[derive(Debug, Clone, Copy)]
struct Control {
    defence: Defence,
    /// The behaviour of the program with the bug.
    bug: &'static str,
    /// Defences of the worker that are missing with and without the bug.
    undefended: &'static str,
    /// Defences of the worker that are missing with the bug, if it is one of the ledger.
    undefended_with_bug: &'static str,
    failpoints: &'static str,
    /// The number of faults that fire.
    faults: usize,
    /// The effect of the last fault.
    act: Act,
    interval_ms: u32,
    /// Each order is booked once by its id.
    inbox: bool,
    found: Found,
}

const CONTROLS: [Control; 6] = [
    Control {
        defence: Defence::Worker("next_offset"),
        bug: "the offset of the last record is committed, and not the next one",
        undefended: "",
        undefended_with_bug: "",
        failpoints: "post_commit=crash@record:60",
        faults: 1,
        act: Act::Crash,
        interval_ms: 50,
        inbox: false,
        found: Found::Doubled,
    },
    Control {
        defence: Defence::Worker("rewind"),
        bug: "after an abort, the worker continues to read behind the aborted records",
        undefended: "",
        undefended_with_bug: "",
        failpoints: "post_offsets=error@record:60",
        faults: 1,
        act: Act::Error,
        interval_ms: 50,
        inbox: false,
        found: Found::Lost,
    },
    Control {
        defence: Defence::Worker("in_doubt"),
        bug: "a commit of unknown outcome counts as aborted",
        undefended: "",
        undefended_with_bug: "",
        // The commit succeeds, and the worker receives an error.
        failpoints: "post_commit=error@record:60",
        faults: 1,
        act: Act::Error,
        interval_ms: 50,
        inbox: false,
        found: Found::Doubled,
    },
    Control {
        defence: Defence::Ledger("one_transaction"),
        bug: "rows are committed before their position",
        undefended: "",
        undefended_with_bug: "",
        // The session has its own thread, which sends its buffered rows during the stall.
        failpoints: "kth_send=stall@record:300;kth_send=crash@record:300",
        faults: 2,
        act: Act::Crash,
        // The first transaction has records of both partitions. The lock of the second position sends the rows of the
        // first one.
        interval_ms: 1_000,
        inbox: false,
        found: Found::Doubled,
    },
    Control {
        defence: Defence::Ledger("compared_positions"),
        bug: "a former owner commits, because nothing compares its positions",
        // A message of Kafka about the group may arrive before the commit. The positions must not depend on it.
        undefended: "loss",
        // On a busy machine, the move of positions takes several calls. Each of them would check the membership again.
        undefended_with_bug: "loss,checked_member",
        failpoints: "pre_offsets=freeze@record:60",
        faults: 1,
        act: Act::Freeze,
        interval_ms: 50,
        inbox: false,
        found: Found::Doubled,
    },
    Control {
        defence: Defence::Ledger("claims_with_rows"),
        bug: "the ids of messages are claimed in a transaction of their own",
        undefended: "",
        undefended_with_bug: "",
        failpoints: "post_offsets=crash@record:60",
        faults: 1,
        act: Act::Crash,
        interval_ms: 50,
        inbox: true,
        found: Found::Lost,
    },
];

/// A control, with the bug or without it.
#[derive(Debug, Clone, Copy)]
struct Case {
    control: Control,
    has_bug: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Defence::Worker(name) | Defence::Ledger(name)) = self.control.defence;
        let word = if self.has_bug { "without" } else { "with" };
        write!(f, "{word} {name}")
    }
}

impl Case {
    fn start(&self) -> Start<'static> {
        let control = self.control;
        let mut settings = vec![("EOS_UNDEFENDED", control.undefended)];
        if control.inbox {
            settings.push(("INBOX", "shop"));
        }
        if self.has_bug {
            // A later variable replaces an earlier one of the same name.
            match control.defence {
                Defence::Worker(name) => settings.push(("EOS_UNDEFENDED", name)),
                Defence::Ledger(name) => settings.extend([
                    ("EOS_UNDEFENDED", control.undefended_with_bug),
                    ("WITHOUT", name),
                ]),
            }
        }
        Start {
            // The server must not end the session of a frozen process.
            transaction_timeout: Duration::from_secs(20),
            interval_ms: control.interval_ms,
            settings,
            ..Start::new(Duration::from_secs(4))
        }
    }

    /// Runs the schedule, and judges the rows. Also returns the time at which the faults fired.
    fn play(&self, scene: &mut Scene<'_>) -> Result<(Verdict, Instant)> {
        let (control, start) = (self.control, self.start());
        let victim = scene.start(&start.clone().failing(control.failpoints))?;
        scene.await_owner()?;
        scene.send(AROUND)?;
        wait_until(FIRE_LIMIT, "all faults have fired", || {
            Ok(scene.fired("") >= control.faults)
        })?;
        let fault = Instant::now();
        let mut living = vec![victim];
        match control.act {
            Act::Crash => {
                scene.members[victim].await_killed(PATIENCE)?;
                living = vec![scene.start(&start)?];
            }
            Act::Freeze => {
                scene.members[victim].await_frozen(PATIENCE)?;
                living.push(scene.start(&start)?);
                scene.await_taken().context("beside the frozen process")?;
                scene.members[victim].thaw()?;
                if self.has_bug {
                    // The successor has booked each order once.
                    wait_until(PATIENCE, "the former owner has booked orders again", || {
                        Ok(bookings(scene)? > AROUND)
                    })?;
                }
            }
            Act::Error => {}
        }
        scene.send(AFTER)?;
        if self.has_bug && control.found == Found::Doubled {
            return Ok((scene.judge(BUG_PATIENCE)?, fault));
        }
        // An order counts as lost only if the position has passed it.
        scene.await_taken()?;
        if self.has_bug {
            return Ok((scene.judge(BUG_PATIENCE)?, fault));
        }
        scene.stop(&living)?;
        Ok((scene.must_be_clean()?, fault))
    }

    /// Returns whether the judge has found the bug, and names orders.
    fn is_found(&self, verdict: &Verdict) -> bool {
        let found = match self.control.found {
            // The app may still book orders that the position has not passed.
            Found::Lost if verdict.behind.count > 0 => return false,
            Found::Lost => &verdict.lost,
            Found::Doubled => &verdict.doubled,
        };
        found.count > 0 && found.examples.iter().all(|one| one.starts_with('o'))
    }

    /// Runs the schedule. Without the bug, the verdict must be clean. With the bug, the judge must name orders.
    fn run(&self, program: &Path, bootstrap: &str, server: &Cluster) -> Result<()> {
        let since = Instant::now();
        let name = format!("control-{self}");
        let mut scene = Scene::new(&name, program, bootstrap, server)?;
        let played = self.play(&mut scene).and_then(|(verdict, fault)| {
            let fired = scene.fired("");
            ensure!(fired == self.control.faults, "{fired} faults fired");
            self.check(&verdict, fault.elapsed())?;
            Ok(verdict)
        });
        let verdict = played.with_context(|| format!("{self}:\n{}", scene.tails()))?;
        self.record(&verdict, since.elapsed())?;
        let topic = scene.topic();
        scene.client.delete_topic(&topic)
    }

    /// Fails unless the judge has found the bug in time. Without the bug, there is nothing to find.
    fn check(&self, verdict: &Verdict, after: Duration) -> Result<()> {
        if !self.has_bug {
            return Ok(());
        }
        let bug = self.control.bug;
        ensure!(self.is_found(verdict), "{bug}: not found: {verdict}");
        ensure!(after < LIMIT, "found after {after:.1?}");
        Ok(())
    }

    fn record(&self, verdict: &Verdict, took: Duration) -> Result<()> {
        let (case, word) = match self.has_bug {
            true => (
                format!("control: {}", self.control.bug),
                ": violated, as expected",
            ),
            false => (format!("{self}: {}", self.control.failpoints), ""),
        };
        record(&Row {
            point: "9 ledger".into(),
            case,
            cases: 1,
            fired: self.control.faults as u64,
            verdict: format!(
                "lost {}, doubled {}, torn {}{word}",
                verdict.lost.count, verdict.doubled.count, verdict.torn.count
            ),
            seconds: took.as_secs_f64(),
            command: COMMAND.into(),
        })
    }
}

/// Returns the number of bookings.
fn bookings(scene: &Scene<'_>) -> Result<u64> {
    Ok(value(&scene.url, "SELECT count(*) FROM bookings")?.parse()?)
}

#[test]
fn without_any_one_of_them_orders_are_lost_or_doubled() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = program()?;
    let server = Cluster::temporary(&[("max_connections", "200")])?;
    let both = |control| [true, false].map(|has_bug| Case { control, has_bug });
    let mut cases: Vec<Case> = CONTROLS.into_iter().flat_map(both).collect();
    if let Ok(part) = std::env::var("EOS_CASE") {
        cases.retain(|case| case.to_string().contains(&part));
    }
    let done = each(&cases, AT_ONCE, |case| {
        case.run(&program, kafka.bootstrap(), &server)
    });
    let failed = done.into_iter().filter_map(|one| one.answer.err());
    let failed: Vec<String> = failed.map(|error| format!("{error:?}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}
