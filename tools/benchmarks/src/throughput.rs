//! Records per second and CPU per record of the sides, in rounds. Each output is checked.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use kafka_wire::Isolation;

use crate::bench::{Bench, Play};
use crate::joined_records;
use crate::options::{Options, What};
use crate::proc;
use crate::records::{KEYS, PARTITIONS};
use crate::running::Running;
use crate::side::Side;
use crate::stats::{Ratio, median, rounded};
use crate::streams::Streams;
use crate::work::{PHASES, Work};

/// The time after which a run counts as hung.
const PATIENCE: Duration = Duration::from_secs(600);

/// The time between two checks of a side.
const LOOK: Duration = Duration::from_millis(10);

/// The result of one run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) side: Side,
    pub(crate) round: u32,
    pub(crate) records_per_second: f64,
    pub(crate) cpu_us: f64,
    pub(crate) broker_cpu_us: Option<f64>,
    /// CPU time of the database server in µs per record, if the work writes rows.
    pub(crate) database_cpu_us: Option<f64>,
    pub(crate) peak_mib: f64,
    /// Open file descriptors after the last commit.
    pub(crate) files: f64,
    /// The CPU time of all other processes, in percent of one core: without the side, the broker, the database and this
    /// program. Above a few percent the figures are noise. `None` if the broker's CPU time is not known.
    pub(crate) foreign_percent: Option<f64>,
    /// Records in the output.
    pub(crate) outputs: u64,
    /// The mean duration of each phase of a commit, in milliseconds. Only of eos.
    pub(crate) phases: Option<Value>,
}

/// All runs of a benchmark.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) work: Work,
    pub(crate) records: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Measures several works on one broker. The first work has all warm-up rounds, each later work at most one.
pub(crate) fn run_all(
    what: What,
    works: &[(Work, Vec<Side>)],
    options: &Options,
) -> Result<Vec<Results>> {
    let mut bench = Bench::open(PARTITIONS)?;
    let mut all = Vec::new();
    for (work, sides) in works {
        let warm_up = match all.is_empty() {
            true => options.warm_up_rounds,
            false => options.warm_up_rounds.min(1),
        };
        all.push(measure(&mut bench, (what, *work), sides, warm_up, options)?);
    }
    Ok(all)
}

/// Measures one work.
pub(crate) fn run(what: What, work: Work, sides: &[Side], options: &Options) -> Result<Results> {
    let mut bench = Bench::open(PARTITIONS)?;
    measure(
        &mut bench,
        (what, work),
        sides,
        options.warm_up_rounds,
        options,
    )
}

/// Measures the sides alternately. The first rounds do not count, because they warm up the broker.
fn measure(
    bench: &mut Bench,
    (what, work): (What, Work),
    sides: &[Side],
    warm_up: u32,
    options: &Options,
) -> Result<Results> {
    let rounds = if what == What::Quarantine { 7 } else { 3 };
    let records = options.records.unwrap_or(match work {
        Work::Pass => 6_000_000,
        work if work.has_event_times() => 3_000_000,
        work if work.writes_rows() => 1_000_000,
        _ => 10_000_000,
    });
    let most = joined_records::most_records(work);
    ensure!(
        records <= most,
        "{} has {most} records at most",
        work.name()
    );
    let streams = if sides.contains(&Side::Streams) {
        Some(Streams::build(
            options.warm_up.min(records),
            options.heap_mb(Some(work)),
        )?)
    } else {
        None
    };
    if work.writes_rows() {
        bench.start_database()?;
    }
    if sides.contains(&Side::Connect) {
        bench.build_connect()?;
    }
    bench.keys = joined_records::keys(work).unwrap_or(KEYS);
    let input = bench.filled(&format!("{}-in", work.name()), work, records)?;
    let right = match work.joins() {
        true => Some(bench.filled_right(&format!("{}-right", work.name()), work, records)?),
        false => None,
    };
    let mut outcomes = Vec::new();
    for turn in 0..warm_up + options.rounds.unwrap_or(rounds) {
        let round = (turn + 1).saturating_sub(warm_up);
        for &side in &alternating(sides, turn) {
            // The faster sides warm up the broker.
            if round == 0 && matches!(side, Side::Streams | Side::Connect) {
                continue;
            }
            let name = format!("{}-{}-{turn}", work.name(), side.name());
            match round {
                0 => eprintln!("{}: warms the broker, does not count", side.name()),
                _ => eprintln!("{}: round {round}", side.name()),
            }
            let interval = options.interval();
            let mut play = bench.play(side, &name, &input, work, records, interval)?;
            play.task.sibling.clone_from(&right);
            let outcome = one(bench, &play, streams.as_ref(), round)
                .with_context(|| format!("{}, round {round}", side.name()))?;
            if round > 0 {
                println!("{}", outcome.json(work, records));
                outcomes.push(outcome);
            }
            bench.clear(&play)?;
        }
    }
    for topic in [Some(input), right].into_iter().flatten() {
        bench.client.delete_topic(&topic)?;
    }
    Ok(Results {
        work,
        records,
        outcomes,
    })
}

