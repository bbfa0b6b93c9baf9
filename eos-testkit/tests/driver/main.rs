//! Tests of apps without Kafka.
//!
//! They cover [`eos_testkit::TestDriver`] with every operator and a crash at each effect, and the
//! suites for codecs and stores.
#![allow(clippy::unwrap_used, reason = "tests")]

mod backlog;
mod basics;
mod before_record;
mod calls;
mod changed_windows;
mod clocks;
mod codecs;
mod cogroup;
mod culprits;
mod dedup;
mod dying;
mod expiry;
mod found;
mod from_kafka_streams;
mod global;
mod golden;
mod golden_global;
mod guarantees;
mod idle;
mod joins;
mod larger;
mod ledger;
mod many;
mod metrics;
mod misuses;
mod on_close;
mod operators;
mod outages;
mod own_time;
mod parked;
mod past;
mod pauses;
mod pauses_after_aborts;
mod places;
mod policies;
mod programs;
mod reorder;
mod rows;
mod sequence;
mod sequence_presets;
mod sessions;
mod sliding;
mod state;
mod tables;
mod timers;
mod topics;
mod views;
mod window_inputs;
mod windows;
