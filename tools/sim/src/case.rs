//! The app of a shape, and its check.

use eos_core::{App, Guarantee};

use super::clocks::Clocks;
use super::record::Draft;
use super::remains::{Found, Left};
use super::topics::APP;
use eos_testkit::ledger::ModelLedger;
use eos_testkit::rng::Rng;

/// Everything that depends on the shape of a run.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) guarantee: Guarantee,
    /// The input topics. The group subscribes to the first.
    pub(super) inputs: &'static [&'static str],
    /// The sibling topic that records of `INPUT` are joined with.
    pub(super) sibling: Option<&'static str>,
    /// The topic of a global table. Each key has rows before the first process starts.
    pub(super) global: Option<&'static str>,
    /// The dead-letter topic that is replayed.
    pub(super) letters: Option<&'static str>,
    /// The internal topics whose committed offsets are checked at the end: repartition topics, and the response topics
    /// of foreign-key joins. The subscription topics of the joins are in `outputs`.
    pub(super) repartitions: &'static [&'static str],
    pub(super) changelog: Option<&'static str>,
    pub(super) outputs: &'static [&'static str],
    /// Whether the app acts by the wall clock. This clock makes small jumps until the last fault, and stands still from then
    /// on, so that the app comes to rest.
    pub(super) by_wall_clock: bool,
    /// Whether the input has pauses, and transactions of other producers.
    pub(super) pauses: bool,
    /// Draws the next record, with the current time.
    pub(super) draft: fn(&mut Rng, i64) -> Draft,
    /// Declares the app's streams. The value of each output is the input's value, followed by its key's count, if
    /// there is one.
    pub(super) declare: fn(&mut App, &Clocks),
    /// Declares the streams of an app that commits in this ledger.
    pub(super) ledger: Option<fn(&mut App, &ModelLedger)>,
    /// Adds the violations to the findings, and returns those of the oracle.
    pub(super) judge: fn(Left<'_>, &mut Found) -> Result<Vec<String>, String>,
}

impl Case {
    /// Returns the app, with these clocks and this ledger.
    pub(super) fn app(&self, clocks: &Clocks, ledger: &ModelLedger) -> App {
        let mut app = App::new(APP);
        app.guarantee(self.guarantee)
            .set("commit.interval.ms", 40)
            .set("session.timeout.ms", 3_000)
            .set("heartbeat.interval.ms", 300)
            // Faults set the machine's clock back, and a record that was in time is far ahead then.
            .set("max.timestamp.ahead.ms", -1)
            .set("transaction.timeout.ms", 6_000);
        (self.declare)(&mut app, clocks);
        if let Some(declare) = self.ledger {
            app.ledger(ledger);
            declare(&mut app, ledger);
        }
        app
    }

    /// Returns the topics that the app reads.
    pub(super) fn read(&self) -> impl Iterator<Item = &'static str> {
        let inputs = self.inputs.iter().copied();
        inputs.chain(self.repartitions.iter().copied())
    }

    /// Returns the topics that show the app's progress.
    pub(super) fn topics(&self) -> impl Iterator<Item = &'static str> {
        let outputs = self.outputs.iter().copied();
        self.read().chain(self.changelog).chain(outputs)
    }
}
