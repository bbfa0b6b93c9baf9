//! What the build and the local Kafka need from the system: found, installed, or asked for.
//!
//! ```text
//! needs   what is there ──► plan   nothing | install | tell   (a pure function)
//!                             └── this module does it
//! ```
//!
//! As root on Debian and Ubuntu it installs; elsewhere it prints the one command that does and
//! fails. It never changes what is there already, and says nothing when nothing is missing.
//! A linker (`cc`) cannot be its business: cargo needs one to build this very program.

mod libclang;
mod needs;
mod plan;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{kafka, os, run};
use plan::{Manager, Plan};

pub use needs::Need;

/// A JDK over a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(1800);

/// `cargo xtask setup`: the system's part, then Kafka's jars.
///
/// # Errors
/// As [`ensure`], or when the jars cannot be downloaded.
pub fn everything() -> Result<()> {
    ensure(Need::ALL)?;
    kafka::prepare()?;
    Ok(())
}

/// Sees to it that all of this is there.
///
/// # Errors
/// When something is missing that could not be installed. The message holds the command to run.
pub fn ensure(needs: &[Need]) -> Result<()> {
    match decide(&missing(needs)) {
        Plan::Nothing => Ok(()),
        Plan::Install(packages) => install(&packages, needs),
        Plan::Tell(text) => bail!(text),
    }
}

/// What of this is not there.
pub fn missing(needs: &[Need]) -> Vec<Need> {
    needs
        .iter()
        .copied()
        .filter(|need| !need.is_met())
        .collect()
}

/// What [`ensure`] would install, or ask the user to install, in words. None if all is there.
pub fn advice(needs: &[Need]) -> Option<String> {
    match decide(&missing(needs)) {
        Plan::Nothing => None,
        Plan::Install(packages) => Some(format!(
            "`cargo xtask setup` installs {}",
            packages.join(", ")
        )),
        Plan::Tell(text) => Some(text),
    }
}

fn decide(missing: &[Need]) -> Plan {
    plan::plan(missing, Manager::of_this_system(), os::is_root())
}

fn install(packages: &[String], needs: &[Need]) -> Result<()> {
    eprintln!("Installing {} with apt-get (once)", packages.join(", "));
    apt(&["update".to_owned()])?;
    let mut arguments: Vec<_> = ["install", "--yes", "--no-install-recommends"]
        .map(str::to_owned)
        .into();
    for package in packages {
        arguments.push(if package == plan::APT_JDK {
            apt_jdk()?
        } else {
            package.clone()
        });
    }
    apt(&arguments)?;
    let still: Vec<_> = missing(needs).iter().map(|need| need.to_string()).collect();
    if !still.is_empty() {
        bail!(
            "apt-get ended well, but these are still not found: {}",
            still.join(", ")
        );
    }
    Ok(())
}

fn apt(arguments: &[String]) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    // Another apt may be at work, as after the boot of a fresh machine.
    apt.args(["-qq", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments);
    run::succeed(&mut apt, INSTALL_LIMIT).map(drop).context(
        "apt-get failed: mend its sources or the network, then run `cargo xtask setup` again",
    )
}

/// The distribution's name for a JDK that is new enough.
fn apt_jdk() -> Result<String> {
    let known = |package: &str| {
        let mut show = Command::new("apt-cache");
        show.args(["show", "--no-all-versions", package]);
        run::succeed(&mut show, Duration::from_secs(60)).is_ok_and(|said| said.contains("Package:"))
    };
    let chosen = plan::choose_jdk(known).context(
        "this distribution has no JDK 17 or newer: install one by hand and set JAVA_HOME",
    )?;
    Ok(chosen)
}
