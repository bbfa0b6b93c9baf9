//! The `server.properties` of a small, quick, transactional cluster.

use crate::layout::{Layout, NodeLayout};

/// Returns the properties that differ from Kafka's defaults and are independent of ports and ids.
///
/// `docker-compose.yml` sets the same properties. A test compares the two.
pub(crate) fn common(nodes: u8) -> Vec<(&'static str, String)> {
    let replicas = if nodes == 1 { "1" } else { "3" };
    let in_sync = if nodes == 1 { "1" } else { "2" };
    let properties = [
        // Internal topics: few partitions start sooner. Three nodes store every transaction on two nodes before it
        // counts.
        ("offsets.topic.num.partitions", "4"),
        ("offsets.topic.replication.factor", replicas),
        ("transaction.state.log.num.partitions", "4"),
        ("transaction.state.log.replication.factor", replicas),
        ("transaction.state.log.min.isr", in_sync),
        ("share.coordinator.state.topic.num.partitions", "1"),
        ("share.coordinator.state.topic.replication.factor", replicas),
        ("share.coordinator.state.topic.min.isr", in_sync),
        ("default.replication.factor", replicas),
        ("min.insync.replicas", in_sync),
        ("auto.create.topics.enable", "false"),
        // Groups: members join and leave often, and no rebalance waits for late members.
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.min.session.timeout.ms", "1000"),
        ("group.consumer.session.timeout.ms", "6000"),
        ("group.consumer.min.session.timeout.ms", "1000"),
        // Without this lower bound, the broker rejects the interval and ends.
        ("group.consumer.min.heartbeat.interval.ms", "500"),
        ("group.consumer.heartbeat.interval.ms", "500"),
        ("group.streams.initial.rebalance.delay.ms", "0"),
        // Transactions: an abandoned transaction is aborted within a second of its timeout. Verification is the part of
        // KIP-890 that protects clients of the first transaction protocol.
        (
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "1000",
        ),
        ("transaction.max.timeout.ms", "900000"),
        ("transaction.partition.verification.enable", "true"),
        // The cleaner's buffer is 128 MiB by default, which exhausts a 256 MB heap.
        ("log.cleaner.dedupe.buffer.size", "2097152"),
        ("log.cleaner.threads", "1"),
        ("log.cleaner.backoff.ms", "500"),
        ("log.index.size.max.bytes", "1048576"),
        // Small machines.
        ("num.network.threads", "2"),
        ("num.io.threads", "2"),
        ("background.threads", "2"),
        // A hanging controller is abandoned, and a dead broker among several is detected, within three seconds.
        ("controller.socket.timeout.ms", "3000"),
        ("broker.heartbeat.interval.ms", "500"),
    ];
    // The default of Kafka, because a single broker that stalls could only be fenced by itself.
    let session = if nodes == 1 { "9000" } else { "3000" };
    let owned = properties
        .into_iter()
        .chain([("broker.session.timeout.ms", session)]);
    owned.map(|(key, value)| (key, value.to_owned())).collect()
}

/// Returns the whole `server.properties` of one node. The caller's overrides come last and take precedence.
pub(crate) fn server(layout: &Layout, node: &NodeLayout) -> String {
    let (id, port, controller) = (node.id, node.port, node.controller_port);
    let voters: Vec<_> = layout
        .nodes
        .iter()
        .map(|n| format!("{}@{}:{}", n.id, n.host(), n.controller_port))
        .collect();
    let plain = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT";
    let host = node.host();
    let own = format!("PLAINTEXT://{host}:{port}");
    let mut lines = vec![
        "process.roles=broker,controller".to_owned(),
        format!("node.id={id}"),
        format!("controller.quorum.voters={}", voters.join(",")),
        "controller.listener.names=CONTROLLER".to_owned(),
        format!("log.dirs={}", escaped(&node.data().to_string_lossy())),
    ];
    let listeners = match node.detour {
        None => [
            plain.to_owned(),
            format!("listeners={own},CONTROLLER://{host}:{controller}"),
            format!("advertised.listeners={own}"),
        ],
        // Brokers also connect to each other's advertised addresses. A separate listener advertises the node itself to
        // them.
        Some(detour) => {
            let inner = format!("BROKERS://127.0.0.1:{}", detour.between_brokers);
            let outer = format!("PLAINTEXT://127.0.0.1:{}", detour.advertised);
            lines.push("inter.broker.listener.name=BROKERS".to_owned());
            [
                format!("{plain},BROKERS:PLAINTEXT"),
                format!("listeners={own},{inner},CONTROLLER://127.0.0.1:{controller}"),
                format!("advertised.listeners={outer},{inner}"),
            ]
        }
    };
    lines.extend(listeners);
    let common = common(layout.nodes.len() as u8);
    lines.extend(common.iter().map(|(key, value)| format!("{key}={value}")));
    let overrides = layout.properties.iter();
    lines.extend(overrides.map(|(key, value)| format!("{key}={}", escaped(value))));
    lines.join("\n") + "\n"
}

