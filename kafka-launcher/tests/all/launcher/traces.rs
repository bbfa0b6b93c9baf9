//! A cluster's traces in the system: processes, ports, a directory.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kafka_launcher::{Cluster, ClusterOptions, skipped};

/// The traces of one cluster, which must disappear with the cluster.
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

    /// Waits until the processes and ports are gone. A kill by the kernel takes a moment.
    pub(crate) fn wait_until_dead(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.pids.iter().any(|pid| is_alive(*pid)) || self.ports.iter().any(|p| is_open(*p)) {
            assert!(Instant::now() < deadline, "still alive: {self:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns whether a process runs. A zombie is dead, and only waits to be collected.
fn is_alive(pid: u32) -> bool {
    let state = state(pid);
    !state.is_empty() && !state.starts_with('Z')
}

/// Returns the state letter of a process, from `/proc` if it exists, because small systems have no `ps`.
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

/// Returns the cluster, or `None` if the test is skipped.
pub(crate) fn cluster(options: ClusterOptions) -> Option<Cluster> {
    if skip() {
        return None;
    }
    Some(Cluster::start(&options).unwrap_or_else(|error| panic!("{error:#}")))
}

/// Returns whether tests on a real Kafka are skipped.
pub(crate) fn skip() -> bool {
    skipped().unwrap_or_else(|error| panic!("{error:#}"))
}
