//! What the build and the local Kafka need from the system: found, installed, or asked for.
//!
//! ```text
//! needs   what is there ──► plan   nothing | install | tell   (a pure function)
//!                             └── this module does it
//! ```
//!
//! As root on Debian and Ubuntu it installs; elsewhere it prints the one command that does and
//! fails, unless only optional tests need what is missing. It never changes what is there already, and says nothing when nothing is missing.
//! A linker (`cc`) cannot be its business: cargo needs one to build this very program.

mod libclang;
mod needs;
mod plan;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kafka_launcher::{os, run};

use plan::{Manager, Plan};

pub(crate) use needs::Need;

/// A JDK over a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(1800);

/// `cargo xtask setup`: the system's part, then Kafka's jars.
///
/// # Errors
/// As [`ensure`], or when the jars cannot be downloaded.
pub(crate) fn everything() -> Result<()> {
    ensure(Need::ALL)?;
    install_optional();
    kafka_launcher::download()
}

/// Installs what only some tests need. Those tests are skipped without it, so nothing fails here.
fn install_optional() {
    if let Err(error) = ensure(Need::OPTIONAL) {
        eprintln!("Some tests will be skipped. {error:#}");
    }
}

/// Sees to it that all of this is there.
///
/// # Errors
/// When something is missing that could not be installed. The message holds the command to run.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let missing = missing(needs);
    let manager = Manager::of_this_system();
    let jdk = || apt_jdk().unwrap_or_else(|| plan::DEFAULT_JDK.into());
    match plan::plan(&missing, manager, os::is_root(), jdk) {
        Plan::Nothing => Ok(()),
        Plan::Install => install(&missing),
        Plan::Tell(text) => bail!(text),
    }
}

/// What of this is not there.
pub(crate) fn missing(needs: &[Need]) -> Vec<Need> {
    let needs = needs.iter().copied();
    needs.filter(|need| !need.is_met()).collect()
}

fn install(needs: &[Need]) -> Result<()> {
    let names: Vec<_> = needs.iter().map(|need| need.to_string()).collect();
    eprintln!("Installing {} with apt-get (once)", names.join(", "));
    apt(&["update".to_owned()])?;
    // Only now does a fresh machine know its packages.
    let jdk = || apt_jdk().unwrap_or_else(|| plan::DEFAULT_JDK.into());
    let mut arguments = vec![
        "install".to_owned(),
        "--yes".into(),
        "--no-install-recommends".into(),
    ];
    arguments.extend(plan::packages(needs, Manager::Apt, jdk));
    apt(&arguments)?;
    let still: Vec<_> = missing(needs).iter().map(|need| need.to_string()).collect();
    if !still.is_empty() {
        bail!(
            "apt-get ended well, but these are still not found: {}. Install them by hand (for a JDK, set JAVA_HOME)",
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

/// The distribution's name for a JDK that is new enough, if it has one and says so.
fn apt_jdk() -> Option<String> {
    plan::choose_jdk(|package| {
        let mut show = Command::new("apt-cache");
        show.args(["show", "--no-all-versions", package]);
        let said = run::succeed(&mut show, Duration::from_secs(60));
        said.is_ok_and(|said| said.contains("Package:"))
    })
}