/// Escapes a value for a Java properties file.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n")
}

/// The log configuration: warnings and the broker's lifecycle, on standard output, which goes to the log file.
pub(crate) const LOG4J2: &str = "\
status=warn
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss.SSS} %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
# A thousand lines of settings at each start.
logger.settings.name=org.apache.kafka.common.config
logger.settings.level=warn
logger.kafkaconfig.name=kafka.server.KafkaConfig
logger.kafkaconfig.level=warn
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Detour;

    fn value<'a>(properties: &'a str, key: &str) -> Vec<&'a str> {
        let lines = properties.lines();
        let of_key = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        of_key.collect()
    }

    #[test]
    fn each_of_three_nodes_knows_all_voters_and_its_own_ports() {
        let layout = Layout::example(3);
        let second = server(&layout, &layout.nodes[1]);
        assert_eq!(value(&second, "node.id"), ["2"]);
        assert_eq!(
            value(&second, "controller.quorum.voters"),
            ["1@127.0.0.1:20001,2@127.0.0.1:20002,3@127.0.0.1:20003"]
        );
        assert_eq!(
            value(&second, "advertised.listeners"),
            ["PLAINTEXT://127.0.0.1:10002"]
        );
        assert_eq!(value(&second, "transaction.state.log.min.isr"), ["2"]);
        assert_eq!(value(&second, "offsets.topic.replication.factor"), ["3"]);
    }

    #[test]
    fn behind_a_proxy_only_clients_are_told_its_port() {
        let mut layout = Layout::example(1);
        layout.nodes[0].detour = Some(Detour {
            advertised: 30_001,
            between_brokers: 40_001,
        });
        let only = server(&layout, &layout.nodes[0]);
        assert_eq!(
            value(&only, "listeners"),
            ["PLAINTEXT://127.0.0.1:10001,BROKERS://127.0.0.1:40001,CONTROLLER://127.0.0.1:20001"]
        );
        assert_eq!(
            value(&only, "advertised.listeners"),
            ["PLAINTEXT://127.0.0.1:30001,BROKERS://127.0.0.1:40001"]
        );
        assert_eq!(value(&only, "inter.broker.listener.name"), ["BROKERS"]);
    }

    #[test]
    fn nothing_listens_on_another_kind_of_address() {
        let mut layout = Layout::example(1);
        layout.nodes[0].ipv6 = true;
        let only = server(&layout, &layout.nodes[0]);
        assert_eq!(
            value(&only, "listeners"),
            ["PLAINTEXT://[::1]:10001,CONTROLLER://[::1]:20001"]
        );
        assert_eq!(value(&only, "controller.quorum.voters"), ["1@[::1]:20001"]);
    }

    #[test]
    fn overrides_come_last_so_that_they_hold() {
        let mut layout = Layout::example(1);
        layout.properties = vec![("num.io.threads".into(), "8".into())];
        let only = server(&layout, &layout.nodes[0]);
        assert_eq!(value(&only, "num.io.threads"), ["2", "8"]);
        assert_eq!(value(&only, "min.insync.replicas"), ["1"]);
    }

    #[test]
    fn no_property_is_set_twice() {
        for nodes in [1, 3] {
            let mut keys: Vec<_> = common(nodes).into_iter().map(|(key, _)| key).collect();
            let all = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), all);
        }
    }
}
