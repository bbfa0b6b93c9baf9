//! Test suites for your own codecs and store engines.
//!
//! - [`ledger`]: a store that takes effects and positions in one transaction
//! - [`codecs`]: the bytes of values, and the bytes of keys of ordered stores
//! - `stores`: a store engine beside a model, and one whose process dies between any two writes. Requires the feature
//!   `store-conformance`; it is `eos_state::conformance`.
//!
//! The suites check the public traits, on which the runtime relies. The codecs and engines of eos pass the same
//! suites.

pub mod codecs;
mod ledgers;
mod subject;

pub use ledgers::ledger;
pub use subject::{EncodeRow, Subject};

#[cfg(feature = "store-conformance")]
pub use eos_state::conformance as stores;
