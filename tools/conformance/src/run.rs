//! Runs every scenario on both brokers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::world::{Scenario, World};

/// The duration above which a scenario is printed.
const SLOW: Duration = Duration::from_secs(4);

/// The results of all scenarios.
#[derive(Debug, Default)]
pub struct Report {
    rows: BTreeMap<&'static str, Row>,
    /// The description of every difference.
    pub wrong: Vec<String>,
}

#[derive(Debug, Default)]
struct Row {
    scenarios: usize,
    right: BTreeMap<&'static str, usize>,
}

/// Runs scenarios on brokers, each with its name.
///
/// A scenario that ends with an error counts as wrong, and the other scenarios still run.
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
