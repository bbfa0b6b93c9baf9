//! The ledger on a real PostgreSQL: a temporary server, one for the program, and a database for each test.
#![allow(clippy::unwrap_used, reason = "tests")]

mod apps;
mod checks;
mod closures;
mod defences;
mod doubt;
mod failover;
mod failures;
mod full_disk;
mod guide;
mod idempotence;
mod lost_commits;
mod pooler;
mod protocol;
mod refused;
mod relay;
mod sessions;
mod shapes;
mod support;
mod synchronous;
mod take_over;
#[cfg(feature = "tls")]
mod tls;
