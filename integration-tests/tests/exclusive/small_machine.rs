//! A machine with 256 file handles and one processor: four workers do their work on it and stop.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::Result;
use integration_tests::fleet::Fleet;
use integration_tests::judge::{Expectation, Question};
use integration_tests::kill::Load;
use integration_tests::process::{Program, build};
use integration_tests::wait::{is_through, wait_until};
use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::Client;

const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn few_file_handles_and_one_processor_are_enough() -> Result<()> {
    let _alone = crate::alone();
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in OUTPUTS.iter().chain([&"cities"]) {
        client.create_topic(topic, 12, 1, &[])?;
    }
    let dir = tempfile::tempdir()?;
    let enrich = build("eos-examples", Program::Bin("02-enrich"), &[])?;
    let small = dir.path().join("small");
    let script = format!(
        "#!/bin/sh\nulimit -n 256 || exit 9\nexec taskset -c 0 '{}'\n",
        enrich.display()
    );
    fs::write(&small, script)?;
    fs::set_permissions(&small, fs::Permissions::from_mode(0o755))?;
    let state = dir.path().join("state").display().to_string();
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", state),
        ("WORKERS", "4".to_owned()),
    ];
    let mut fleet = Fleet::new(&small, environment, &dir.path().join("logs"))?;
    fleet.start()?;
    let generator = env!("CARGO_BIN_EXE_generator").as_ref();
    let mut load = Load::start(generator, bootstrap, "cities", 20_000, 10_000)?;
    load.finish()?;
    wait_until(PATIENCE, "all of the input is committed", || {
        fleet.check()?;
        is_through(&mut client, "enrich-v1", "cities")
    })?;
    fleet.stop(0, Signal::Term)?;
    Question::of_app(
        bootstrap,
        "enrich-v1",
        "cities",
        &OUTPUTS.map(str::to_owned),
    )
    .must_be_clean(Expectation::Finished)
}
