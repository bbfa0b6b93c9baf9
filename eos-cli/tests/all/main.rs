//! `eos kafka`, on real brokers and on the embedded one.

mod embedded;
mod local;