/// Returns the order of the sides in a round. Each round begins with another side, so that a machine that slows down
/// favours no side.
pub(crate) fn alternating(sides: &[Side], round: u32) -> Vec<Side> {
    let mut sides = sides.to_vec();
    let by = round as usize % sides.len().max(1);
    sides.rotate_left(by);
    sides
}

/// Runs one side once.
pub(crate) fn one(
    bench: &mut Bench,
    play: &Play,
    streams: Option<&Streams>,
    round: u32,
) -> Result<Outcome> {
    bench.settle()?;
    let mut running = bench.start(play, streams)?;
    let (start, end) = watch(bench, play, &mut running)?;
    let peak_mib = running.peak_mib().unwrap_or(f64::NAN);
    let files = running.files().map_or(f64::NAN, |files| files as f64);
    let said = running.stop()?;
    bench.ensure_finished(play)?;
    let outputs = bench.ensure_right(play)?;
    let phases = said.lines().find_map(|line| line.strip_prefix(PHASES));
    let phases = phases.and_then(|line| serde_json::from_str(line).ok());

    let records = (end.records - start.records) as f64;
    let per_record =
        |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e6 / records;
    Ok(Outcome {
        side: play.side,
        round,
        records_per_second: records / (end.time - start.time).as_secs_f64(),
        cpu_us: per_record(start.cpu, end.cpu),
        broker_cpu_us: start
            .broker
            .zip(end.broker)
            .map(|(start, end)| per_record(start, end)),
        database_cpu_us: start
            .database
            .zip(end.database)
            .map(|(start, end)| per_record(start, end)),
        peak_mib,
        files,
        foreign_percent: start.foreign_until(&end),
        outputs,
        phases,
    })
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    records: u64,
    time: Instant,
    cpu: Duration,
    broker: Option<Duration>,
    database: Option<Duration>,
    /// The CPU time of this program.
    own: Duration,
    /// The CPU time of the whole machine.
    busy: Duration,
}

impl Moment {
    fn now(bench: &Bench, running: &Running, records: u64) -> Result<Self> {
        Ok(Self {
            records,
            time: Instant::now(),
            cpu: running.cpu()?,
            broker: bench.broker_cpu()?,
            database: bench.database_cpu()?,
            own: proc::cpu(std::process::id())?,
            busy: proc::busy()?,
        })
    }

    fn foreign_until(&self, end: &Self) -> Option<f64> {
        let known = |moment: &Self| {
            let database = moment.database.unwrap_or_default();
            Some(moment.cpu + moment.broker? + database + moment.own)
        };
        let known = known(end)?.saturating_sub(known(self)?);
        let foreign = (end.busy - self.busy).saturating_sub(known);
        Some(foreign.as_secs_f64() * 100.0 / (end.time - self.time).as_secs_f64())
    }
}

/// Returns two moments: the first commits after a tenth and after nine tenths of the records. This excludes joining the
/// group and the last records. For Kafka Connect, the first moment is after half of the records, because its JVM has to
/// warm up.
fn watch(bench: &mut Bench, play: &Play, running: &mut Running) -> Result<(Moment, Moment)> {
    let total = play.task.records;
    let first_tenths = if play.side == Side::Connect { 5 } else { 1 };
    let (began, mut done) = (Instant::now(), 0);
    let (mut start, mut end): (Option<Moment>, Option<Moment>) = (None, None);
    let mut last = None;
    while done < total {
        running.check()?;
        ensure!(
            began.elapsed() < PATIENCE,
            "it takes too long: {done} of {total} records"
        );
        std::thread::sleep(LOOK);
        let now = match play.task.work {
            Work::Orders => bench.finished_orders(play),
            _ => bench.finished_of(play),
        };
        let Some(now) = now.filter(|now| *now > done) else {
            continue;
        };
        done = now;
        // The CPU time of a side that has ended cannot be read.
        if running.cpu().is_err() {
            continue;
        }
        let moment = Moment::now(bench, running, done)?;
        last = Some(moment);
        if start.is_none() && done * 10 >= total * first_tenths {
            start = Some(moment);
        } else if end.is_none() && done * 10 >= total * 9 {
            end = Some(moment);
        }
    }
    if matches!(play.task.work, Work::Foreign | Work::Orders) {
        // The results of the last records are still on their way through internal topics.
        let last = last_result(bench, play, running)?;
        if play.task.work == Work::Foreign {
            end = Some(last);
        }
    }
    let end = end.or(last.filter(|last| start.is_some_and(|s| s.records < last.records)));
    start.zip(end).context(TOO_FEW)
}

