//! `docker-compose.yml` works, shown without Docker: the image's own set-up program configures
//! brokers from it, and they run.

use xtask::kafka;

fn prove(nodes: u8) {
    if let Some(why) = skip() {
        eprintln!("SKIPPED, needs a local Kafka: {why}");
        return;
    }
    kafka::prove_compose(nodes).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Continuous integration may not skip.
fn skip() -> Option<String> {
    let why = kafka::missing()?;
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "CI must not skip: {why}"
    );
    Some(why)
}

#[test]
fn the_one_node_service_becomes_a_working_broker() {
    prove(1);
}

#[test]
fn the_three_services_become_a_working_cluster() {
    prove(3);
}
