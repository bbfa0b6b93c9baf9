//! Free ports on the loopback interface.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

use crate::ids;

/// The range of ports, below the ports that kernels assign to outgoing connections (Linux: from 32768).
///
/// Port 0 would select one of those. A client that keeps reconnecting to a stopped broker may then get the broker's own
/// port as its local port. It is then connected to itself, and the broker cannot start again. This happened with every
/// client that retries on the loopback interface.
const RANGE: std::ops::Range<u64> = 10_000..32_768;

/// Returns `count` different ports on which no process listens now.
///
/// Another process may still take one before the broker binds it. The launcher then starts over.
///
/// # Errors
/// If too few ports are free.
pub fn free(count: usize) -> Result<Vec<u16>> {
    // All ports stay bound until the end, so that no port is returned twice.
    let mut held: Vec<(u16, TcpListener)> = Vec::new();
    for _ in 0..1000 {
        if held.len() == count {
            return Ok(held.into_iter().map(|(port, _)| port).collect());
        }
        let port = (RANGE.start + ids::random() % (RANGE.end - RANGE.start)) as u16;
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|socket| (port, socket)));
    }
    bail!(
        "no {count} free ports between {} and {} on 127.0.0.1",
        RANGE.start,
        RANGE.end
    );
}

/// Returns whether a broker could listen on this port now.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn ports_are_distinct_and_bindable() {
        let mut ports = free(6).unwrap();
        // A child that another test has forked holds all sockets until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !ports.iter().all(|port| is_free(*port)) {
            assert!(Instant::now() < deadline, "{ports:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 6);
    }

    #[test]
    fn a_port_in_use_is_not_free() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(taken.local_addr().unwrap().port()));
    }
}
