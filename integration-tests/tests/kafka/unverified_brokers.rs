//! The app rejects brokers that do not verify transactions, because a late record could land outside its transaction.

use kafka_launcher::{ClusterOptions, own_for_tests};

use crate::common::{Case, With, says};
use anyhow::{Result, ensure};
use eos_core::Error;
use eos_core::errors::PreflightError;

#[test]
fn exactly_once_is_refused_and_at_least_once_is_not() -> Result<()> {
    let off = ("transaction.partition.verification.enable", "false");
    let options = ClusterOptions::default().property(off.0, off.1);
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(());
    };
    let mut case = Case::new(cluster.bootstrap(), "unverified")?;
    case.send(&["1", "2"])?;
    let error = case.failure_of(case.copy())?;
    ensure!(
        matches!(error, Error::Preflight(PreflightError::NotVerified)),
        "{error:?}"
    );
    says(&error, &[off.0, "Enable it"])?;

    case.run_to(case.copy().with("processing.guarantee", "at_least_once"), 2)?;
    ensure!(case.output()? == ["1", "2"]);
    Ok(())
}
