//! Brokers that listen only on an IPv6 address.

use std::net::TcpListener;

use kafka_launcher::{ClusterOptions, own_for_tests, print_skipped};

use crate::common::Case;
use anyhow::{Result, ensure};

#[test]
fn brokers_that_listen_on_ipv6_only_are_brokers_like_others() -> Result<()> {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        print_skipped(&format!("this machine has no IPv6 loopback: {error}"));
        return Ok(());
    }
    let Some(cluster) = own_for_tests(&ClusterOptions::default().ipv6_only())? else {
        return Ok(());
    };
    let bootstrap = cluster.bootstrap();
    ensure!(bootstrap.starts_with("[::1]:"), "{bootstrap}");
    let port = bootstrap.rsplit(':').next().unwrap_or_default();
    let other = std::net::TcpStream::connect(format!("127.0.0.1:{port}"));
    ensure!(other.is_err(), "it listens on IPv4, too");

    let mut case = Case::new(bootstrap, "ipv6")?;
    case.send(&["1", "2", "3"])?;
    case.run_to(case.copy(), 3)?;
    // A second run, from the committed offset.
    case.send(&["4"])?;
    case.run_to(case.copy(), 4)?;
    ensure!(case.output()? == ["1", "2", "3", "4"]);
    case.nothing_is_open()
}
