//! Tests of the runtime on a real Kafka.
//!
//! Some use the embedded broker instead. The tests run in parallel, each with its own topics, groups and
//! directories. A test that measures time or needs the whole machine belongs in `exclusive`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../proxied/mod.rs"]
mod proxied;

mod auto_create;
mod bad_offsets;
mod bad_records;
mod bad_start;
mod bookings;
mod broken_state;
mod calls;
mod chores;
mod clocks;
mod connection_limit;
mod crash_sweep;
mod examples_alone;
mod generator_and_judge;
mod global;
mod guarantees;
mod hello;
mod in_doubt;
mod ipv6_only;
mod judge_open_transaction;
mod judge_plants;
mod kill_time;
mod ledger_controls;
mod ledger_outages;
mod ledger_sweep;
mod metrics;
mod names;
mod odd_records;
mod other_topics;
mod own_topics;
mod pass_through_carries_everything;
mod paused_tasks;
mod permanent_errors;
mod policies;
mod rebalance_at_the_end;
mod recreated;
mod replays;
mod restart_table;
mod siblings;
mod state_controls;
mod state_sweep;
mod stops;
mod topic_cases;
mod two_owners;
mod unverified_brokers;
mod wire_read_committed;
mod zombies;
