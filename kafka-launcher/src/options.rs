//! What a caller may choose about a cluster.

use std::path::PathBuf;

use crate::java::Compiler;

/// One node on free ports with temporary data, unless told otherwise.
#[derive(Debug, Clone)]
#[must_use]
pub struct ClusterOptions {
    pub(crate) nodes: u8,
    pub(crate) port: Option<u16>,
    pub(crate) advertised_ports: Vec<u16>,
    pub(crate) ipv6: bool,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) heap_mb: u32,
    pub(crate) compiler: Compiler,
    pub(crate) outlives_owner: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions {
            nodes: 1,
            port: None,
            advertised_ports: Vec::new(),
            ipv6: false,
            properties: Vec::new(),
            data_dir: None,
            heap_mb: 256,
            compiler: Compiler::Quick,
            outlives_owner: false,
        }
    }
}

impl ClusterOptions {
    /// How many nodes: 1, or 3 with replication 3 and two in-sync replicas.
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// The first node's port; further nodes take the next ones. Free ones are chosen otherwise.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Tells clients these ports, one for each node, instead of those that the nodes listen on: what
    /// listens there passes everything on (a proxy). Brokers talk to each other directly.
    pub fn advertised_ports(mut self, ports: Vec<u16>) -> Self {
        self.advertised_ports = ports;
        self
    }

    /// Listens on `[::1]` and nowhere else, instead of `127.0.0.1`.
    pub fn ipv6_only(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// How many nodes there will be.
    pub fn count(&self) -> usize {
        usize::from(self.nodes)
    }

    /// Sets a broker property, over whatever the launcher would set.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((key.into(), value.into()));
        self
    }

    /// Keeps everything in this directory, which must be absent or empty, and leaves it there.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// The heap of each JVM; 256 MB otherwise.
    pub fn heap_mb(mut self, megabytes: u32) -> Self {
        self.heap_mb = megabytes;
        self
    }

    /// How the JVMs compile; [`Compiler::Full`] for whatever is measured.
    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = compiler;
        self
    }

    /// Lets the brokers live on when this process is killed: a cluster to be detached.
    pub fn outlives_owner(mut self) -> Self {
        self.outlives_owner = true;
        self
    }
}