const TOO_FEW: &str = "too few commits to measure anything: use more --records";

/// The time without new records after which an output is complete.
const STILL: Duration = Duration::from_secs(3);

/// Returns the moment of the last result.
fn last_result(bench: &mut Bench, play: &Play, running: &mut Running) -> Result<Moment> {
    let (mut ends, mut last) = (Vec::new(), None);
    let began = Instant::now();
    loop {
        running.check()?;
        ensure!(began.elapsed() < PATIENCE, "results come for too long");
        let now = bench
            .client
            .end_offsets(&play.task.output, Isolation::ReadCommitted)?;
        match last {
            Some(moment) if now == ends => {
                let moment: Moment = moment;
                if moment.time.elapsed() >= STILL {
                    return Ok(moment);
                }
            }
            _ => {
                ends = now;
                last = Some(Moment::now(bench, running, play.task.records)?);
            }
        }
        std::thread::sleep(LOOK);
    }
}

impl Outcome {
    pub(crate) fn json(&self, work: Work, records: u64) -> Value {
        json!({
            "benchmark": work.name(),
            "side": self.side.name(),
            "round": self.round,
            "records": records,
            "records_per_second": self.records_per_second.round(),
            "cpu_us_per_record": rounded(self.cpu_us),
            "broker_cpu_us_per_record": self.broker_cpu_us.map(rounded),
            "database_cpu_us_per_record": self.database_cpu_us.map(rounded),
            "peak_mib": rounded(self.peak_mib),
            "files": rounded(self.files),
            "foreign_cpu_percent": self.foreign_percent.map(rounded),
            "outputs": self.outputs,
            "commit_ms": self.phases,
            "verified": true,
        })
    }
}

impl Results {
    /// Returns the sides, in the order of comparison.
    pub(crate) fn sides(&self) -> Vec<Side> {
        let mut sides: Vec<_> = self.outcomes.iter().map(|o| o.side).collect();
        sides.sort_unstable();
        sides.dedup();
        sides
    }

    /// Returns the outcomes of a side, by round.
    pub(crate) fn of(&self, side: Side) -> Vec<&Outcome> {
        self.outcomes.iter().filter(|o| o.side == side).collect()
    }

    /// Returns the median of one figure of a side.
    pub(crate) fn median(&self, side: Side, figure: fn(&Outcome) -> f64) -> f64 {
        median(self.of(side).into_iter().map(figure).collect())
    }

    /// Returns the ratios of the comparison whose two sides both ran.
    pub(crate) fn ratios(&self) -> Vec<Ratio> {
        let rate: fn(&Outcome) -> f64 = |o| o.records_per_second;
        let cpu: fn(&Outcome) -> f64 = |o| o.cpu_us;
        let wanted = [
            ("records/s, eos / bare", Side::Eos, Side::Bare, rate),
            ("CPU per record, eos / bare", Side::Eos, Side::Bare, cpu),
            ("records/s, eos / streams", Side::Eos, Side::Streams, rate),
            (
                "CPU per record, eos / streams",
                Side::Eos,
                Side::Streams,
                cpu,
            ),
            (
                "peak memory, eos / streams",
                Side::Eos,
                Side::Streams,
                |o| o.peak_mib,
            ),
            ("records/s, eos / connect", Side::Eos, Side::Connect, rate),
            (
                "CPU per record, eos / connect",
                Side::Eos,
                Side::Connect,
                cpu,
            ),
            (
                "peak memory, eos / connect",
                Side::Eos,
                Side::Connect,
                |o| o.peak_mib,
            ),
            (
                "records/s, exactly once / at least once",
                Side::Eos,
                Side::EosAtLeastOnce,
                rate,
            ),
            (
                "CPU per record, eos / without quarantine",
                Side::Eos,
                Side::EosUnguarded,
                cpu,
            ),
        ];
        let ratios = wanted
            .into_iter()
            .filter_map(|(name, ours, theirs, figure)| {
                let pairs = self.of(ours).into_iter().zip(self.of(theirs));
                let rounds: Vec<_> = pairs.map(|(a, b)| figure(a) / figure(b)).collect();
                (!rounds.is_empty()).then_some(Ratio { name, rounds })
            });
        ratios.collect()
    }
}
