//! [`eos_testkit::conformance`]: what eos brings along passes, and what is planted is found.

mod built_in;
mod planted;
mod planted_keys;
mod planted_ordered;
#[cfg(feature = "store-conformance")]
mod stores;
