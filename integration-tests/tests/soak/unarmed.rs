//! Programs without failpoints: `cargo xtask soak unarmed`.

use std::fs;

use anyhow::{Result, ensure};
use integration_tests::process::{Program, build};

/// A feature compiles faults in. Without it, a program contains none of their names.
#[test]
fn a_build_without_the_feature_holds_none_of_their_names() -> Result<()> {
    let plain = build("eos-examples", Program::Bin("02-enrich"), &[])?;
    let armed = Program::Example("two_outputs");
    let armed = build("integration-tests", armed, &["--features", "failpoints"])?;
    let (plain, armed) = (fs::read(plain)?, fs::read(armed)?);
    // Only some of the points, because librdkafka's own symbols contain `in_commit`.
    for name in [
        "EOS_FAILPOINTS",
        "kth_send",
        "pre_offsets",
        "every_touched_task",
    ] {
        let holds = |bytes: &[u8]| bytes.windows(name.len()).any(|at| at == name.as_bytes());
        ensure!(
            holds(&armed),
            "neither build contains {name}: was it renamed?"
        );
        ensure!(!holds(&plain), "a build without failpoints contains {name}");
    }
    Ok(())
}
