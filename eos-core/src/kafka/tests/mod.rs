//! The adapter against a real broker.

mod ends;
mod facts;
mod fencing;
mod membership;
mod rebalance;
mod support;
mod transaction;
mod watermark;
