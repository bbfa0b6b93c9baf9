//! Tests of [`eos_testkit::conformance`]. The codecs of eos pass, and planted bugs are found.

mod built_in;
mod planted;
mod planted_keys;
mod planted_ordered;
#[cfg(feature = "store-conformance")]
mod stores;
