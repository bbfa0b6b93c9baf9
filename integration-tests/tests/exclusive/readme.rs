//! Runs every command of the README, in order.
//!
//! The commands that create a crate run only with `EOS_FULL=1` (`cargo xtask soak readme`). Without it, the tested
//! `eos` replaces the installed one.
//!
//! (Its Rust code is a documentation test of `eos-core`.)

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use integration_tests::user::{INSTALL, Pipeline, User, blocks};
use kafka_launcher::skipped;
use kafka_wire::{Client, Isolation};

const PATIENCE: Duration = Duration::from_secs(60);
const CITIES: usize = 100_000;
/// From this command on, the README creates a crate.
const OWN_CRATE: &str = "cargo new ../pricing";

const PIPELINES: [Pipeline<'static>; 2] = [
    Pipeline {
        bin: "01-hello",
        app: "hello-v1",
        inputs: &["cities"],
        own_outputs: &[],
        results: &[],
    },
    Pipeline {
        bin: "pricing",
        app: "pricing-v1",
        inputs: &["orders"],
        own_outputs: &[],
        results: &[],
    },
];

#[test]
fn every_command_does_what_it_says() -> Result<()> {
    let _alone = crate::alone();
    let readme = fs::read_to_string(kafka_launcher::workspace_root().join("README.md"))?;
    let commands = blocks(&readme, "sh").concat();
    ensure!(
        commands.lines().count() >= 12,
        "the README lost its commands: {commands}"
    );
    let rust = concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"), " or newer");
    ensure!(readme.contains(rust), "the README does not ask for {rust}");
    ensure!(
        commands.lines().any(|it| it == INSTALL),
        "the README lacks {INSTALL}"
    );
    if skipped()? {
        return Ok(());
    }
    let user = User::new(&PIPELINES)?;
    // The created crate compiles with other features than the workspace, which takes many minutes.
    let own_crate = integration_tests::faults::is_full();
    let ours = commands.lines().take_while(|it| *it != OWN_CRATE).count();
    ensure!(
        ours < commands.lines().count(),
        "the README lacks {OWN_CRATE}"
    );
    for command in commands
        .lines()
        .take(if own_crate { usize::MAX } else { ours })
    {
        eprintln!("$ {command}");
        let said = user.run(command)?;
        check(&user, &readme, command, &said)
            .with_context(|| format!("after `{command}`, which said:\n{said}"))?;
    }
    match own_crate {
        true => configured(&user, &readme),
        false => Ok(()),
    }
}

/// Tests the examples of the chapter on configuration.
fn configured(user: &User<'_>, readme: &str) -> Result<()> {
    let chapter = readme.split("\n## Configuration\n").nth(1);
    let blocks = blocks(chapter.context("it is there")?, "text");
    let [file, environment, ..] = &blocks[..] else {
        bail!("it lost its examples: {blocks:?}");
    };
    let path = user.beside("eos.properties").display().to_string();
    fs::write(&path, file)?;
    let variables = environment.lines().filter_map(|line| line.split_once('='));
    let mut variables: Vec<_> = variables.collect();
    ensure!(!variables.is_empty(), "{environment}");
    variables.push(("EOS_CONFIG_FILE", &path));
    user.run_with(
        &variables,
        "cargo run --manifest-path ../pricing/Cargo.toml",
    )?;
    Ok(())
}

/// Checks the output of a command.
fn check(user: &User<'_>, readme: &str, command: &str, said: &str) -> Result<()> {
    match command {
        "cargo xtask demo" => ensure!(said.contains("lost") && said.contains("doubled")),
        "cargo xtask test" => ensure!(said.contains(" passed, 0 failed")),
        "cargo new ../pricing" => write_pricing(user, readme)?,
        "cargo run -p eos-examples --bin 01-hello" => {
            ensure!(said.contains("embedded broker") && said.contains(":Hello, "));
        }
        "cargo run -p eos-examples --bin 01-hello -- --kafka" => {
            let mut greeted = 0;
            let mut client = Client::connect(&user.bootstrap()?, PATIENCE)?;
            client.read_all("greetings", Isolation::ReadCommitted, |_, _| greeted += 1)?;
            ensure!(greeted == CITIES, "{greeted} greetings for {CITIES} cities");
        }
        "eos kafka read greetings | head -3" => {
            ensure!(said.matches(":Hello, ").count() == 3);
        }
        // The README shows the output of this command below it.
        "eos kafka read orders-priced" => {
            let shown = readme.split(command).nth(1).context("it is there")?;
            let shown = blocks(shown, "text").into_iter().next();
            ensure!(shown.as_deref() == Some(said), "the README shows {shown:?}");
        }
        _ => {}
    }
    Ok(())
}

/// Writes the contents of the new crate as the README describes: its dependencies, and the program at the top.
fn write_pricing(user: &User<'_>, readme: &str) -> Result<()> {
    let dir = user.beside("pricing");
    let first = |kind| {
        let found = blocks(readme, kind).into_iter().next();
        found.with_context(|| format!("no block of {kind}"))
    };
    let manifest = dir.join("Cargo.toml");
    let generated = fs::read_to_string(&manifest)?;
    ensure!(generated.contains("[dependencies]\n"), "{generated}");
    let dependencies = first("toml")?;
    fs::write(
        manifest,
        generated.replace("[dependencies]\n", &dependencies),
    )?;
    Ok(fs::write(dir.join("src/main.rs"), first("rust,no_run")?)?)
}
