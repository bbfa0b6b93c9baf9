//! Finds or installs the tools that the build and the local Kafka need from the system.
//!
//! ```text
//! needs   the missing tools ──► plan   nothing | install | tell   (a pure function)
//!                                 └── executed by this module
//! ```
//!
//! As root on Debian and Ubuntu, it installs missing tools. Elsewhere it prints the one command that installs them and
//! fails, unless only optional tests need them. It never changes installed tools, and prints nothing if no tool is
//! missing. It cannot install a linker (`cc`), because cargo needs one to build this very program.

mod libclang;
mod needs;
mod plan;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kafka_launcher::{os, run};

use plan::{Manager, Plan};

pub(crate) use needs::Need;

/// The time limit of an installation, long enough for a JDK over a slow connection.
const INSTALL_LIMIT: Duration = Duration::from_secs(1800);

/// Runs `cargo xtask setup`: installs the tools of the system, then downloads Kafka's jars.
///
/// # Errors
/// As [`ensure`], or when the jars cannot be downloaded.
pub(crate) fn everything() -> Result<()> {
    ensure(Need::ALL)?;
    install_optional();
    kafka_launcher::download()
}

/// Installs tools that only some tests need. Without these tools the tests are skipped, so a failure is not an error.
fn install_optional() {
    if let Err(error) = ensure(Need::OPTIONAL) {
        eprintln!("Some tests will be skipped. {error:#}");
    }
}

/// Installs the missing tools.
///
/// # Errors
/// When a missing tool cannot be installed. The message has the command to run.
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

/// Returns the missing tools.
pub(crate) fn missing(needs: &[Need]) -> Vec<Need> {
    let needs = needs.iter().copied();
    needs.filter(|need| !need.is_met()).collect()
}

fn install(needs: &[Need]) -> Result<()> {
    let names: Vec<_> = needs.iter().map(|need| need.to_string()).collect();
    eprintln!("Installing {} with apt-get (once)", names.join(", "));
    apt(&["update".to_owned()])?;
    // On a fresh machine, apt has no list of packages before the update.
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
    // Another apt may be running, as after the boot of a fresh machine.
    apt.args(["-qq", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments);
    run::succeed(&mut apt, INSTALL_LIMIT).map(drop).context(
        "apt-get failed: mend its sources or the network, then run `cargo xtask setup` again",
    )
}

/// Returns the name of a new enough JDK package, if apt has one.
fn apt_jdk() -> Option<String> {
    plan::choose_jdk(|package| {
        let mut show = Command::new("apt-cache");
        show.args(["show", "--no-all-versions", package]);
        let said = run::succeed(&mut show, Duration::from_secs(60));
        said.is_ok_and(|said| said.contains("Package:"))
    })
}
