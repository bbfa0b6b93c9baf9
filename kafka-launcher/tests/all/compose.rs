//! A check of `docker-compose.yml` without Docker.
//!
//! The image's own setup program configures brokers from the file, and they run.

use kafka_launcher::{prove_compose, skipped};

fn prove(nodes: u8) {
    if skipped().unwrap_or_else(|error| panic!("{error:#}")) {
        return;
    }
    prove_compose(nodes).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn the_one_node_service_becomes_a_working_broker() {
    prove(1);
}

#[test]
fn the_three_services_become_a_working_cluster() {
    prove(3);
}
