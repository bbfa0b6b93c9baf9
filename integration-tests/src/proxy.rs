//! A proxy between clients and brokers that simulates network faults.
//!
//! The proxy parses Kafka's frames. It can hold a request and deliver it later, lose a request or its response, send a
//! request twice, cut the connection before or after it, respond in place of the broker, or delay frames.
//!
//! ```text
//! client ──► listener (one per broker) ──► link: two threads ──► broker
//!                                           │   ▲
//!                             request ──► rules: the first one that fits acts
//!                                           │   ▲
//!                            kept frames ◄──┘   └── answers: what releases kept frames
//! ```
//!
//! The brokers advertise the proxy's ports (`ClusterOptions::advertised_ports`), so that every client connects through
//! the proxy. The traffic between brokers does not pass through it.
//!
//! ```no_run
//! # use integration_tests::proxy::{Act, ApiKey, Hold, Rule, behind};
//! # use kafka_launcher::ClusterOptions;
//! # fn main() -> anyhow::Result<()> {
//! let Some((proxy, cluster)) = behind(&ClusterOptions::default())? else { return Ok(()) };
//! // The second EndTxn of this client is kept and its connection cut; it is delivered on a new
//! // connection, once the client had an answer to another EndTxn and then to a Produce.
//! let hold = Hold::cut().until([ApiKey::EndTxn, ApiKey::Produce]);
//! let rule = proxy.add(Rule::on(ApiKey::EndTxn).of("app-").nth(2).then(Act::Hold(hold)));
//! // …
//! assert_eq!(proxy.fired(rule), 1);
//! println!("{:?} {:#?}", proxy.late(rule), proxy.log());
//! # Ok(()) }
//! ```
//!
//! Every act is logged and counted. An act is scripted (the n-th request of an API of a client) or drawn at random.
//! Within one rule, the draws depend only on the seed and on the order of requests.
//!
//! The proxy does not support TLS or SASL, and it does not read the content of records.

mod answers;
mod book;
mod dispatch;
mod late;
mod link;
mod listen;
mod rule;
#[cfg(test)]
mod tests;

use anyhow::Result;
use kafka_launcher::{Cluster, ClusterOptions, own_for_tests};

pub use book::{Deed, Entry};
pub use kafka_wire::frame::Header;
pub use kafka_wire::protocol::messages::ApiKey;
pub use late::Late;
pub use listen::Proxy;
pub use rule::{Act, Cut, Hold, On, Rule, RuleId, Until};

/// Starts a cluster for one test, with a proxy between the cluster and its clients. Returns `None` if tests on a real
/// Kafka are skipped.
///
/// # Errors
/// When no port is free, or the cluster does not start.
pub fn behind(options: &ClusterOptions) -> Result<Option<(Proxy, Cluster)>> {
    let proxy = Proxy::start(options.count())?;
    let options = options.clone().advertised_ports(proxy.ports());
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(None);
    };
    proxy.forward_to(&cluster.listeners())?;
    Ok(Some((proxy, cluster)))
}
