//! What a cluster leaves in the system while it runs: processes, ports, a directory.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kafka_launcher::{Cluster, ClusterOptions, skipped};

/// The traces of one cluster, to look for when it should be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traces {
    pub(crate) pids: Vec<u32>,
    pub(crate) ports: Vec<u16>,
    pub(crate) dir: PathBuf,
}

impl Traces {
    pub(crate) fn of(cluster: &Cluster) -> Traces {
        let port = |address: &str| {
            address
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse().ok())
        };
        Traces {
            pids: cluster.node_pids(),
            ports: cluster.bootstrap().split(',').filter_map(port).collect(),
            dir: cluster.dir().to_owned(),
        }
    }

    pub(crate) fn are_there(&self) -> bool {
        self.pids.iter().all(|pid| is_alive(*pid))
            && self.ports.iter().all(|port| is_open(*port))
            && self.dir.is_dir()
    }

    pub(crate) fn assert_gone(&self) {
        self.wait_until_dead(Duration::ZERO);
        assert!(!self.dir.exists(), "{} is still there", self.dir.display());
        let lock = self.dir.with_extension("lock");
        assert!(!lock.exists(), "{} is still there", lock.display());
    }

    /// Processes and ports; a kernel that kills takes a moment.
    pub(crate) fn wait_until_dead(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.pids.iter().any(|pid| is_alive(*pid)) || self.ports.iter().any(|p| is_open(*p)) {
            assert!(Instant::now() < deadline, "still alive: {self:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A zombie is dead: it only waits to be collected.
fn is_alive(pid: u32) -> bool {
    let state = state(pid);
    !state.is_empty() && !state.starts_with('Z')
}

/// The state letter of a process, from `/proc` where there is one: small systems have no `ps`.
fn state(pid: u32) -> String {
    if Path::new("/proc/self/stat").exists() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ");
        return after_name.map_or(String::new(), |(_, rest)| rest.to_owned());
    }
    let mut ps = std::process::Command::new("ps");
    let said = ps.args(["-o", "stat=", "-p", &pid.to_string()]).output();
    String::from_utf8_lossy(&said.unwrap().stdout)
        .trim()
        .to_owned()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// The cluster, or none if the test is to be skipped.
pub(crate) fn cluster(options: ClusterOptions) -> Option<Cluster> {
    if skip() {
        return None;
    }
    Some(Cluster::start(&options).unwrap_or_else(|error| panic!("{error:#}")))
}

/// Whether tests on a real Kafka are skipped.
pub(crate) fn skip() -> bool {
    skipped().unwrap_or_else(|error| panic!("{error:#}"))
}
