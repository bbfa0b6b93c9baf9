//! The same work with eos: bytes in, bytes out, one worker.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_core::{App, StopMode, Topic};

use crate::Work;
use crate::meter::{Measured, Meter};

/// How long a run may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(300);

/// Passes all records on.
pub(crate) fn run(work: &Work) -> Result<Measured> {
    let state = tempfile::tempdir()?;
    let mut app = App::new(&work.group)
        .commit_interval(work.commit_interval)
        .static_membership(false)
        .state_dir(state.path());
    app.source(&Topic::<Vec<u8>, Vec<u8>>::plain(&work.input))
        .to(&Topic::plain(&work.output));
    let mut running = app.start(&work.bootstrap)?;

    let handle = running.handle();
    let mut meter = Meter::new(work.records);
    let since = Instant::now();
    while handle.metrics().totals.records_in < work.records {
        ensure!(
            since.elapsed() < PATIENCE,
            "it takes too long: {:?}",
            handle.metrics()
        );
        std::thread::sleep(Duration::from_millis(5));
        meter.passed(handle.metrics().totals.records_in, None);
    }
    handle.stop(StopMode::Leave);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime
        .block_on(running.ended())
        .context("eos did not end well")?;
    Ok(meter.measured())
}
