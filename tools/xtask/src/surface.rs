//! `cargo xtask surface`: checks of documentation and public API.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Result, ensure};

use crate::cargo::{cargo, exit_code, run};
use crate::setup::{self, Need};

/// The crates that users depend on.
const CRATES: [&str; 2] = ["eos-core", "eos-testkit"];

/// The commit with which the API is compared. Update it with each release and each intended breaking change. A breaking
/// change also needs an entry in CHANGELOG.md.
const BASELINE: &str = "bb4cad0746d72be30b4accb7b18a2e8d3c1f85d0";

/// Feature sets of `eos-core`. Links between pages must work in each. The other features, `ssl` and `gssapi`, need
/// libraries of the system and add no item.
const FEATURE_SETS: [&[&str]; 4] = [
    &["--no-default-features"],
    &["--no-default-features", "--features=kafka"],
    &["--no-default-features", "--features=kafka,rocksdb"],
    &[
        "--no-default-features",
        "--features=kafka,rocksdb,prometheus,failpoints",
    ],
];

/// Runs all checks, and continues after a failure.
///
/// # Errors
/// If a tool is missing and cannot be installed, or cargo cannot be run.
pub(crate) fn check() -> Result<ExitCode> {
    setup::ensure(Need::BUILD)?;
    let mut is_clean = true;
    for features in FEATURE_SETS {
        println!("\n=== cargo doc -p eos-core {}", features.join(" "));
        let mut doc = cargo();
        doc.args(["doc", "--no-deps", "-p", "eos-core"])
            .args(features)
            .env("RUSTDOCFLAGS", "-Dwarnings");
        is_clean &= run(&mut doc)? == ExitCode::SUCCESS;
    }
    install()?;
    for name in CRATES {
        println!("\n=== cargo semver-checks -p {name} --baseline-rev {BASELINE}");
        let mut semver = cargo();
        semver
            .args(["semver-checks", "-p", name, "--baseline-rev", BASELINE])
            .args(["--only-explicit-features", "--release-type=patch"])
            // With a shared directory, both versions would write the same files, and the tool would compare one version
            // with itself.
            .env_remove("CARGO_TARGET_DIR");
        is_clean &= run(&mut semver)? == ExitCode::SUCCESS;
    }
    Ok(exit_code(is_clean))
}

/// Installs `cargo-semver-checks` if it is missing.
fn install() -> Result<()> {
    let mut version = cargo();
    version
        .args(["semver-checks", "--version"])
        .stdout(Stdio::null());
    if version.stderr(Stdio::null()).status()?.success() {
        return Ok(());
    }
    println!("\n=== cargo install --locked cargo-semver-checks");
    let mut install: Command = cargo();
    install.args(["install", "--locked", "cargo-semver-checks"]);
    ensure!(
        install.status()?.success(),
        "cargo-semver-checks could not be installed: see the output of cargo above"
    );
    Ok(())
}
