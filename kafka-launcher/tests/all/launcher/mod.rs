//! Clusters start, survive faults, and leave nothing behind.
#![allow(
    clippy::unwrap_used,
    reason = "the lint spares test functions, not what they share"
)]

mod owner;
mod traces;

use std::net::TcpListener;
use std::time::Duration;

use kafka_launcher::{ClusterOptions, StartError, smoke};
use owner::Owner;
use traces::{Traces, cluster, skip};

#[test]
fn one_node_works_and_is_gone_when_dropped() {
    let Some(cluster) = cluster(ClusterOptions::default()) else {
        return;
    };
    smoke(cluster.bootstrap(), 1).unwrap();
    let traces = Traces::of(&cluster);
    assert_eq!((traces.pids.len(), traces.ports.len()), (1, 1));
    assert!(traces.are_there());
    drop(cluster);
    traces.assert_gone();
}

#[test]
fn three_nodes_survive_a_kill_a_freeze_and_a_stop_of_one_each() {
    let Some(mut cluster) = cluster(ClusterOptions::default().nodes(3)) else {
        return;
    };
    let bootstrap = cluster.bootstrap().to_owned();
    smoke(&bootstrap, 3).unwrap();

    let before = cluster.node_pids();
    cluster.kill_node(2).unwrap();
    assert_eq!(cluster.node_pids().len(), 2);
    assert!(cluster.kill_node(2).is_err(), "it is down already");
    smoke(&bootstrap, 3).unwrap();
    cluster.start_node(2).unwrap();
    assert_ne!(cluster.node_pids(), before);

    cluster.freeze(3).unwrap();
    smoke(&bootstrap, 3).unwrap();
    cluster.thaw(3).unwrap();

    cluster.stop_node(1).unwrap();
    smoke(&bootstrap, 3).unwrap();
    cluster.start_node(1).unwrap();
    smoke(&bootstrap, 3).unwrap();

    assert!(cluster.start_node(1).is_err(), "it is up already");
    assert!(cluster.kill_node(4).is_err(), "there is no such node");
    let traces = Traces::of(&cluster);
    drop(cluster);
    traces.assert_gone();
}

#[test]
fn an_owner_that_is_killed_takes_its_brokers_along() {
    if skip() {
        return;
    }
    let mut owner = Owner::start();
    assert!(owner.traces.are_there());
    owner.kill();
    owner.traces.wait_until_dead(Duration::from_secs(10));
    // The directory stays for the next cluster.
    let next = cluster(ClusterOptions::default()).unwrap();
    owner.traces.assert_gone();
    drop(next);
}

/// Not a test by itself, but the process that the test above kills.
#[test]
fn owner_to_be_killed() {
    owner::be_one_if_asked();
}

#[test]
fn a_taken_port_is_named_with_the_brokers_own_words() {
    if skip() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let options = ClusterOptions::default().port(port);
    let error = kafka_launcher::Cluster::start(&options).unwrap_err();
    let text = error.to_string();
    assert!(matches!(
        error.downcast(),
        Ok(StartError::NodeEnded { node: 1, .. })
    ));
    assert!(
        text.contains("Its port is taken") && text.contains("broker.log"),
        "{text}"
    );
}

#[test]
fn a_directory_of_the_callers_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let Some(cluster) = cluster(ClusterOptions::default().data_dir(dir.path())) else {
        return;
    };
    let traces = Traces::of(&cluster);
    drop(cluster);
    traces.wait_until_dead(Duration::ZERO);
    let clean = dir.path().join("node-1/data/.kafka_cleanshutdown");
    assert!(clean.is_file(), "it was stopped in good order");
    let again = kafka_launcher::Cluster::start(&ClusterOptions::default().data_dir(dir.path()));
    assert!(again.unwrap_err().to_string().contains("not empty"));
}
