//! The files and ports of a cluster, before it starts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::java::Compiler;
use crate::options::ClusterOptions;
use crate::{ids, ports};

/// The file with the process id, in a node's directory.
pub(crate) const PID_FILE: &str = "pid";

/// The plan of a cluster, which is enough to start it, and to start it again on the same data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// The directory with all files of this cluster.
    pub(crate) dir: PathBuf,
    pub(crate) cluster_id: String,
    pub(crate) nodes: Vec<NodeLayout>,
    /// Overrides of broker properties.
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) heap_mb: u32,
    pub(crate) compiler: Compiler,
}

/// One node: broker and controller in one JVM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeLayout {
    /// The Kafka node id: 1, 2, 3.
    pub id: u8,
    /// The port that clients connect to, of the node or of the proxy in front of it.
    pub port: u16,
    /// Whether the node listens on `[::1]` instead of `127.0.0.1`.
    #[serde(default)]
    pub(crate) ipv6: bool,
    /// The ports of a node behind a proxy, or `None` without a proxy.
    #[serde(default)]
    pub(crate) detour: Option<Detour>,
    /// The port of the controller.
    pub(crate) controller_port: u16,
    /// The settings, logs and data of this node.
    pub(crate) dir: PathBuf,
}

/// The ports of a node behind a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Detour {
    /// The proxy's port, for clients.
    pub(crate) advertised: u16,
    /// A separate port for the other brokers, at which the node advertises itself.
    pub(crate) between_brokers: u16,
}

impl Layout {
    /// Chooses ids and ports for a cluster under `dir`. Changes no file.
    pub(crate) fn plan(options: &ClusterOptions, dir: &Path) -> Result<Layout> {
        let count = usize::from(options.nodes);
        let advertised = &options.advertised_ports;
        ensure!(
            advertised.is_empty() || advertised.len() == count,
            "{} advertised ports for {count} nodes: give one for each",
            advertised.len()
        );
        ensure!(
            advertised.is_empty() || !options.ipv6,
            "proxies listen on 127.0.0.1: leave out either `advertised_ports` or `ipv6_only`"
        );
        let mut free = ports::free(3 * count)?.into_iter();
        let mut nodes = Vec::new();
        let controllers: Vec<_> = free.by_ref().take(count).collect();
        for (id, controller_port) in (1..=options.nodes).zip(controllers) {
            let offset = u16::from(id - 1);
            let fixed = options.port.map(|first| first.checked_add(offset));
            let port = match fixed {
                Some(port) => port.context("the last node's port would be above 65535")?,
                None => free.next().context("as many ports as requested")?,
            };
            let detour = match advertised.get(usize::from(offset)) {
                Some(&advertised) => Some(Detour {
                    advertised,
                    between_brokers: free.next().context("as many ports as requested")?,
                }),
                None => None,
            };
            nodes.push(NodeLayout {
                id,
                port,
                ipv6: options.ipv6,
                detour,
                controller_port,
                dir: dir.join(format!("node-{id}")),
            });
        }
        Ok(Layout {
            dir: dir.to_owned(),
            cluster_id: ids::uuid(),
            nodes,
            properties: options.properties.clone(),
            heap_mb: options.heap_mb,
            compiler: options.compiler,
        })
    }

    /// Returns the addresses of all nodes, as a bootstrap list.
    pub(crate) fn bootstrap(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(NodeLayout::advertised).collect();
        addresses.join(",")
    }
}

impl NodeLayout {
    /// Returns the host of its listeners, in URL form.
    pub(crate) fn host(&self) -> &'static str {
        if self.ipv6 { "[::1]" } else { "127.0.0.1" }
    }

    /// Returns the address on which this node listens.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host(), self.port)
    }

    /// Returns the address that this node advertises to clients.
    pub(crate) fn advertised(&self) -> String {
        let port = self.detour.map_or(self.port, |detour| detour.advertised);
        format!("{}:{port}", self.host())
    }

    /// Returns the directory of topic data and the metadata log.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the broker's log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("broker.log")
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.dir.join(PID_FILE)
    }

    pub(crate) fn properties(&self) -> PathBuf {
        self.dir.join("server.properties")
    }
}

#[cfg(test)]
impl Layout {
    /// Returns a layout in which all ports differ.
    pub(crate) fn example(nodes: u8) -> Layout {
        let node = |id: u8| NodeLayout {
            id,
            port: 10_000 + u16::from(id),
            ipv6: false,
            detour: None,
            controller_port: 20_000 + u16::from(id),
            dir: PathBuf::from(format!("/example/node-{id}")),
        };
        Layout {
            dir: "/example".into(),
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAg".into(),
            nodes: (1..=nodes).map(node).collect(),
            properties: Vec::new(),
            heap_mb: 256,
            compiler: Compiler::Quick,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_port_is_the_first_nodes_and_the_others_follow() {
        let options = ClusterOptions::default().nodes(3).port(9092);
        let layout = Layout::plan(&options, Path::new("/x")).unwrap();
        assert_eq!(
            layout.bootstrap(),
            "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
        );
        assert_eq!(layout.nodes[2].dir, Path::new("/x/node-3"));
    }

    #[test]
    fn no_port_is_planned_twice() {
        let options = ClusterOptions::default().nodes(3);
        let layout = Layout::plan(&options, Path::new("/x")).unwrap();
        let nodes = layout.nodes.iter();
        let mut ports: Vec<_> = nodes.flat_map(|n| [n.port, n.controller_port]).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 6);
    }

    #[test]
    fn clients_are_sent_to_the_advertised_ports() {
        let options = ClusterOptions::default().nodes(3);
        let options = options.advertised_ports(vec![1, 2, 3]);
        let layout = Layout::plan(&options, Path::new("/x")).unwrap();
        assert_eq!(layout.bootstrap(), "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        let nodes = layout.nodes.iter();
        let mut ports: Vec<_> = nodes
            .flat_map(|n| [n.port, n.controller_port, n.detour.unwrap().between_brokers])
            .collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 9);
    }

    #[test]
    fn a_cluster_has_one_kind_of_address() {
        let options = ClusterOptions::default().port(9092).ipv6_only();
        let layout = Layout::plan(&options, Path::new("/x")).unwrap();
        assert_eq!(layout.bootstrap(), "[::1]:9092");
        let options = options.advertised_ports(vec![1]);
        assert!(Layout::plan(&options, Path::new("/x")).is_err());
    }

    #[test]
    fn a_node_without_an_advertised_port_is_refused() {
        let options = ClusterOptions::default().nodes(3);
        let options = options.advertised_ports(vec![1, 2]);
        let error = Layout::plan(&options, Path::new("/x")).unwrap_err();
        assert!(error.to_string().contains("2 advertised ports for 3 nodes"));
    }

    #[test]
    fn ports_beyond_the_last_are_refused() {
        let options = ClusterOptions::default().nodes(3).port(65_534);
        assert!(Layout::plan(&options, Path::new("/x")).is_err());
    }
}
