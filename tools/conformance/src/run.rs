//! Every scenario on both brokers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::world::{Scenario, World};

/// A scenario that takes longer is named.
const SLOW: Duration = Duration::from_secs(4);

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    rows: BTreeMap<&'static str, Row>,
    /// Every difference, in words.
    pub wrong: Vec<String>,
}

#[derive(Debug, Default)]
struct Row {
    scenarios: usize,
    right: BTreeMap<&'static str, usize>,
}

/// Runs scenarios against brokers, each named.
///
/// A scenario that cannot be finished counts as wrong; the others go on.
pub fn compare(scenarios: &[Scenario], brokers: &[(&'static str, String)], mark: &str) -> Report {
    let mut report = Report::default();
    for (number, scenario) in scenarios.iter().enumerate() {
        for (broker, address) in brokers {
            let name = format!("c{mark}-{number}");
            let start = Instant::now();
            let wrong = one(scenario, address, &name);
            if start.elapsed() > SLOW {
                let (group, name) = (scenario.group, scenario.name);
                println!("{broker}: {group}: {name} took {:.1?}", start.elapsed());
            }
            let row = report.rows.entry(scenario.group).or_default();
            *row.right.entry(broker).or_default() += usize::from(wrong.is_empty());
            for line in wrong {
                let (group, name) = (scenario.group, scenario.name);
                report
                    .wrong
                    .push(format!("{broker}: {group}: {name}: {line}"));
            }
        }
        report.rows.entry(scenario.group).or_default().scenarios += 1;
    }
    report
}

fn one(scenario: &Scenario, address: &str, name: &str) -> Vec<String> {
    match World::new(address, name) {
        Ok(world) => {
            let end = (scenario.run)(&world);
            world.differences(end)
        }
        Err(error) => vec![format!("{error:#}")],
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut all, mut right) = (0, BTreeMap::<&str, usize>::new());
        for (group, row) in &self.rows {
            write!(f, "| {group} | {} |", row.scenarios)?;
            for (broker, count) in &row.right {
                write!(f, " {broker} {count} |")?;
                *right.entry(broker).or_default() += count;
            }
            writeln!(f)?;
            all += row.scenarios;
        }
        write!(f, "| all | {all} |")?;
        for (broker, count) in &right {
            write!(f, " {broker} {count} |")?;
        }
        writeln!(f)
    }
}
