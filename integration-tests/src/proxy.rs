//! A proxy between clients and brokers that knows Kafka's frames, and does to them what a network
//! does at its worst: keep a request and deliver it later, lose it or its answer, send it twice,
//! cut the connection before or after, answer in the broker's place, be slow.
//!
//! ```text
//! client ──► listener (one per broker) ──► link: two threads ──► broker
//!                                           │   ▲
//!                             request ──► rules: the first one that fits acts
//!                                           │   ▲
//!                            kept frames ◄──┘   └── answers: what releases kept frames
//! ```
//!
//! The brokers advertise the proxy's ports (`ClusterOptions::advertised_ports`), so that every
//! client comes through here; what brokers say to each other does not.
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
//! Every act is logged and counted. It is scripted (the n-th request of an API of a client) or
//! drawn with a seed; within one rule the draws follow from the seed and the order of requests.
//!
//! What it leaves out: TLS, SASL, and anything that needs to know a record's content.

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

/// A cluster of the test's own whose clients all come through a proxy; `None` if tests on a real
/// Kafka are to be skipped.
///
/// # Errors
/// When no port can be had or the cluster does not start.
pub fn behind(options: &ClusterOptions) -> Result<Option<(Proxy, Cluster)>> {
    let proxy = Proxy::start(options.count())?;
    let options = options.clone().advertised_ports(proxy.ports());
    let Some(cluster) = own_for_tests(&options)? else {
        return Ok(None);
    };
    proxy.forward_to(&cluster.listeners())?;
    Ok(Some((proxy, cluster)))
}
