//! The options of a cluster.

use std::path::PathBuf;

use crate::java::Compiler;

/// The options of a cluster. The defaults are one node, free ports and temporary data.
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
    /// Sets the number of nodes: 1, or 3 with replication 3 and two in-sync replicas.
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the first node's port. The other nodes use the following ports. The default is free ports.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Advertises these ports to clients, one for each node, instead of the nodes' own ports. A proxy that listens
    /// there must forward the connections. Brokers connect to each other directly.
    pub fn advertised_ports(mut self, ports: Vec<u16>) -> Self {
        self.advertised_ports = ports;
        self
    }

    /// Listens only on `[::1]`, instead of `127.0.0.1`.
    pub fn ipv6_only(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        usize::from(self.nodes)
    }

    /// Sets a broker property, which overrides the launcher's own value.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((key.into(), value.into()));
        self
    }

    /// Keeps all files in this directory, which must be absent or empty. The directory is not removed.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Sets the heap of each JVM, in MB. The default is 256 MB.
    pub fn heap_mb(mut self, megabytes: u32) -> Self {
        self.heap_mb = megabytes;
        self
    }

    /// Sets the compilers of the JVMs. Measurements need [`Compiler::Full`].
    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = compiler;
        self
    }

    /// Keeps the brokers running when this process is killed, for a cluster that is to be detached.
    pub fn outlives_owner(mut self) -> Self {
        self.outlives_owner = true;
        self
    }
}
