//! Many partitions and tasks in one process.
//!
//! The sides and the numbers of partitions alternate on one broker, so that a ratio compares runs of one round.

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::lifecycle::{self, Lifecycle};
use crate::options::Options;
use crate::records::KEYS;
use crate::side::Side;
use crate::stats::median;
use crate::streams::Streams;
use crate::throughput::{self, Outcome, alternating};
use crate::work::Work;

/// The sides that are compared.
pub(crate) const SIDES: [Side; 2] = [Side::Eos, Side::Streams];

/// The numbers of partitions of each work.
const MAP: [i32; 4] = [6, 32, 128, 512];
const COUNT: [i32; 6] = [6, 12, 32, 128, 200, 500];

/// The runs of one work.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) work: Work,
    pub(crate) records: u64,
    /// By number of partitions, then by side.
    pub(crate) rows: Vec<Row>,
}

/// The runs of one side with one number of partitions.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) side: Side,
    pub(crate) partitions: i32,
    /// By round.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) lifecycle: Lifecycle,
}

impl Row {
    /// Returns the median of a figure over the rounds.
    pub(crate) fn median(&self, figure: fn(&Outcome) -> f64) -> f64 {
        median(self.outcomes.iter().map(figure).collect())
    }
}

impl Results {
    /// Returns the records/s of a row divided by those of the first row of its side, by round.
    pub(crate) fn ratios(&self, row: &Row) -> Vec<f64> {
        let first = self.rows.iter().find(|it| it.side == row.side);
        let first = first.map_or(&[][..], |it| &it.outcomes);
        let pairs = row.outcomes.iter().zip(first);
        pairs
            .map(|(this, first)| this.records_per_second / first.records_per_second)
            .collect()
    }
}

/// Measures each work with each number of partitions.
pub(crate) fn run(sides: &[Side], options: &Options) -> Result<Vec<Results>> {
    let works = options.works(&[Work::Map, Work::Count]).into_iter();
    works.map(|work| of(work, sides, options)).collect()
}

fn of(work: Work, sides: &[Side], options: &Options) -> Result<Results> {
    let usual = if work == Work::Map { &MAP[..] } else { &COUNT };
    let numbers = options.partitions.clone().unwrap_or(usual.to_vec());
    let records = options.records.unwrap_or(5_000_000);
    let most = numbers.iter().copied().max().unwrap_or(0);
    ensure!(
        records.min(KEYS) >= 20 * u64::from(most.unsigned_abs()),
        "{records} records are too few for {most} partitions: each needs some keys"
    );
    let streams = match sides.contains(&Side::Streams) {
        true => Some(Streams::build(
            options.warm_up.min(records),
            options.heap_mb(Some(work)),
        )?),
        false => None,
    };
    let mut bench = Bench::open(most)?;
    let (mut inputs, mut rows) = (Vec::new(), Vec::new());
    for &partitions in &numbers {
        bench.partitions = partitions;
        inputs.push(bench.filled(&format!("{}-{partitions}-in", work.name()), work, records)?);
        for &side in sides {
            rows.push(Row {
                side,
                partitions,
                outcomes: Vec::new(),
                lifecycle: Lifecycle::default(),
            });
        }
    }
    let warm_up = options.warm_up_rounds;
    for turn in 0..warm_up + options.rounds.unwrap_or(3) {
        let round = (turn + 1).saturating_sub(warm_up);
        for side in alternating(sides, turn) {
            // As in the throughput benchmark, the faster side warms the broker.
            if round == 0 && side == Side::Streams {
                continue;
            }
            for (&partitions, input) in numbers.iter().zip(&inputs) {
                let name = format!("{}-{partitions}-{}-{turn}", work.name(), side.name());
                eprintln!("{}, {partitions} partitions: round {round}", side.name());
                bench.partitions = partitions;
                let play = bench.play(side, &name, input, work, records, options.interval())?;
                let outcome = throughput::one(&mut bench, &play, streams.as_ref(), round)
                    .with_context(|| format!("{name}, round {round}"))?;
                bench.clear(&play)?;
                let row = rows
                    .iter_mut()
                    .find(|row| round > 0 && (row.side, row.partitions) == (side, partitions));
                if let Some(row) = row {
                    let mut json = outcome.json(work, records);
                    json["partitions"] = partitions.into();
                    println!("{json}");
                    row.outcomes.push(outcome);
                }
            }
        }
    }
    let cold = Streams::build(0, options.heap_mb(Some(work)));
    let cold = streams.is_some().then_some(cold).transpose()?;
    for row in &mut rows {
        bench.partitions = row.partitions;
        eprintln!(
            "{}, {} partitions: start and rebalance",
            row.side.name(),
            row.partitions
        );
        row.lifecycle = lifecycle::run(&mut bench, row.side, work, options, cold.as_ref())?;
        println!("{}", row.lifecycle.json(row.side, work, row.partitions));
    }
    Ok(Results {
        work,
        records,
        rows,
    })
}
