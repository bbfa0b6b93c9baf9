//! The clients of `eos-core` on the [broker model](eos_broker::broker).
//!
//! They run under virtual time.
//!
//! No thread, no socket, no clock: requests and responses take the time that the network gives them, and time
//! passes by [`Cluster::pass`]. Work of the real client's threads (heartbeats, fetches, sends) is done
//! whenever time passes. The traits' calls never wait: they return `Poll::Pending` until a response has
//! arrived.
//!
//! ```text
//! Worker ─► ModelSource   ─► Member (JoinGroup, SyncGroup, Heartbeat), Reader (Fetch), Look (Metadata), queries
//!        └► ModelProducer ─► Writer (AddPartitionsToTxn, Produce, …, EndTxn)
//!                               │  Call: a request until its response
//!                             Wire ─► Fabric: Network (lost, late, twice) ─► Broker
//!                                       ▲
//! Cluster ─► World: time ───────────────┴─► Members
//! ```
//!
//! As librdkafka does, this client sends a request again inside the call when a connection breaks. It does not support
//! KIP-890's second protocol. It reports no loss of partitions while a rebalance is pending.
//! [`Producer::unanswered`](eos_client::Producer::unanswered) reports requests without a response.
//!
//! Some rules are simpler than those of librdkafka: calls have no timeouts of their own, queues are never full, and
//! seeks are immediate. One rule is stricter: a commit does not flush.

mod admin;
mod assignor;
mod call;
mod cluster;
mod errors;
mod fabric;
mod facts;
mod look;
mod member;
mod members;
mod network;
mod producer;
mod queries;
mod reader;
mod requests;
mod source;
mod spi;
mod watcher;
mod world;
mod writer;

pub use admin::{Transaction, Written};
pub use cluster::Cluster;
pub use member::ModelMember;
pub use network::{Fate, Sent};
pub use producer::ModelProducer;
pub use source::{ModelMessage, ModelRecords, ModelSource};
pub use watcher::{Edge, Effect, Reaction, Watcher};
