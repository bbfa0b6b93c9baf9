//! The embedded broker over the wire: what clients may send to it, and faults on purpose.

mod bad_input;
mod common;
mod faults;
