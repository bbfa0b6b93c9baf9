//! The adapter against a real broker.

mod abandoned;
mod coordinator;
mod create;
mod delete;
mod ends;
mod facts;
mod fencing;
mod held_back;
mod identity;
mod membership;
mod rebalance;
mod support;
mod transaction;
