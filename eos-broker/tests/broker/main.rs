//! Tests of the embedded broker over the wire.
//!
//! They cover the requests of clients and injected faults.

mod bad_input;
mod common;
mod faults;
