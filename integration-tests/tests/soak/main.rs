//! Tests that compile the programs again, with the features that users have: `cargo xtask soak shipped`.
//!
//! `cargo test` leaves this target out (`test = false`): what it compiles, it compiles for minutes.

use std::fs;

use anyhow::{Result, ensure};
use integration_tests::process::{Program, build};

/// Faults are compiled in by a feature, and nothing of them is there without it.
#[test]
fn a_build_without_the_feature_holds_none_of_their_names() -> Result<()> {
    let plain = build("eos-examples", Program::Bin("02-enrich"), &[])?;
    let armed = Program::Example("two_outputs");
    let armed = build("integration-tests", armed, &["--features", "failpoints"])?;
    let (plain, armed) = (fs::read(plain)?, fs::read(armed)?);
    // Not all of the points: `in_commit` is a part of librdkafka's own symbols.
    for name in [
        "EOS_FAILPOINTS",
        "kth_send",
        "pre_offsets",
        "every_touched_task",
    ] {
        let holds = |bytes: &[u8]| bytes.windows(name.len()).any(|at| at == name.as_bytes());
        ensure!(
            holds(&armed),
            "{name} is in neither build: what is it called now?"
        );
        ensure!(!holds(&plain), "{name} is in a build without failpoints");
    }
    Ok(())
}
