//! The ledger of an app at its start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::preflight::{Partitions, PreflightError};
use crate::boundary::{Books, LedgerFailure, Plan};
use crate::config::Settings;
use crate::topology::Topology;

/// The least time for the check of the ledger, even if the check of the topics has used up the time of the start.
const LEAST: Duration = Duration::from_secs(1);

/// Checks the ledger of the app, if it has one. `since` is the time at which the start began.
pub(super) fn books(
    topology: &Topology,
    settings: &Settings,
    partitions: &Partitions,
    owner: u64,
    since: Instant,
) -> Result<Option<Arc<Books>>, PreflightError> {
    let Some(ledger) = topology.ledger() else {
        return Ok(None);
    };
    let topics = partitions.inputs.keys();
    let names = topology.output_names();
    let plan = Plan {
        app: settings.app.to_string(),
        cluster_id: partitions.cluster.clone(),
        topics: topics
            .map(|topic| (topic.clone(), partitions.ids.get(topic).copied()))
            .collect(),
        dead_letters: (0..names.len())
            .filter(|&at| topology.is_dead_letter(at))
            .collect(),
        places: names.iter().map(ToString::to_string).collect(),
        transaction_timeout: settings.transaction_timeout,
    };
    let within = settings.start_deadline.saturating_sub(since.elapsed());
    let begun = Instant::now();
    let checked = ledger.check(&plan, within.max(LEAST));
    check(checked, ledger.name(), begun.elapsed())?;
    Ok(Some(Arc::new(Books {
        ledger: Arc::clone(ledger),
        plan,
        drivers: (topology.stages().iter())
            .flat_map(|stage| {
                let (driving, others) = (stage.driving_topic(), stage.topics.iter().skip(1));
                others.map(|topic| (topic.clone(), driving.clone()))
            })
            .collect(),
        first_start: settings.first_start,
        owner,
    })))
}

fn check(
    checked: crate::boundary::Answer,
    ledger: String,
    waited: Duration,
) -> Result<(), PreflightError> {
    let Err(source) = checked else {
        return Ok(());
    };
    Err(match source.failure {
        LedgerFailure::Retriable => PreflightError::LedgerUnavailable {
            ledger,
            waited_s: waited.as_secs(),
            source,
        },
        _ => PreflightError::LedgerUnfit { ledger, source },
    })
}
